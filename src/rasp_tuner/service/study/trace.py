"""Trace: series over the steps of a study, in a bounded number of buckets.

symbol   shape     meaning
counts   [B, S]    number of values of series s in bucket b; a step may have no value of a series
sums     [B, S]    their sum, so that means stay exact when buckets are merged
lows     [B, S]    their minimum
highs    [B, S]    their maximum
B        scalar    buckets in use, at most 1,024; each holds `width` steps, the last one may hold fewer

When all are in use, neighbours are merged and the width doubles. So a step costs the same however long the study is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.core.numerics import Array

MAX_BUCKETS = 1_024
INITIAL_ROWS = 64  # allocated at first; doubled when full
ARRAY_NAMES = ("counts", "sums", "lows", "highs")
MAX_ABS_VALUE = 1e300


class Trace:
    """One column for each series."""

    def __init__(self, series: Sequence[str]) -> None:
        self.series = tuple(series)
        self.steps = 0
        self.width = 1
        self._rows = _empty(INITIAL_ROWS, len(self.series))

    @property
    def used(self) -> int:
        return -(-self.steps // self.width)

    def add(self, values: Array) -> None:
        """Add a step: one value [S] for each series, NaN where there is none."""
        row = self.steps // self.width
        if row == MAX_BUCKETS:
            self._merge_neighbours()
            row = self.steps // self.width
        if row == len(self._rows["counts"]):
            self._grow()
        told = np.isfinite(values)
        known = np.where(told, values, 0.0)
        _clip(known)
        counts, sums, lows, highs = (self._rows[name][row] for name in ARRAY_NAMES)
        counts += told
        sums += known
        _clip(sums)
        np.minimum(lows, known, out=lows, where=told)
        np.maximum(highs, known, out=highs, where=told)
        self.steps += 1

    def series_points(self, name: str, points: int) -> dict[str, list[Any]]:
        """`step`, `mean`, `min`, `max` of a series in at most `points` pieces; pieces without values are left out."""
        column = self.series.index(name)
        rows = {part: array[: self.used, column] for part, array in self._rows.items()}
        group = self.group(points)
        starts = np.arange(0, self.used, group)
        if not len(starts):
            return {"step": [], "mean": [], "min": [], "max": []}
        counts = np.add.reduceat(rows["counts"], starts)
        heard = counts > 0
        means = np.add.reduceat(rows["sums"], starts)[heard] / counts[heard]
        return {
            "step": (starts[heard] * self.width).tolist(),
            "mean": means.tolist(),
            "min": np.minimum.reduceat(rows["lows"], starts)[heard].tolist(),
            "max": np.maximum.reduceat(rows["highs"], starts)[heard].tolist(),
        }

    def group(self, points: int) -> int:
        """How many buckets make one piece, for at most `points` pieces."""
        return max(-(-self.used // max(points, 1)), 1)

    def means(self, names: Sequence[str], points: int) -> tuple[list[int], list[list[float]]]:
        """Steps, and a row of means of these series for each; only where all of them have values."""
        columns = [self.series.index(name) for name in names]
        starts = np.arange(0, self.used, self.group(points))
        if not len(starts) or not columns:
            return [], []
        counts = np.add.reduceat(self._rows["counts"][: self.used][:, columns], starts)
        sums = np.add.reduceat(self._rows["sums"][: self.used][:, columns], starts)
        heard = (counts > 0).all(axis=1)
        return (starts[heard] * self.width).tolist(), (sums[heard] / counts[heard]).tolist()

    def state(self) -> dict[str, Array]:
        """Copies of all arrays, for `restore`."""
        rows = {name: array[: self.used].copy() for name, array in self._rows.items()}
        return {**rows, "clock": np.array([self.steps, self.width], dtype=np.float64)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.steps, self.width = (int(x) for x in state["clock"])
        size = INITIAL_ROWS
        while size < self.used:
            size *= 2
        self._rows = _empty(size, len(self.series))
        for name, array in self._rows.items():
            array[: self.used] = state[name]

    def _grow(self) -> None:
        more = _empty(len(self._rows["counts"]), len(self.series))
        self._rows = {name: np.concatenate([array, more[name]]) for name, array in self._rows.items()}

    def _merge_neighbours(self) -> None:
        old, self._rows = self._rows, _empty(MAX_BUCKETS, len(self.series))
        half = MAX_BUCKETS // 2
        for name, fold in (("counts", np.add), ("sums", np.add), ("lows", np.minimum), ("highs", np.maximum)):
            self._rows[name][:half] = fold(old[name][0::2], old[name][1::2])
        self.width *= 2


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
