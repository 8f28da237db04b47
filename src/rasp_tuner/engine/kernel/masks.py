"""Which tuners of a batch something is done for: all of them, none, or some; in parts where memory asks for it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.state import Places, State

Flags = NDArray[np.bool_]
Mask = Flags | bool  # [B]; True is everyone, False is no one: `&` and `|` work on all of these, `~` on arrays only
Rows = Places | slice  # an array of indices, or a slice: either one reads and writes `array[rows]`
CHUNK = 1 << 28  # numbers in the largest array that is made on the way: 2 GiB

ALL_ROWS = slice(None)


def collapse_mask(mask: Mask) -> Mask:
    """The same mask, as a plain True or False where all tuners agree: what follows is cheaper then."""
    if isinstance(mask, bool):
        return mask
    count = np.count_nonzero(mask)
    return bool(count) if count in (0, len(mask)) else mask


class BatchProgress(NamedTuple):
    """How far the tuners of a batch are, by one look at all of them."""

    fewest: float  # samples of the youngest
    most: float  # of the oldest
    slots: int  # that are in use, of the one with the most
    flattest: float  # least curvature: 0 as long as somebody's is not known

    def steps(self, state: State) -> Array | float:
        """Samples of each tuner [B]; a number where all have as many: what follows is cheaper then."""
        return self.fewest if self.fewest == self.most else state.steps


def batch_progress(state: State) -> BatchProgress:
    """How far the tuners are."""
    steps, count, curvature = state.steps, state.count, state.curvature
    if len(steps) == 1:
        return BatchProgress(float(steps[0]), float(steps[0]), int(count[0]), float(curvature[0]))
    return BatchProgress(float(steps.min()), float(steps.max()), int(count.max()), float(curvature.min()))


def rows_where(mask: Mask) -> Rows | None:
    """The tuners in a mask; None if there are none."""
    mask = collapse_mask(mask)
    if isinstance(mask, bool):
        return ALL_ROWS if mask else None
    return np.flatnonzero(mask)


def span(rows: Places) -> Rows:
    """The same rows; of neighbours a slice, which takes no copies."""
    neighbours = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if neighbours else rows


def chunks(mask: Mask, size: int, numbers: int) -> Iterator[Rows]:
    """The same of `size` tuners in parts, if each needs an array of so many numbers."""
    rows, most = rows_where(mask), max(1, CHUNK // max(numbers, 1))
    if rows is None:
        return
    count = size if isinstance(rows, slice) else len(rows)
    if count <= most:
        yield rows
        return
    for begin in range(0, count, most):
        yield slice(begin, min(begin + most, count)) if isinstance(rows, slice) else rows[begin : begin + most]


def assign_where(target: Array, mask: Mask, value: Array | float) -> None:
    """Write to an array [B, ...] for the tuners in a mask."""
    if mask is False:
        return
    if mask is not True:
        value = np.where(mask[(ALL_ROWS, *(None,) * (target.ndim - 1))], value, target)
    target[...] = value


def column(places: Array) -> tuple[Rows, Places | int]:
    """The index of one place [B] a tuner along the second axis of an array [B, n, ...]."""
    if len(places) == 1:  # a view is cheaper than a list of places
        return ALL_ROWS, int(places[0])
    return np.arange(len(places)), places.astype(np.int64)


def row_max(array: Array) -> Array:
    """[..., 1] the largest along the last axis; the method is faster than the function."""
    largest: Array = array.max(axis=-1, keepdims=True)
    return largest
