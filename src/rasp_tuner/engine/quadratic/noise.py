"""TrackedNoise: how noisy observations are, apart from what each expert does not know yet.

symbol   shape   meaning
e        [E]     what came less what was expected, in units of the shared curvature a
v        [E]     variance of that expectation, in units of a^2
rho      [E]     variance of one observation around its mean, in units of a^2
"""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.numerics import Array, assign
from rasp_tuner.engine.evidence import log_student

VARIANCES = np.logspace(-4.0, 0.0, 9)  # [K] that are weighed
LOGS = np.log(VARIANCES)
START = 1e-2  # rho before any sample
DECADE_ODDS = 1.0  # nats against a variance ten times larger or smaller than that
KEEP = 0.97  # of the scores, a step: noise may change


class TrackedNoise:
    """For each of E experts the variances [K] with scores, by the density they give to its errors; old scores fade."""

    def __init__(self, experts: int) -> None:
        self._prior = -DECADE_ODDS * np.abs(LOGS - np.log(START)) / np.log(10.0)
        self._scores = np.tile(self._prior, (experts, 1))

    @property
    def variances(self) -> Array:
        """rho [E]: the weighted geometric mean."""
        weights = np.exp(self._scores)
        variances: Array = np.exp(weights @ LOGS / weights.sum(axis=1))
        return variances

    def observe(self, errors: Array, unsure: Array) -> None:
        """Take in e and v of one sample."""
        scores = KEEP * self._scores + (1.0 - KEEP) * self._prior
        scores += log_student(errors[:, None], unsure[:, None] + VARIANCES)
        self._scores = scores - scores.max(axis=1, keepdims=True)

    def state(self) -> dict[str, Array]:
        return {"scores": self._scores}

    def restore(self, state: Mapping[str, Array]) -> None:
        assign(self._scores, state["scores"])
