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
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.state_checks import Field, checked
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.numbers import Condition, Number, Tensor, numbers_of

SURPRISING_DEVIATIONS = 5.0  # from what was expected: a normal number is never so far away
LEAST_FACTOR, MOST_FACTOR = math.log(2.0), math.log(1e12)  # less is left to the experts; more is no unit
SHIFT_WIDTHS = 3.0  # of what a metric was so far: a smaller shift may be the world's
AGREE_DEVIATIONS, AGREE_SHARE = 3.0, 0.1  # within which changes are one; the share is of the change: no model is exact
H = 5  # samples that agree are a change: fewer may be chance where outliers are many

FIELDS = {
    "count": Field(("tuners",), 0, H, whole=True),
    "trials": Field(("tuners", H, "width")),
    "sizes": Field(("tuners", H, "metrics")),
    "variances": Field(("tuners", H, "metrics"), 0),
    "factor": Field(("tuners", "metrics"), 0, 1, whole=True),
    "possible": Field(("tuners", "metrics"), 0, 1, whole=True),
}


class Change(NamedTuple):
    """How one metric would have had to change to explain a surprise; numbers (numbers.py)."""

    size: Number  # the logarithm of a factor, or a shift of the loss
    deviation: Number
    factor: Condition  # which of the two
    usual: Number  # what the loss has differed by so far

    @property
    def large(self) -> Condition:
        """Whether it is far more than noise, and than what settings do."""
        n, size = numbers_of(self.size), numbers_of(self.size).abs(self.size)
        least = n.where(self.factor, LEAST_FACTOR, SHIFT_WIDTHS * self.usual)
        most = n.where(self.factor, MOST_FACTOR, LARGEST)
        far = (size >= least) & (size <= most) & (size >= SURPRISING_DEVIATIONS * self.deviation)
        return far & (self.usual > 0.0)  # what was constant has no scale


class UnitWatch:
    """Of as many tuners as there are zeros [B]. A trial is a row of numbers, its point [d] first."""

    def __init__(self, width: int, metrics: int, zeros: Tensor) -> None:
        xp, size = namespace(zeros), len(zeros)

        def blank(*shape: int) -> Tensor:
            return xp.zeros((size, *shape), dtype=zeros.dtype, device=zeros.device)

        self.count = blank()  # [B] samples that are put aside
        self.trials = blank(H, width)
        self.sizes, self.variances = blank(H, metrics), blank(H, metrics)  # of the changes that would explain them
        self.factor, self.possible = blank(metrics), blank(metrics)  # whether it is a factor; whether all agree

    def agreeing(self, changes: Sequence[Change]) -> Tensor:
        """[B, K] which metrics would explain one more surprise, and all that are put aside."""
        xp = namespace(self.count)
        size, deviation, factor, large = self._arrays(changes)
        count, used = xp.maximum(self.count, 1.0)[:, None], self._used()
        mean = xp.sum(used * self.sizes, axis=1) / count
        unsure = xp.sqrt(deviation**2 + xp.sum(used * self.variances, axis=1) / count**2)
        room = xp.maximum(AGREE_DEVIATIONS * unsure, AGREE_SHARE * xp.abs(mean))
        alike = (self.possible > 0.0) & (factor == self.factor) & (xp.abs(size - mean) <= room)
        return (large > 0.0) & (alike | (self.count == 0.0)[:, None])

    def put_aside(self, trials: Tensor, changes: Sequence[Change], agreeing: Tensor) -> None:
        """Keep trials [B, width] of the tuners in which any metric explains them, by `agreeing` [B, K]."""
        xp = namespace(self.count)
        size, deviation, factor, _ = self._arrays(changes)
        told = xp.any(agreeing, axis=1)
        place = xp.arange(H, device=self.count.device)[None] == self.count[:, None]
        place = (place & told[:, None])[:, :, None]
        self.trials = xp.where(place, trials[:, None], self.trials)
        self.sizes = xp.where(place, size[:, None], self.sizes)
        self.variances = xp.where(place, (deviation**2)[:, None], self.variances)
        self.factor = xp.where((told & (self.count == 0.0))[:, None], factor, self.factor)
        self.possible = xp.where(told[:, None], xp.astype(agreeing, self.possible.dtype), self.possible)
        self.count = self.count + told

    def at_default(self, default: Tensor) -> tuple[Tensor, Tensor]:
        """[B] how many of those that are put aside ran at the default [d], and how many did not."""
        xp = namespace(self.count)
        same = xp.all(self.trials[:, :, : len(default)] == default, axis=2)
        own = xp.sum(self._used()[:, :, 0] * same, axis=1)
        return own, self.count - own

    def confirmed(self, points: int) -> Tensor:
        """[B] whether enough agree, at more than one setting of so many knobs; and one metric alone explains them."""
        xp = namespace(self.count)
        other = xp.any(self.trials[:, :, :points] != self.trials[:, :1, :points], axis=2) & (self._used()[:, :, 0] > 0.0)
        alone = xp.sum(self.possible, axis=1) == 1.0
        return self.full() & xp.any(other, axis=1) & alone

    def full(self) -> Tensor:
        """[B] whether no more can be put aside."""
        return self.count >= H

    def change(self) -> tuple[Tensor, Tensor]:
        """[B, K] the factor by which each metric has changed, and the shift; 1 and 0 where it is not the cause."""
        xp, used = namespace(self.count), self._used()
        trust = used / xp.maximum(self.variances, 1e-300)
        mean = xp.sum(trust * self.sizes, axis=1) / xp.maximum(xp.sum(trust, axis=1), 1e-300)
        cause, factor = self.possible > 0.0, self.factor > 0.0
        return xp.where(cause & factor, xp.exp(mean), 1.0), xp.where(cause & ~factor, mean, 0.0)

    def clear(self, tuners: Tensor) -> None:
        """Nothing is put aside any more, of the tuners in a mask [B]."""
        self.count = namespace(self.count).where(tuners, 0.0, self.count)

    def state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in FIELDS}

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"tuners": len(self.count), "width": self.trials.shape[2], "metrics": self.factor.shape[1]}
        for name, array in checked(state, FIELDS, sizes).items():
            setattr(self, name, array)

    def _used(self) -> Tensor:
        """[B, H, 1] 1 where a sample is put aside, else 0."""
        xp = namespace(self.count)
        places = xp.arange(H, device=self.count.device)[None]
        return xp.astype(places < self.count[:, None], self.count.dtype)[:, :, None]

    def _arrays(self, changes: Sequence[Change]) -> tuple[Tensor, ...]:
        """Size, deviation, factor and large of the changes, [B, K] each."""
        xp, zeros = namespace(self.count), 0.0 * self.count
        rows = zip(*((one.size, one.deviation, 1.0 * one.factor, 1.0 * one.large) for one in changes), strict=True)
        return tuple(xp.stack([number + zeros for number in row], axis=1) for row in rows)
