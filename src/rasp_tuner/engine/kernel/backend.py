"""Which implementation of the kernel computes: compiled code where it was built, else arrays, in NumPy or in torch.

Both offer the same functions on the same state; they agree to rounding.
"""

import threading
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.engine.kernel import believe, choose, learn, native, predict
from rasp_tuner.engine.kernel.state import Dims, State, Tensor

Rows = NDArray[np.int64]
Beliefs = Any  # a Belief; or the same arrays of compiled code


class Kernel(Protocol):
    """The kernel for spaces of one size with one default. Arguments have one row for each of n tuners.

    Those are all of a state; or some `rows` of it, where `takes_rows` says so.
    """

    takes_rows: bool

    def believe(self, state: State, contexts: Tensor, rows: Rows | None = None) -> Beliefs: ...

    def predict(
        self, state: State, belief: Beliefs, points: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor]: ...

    def compare(
        self, state: State, belief: Beliefs, points: Tensor, others: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor]: ...

    def forecast(
        self, state: State, belief: Beliefs, points: Tensor, y: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def choose(
        self, state: State, belief: Beliefs, draws: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...

    def best(self, state: State, belief: Beliefs, rows: Rows | None = None) -> Tensor: ...

    def learn(
        self,
        state: State,
        belief: Beliefs,
        points: Tensor,
        contexts: Tensor,
        losses: Tensor,
        failed: Tensor,
        logs: Tensor,
        rows: Rows | None = None,
    ) -> None: ...


class Arrays:
    """The kernel on arrays, for all tuners of a state."""

    takes_rows = False

    def __init__(self, dims: Dims, default: Tensor) -> None:
        self._dims, self._default = dims, default

    def believe(self, state: State, contexts: Tensor, rows: Rows | None = None) -> Beliefs:  # noqa: ARG002
        return believe.believe(self._dims, state, self._default, contexts)

    def predict(
        self, state: State, belief: Beliefs, points: Tensor, rows: Rows | None = None  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return predict.predict(self._dims, state, belief, self._default, points)

    def compare(
        self, state: State, belief: Beliefs, points: Tensor, others: Tensor, rows: Rows | None = None  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return predict.compare(self._dims, state, belief, self._default, points, others)

    def forecast(
        self, state: State, belief: Beliefs, points: Tensor, y: Tensor, rows: Rows | None = None  # noqa: ARG002
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        return predict.forecast(self._dims, state, belief, self._default, points, y)

    def choose(
        self, state: State, belief: Beliefs, draws: Tensor, rows: Rows | None = None  # noqa: ARG002
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        return choose.choose(self._dims, state, belief, self._default, draws)

    def best(self, state: State, belief: Beliefs, rows: Rows | None = None) -> Tensor:  # noqa: ARG002
        return choose.best(self._dims, state, belief, self._default)

    def learn(
        self,
        state: State,
        belief: Beliefs,
        points: Tensor,
        contexts: Tensor,
        losses: Tensor,
        failed: Tensor,
        logs: Tensor,
        rows: Rows | None = None,  # noqa: ARG002
    ) -> None:
        learn.learn(self._dims, state, belief, self._default, points, contexts, losses, failed, logs)


class Compiled:
    """The kernel in C, for all tuners of a state or some rows; may be called by several threads."""

    takes_rows = True

    def __init__(self, dims: Dims, default: Tensor) -> None:
        self._dims, self._default = dims, default
        self._of_thread = threading.local()  # a Native remembers what it was last called with

    @property
    def _native(self) -> native.Native:
        own: native.Native | None = getattr(self._of_thread, "native", None)
        if own is None:
            own = self._of_thread.native = native.Native()
        return own

    def believe(self, state: State, contexts: Tensor, rows: Rows | None = None) -> Beliefs:
        return self._native.believe(self._dims, state, self._default, contexts, rows)

    def predict(self, state: State, belief: Beliefs, points: Tensor, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        return self._native.predict(self._dims, state, belief, self._default, points, rows)

    def compare(
        self, state: State, belief: Beliefs, points: Tensor, others: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._native.compare(self._dims, state, belief, self._default, points, others, rows)

    def forecast(
        self, state: State, belief: Beliefs, points: Tensor, y: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self._native.forecast(self._dims, state, belief, self._default, points, y, rows)

    def choose(
        self, state: State, belief: Beliefs, draws: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self._native.choose(self._dims, state, belief, self._default, draws, rows)

    def best(self, state: State, belief: Beliefs, rows: Rows | None = None) -> Tensor:
        return self._native.best(self._dims, state, belief, self._default, rows)

    def learn(
        self,
        state: State,
        belief: Beliefs,
        points: Tensor,
        contexts: Tensor,
        losses: Tensor,
        failed: Tensor,
        logs: Tensor,
        rows: Rows | None = None,
    ) -> None:
        self._native.learn(self._dims, state, belief, self._default, points, contexts, losses, failed, logs, rows)


def kernel_for(dims: Dims, default: Tensor) -> Kernel:
    """What is fastest where the default [d] is."""
    if isinstance(default, np.ndarray) and native.available() and native.Native.serves(dims):
        return Compiled(dims, default)
    return Arrays(dims, default)
