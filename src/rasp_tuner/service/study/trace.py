"""Trace: a study's history for the dashboard, bounded whatever its length.

symbol   shape     meaning
counts   [B, S]    values of series s that fell into bucket b; a series may be silent in a step
sums     [B, S]    their sum, so that means stay exact when buckets merge
lows     [B, S]    the least of them
highs    [B, S]    the greatest
B        scalar    buckets in use, at most 1,024; each holds `width` steps, the last one maybe fewer

When all are in use, neighbours merge and the width doubles: a step costs the same at the millionth as at the first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.core.numerics import Array

MOST = 1_024
FIRST = 64  # rows at birth; they double as they fill
NAMES = ("counts", "sums", "lows", "highs")
FAR = 1e300


class Trace:
    """One column a series, named at birth."""

    def __init__(self, series: Sequence[str]) -> None:
        self.series = tuple(series)
        self.steps = 0
        self.width = 1
        self._rows = _empty(FIRST, len(self.series))

    @property
    def used(self) -> int:
        return -(-self.steps // self.width)

    def add(self, values: Array) -> None:
        """One step: a value [S] of each series, NaN where it is silent."""
        row = self.steps // self.width
        if row == MOST:
            self._halve()
            row = self.steps // self.width
        if row == len(self._rows["counts"]):
            self._grow()
        told = np.isfinite(values)
        known = np.where(told, values, 0.0)
        _bound(known)
        counts, sums, lows, highs = (self._rows[name][row] for name in NAMES)
        counts += told
        sums += known
        _bound(sums)
        np.minimum(lows, known, out=lows, where=told)
        np.maximum(highs, known, out=highs, where=told)
        self.steps += 1

    def drawn(self, name: str, points: int) -> dict[str, list[Any]]:
        """`step`, `mean`, `min`, `max` of a series in at most `points` pieces; silent pieces are left out."""
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
        """How many buckets make one piece when at most `points` are drawn."""
        return max(-(-self.used // max(points, 1)), 1)

    def means(self, names: Sequence[str], points: int) -> tuple[list[int], list[list[float]]]:
        """Steps, and a row of means of these series for each; only where all of them spoke."""
        columns = [self.series.index(name) for name in names]
        starts = np.arange(0, self.used, self.group(points))
        if not len(starts) or not columns:
            return [], []
        counts = np.add.reduceat(self._rows["counts"][: self.used][:, columns], starts)
        sums = np.add.reduceat(self._rows["sums"][: self.used][:, columns], starts)
        heard = (counts > 0).all(axis=1)
        return (starts[heard] * self.width).tolist(), (sums[heard] / counts[heard]).tolist()

    def state(self) -> dict[str, Array]:
        """Copies of everything; `restore` takes them back."""
        rows = {name: array[: self.used].copy() for name, array in self._rows.items()}
        return {**rows, "clock": np.array([self.steps, self.width], dtype=np.float64)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.steps, self.width = (int(x) for x in state["clock"])
        size = FIRST
        while size < self.used:
            size *= 2
        self._rows = _empty(size, len(self.series))
        for name, array in self._rows.items():
            array[: self.used] = state[name]

    def _grow(self) -> None:
        more = _empty(len(self._rows["counts"]), len(self.series))
        self._rows = {name: np.concatenate([array, more[name]]) for name, array in self._rows.items()}

    def _halve(self) -> None:
        old, self._rows = self._rows, _empty(MOST, len(self.series))
        half = MOST // 2
        for name, fold in (("counts", np.add), ("sums", np.add), ("lows", np.minimum), ("highs", np.maximum)):
            self._rows[name][:half] = fold(old[name][0::2], old[name][1::2])
        self.width *= 2


def _bound(values: Array) -> None:
    """As np.clip in place, in a fraction of its time on so few."""
    np.minimum(values, FAR, out=values)
    np.maximum(values, -FAR, out=values)


def _empty(rows: int, series: int) -> dict[str, Array]:
    fill = {"counts": 0.0, "sums": 0.0, "lows": FAR, "highs": -FAR}
    return {name: np.full((rows, series), fill[name]) for name in NAMES}
