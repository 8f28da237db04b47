"""Which tuners of a batch something is done for: all of them, none, or some; in parts where memory asks for it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import State, Tensor

Mask = Tensor | bool  # [B]; True is everyone, False is no one: `&` and `|` work on all of these, `~` on arrays only
Rows = Tensor | slice  # an array of indices, or a slice: either one reads and writes `array[rows]`
CHUNK = 1 << 28  # numbers in the largest array that is made on the way: 2 GiB

EVERY = slice(None)


def uniform(mask: Mask) -> Mask:
    """The same mask, as a plain True or False where all tuners agree: what follows is cheaper then."""
    if isinstance(mask, bool):
        return mask
    count = int(namespace(mask).count_nonzero(mask))
    return bool(count) if count in (0, len(mask)) else mask


def uniform_if_cheap(mask: Mask) -> Mask:
    """`uniform` in NumPy. A GPU has to finish all before it can answer: there what follows is done by the mask."""
    return uniform(mask) if isinstance(mask, np.ndarray) else mask


class Seen(NamedTuple):
    """How far the tuners of a batch are, by one look at all of them."""

    fewest: float  # samples of the youngest
    most: float  # of the oldest
    slots: int  # that are in use, of the one with the most
    flattest: float  # least curvature: 0 as long as somebody's is not known

    def steps(self, state: State) -> Tensor | float:
        """Samples of each tuner [B]; a number where all have as many: what follows is cheaper then."""
        return self.fewest if self.fewest == self.most else state.steps


def look(state: State) -> Seen:
    """How far the tuners are."""
    steps, count, curvature = state.steps, state.count, state.curvature
    if len(steps) == 1:
        return Seen(float(steps[0]), float(steps[0]), int(count[0]), float(curvature[0]))
    xp = namespace(steps)
    told = xp.stack([xp.min(steps), xp.max(steps), xp.max(count), xp.min(curvature)]).tolist()
    return Seen(told[0], told[1], int(told[2]), told[3])


def chosen(mask: Mask) -> Rows | None:
    """The tuners in a mask; None if there are none."""
    mask = uniform(mask)
    if isinstance(mask, bool):
        return EVERY if mask else None
    return namespace(mask).nonzero(mask)[0]


def chunks(mask: Mask, size: int, numbers: int) -> Iterator[Rows]:
    """The same of `size` tuners in parts, if each needs an array of so many numbers."""
    rows, most = chosen(mask), max(1, CHUNK // max(numbers, 1))
    if rows is None:
        return
    count = size if isinstance(rows, slice) else len(rows)
    if count <= most:
        yield rows
        return
    for begin in range(0, count, most):
        yield slice(begin, min(begin + most, count)) if isinstance(rows, slice) else rows[begin : begin + most]


def put(target: Tensor, mask: Mask, value: Any) -> None:
    """Write to an array [B, ...] for the tuners in a mask."""
    if mask is False:
        return
    if mask is not True:
        value = namespace(target).where(mask[(EVERY, *(None,) * (target.ndim - 1))], value, target)
    target[...] = value


def column(places: Tensor) -> tuple[Any, Any]:
    """The index of one place [B] a tuner along the second axis of an array [B, n, ...]."""
    if len(places) == 1:  # a view is cheaper than a list of places
        return EVERY, int(places[0])
    xp = namespace(places)
    return xp.arange(len(places), device=places.device), xp.astype(places, xp.int64)


def top(array: Tensor) -> Tensor:
    """[..., 1] the largest along the last axis; the method is faster than the function, and torch's is another one."""
    xp = namespace(array)
    return array.max(axis=-1, keepdims=True) if xp.__name__ == "numpy" else xp.max(array, axis=-1, keepdims=True)
