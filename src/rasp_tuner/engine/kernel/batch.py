"""Batch: what B tuners know, and what computes on it: NumPy, compiled code, or the same on a GPU.

All three have the same functions and agree to rounding. Whoever uses one gives and gets NumPy arrays, with one row for
each of n tuners; `rows` [n] says which of the batch these are, and None means all of them.
"""

from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.draws import DrawKeys
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Dims, Places, State, blank


class BesideDefault(NamedTuple):
    """Points of n tuners beside the default; each [n]."""

    level: Array  # y expected of the default
    mean: Array  # of y at the point less that at the default
    variance: Array  # of this difference
    expected: Array  # y at the point
    own_variance: Array  # of y at the point
    default_variance: Array  # of y at the default


class ExpectedLosses(NamedTuple):
    """What was expected of n samples, before they were learned."""

    versus_default: BesideDefault
    mean: Array  # [n] of y
    variance: Array  # [n]


class Beliefs(Protocol):
    """What n tuners hold true, each in one context; good until they learn."""

    def noise(self) -> Array:
        """[n] variance of one observation of y around its mean."""
        ...

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [n, m] of y at points [n, m, d]."""
        ...

    def versus_default(self, points: Array) -> BesideDefault:
        """Of points [n, d]."""
        ...

    def best(self) -> Array:
        """Points [n, d]: the least expected y that is known."""
        ...

    def tell(self, points: Array, contexts: Array, losses: Array, failed: Array | Flags, y: Array) -> ExpectedLosses:
        """Learn what came of points: losses [n, k], whether they failed [n], and y [n], the losses by their weights."""
        ...

    def some(self, places: Places) -> "Beliefs":
        """Those of some of the n tuners."""
        ...


class Batch(Protocol):
    """B tuners of one size with one default. `believe` may be called by several threads, for different tuners."""

    @property
    def size(self) -> int:
        """B."""
        ...

    def believe(self, contexts: Array, rows: Places | None = None) -> Beliefs:
        """In contexts [n, c]."""
        ...

    def ask(self, contexts: Array, keys: DrawKeys, rows: Places | None = None) -> tuple[Beliefs, Array, BesideDefault]:
        """What `believe` gives, good until the next ask; points [n, d] to try next; and these beside the default."""
        ...

    def read(self, name: str, rows: Places) -> Array:
        """[n, ...] of an array of the state; a copy."""
        ...

    def write(self, name: str, rows: Places, values: ArrayLike) -> None:
        """Change an array of the state."""
        ...

    def take(self, rows: Places) -> State:
        """All that these tuners know; copies."""
        ...

    def put(self, rows: Places, state: State) -> None:
        """Have these tuners know what those of a state know."""
        ...

    def grown(self, more: int) -> "Batch":
        """These tuners, then so many that know nothing."""
        ...

    def kept(self, rows: Places) -> "Batch":
        """Only these tuners."""
        ...


class HostBatch:
    """The part of a batch in NumPy that is the same for every way to compute."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        self.dims, self.default, self.state = dims, default, state

    @property
    def size(self) -> int:
        return self.state.size

    def read(self, name: str, rows: Places) -> Array:
        array: Array = getattr(self.state, name)
        return array[rows]

    def write(self, name: str, rows: Places, values: ArrayLike) -> None:
        getattr(self.state, name)[rows] = values

    def take(self, rows: Places) -> State:
        return self.state.map(lambda array: array[rows])

    def put(self, rows: Places, state: State) -> None:
        for name, array in state.items():
            self.write(name, rows, array)

    def grown(self, more: int) -> Self:
        new = dict(blank(self.dims, more, start(self.dims)).items())
        both = {name: np.concatenate([array, new[name]]) for name, array in self.state.items()}
        return type(self)(self.dims, self.default, State(**both))

    def kept(self, rows: Places) -> Self:
        return type(self)(self.dims, self.default, self.take(rows))
