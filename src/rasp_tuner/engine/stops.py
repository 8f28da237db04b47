"""Stops: from which cost on a run should be ended, and what a run that was ended teaches.

stop     what the default is expected to come to here, plus a stake
stake    STAKE of the default's loss; at most MOST_OF_LEFT of what the budget has left; at least what tells a bad run
         from noise
bound    a run that was ended says y >= b. It is learned as E[y | y >= b], by the forecast of one run: a step of EM for
         a censored sample. Where worse than b was expected anyway, that is what is learned.

All figures are numbers (scalar_or_batch.py): floats of one tuner, or arrays [B]. A stop that is not there is infinite.
"""

import math
from collections.abc import Mapping

import numpy as np

from rasp_tuner.base.common_constants import CHANGE_IN_A_ROW, NOISE_DEVIATIONS
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field
from rasp_tuner.engine.budget import MOST_OF_LEFT
from rasp_tuner.engine.family import Belief, predict_one
from rasp_tuner.engine.objective import UNKNOWN_HARM, Objective
from rasp_tuner.engine.safety import Against
from rasp_tuner.engine.scalar_or_batch import (
    Condition,
    Number,
    Tensor,
    erfc,
    numbers_of,
    restored,
    saved,
)

STAKE = 0.25  # of the default's loss
MOST_STAKE = 3.0  # of the default's loss: where that would not tell a bad run from noise, no run is ended
RECORDED = {"count": Field((), 0.0, CHANGE_IN_A_ROW, whole=True)}
RECORDED |= {name: Field((), 0.0, MOST_SAMPLES, whole=True) for name in ("ended", "passed", "runs")}
CALM_RUNS = 60  # without one beyond its stop, after which runs are taken to be ended where they should be
FAR = 5.0  # deviations, beyond which the hazard of a normal number has its asymptotic form

ENDED = "the run was ended there, and would have come to this or worse"
NOTHING_BESIDE = "the run was ended, and nothing is known yet to compare it with: learned as it came"
STOPPED = "default (the latest runs were stopped)"


class StopRecord:
    """How many of the latest runs were ended, one after another; and whether runs are ended at all.

    A stop rests on the default's level. While only others run and are ended, that level may follow them upwards: every
    stop would be higher than the one before.
    """

    def __init__(self, zero: Number = 0.0) -> None:
        self.count = zero  # of the latest runs
        self.ended = self.passed = zero  # runs that were ended; and that went on beyond their stop
        self.runs = zero

    @property
    def many(self) -> Condition:
        return self.count >= CHANGE_IN_A_ROW

    @property
    def used(self) -> Condition:
        """Whether runs are ended where they should be: some were, and no more went on; or for long none had to be."""
        calm = (self.passed == 0.0) & (self.runs >= CALM_RUNS)
        return numbers_of(self.runs).where(self.ended > 0.0, self.ended >= self.passed, calm)

    def observe(self, ended: Condition, passed: Condition) -> None:
        n = numbers_of(self.count)
        self.count = n.where(ended, n.clip(self.count + 1.0, None, CHANGE_IN_A_ROW), 0.0)
        self.ended, self.passed, self.runs = self.ended + ended, self.passed + passed, self.runs + 1.0

    def state(self) -> dict[str, Array]:
        return {name: saved([getattr(self, name)])[0, ...] for name in RECORDED}

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, (number,) in restored(state, RECORDED, self.runs).items():
            setattr(self, name, number)


def can_stop(objective: Objective) -> bool:
    """Whether a part of a run shows how bad it is: of several metrics none decides alone, and one to be maximised may
    well grow until the end."""
    return objective.one and objective.sign > 0.0


def stop_of(objective: Objective, offer: Against, noise: Number, wider: Number, left: Number) -> Number:
    """The cost from which on a run should be ended; infinite where the default's level is not known well enough.

    noise    variance of one run
    wider    by which deviations are wider than believed
    left     of the budget, in steps of the default's loss
    """
    level, n = offer.level, numbers_of(offer.level)
    unsure = NOISE_DEVIATIONS * wider * n.sqrt(noise + offer.variances[1])
    share = n.clip(MOST_OF_LEFT * n.clip(left, 0.0, None), None, STAKE)
    gap = n.maximum(objective.gap(share, level), unsure)
    return n.where(objective.relative(gap, level) > MOST_STAKE, math.inf, objective.own_units(level + gap))


def stop_behind_best(
    objective: Objective, belief: Belief, point: Array, best: Array | None, wider: float
) -> float | None:
    """The same where the best is looked for: what is clearly behind it cannot be it. None before the best ran here."""
    if best is None or not can_stop(objective) or np.array_equal(point, best):
        return None
    level, variance = predict_one(belief, best)
    if variance > belief.noise:
        return None
    offer = Against(level, 0.0, 0.0, level, (variance, variance))
    return if_any(stop_of(objective, offer, belief.noise, wider, math.inf))


def if_any(stop: float) -> float | None:
    """The stop of one tuner; None where there is none."""
    return None if stop == math.inf else stop


def expected_from(bound: Number, mean: Number, variance: Number) -> Number:
    """E[y | y >= bound], of a normal y.

    >>> round(expected_from(0.0, 0.0, 1.0), 3), round(expected_from(-9.0, 0.0, 1.0), 3), expected_from(1.0, 2.0, 0.0)
    (0.798, 0.0, 2.0)
    """
    n = numbers_of(bound)
    deviation = n.sqrt(n.clip(variance, 0.0, None))
    beyond = deviation * hazard((bound - mean) / n.where(deviation > 0.0, deviation, 1.0))
    return n.maximum(mean + beyond, bound)


def hazard(z: Number) -> Number:
    """phi(z) / (1 - Phi(z)), for any z.

    >>> [round(hazard(z), 3) for z in (-40.0, 0.0, 4.999, 5.001, 1e9)]
    [0.0, 0.798, 5.186, 5.188, 1000000000.0]
    """
    n = numbers_of(z)
    near, far = n.clip(z, None, FAR), n.clip(z, FAR, None)
    y = 1.0 / far
    asymptotic = far + y - 2.0 * y**3 + 10.0 * y**5
    exact = n.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi) / (0.5 * erfc(near / math.sqrt(2.0)))
    return n.where(z > FAR, asymptotic, exact)


def losses_from(objective: Objective, losses: Tensor, mean: Number, variance: Number) -> Tensor:
    """The losses [C] that a run is taken to have had which was ended at `losses`, by the forecast of one run.

    Of many tuners [B, C].
    """
    bound, n = objective.target(losses), numbers_of(mean)
    most = n.maximum(bound + objective.gap(UNKNOWN_HARM, bound), mean)
    return objective.moved(losses, n.minimum(expected_from(bound, mean, variance), most) - bound)
