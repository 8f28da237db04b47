"""Safety around a choice: the guard, the cost of switching, and calibrated intervals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.gate import Mixture

GUARD_DEVIATIONS = 1.0  # added to an expected loss before the guard compares it
EARN_BACK_STEPS = 10.0  # within which a change of settings must earn back what it costs
CALIBRATION_RATE = 0.1  # of one step, in logarithms
MISSED_SHARE = 0.1  # of outcomes that may lie outside of an interval
NORMAL_90 = 1.645  # deviations on either side that hold the other nine in ten, of a normal distribution


def guarded(belief: Mixture, choice: Choice, default: Array, margin: float) -> Choice:
    """The choice if its loss is surely within `margin` (a share) of the default's; else the safest point known."""
    best = belief.best()
    points = np.stack([default if best is None else best, default])
    means, variances = (a.tolist() for a in belief.predict(points))
    limit = means[1] + margin * abs(means[1])
    for offer in (choice, Choice(points[0], "best known (guard)", means[0], variances[0])):
        if offer.mean + GUARD_DEVIATIONS * math.sqrt(offer.variance) <= limit:
            return offer
    return Choice(points[1], "default (guard)", means[1], variances[1])


def worth_switching(belief: Mixture, choice: Choice, current: Array, cost: float) -> Choice:
    """The choice if what it may gain over a few steps exceeds the cost of leaving `current`; else `current`."""
    mean, variance = belief.predict_one(current)
    hoped = mean - choice.mean + math.sqrt(choice.variance)
    if EARN_BACK_STEPS * hoped >= cost or np.array_equal(choice.point, current):
        return choice
    return Choice(current.copy(), "stay: a change would cost more than it gains", mean, variance)


@dataclass(slots=True)
class Calibration:
    """How much wider than believed intervals must be to hold nine outcomes in ten (adaptive conformal inference)."""

    factor: float = 1.0

    def observe(self, surprise: float) -> None:
        """Take in one outcome, `surprise` believed deviations from its mean."""
        missed = surprise > NORMAL_90 * self.factor
        self.factor = min(max(self.factor * math.exp(CALIBRATION_RATE * (missed - MISSED_SHARE)), 0.2), 20.0)

    def state(self) -> dict[str, Array]:
        return {"factor": np.array(self.factor)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.factor = float(state["factor"])
