"""StoredRows: what the family remembers, one line of numbers for each row, changed in place.

symbol     shape      meaning
n          scalar     rows
W          scalar     numbers of a row: its point, context and mean losses, and those in NUMBERS
"""

import itertools
from collections.abc import Mapping
from copy import copy

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array

# samples; step of the latest; whether it failed; weight; samples that answer a suggestion
NUMBERS = ("counts", "times", "failed", "trust", "own")
ROW_ARRAYS = ("points", "contexts", "losses", *NUMBERS)


class StoredRows:
    """Rows in the order of their last change."""

    def __init__(self, dim: int, context_dim: int, columns: int, room: int) -> None:
        ends = np.cumsum([0, dim, context_dim, columns]).tolist()
        parts = [slice(a, b) for a, b in itertools.pairwise(ends)]
        numbers = [ends[-1] + i for i in range(len(NUMBERS))]
        self._places: dict[str, slice | int] = dict(zip(ROW_ARRAYS, [*parts, *numbers], strict=True))
        self.columns, self._room = columns, room
        self.table = np.zeros((room + 1, ends[-1] + len(NUMBERS)))
        self.count = 0

    def __getitem__(self, name: str) -> Array:
        """[n, .] a view of one of ROW_ARRAYS."""
        view: Array = self.table[: self.count, self._places[name]]
        return view

    def append(self, point: Array, context: Array, losses: Array, now: float, failed: bool) -> None:
        if self.count == len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        row, d, c = self.table[self.count], len(point), len(context)
        row[:d], row[d : d + c], row[d + c : -len(NUMBERS)] = point, context, losses
        row[-len(NUMBERS) :] = 1.0, now, failed, 1.0, 0.0
        self.count += 1

    def drop(self, i: int) -> None:
        self._close(i)
        self.count -= 1

    def copy(self) -> "StoredRows":
        other = copy(self)
        other.table = self.table.copy()
        return other

    def put(self, rows: Array) -> None:
        """Add rows [m, W] of another one at the end."""
        if self.count + len(rows) > len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table), rows])
        self.table[self.count : self.count + len(rows)] = rows
        self.count += len(rows)

    def taken_out(self, which: NDArray[np.int64]) -> Array:
        """[m, W] these rows, which are no longer here."""
        out, left = self.table[which], np.delete(self.table[: self.count], which, axis=0)
        self.count = len(left)
        self.table[: self.count] = left
        return out

    def to_end(self, i: int) -> None:
        """Make row i the last one."""
        if i < self.count - 1:
            row = self.table[i].copy()
            self._close(i)
            self.table[self.count - 1] = row

    def _close(self, i: int) -> None:
        """Rows behind row i move up by one: in one dimension, where NumPy needs no copy of them."""
        flat, width = self.table.reshape(-1), self.table.shape[1]
        flat[i * width : (self.count - 1) * width] = flat[(i + 1) * width : self.count * width]

    def state(self) -> dict[str, Array]:
        return {name: self[name].copy() for name in ROW_ARRAYS}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take in what `state` gave."""
        self.count = len(state["points"])
        self.table = np.zeros((max(self.count, self._room) + 1, self.table.shape[1]))
        for name in ROW_ARRAYS:
            self[name][:] = state[name]


class LatestRows:
    """At most so many of the latest rows: a view that moves along memory for twice as many."""

    def __init__(self, most: int, width: int) -> None:
        self._most, self._end, self._room = most, 0, np.zeros((2 * most, width))
        self.rows = self._room[:0]

    def append(self, *parts: Array) -> None:
        if self._end == len(self._room):
            self.restore(self.rows[1:])
        np.concatenate(parts, out=self._room[self._end])
        self._end += 1
        self.rows = self._room[max(self._end - self._most, 0) : self._end]

    def restore(self, rows: Array) -> None:
        """Hold other rows, at most as many."""
        self._end = len(rows)
        self.rows = self._room[: self._end]
        self.rows[:] = rows
