"""Trace: series over the steps of a study, in a bounded number of buckets.

symbol   shape     meaning
counts   [B, S]    number of values of series s in bucket b; a step may have no value of a series
sums     [B, S]    their sum, so that means stay exact when buckets are merged
lows     [B, S]    their minimum
highs    [B, S]    their maximum
B        scalar    buckets in use, at most 1,024; each holds `width` steps, the last one may hold fewer

When all are in use, neighbours are merged and the width doubles. So a step costs the same however long the study is.
`LatestSteps` holds the newest steps one by one: the last hour of a long study would be a few buckets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array

MAX_BUCKETS = 1_024
LATEST_STEPS_KEPT = 512
INITIAL_ROWS = 64  # allocated at first; doubled when full
MAX_FRESH = 64  # steps taken in at a time: many cost little more than one
ARRAY_NAMES = ("counts", "sums", "lows", "highs")
MAX_ABS_VALUE = 1e300
NO_VALUE = 2e300  # in a snapshot, which holds finite numbers only


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """Some successive rows [R, S] of a trace, to be drawn in pieces of `group` rows."""

    series: tuple[str, ...]
    rows: Mapping[str, Array]
    first: int  # step that the first row begins with
    width: int  # steps in a row
    group: int

    @property
    def bucket(self) -> int:
        """Steps in a piece."""
        return self.width * self.group

    def points(self, name: str) -> dict[str, list[Any]]:
        """`step`, `mean`, `min`, `max` of a series by piece; pieces without values are left out."""
        column = self.series.index(name)
        starts = self._starts()
        if not len(starts):
            return {"step": [], "mean": [], "min": [], "max": []}
        counts = np.add.reduceat(self.rows["counts"][:, column], starts)
        heard = counts > 0
        means = np.add.reduceat(self.rows["sums"][:, column], starts)[heard] / counts[heard]
        return {
            "step": self._steps(starts[heard]),
            "mean": means.tolist(),
            "min": np.minimum.reduceat(self.rows["lows"][:, column], starts)[heard].tolist(),
            "max": np.maximum.reduceat(self.rows["highs"][:, column], starts)[heard].tolist(),
        }

    def _starts(self) -> NDArray[np.int64]:
        return np.arange(0, len(self.rows["counts"]), self.group)

    def _steps(self, starts: NDArray[np.int64]) -> list[int]:
        steps: list[int] = (self.first + starts * self.width).tolist()
        return steps


class Trace:
    """One column for each series."""

    def __init__(self, series: Sequence[str]) -> None:
        self.series = tuple(series)
        self.width = 1
        self._taken_in = 0  # steps
        self._fresh: list[Array] = []  # steps after them
        self._rows = _empty(INITIAL_ROWS, len(self.series))

    @property
    def steps(self) -> int:
        return self._taken_in + len(self._fresh)

    @property
    def used(self) -> int:
        return -(-self.steps // self.width)

    def add(self, values: Array) -> None:
        """Add a step: one value [S] for each series, NaN where there is none."""
        self._fresh.append(values)
        if len(self._fresh) >= MAX_FRESH or self._is_full:
            self._take_in()

    @property
    def _is_full(self) -> bool:
        return self.steps == MAX_BUCKETS * self.width

    def _take_in(self) -> None:
        """Move fresh steps to their buckets, in order; whether now or later makes no difference."""
        if not self._fresh:
            return
        values, steps = np.array(self._fresh), np.arange(self._taken_in, self.steps)
        self._taken_in, self._fresh = self.steps, []
        while self.used > len(self._rows["counts"]):
            self._grow()
        told = np.isfinite(values)
        known = np.where(told, values, 0.0)
        _clip(known)
        buckets = steps // self.width
        rows, first = self._rows, int(buckets[0])
        np.add.at(rows["counts"], buckets, told)
        np.add.at(rows["sums"], buckets, known)
        _clip(rows["sums"][first : self.used])
        np.minimum.at(rows["lows"], buckets, np.where(told, known, MAX_ABS_VALUE))
        np.maximum.at(rows["highs"], buckets, np.where(told, known, -MAX_ABS_VALUE))
        if self._is_full:
            self._merge_neighbours()

    def window(self, points: int, first: int = 0) -> TraceWindow:
        """The rows from the one that holds step `first` on, in at most `points` pieces."""
        self._take_in()
        start = first // self.width
        rows = {name: array[start : self.used] for name, array in self._rows.items()}
        return TraceWindow(self.series, rows, start * self.width, self.width, _group(self.used - start, points))

    def first_reaching(self, name: str, value: float) -> int:
        """The first step of the first bucket where a series that never falls reaches a value; `steps` if none does."""
        self._take_in()
        highs = self._rows["highs"][: self.used, self.series.index(name)]
        reached = np.flatnonzero(highs >= value)
        return int(reached[0]) * self.width if len(reached) else self.steps

    def state(self) -> dict[str, Array]:
        """Copies of all arrays, for `restore`."""
        self._take_in()
        rows = {name: array[: self.used].copy() for name, array in self._rows.items()}
        return {**rows, "clock": np.array([self.steps, self.width], dtype=np.float64)}

    def restore(self, state: Mapping[str, Array], series: Sequence[str]) -> None:
        """Take over what was saved; `series` names its columns. Those that were not saved have no values."""
        self._taken_in, self.width = (int(x) for x in state["clock"])
        self._fresh = []
        size = INITIAL_ROWS
        while size < self.used:
            size *= 2
        self._rows = _empty(size, len(self.series))
        for place, name in enumerate(series):
            if name in self.series:
                for part, array in self._rows.items():
                    array[: self.used, self.series.index(name)] = state[part][:, place]

    def _grow(self) -> None:
        more = _empty(len(self._rows["counts"]), len(self.series))
        self._rows = {name: np.concatenate([array, more[name]]) for name, array in self._rows.items()}

    def _merge_neighbours(self) -> None:
        old, self._rows = self._rows, _empty(MAX_BUCKETS, len(self.series))
        half = MAX_BUCKETS // 2
        for name, fold in (("counts", np.add), ("sums", np.add), ("lows", np.minimum), ("highs", np.maximum)):
            self._rows[name][:half] = fold(old[name][0::2], old[name][1::2])
        self.width *= 2


class LatestSteps:
    """The values [n, S] of the newest steps, at most 512."""

    def __init__(self, series: Sequence[str]) -> None:
        self.series = tuple(series)
        self.steps = 0  # that were added, kept or not
        self._values = np.full((0, len(self.series)), np.nan)

    @property
    def first(self) -> int:
        """The oldest step that is kept."""
        return max(self.steps - LATEST_STEPS_KEPT, 0)

    def add(self, values: Array) -> None:
        if len(self._values) == self.steps < LATEST_STEPS_KEPT:
            size = min(max(2 * len(self._values), INITIAL_ROWS), LATEST_STEPS_KEPT)
            grown = np.full((size, len(self.series)), np.nan)
            grown[: len(self._values)] = self._values
            self._values = grown
        self._values[self.steps % LATEST_STEPS_KEPT] = values
        self.steps += 1

    def window(self, points: int, first: int) -> TraceWindow:
        """The rows from step `first` on, which must be kept, in at most `points` pieces."""
        values = self._kept_from(first)
        told = np.isfinite(values)
        rows = {
            "counts": told.astype(np.float64),
            "sums": np.where(told, values, 0.0),
            "lows": np.where(told, values, MAX_ABS_VALUE),
            "highs": np.where(told, values, -MAX_ABS_VALUE),
        }
        return TraceWindow(self.series, rows, first, 1, _group(self.steps - first, points))

    def first_reaching(self, name: str, value: float) -> int:
        """The first kept step where a series reaches a value; `steps` if none does."""
        reached = np.flatnonzero(self._kept_from(self.first)[:, self.series.index(name)] >= value)
        return self.first + int(reached[0]) if len(reached) else self.steps

    def _kept_from(self, first: int) -> Array:
        """Rows from a step on, bounded; NaN where there is no value."""
        values = self._values[np.arange(first, self.steps) % LATEST_STEPS_KEPT]
        values[~np.isfinite(values)] = np.nan
        _clip(values)  # leaves NaN
        return values

    def state(self) -> dict[str, Array]:
        values = self._kept_from(self.first)
        return {"values": np.where(np.isfinite(values), values, NO_VALUE)}

    def restore(self, state: Mapping[str, Array], steps: int) -> None:
        """Take over what was saved after so many steps."""
        self.steps = steps - len(state["values"])
        self._values = np.full((min(self.steps, LATEST_STEPS_KEPT), len(self.series)), np.nan)
        for row in state["values"]:
            self.add(np.where(row < NO_VALUE, row, np.nan))


def _group(rows: int, points: int) -> int:
    """How many rows make one piece, for at most `points` pieces."""
    return max(-(-rows // max(points, 1)), 1)


def bounded(value: float) -> float:
    """The value, or the largest that is kept: sums and differences of such stay finite."""
    return min(max(value, -MAX_ABS_VALUE), MAX_ABS_VALUE)


def _clip(values: Array) -> None:
    """Like np.clip in place, but faster on small arrays."""
    np.minimum(values, MAX_ABS_VALUE, out=values)
    np.maximum(values, -MAX_ABS_VALUE, out=values)


def _empty(rows: int, series: int) -> dict[str, Array]:
    fill = {"counts": 0.0, "sums": 0.0, "lows": MAX_ABS_VALUE, "highs": -MAX_ABS_VALUE}
    return {name: np.full((rows, series), fill[name]) for name in ARRAY_NAMES}
