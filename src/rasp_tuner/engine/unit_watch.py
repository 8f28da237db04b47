"""UnitWatch: notices that a metric is told in another unit, or has another level, from some run on.

A value that surprises by far where the model was sure is put aside, and so are those that follow, while all of them
would come from one factor (of a metric above zero) or one shift (of any other). The model is not touched meanwhile. A
few such samples in a row, at more than one setting, are a change of the metric: were the world another one, settings
would not all have changed alike. If one of them does not fit, all are learned as they came.

symbol   shape        meaning
B, K     scalar       tuners; metrics
H        scalar       samples that are put aside at most
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import ABSURD_DEVIATIONS, NORMAL_FROM_SAMPLES, ODD_DEVIATIONS
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import Field, checked
from rasp_tuner.base.trusted_range import Flags
from rasp_tuner.engine.kernel.state import Dims
from rasp_tuner.engine.scalar_or_batch import Condition, Number, numbers_of
from rasp_tuner.engine.trials import rows_field

SURPRISING_DEVIATIONS = ABSURD_DEVIATIONS  # from what was expected
LEAST_FACTOR, FARTHEST_UNIT = math.log(5.0), math.log(1e12)  # less may well be the world; more is no unit
AGREE_SHARE = 0.1  # of a change, within which, or within odd deviations, changes are one: no model is exact
LEAST_VARIANCE = 1e-200  # of a change, where nothing is noisy
H = NORMAL_FROM_SAMPLES  # that agree are a change: fewer may be chance where outliers are many

FIELDS = {
    "count": Field(("tuners",), 0, H, whole=True),
    "sizes": Field(("tuners", H, "metrics"), -LARGEST, LARGEST),
    "variances": Field(("tuners", H, "metrics"), 0.0, LARGEST * LARGEST),
    "factor": Field(("tuners", "metrics"), 0, 1, whole=True),
    "possible": Field(("tuners", "metrics"), 0, 1, whole=True),
}


class Change(NamedTuple):
    """How one metric would have had to change to explain a surprise; numbers (scalar_or_batch.py)."""

    size: Number  # the logarithm of a factor, or a shift of the loss
    deviation: Number
    factor: Condition  # which of the two
    usual: Number  # what the loss has differed by so far

    @property
    def large(self) -> Condition:
        """Whether it is far more than noise, and than what settings do."""
        n, size = numbers_of(self.size), numbers_of(self.size).abs(self.size)
        least = n.where(self.factor, LEAST_FACTOR, ODD_DEVIATIONS * self.usual)
        far = (size >= least) & (size >= SURPRISING_DEVIATIONS * self.deviation)
        return far & (self.usual > 0.0)  # what was constant has no scale


class UnitWatch:
    """Of each of B tuners. A trial is a row of numbers (trials.py), its point first."""

    def __init__(self, dims: Dims, metrics: int, tuners: int) -> None:
        self._fields = {**FIELDS, "trials": rows_field(dims, "tuners", H)}
        self.count = np.zeros(tuners)  # [B] samples that are put aside
        self.trials = np.zeros((tuners, H, *map(int, rows_field(dims).shape)))
        self.sizes = np.zeros((tuners, H, metrics))  # of the changes that would explain them
        self.variances = np.zeros((tuners, H, metrics))
        self.factor = np.zeros((tuners, metrics))  # 1 if they are of a factor
        self.possible = np.zeros((tuners, metrics))  # 1 if all agree

    def agreeing(self, changes: Sequence[Change]) -> Flags:
        """[B, K] which metrics would explain one more surprise, and all that are put aside."""
        size, deviation, factor, large = self._arrays(changes)
        count, used = np.maximum(self.count, 1.0)[:, None], self._used()[:, :, None]
        mean = (used * self.sizes).sum(axis=1) / count
        unsure = np.sqrt(deviation**2 + (used * self.variances).sum(axis=1) / count**2)
        room = np.maximum(ODD_DEVIATIONS * unsure, AGREE_SHARE * np.abs(mean))
        alike = (self.possible > 0.0) & (factor == self.factor) & (np.abs(size - mean) <= room)
        agreeing: Flags = (large > 0.0) & (alike | (self.count == 0.0)[:, None])
        return agreeing

    def put_aside(self, trials: Array, changes: Sequence[Change], agreeing: Flags) -> None:
        """Keep trials [B, width] of the tuners in which any metric explains them, by `agreeing` [B, K]."""
        size, deviation, factor, _ = self._arrays(changes)
        rows = np.flatnonzero(agreeing.any(axis=1))
        place, first = self.count[rows].astype(np.int64), rows[self.count[rows] == 0.0]
        self.trials[rows, place], self.sizes[rows, place] = trials[rows], size[rows]
        self.variances[rows, place] = deviation[rows] ** 2
        self.factor[first], self.possible[rows] = factor[first], agreeing[rows]
        self.count[rows] += 1.0

    def at_default(self, default: Array) -> tuple[Array, Array]:
        """[B] how many of those that are put aside ran at the default [d], and how many did not."""
        same = (self.trials[:, :, : len(default)] == default).all(axis=2)
        own: Array = (self._used() & same).sum(axis=1)
        return own, self.count - own

    def full(self) -> Flags:
        """[B] whether no more are put aside."""
        return self.count >= H

    def confirmed(self, knobs: int) -> Flags:
        """[B] whether enough agree, at more than one setting, and one metric alone explains them, by a likely unit."""
        points = self.trials[:, :, :knobs]
        other = (points != points[:, :1]).any(axis=2) & self._used()
        absurd = (self.possible * self.factor * (np.abs(self.sizes[:, 0]) > FARTHEST_UNIT)).any(axis=1)
        confirmed: Flags = self.full() & other.any(axis=1) & (self.possible.sum(axis=1) == 1.0) & ~absurd
        return confirmed

    def change(self) -> tuple[Array, Array]:
        """[B, K] the factor by which each metric has changed, and the shift; 1 and 0 where it is not the cause."""
        trust = self._used()[:, :, None] / np.maximum(self.variances, LEAST_VARIANCE)
        mean = (trust * self.sizes).sum(axis=1) / np.maximum(trust.sum(axis=1), 1.0 / LARGEST)
        cause, factor = self.possible > 0.0, self.factor > 0.0
        return np.exp(np.where(cause & factor, mean, 0.0)), np.where(cause & ~factor, mean, 0.0)

    def clear(self, tuners: Flags) -> None:
        """Nothing is put aside any more, of the tuners in a mask [B]."""
        self.count[tuners] = 0.0

    def state(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in self._fields}

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"tuners": len(self.count), "metrics": self.factor.shape[1]}
        for name, array in checked(state, self._fields, sizes).items():
            setattr(self, name, array)

    def _used(self) -> Flags:
        """[B, H] where a sample is put aside."""
        return np.arange(H) < self.count[:, None]

    def _arrays(self, changes: Sequence[Change]) -> tuple[Array, ...]:
        """Size, deviation, factor and large of the changes, [B, K] each."""
        zeros, rows = np.zeros(len(self.count)), zip(*((*one[:3], one.large) for one in changes), strict=True)
        return tuple(np.stack([zeros + number for number in row], axis=1) for row in rows)


def described_changes(names: Iterable[str], factors: Array, shifts: Array) -> str:
    """How metrics have changed, in words."""
    return ", ".join(
        f"{name} is {factor:.3g} times what it was" if factor != 1.0 else f"{name} has moved by {shift:.3g}"
        for name, factor, shift in zip(names, factors.tolist(), shifts.tolist(), strict=True)
        if factor != 1.0 or shift
    )
