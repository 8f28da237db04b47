"""Stops: from which cost on a run should be ended, and what a run that was ended teaches.

stop     what the default is expected to come to here, plus a stake
stake    STAKE of the default's loss; at most MOST_OF_LEFT of what the budget has left; at least what tells a bad run
         from noise
bound    a run that was ended says y >= b. It is learned as E[y | y >= b], by the forecast of one run: a step of EM for
         a censored sample. Where worse than b was expected anyway, that is what is learned.
"""

import math
from collections.abc import Mapping

import numpy as np

from rasp_tuner.base.common_constants import CHANGE_IN_A_ROW, NOISE_DEVIATIONS
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.engine.budget import MOST_OF_LEFT
from rasp_tuner.engine.family import Belief, predict_one
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Against

STAKE = 0.25  # of the default's loss
MOST_STAKE = 3.0  # of the default's loss: where that would not tell a bad run from noise, no run is ended
UNKNOWN_HARM = 1.0  # of a loss, by which a run may be worse than what is known: one that was ended, or a first look
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

    count = 0  # of the latest runs
    ended = passed = 0  # runs that were ended; and that went on beyond their stop
    runs = 0

    @property
    def many(self) -> bool:
        return self.count >= CHANGE_IN_A_ROW

    @property
    def used(self) -> bool:
        """Whether runs are ended where they should be: some were, and no more went on; or for long none had to be."""
        return self.ended >= self.passed if self.ended else not self.passed and self.runs >= CALM_RUNS

    def observe(self, ended: bool, passed: bool) -> None:
        self.count = min(self.count + 1, CHANGE_IN_A_ROW) if ended else 0
        self.ended, self.passed, self.runs = self.ended + ended, self.passed + passed, self.runs + 1

    def state(self) -> dict[str, Array]:
        return {name: np.array(float(getattr(self, name))) for name in RECORDED}

    def restore(self, state: Mapping[str, Array]) -> None:
        """The first snapshots of 0.2 have none."""
        zeros = StopRecord().state()
        for name, array in checked({name: state.get(name, zeros[name]) for name in RECORDED}, RECORDED, {}).items():
            setattr(self, name, int(array))


def can_stop(objective: Objective) -> bool:
    """Whether a part of a run shows how bad it is: of several metrics none decides alone, and one to be maximised may
    well grow until the end."""
    return objective.one and objective.sign > 0.0


def stop_of(objective: Objective, offer: Against, noise: float, wider: float, left: float) -> float | None:
    """The cost from which on a run should be ended; None where the default's level here is not known well enough.

    noise    variance of one run
    wider    by which deviations are wider than believed
    left     of the budget, in steps of the default's loss
    """
    level = float(offer.level)
    unsure = NOISE_DEVIATIONS * wider * math.sqrt(noise + float(offer.variances[1]))
    share = min(STAKE, MOST_OF_LEFT * max(left, 0.0))
    gap = max(float(objective.gap(share, level)), unsure)
    if objective.relative(gap, level) > MOST_STAKE:
        return None
    return float(objective.own_units(level + gap))


def stop_behind_best(
    objective: Objective, belief: Belief, point: Array, best: Array | None, wider: float
) -> float | None:
    """The same where the best is looked for: what is clearly behind it cannot be it. None before the best ran here."""
    if best is None or not can_stop(objective) or np.array_equal(point, best):
        return None
    level, variance = predict_one(belief, best)
    if variance > belief.noise:
        return None
    return stop_of(objective, Against(level, 0.0, 0.0, level, (variance, variance)), belief.noise, wider, math.inf)


def expected_from(bound: float, mean: float, variance: float) -> float:
    """E[y | y >= bound], of a normal y.

    >>> round(expected_from(0.0, 0.0, 1.0), 3), round(expected_from(-9.0, 0.0, 1.0), 3)
    (0.798, 0.0)
    """
    deviation = math.sqrt(max(variance, 0.0))
    if deviation == 0.0:
        return max(bound, mean)
    return max(mean + deviation * hazard((bound - mean) / deviation), bound)


def hazard(z: float) -> float:
    """phi(z) / (1 - Phi(z)), for any z.

    >>> [round(hazard(z), 3) for z in (-40.0, 0.0, 4.999, 5.001, 1e9)]
    [0.0, 0.798, 5.186, 5.188, 1000000000.0]
    """
    if z > FAR:
        y = 1.0 / z
        return z + y - 2.0 * y**3 + 10.0 * y**5
    return math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / (0.5 * math.erfc(z / math.sqrt(2.0)))


def losses_from(objective: Objective, losses: Array, mean: float, variance: float) -> Array:
    """The losses [C] that a run is taken to have had which was ended at `losses`, by the forecast of one run."""
    bound = float(objective.target(losses))
    most = max(bound + float(objective.gap(UNKNOWN_HARM, bound)), mean)
    more = min(expected_from(bound, mean, variance), most) - bound
    weights = objective.weights
    moved = losses + weights * (more / float(weights @ weights))
    values = [0.0] * len(objective.metrics)
    for c, (k, log) in enumerate(objective.table):
        if log == objective.uses_log[k]:
            loss = float(objective.signs[k] * moved[c])
            values[k] = math.exp(min(max(loss, -700.0), 700.0)) if log else loss
    expected: Array = objective.losses_of(values)
    return expected
