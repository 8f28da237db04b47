"""NativeBatch: the compiled functions on a state in NumPy."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.batch import BesideDefault, ExpectedLosses, HostBatch
from rasp_tuner.engine.kernel.belief import BeliefBuffer, length
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.draws import DrawKeys, draws
from rasp_tuner.engine.kernel.masks import span
from rasp_tuner.engine.kernel.native import ARGUMENTS, NUMBER, POINTER, address, as_given
from rasp_tuner.engine.kernel.numpy_batch import NumpyBatch
from rasp_tuner.engine.kernel.state import Dims, E, Places, State

BESIDE = len(BesideDefault._fields)
Given = tuple[ArrayLike, int]  # [n, width] numbers, and the width


class CompiledBeliefs(ABC):
    """The functions of a belief that are the same C on a CPU and on a GPU."""

    _dims: Dims

    @abstractmethod
    def _run(self, name: str, given: Sequence[Given], widths: Sequence[int], count: int | None = None) -> list[Array]:
        """Outputs [n, width], or [n] for a width of 0, of a function; `count` comes after what it is given."""

    def predict(self, points: Array) -> tuple[Array, Array]:
        count = points.shape[1]
        mean, variance = self._run("predict", [(points, count * self._dims.knobs)], [count, count], count)
        return mean, variance

    def versus_default(self, points: ArrayLike) -> BesideDefault:
        (told,) = self._run("against", [(points, self._dims.knobs)], [BESIDE])
        return BesideDefault(*told.T)

    def forecast(self, points: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Mean and variance [n] at points [n, d], and how likely y [n] is there to each expert, [n, E]."""
        mean, variance, logs = self._run("forecast", [(points, self._dims.knobs), (y, 1)], [0, 0, E])
        return mean, variance, logs

    def choose(self, drawn: ArrayLike) -> tuple[Array, Places, Array, Array]:
        """Points [n, d] to try next, their sources, means and variances [n], by draws [n, d + candidates]."""
        given = [(drawn, draws_needed(self._dims))]
        point, source, mean, variance = self._run("choose", given, [self._dims.knobs, 0, 0, 0])
        return point, source.astype(np.int64), mean, variance

    def best(self) -> Array:
        (point,) = self._run("best", [], [self._dims.knobs])
        return point

    def _samples(self, *samples: ArrayLike) -> list[Given]:
        """Points, contexts, losses, failed; and more of width 1."""
        widths = (self._dims.knobs, self._dims.context, self._dims.columns, *(1,) * (len(samples) - 3))
        return list(zip(samples, widths, strict=True))


class NativeBatch(HostBatch):
    """For states of contiguous arrays, which stay where they are."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        super().__init__(dims, default, state)
        every = [POINTER, POINTER, POINTER, NUMBER]
        self._functions = {name: native.function(f"rasp_{name}", [*every, *more]) for name, more in ARGUMENTS.items()}
        self._dims_at, self._state_at = native.dims_struct(dims, default), native.state_struct(dims, state)
        self._all = np.arange(state.size)
        self._asked = np.empty((state.size, length(dims)))  # room for beliefs of `ask`: fresh memory has to be cleared

    def believe(self, contexts: ArrayLike, rows: Places | None = None, buffer: Array | None = None) -> "NativeBeliefs":
        beliefs = NativeBeliefs(self, self._checked(rows), buffer)
        self.call("believe", beliefs.rows, as_given(contexts, len(beliefs), self.dims.context), beliefs.buffer)
        return beliefs

    def ask(
        self, contexts: ArrayLike, keys: DrawKeys, rows: Places | None = None
    ) -> tuple["NativeBeliefs", Array, BesideDefault]:
        at = span(self._all if rows is None else rows)
        beliefs = self.believe(contexts, rows, self._asked[at] if isinstance(at, slice) else None)
        points, *_ = beliefs.choose(draws(keys, draws_needed(self.dims)))
        return beliefs, points, beliefs.versus_default(points)

    def call(self, name: str, rows: Places, *given: Array | int) -> None:
        """Run a function: of arrays [n, ...] it is given their addresses; numbers as they are."""
        ways = (way if isinstance(way, int) else address(way) for way in given)
        self._functions[name](self._dims_at.address, self._state_at.address, address(rows), len(rows), *ways)

    def _checked(self, rows: Places | None) -> Places:
        """Numbers of rows: compiled code trusts them."""
        if rows is None:
            return self._all
        numbers = np.ascontiguousarray(rows, dtype=np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.size:
            raise ValueError(f"tuners need rows below {self.size}, got {rows}")
        return numbers


class NativeBeliefs(BeliefBuffer, CompiledBeliefs):
    def __init__(self, batch: NativeBatch, rows: Places, buffer: Array | None = None) -> None:
        super().__init__(batch.dims, np.empty((len(rows), length(batch.dims))) if buffer is None else buffer)
        self._batch, self.rows = batch, rows

    def __len__(self) -> int:
        return len(self.rows)

    def noise(self) -> Array:
        noise: Array = (self.weights * self.noises).sum(axis=1) * self.a**2
        return noise

    def tell(
        self, points: ArrayLike, contexts: ArrayLike, losses: ArrayLike, failed: ArrayLike, y: ArrayLike
    ) -> ExpectedLosses:
        told, (mean, variance, logs) = self.versus_default(points), self.forecast(points, y)
        self.learn(points, contexts, losses, failed, logs)
        return ExpectedLosses(told, mean, variance)

    def learn(
        self, points: ArrayLike, contexts: ArrayLike, losses: ArrayLike, failed: ArrayLike, logs: ArrayLike
    ) -> None:
        """Learn what came of points, of which `forecast` gave the logs [n, E]."""
        self._run("learn", [*self._samples(points, contexts, losses, failed), (logs, E)], [])

    def some(self, places: Places) -> "NativeBeliefs":
        return NativeBeliefs(self._batch, self.rows[places], self.buffer[places])

    def _run(self, name: str, given: Sequence[Given], widths: Sequence[int], count: int | None = None) -> list[Array]:
        n = len(self)
        counts = [] if count is None else [count]
        outputs = [np.empty((n, width) if width else n) for width in widths]
        arrays = (as_given(values, n, width) for values, width in given)
        self._batch.call(name, self.rows, self.buffer, *arrays, *counts, *outputs)
        return outputs


def host_batch(dims: Dims, default: Array, state: State) -> NativeBatch | NumpyBatch:
    """Tuners with this state, by compiled code where there is any for their size."""
    compiled = native.available() and native.serves(dims)
    return (NativeBatch if compiled else NumpyBatch)(dims, default, state)
