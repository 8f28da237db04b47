"""Which implementation of the kernel computes: compiled code, for the CPU or a GPU; else arrays, in NumPy or in torch.

All offer the same functions on the same state; they agree to rounding.
"""

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.engine.kernel import believe, choose, learn, native, predict
from rasp_tuner.engine.kernel.belief import Belief
from rasp_tuner.engine.kernel.state import Dims, State, Tensor

Rows = NDArray[np.int64]
Told = tuple[Tensor, ...]  # what `against` says
Beliefs = Any  # a Belief; or the same arrays of compiled code
ARRAYS: dict[str, Callable[..., Any]] = {
    "believe": believe.believe, "predict": predict.predict, "compare": predict.compare, "against": predict.against,
    "forecast": predict.forecast, "choose": choose.choose, "best": choose.best, "learn": learn.learn,
}  # fmt: skip


class Kernel:
    """The kernel for spaces of one size with one default. Arguments have one row for each of n tuners.

    Those are all of a state; or some `rows` of it, where `takes_rows` says so. May be called by several threads.
    """

    def __init__(self, dims: Dims, default: Tensor, *, compiled: bool, gpu: Any = None) -> None:
        self.takes_rows, self._gpu = compiled, gpu
        self._dims, self._default = dims, default
        self._of_thread = threading.local()  # a Native remembers what it was last called with

    def believe(self, state: State, contexts: Tensor, rows: Rows | None = None) -> Beliefs:
        return self._run("believe", state, rows, self._default, contexts)

    def predict(self, state: State, belief: Beliefs, points: Tensor, rows: Rows | None = None) -> tuple[Tensor, ...]:
        """Mean and variance [n, m] at points [n, m, d]."""
        return self._told("predict", state, rows, belief, points)

    def compare(
        self, state: State, belief: Beliefs, points: Tensor, others: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, ...]:
        """Mean and variance [n] of y at points [n, d] less y at others."""
        return self._told("compare", state, rows, belief, points, others)

    def against(self, state: State, belief: Beliefs, points: Tensor, rows: Rows | None = None) -> tuple[Tensor, ...]:
        """Points [n, d] beside the default: its y, mean and variance of the difference, their y, both variances."""
        return self._told("against", state, rows, belief, points)

    def forecast(
        self, state: State, belief: Beliefs, points: Tensor, y: Tensor, rows: Rows | None = None
    ) -> tuple[Tensor, ...]:
        """Mean and variance [n] at points [n, d], and how likely y [n] is there to each expert."""
        return self._told("forecast", state, rows, belief, points, y)

    def choose(self, state: State, belief: Beliefs, draws: Tensor, rows: Rows | None = None) -> tuple[Tensor, ...]:
        """Points [n, d], their sources [n], mean and variance [n]."""
        return self._told("choose", state, rows, belief, draws)

    def best(self, state: State, belief: Beliefs, rows: Rows | None = None) -> Tensor:
        return self._run("best", state, rows, belief, self._default)

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
        self._run("learn", state, rows, belief, self._default, points, contexts, losses, failed, logs)

    def ask(
        self, state: State, contexts: Tensor, draws: Tensor, rows: Rows | None = None
    ) -> tuple[Beliefs, Tensor, Told | None]:
        """Beliefs, the points [n, d] of `choose`, and what `against` says of these, if that comes with them."""
        if self.takes_rows:
            return self._native().ask(self._dims, state, self._default, contexts, draws, rows)
        belief = self.believe(state, contexts, rows)
        return belief, self.choose(state, belief, draws, rows)[0], None

    def tell(
        self, state: State, belief: Beliefs, *sample: Tensor, rows: Rows | None = None, beside: bool
    ) -> tuple[Told | None, Tensor, Tensor]:
        """Learn; and what was expected of the sample: `against`, if `beside` asks for it, and mean and variance [n].

        sample  points, contexts, losses, failed, and y: the losses by their weights
        """
        if self.takes_rows:
            return self._native().tell(self._dims, state, belief, self._default, *sample, rows=rows)
        points, contexts, losses, failed, y = sample
        told = self.against(state, belief, points, rows) if beside else None
        mean, variance, logs = self.forecast(state, belief, points, y, rows)
        self.learn(state, belief, points, contexts, losses, failed, logs, rows)
        return told, mean, variance

    def some(self, belief: Beliefs, rows: Tensor) -> Beliefs:
        """The beliefs of some of the tuners."""
        if isinstance(belief, native.NativeBelief):
            return native.NativeBelief(self._dims, buffer=belief.buffer[rows])
        own = {field.name: getattr(belief, field.name)[rows] for field in fields(Belief) if field.name != "experts"}
        return Belief(**own)

    def _told(self, name: str, state: State, rows: Rows | None, belief: Beliefs, *given: Tensor) -> tuple[Tensor, ...]:
        told: tuple[Tensor, ...] = self._run(name, state, rows, belief, self._default, *given)
        return told

    def _run(self, name: str, state: State, rows: Rows | None, *given: Any) -> Any:
        if self._gpu is not None:
            return getattr(self._gpu, name)(state, *(x for x in given if x is not self._default))
        if not self.takes_rows:
            return ARRAYS[name](self._dims, state, *given)
        return getattr(self._native(), name)(self._dims, state, *given, rows)

    def _native(self) -> native.Native:
        own: native.Native | None = getattr(self._of_thread, "native", None)
        if own is None:
            own = self._of_thread.native = native.Native()
        return own


def kernel_for(dims: Dims, default: Tensor) -> Kernel:
    """What is fastest where the default [d] is."""
    if isinstance(default, np.ndarray):
        return Kernel(dims, default, compiled=native.available() and native.Native.serves(dims))
    return Kernel(dims, default, compiled=False, gpu=_gpu_for(dims, default))


def _gpu_for(dims: Dims, default: Tensor) -> Any:
    """The kernel compiled for the GPU where the default is; None where that cannot be."""
    if not default.is_cuda or not native.wanted():
        return None
    from rasp_tuner.engine.kernel import gpu  # with extra `fleet`

    return None if gpu.why_not(dims, default) else gpu.Gpu(dims, default)
