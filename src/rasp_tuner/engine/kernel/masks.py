"""Some of B tuners: chosen by a mask [B], as rows, and in parts where arrays would be too large."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.state import Places

Flags = NDArray[np.bool_]
Rows = Places | slice  # an array of indices, or a slice: either one reads and writes `array[rows]`
CHUNK = 1 << 28  # numbers in the largest array that is made on the way: 2 GiB

ALL_ROWS = slice(None)


def span(rows: Places) -> Rows:
    """The same rows; of neighbours a slice, which takes no copies."""
    neighbours = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if neighbours else rows


def chunks(mask: Flags, numbers: int = 1) -> Iterator[Rows]:
    """The tuners in a mask, in parts, if each needs an array of so many numbers; nothing if there are none."""
    rows, most = np.flatnonzero(mask), max(1, CHUNK // max(numbers, 1))
    for begin in range(0, len(rows), most):
        yield span(rows[begin : begin + most])


def assign_where(target: Array, mask: Flags, value: Array | float) -> None:
    """Write to an array [B, ...] for the tuners in a mask."""
    target[...] = np.where(mask.reshape(-1, *(1,) * (target.ndim - 1)), value, target)


def column(places: Array) -> tuple[Places, Places]:
    """The index of one place [B] a tuner along the second axis of an array [B, n, ...]."""
    return np.arange(len(places)), places.astype(np.int64)


def row_max(array: Array) -> Array:
    """[..., 1] the largest along the last axis; the method is faster than the function."""
    largest: Array = array.max(axis=-1, keepdims=True)
    return largest
