"""Safety around a choice: rules between knobs, the guard, the cost of switching, and calibrated intervals.

Figures are numbers (scalar_or_batch.py): floats of one tuner, or arrays [B].
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import ABSURD_DEVIATIONS, NOISE_DEVIATIONS
from rasp_tuner.base.numerics import SMALLEST, Array
from rasp_tuner.base.state_checks import Field
from rasp_tuner.engine.budget import BudgetLedger
from rasp_tuner.engine.family import Belief, Choice, predict_one
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.scalar_or_batch import Condition, Number, chosen, erfc, numbers_of, restored, saved
from rasp_tuner.space.rules import Rules

PROVEN = 0.8  # probability of being better than the default from which on another point is recommended, or tried
EARN_BACK_STEPS = 10.0  # within which a change of settings must earn back what it costs
CALIBRATION_RATE = 0.1  # of one step, in logarithms
MISSED_SHARE = 0.1  # of outcomes that may lie outside of an interval
WIDER, NARROWER = math.exp(CALIBRATION_RATE * (1.0 - MISSED_SHARE)), math.exp(-CALIBRATION_RATE * MISSED_SHARE)
FAR = 40.0  # deviations, beyond which a probability is 0 or 1
LEAST_GAP = 1e-200  # of two targets: less is the rounding of a metric that is always 0
NORMAL_90 = 1.645  # deviations on either side that hold nine in ten, of a normal distribution
LEAST_FACTOR, MOST_FACTOR = 0.2, 20.0  # of intervals as believed


class Against(NamedTuple):
    """A point against the default, in this situation."""

    level: Number  # y expected of the default
    mean: Number  # of y at the point less that at the default
    deviation: Number
    expected: Number  # y at the point
    variances: tuple[Number, Number]  # of y at the point, and at the default

    @property
    def better(self) -> Number:
        """Probability that the point is better than the default; 0 for the default itself."""
        n, sure = numbers_of(self.mean), self.deviation == 0.0
        apart = n.clip(self.mean / n.where(sure, 1.0, self.deviation), -FAR, FAR)
        return 0.5 * erfc(n.where(sure, n.where(self.mean <= -LEAST_GAP, -FAR, FAR), apart) / math.sqrt(2.0))

    @property
    def proven(self) -> Condition:
        """Whether the point is so likely better than the default; or expected to be, where the default is hardly known.

        A default that did not run for long is no safer than what runs.
        """
        own, default = self.variances
        return (self.better >= PROVEN) | ((self.mean <= -LEAST_GAP) & (ABSURD_DEVIATIONS**2 * own <= default))

    def after(self, y: Number, noise: Number) -> Number:
        """Mean of the difference, once y was seen at the point with noise of this variance."""
        n, (own, default) = numbers_of(y), self.variances
        shared = 0.5 * (self.deviation**2 + own - default)  # covariance of the difference and what was seen
        gain = shared / n.clip(own + noise, SMALLEST, None)
        most = NOISE_DEVIATIONS * n.sqrt(own + noise)
        surprise = n.clip(y - self.expected, -most, most)
        return self.mean + gain * surprise


def against(belief: Belief, point: Array, default: Array, wider: float = 1.0) -> Against:
    """The point compared with the default, with a deviation so many times as wide as believed."""
    if point.tolist() == default.tolist():
        (_, level), (_, variance) = (a.tolist() for a in belief.predict(np.array([point, default])))
        return Against(level, 0.0, 0.0, level, (variance, variance))
    level, mean, variance, expected, variances = belief.against(point, default)
    return Against(level, mean, math.sqrt(variance) * wider, expected, variances)


def within_guard(objective: Objective, share: float, offer: Against) -> Condition:
    """Whether a point is at most this share of the default's loss worse."""
    return objective.relative(offer.mean + offer.deviation, offer.level) <= share


def within_budget(objective: Objective, budget: BudgetLedger, offer: Against, staked: Number = 0.0) -> Condition:
    """Whether a point may be tried; `staked`: what runs under way may cost."""
    price, worse = objective.shares(offer.level, offer.mean, offer.mean + offer.deviation)
    return budget.allows(price, worse - price, staked)


def cost(objective: Objective, offer: Against, y: Number, noise: Number, failed: Condition) -> Number:
    """What a point cost against the default, as it is known after it ran, as a share of the default's loss."""
    return objective.relative(chosen(failed, y - offer.level, offer.after(y, noise)), offer.level)


def legal_point(rules: Rules | None, belief: Belief, point: Array) -> Array:
    """The point, if it keeps the rules of its space; else the best of those near it that do."""
    if rules is None:
        return point
    offers = rules.offers(point)
    best: Array = offers[0 if len(offers) == 1 else int(belief.predict(offers)[0].argmin())]
    return best


def legal_choice(rules: Rules | None, belief: Belief, choice: Choice) -> Choice:
    """The same of a choice."""
    point = legal_point(rules, belief, choice.point)
    if point is choice.point or point.tolist() == choice.point.tolist():
        return choice
    mean, variance = predict_one(belief, point)
    return choice._replace(point=point, mean=mean, variance=variance)


def worth_switching(
    belief: Belief, choice: Choice, current: Array, cost: float, own_units: Callable[[float], float]
) -> Choice:
    """The choice if what it may gain over a few steps exceeds the cost of leaving `current`; else `current`."""
    mean, variance = predict_one(belief, current)
    hoped = own_units(mean) - own_units(choice.mean - math.sqrt(choice.variance))
    if EARN_BACK_STEPS * hoped >= cost or choice.point.tolist() == current.tolist():
        return choice
    return Choice(current.copy(), "stay: a change would cost more than it gains", mean, variance)


@dataclass(slots=True)
class Calibration:
    """How much wider than believed intervals must be to hold nine outcomes in ten (adaptive conformal inference)."""

    factor: Number = 1.0

    def observe(self, gap: Number, told: Condition = True, variance: Number = 1.0) -> None:
        """Take in an outcome this far from its mean, of such a variance; not of tuners that were not told."""
        n = numbers_of(self.factor)
        surprise = n.abs(gap) / n.sqrt(n.clip(variance, SMALLEST, None))
        moved = n.where(surprise > NORMAL_90 * self.factor, WIDER * self.factor, NARROWER * self.factor)
        self.factor = chosen(told, n.clip(moved, LEAST_FACTOR, MOST_FACTOR), self.factor)

    def merge(self, other: "Calibration", share: float) -> None:
        """Take in what another one knows, of a share of all samples."""
        self.factor = self.factor ** (1.0 - share) * other.factor**share

    def state(self) -> dict[str, Array]:
        return {"factor": saved([self.factor])[0, ...]}

    def restore(self, state: Mapping[str, Array]) -> None:
        ((self.factor,),) = restored(state, {"factor": Field((), LEAST_FACTOR, MOST_FACTOR)}, self.factor).values()
