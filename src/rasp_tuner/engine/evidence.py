"""Evidence: rival hypotheses scored by the density they gave to what came back; old scores fade."""

import math
from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.numerics import Array, assign, softmax

FREEDOM = 5.0  # of the Student-t density: one sample in the tail does not end a hypothesis
FARTHEST = 1e150  # deviations: beyond, squares overflow


class Evidence:
    """Log scores L [n] with L <- keep L + (1 - keep) L0 + log p; weights are their softmax."""

    def __init__(self, prior: Array, keep: float = 0.97) -> None:
        self.prior = prior
        self.keep = keep
        self.scores = prior.copy()

    @property
    def weights(self) -> Array:
        return softmax(self.scores)

    @property
    def leader(self) -> int:
        return int(self.scores.argmax())

    def observe(self, densities: Array) -> None:
        """Take in the log densities [n] of one sample."""
        self.scores = self.keep * self.scores + (1.0 - self.keep) * self.prior + densities
        self.scores -= self.scores.max()

    def state(self) -> dict[str, Array]:
        return {"scores": self.scores}

    def restore(self, state: Mapping[str, Array]) -> None:
        assign(self.scores, state["scores"])


def log_student(gap: Array, variance: Array, freedom: float = FREEDOM) -> Array:
    """Log density of Student's t, `gap` away from its centre; finite for every gap up to 1e100 and variance > 0."""
    norm = math.lgamma((freedom + 1.0) / 2.0) - math.lgamma(freedom / 2.0) - 0.5 * math.log(freedom * math.pi)
    far = np.minimum(np.abs(gap) / np.sqrt(freedom * variance), FARTHEST)
    logs: Array = norm - 0.5 * np.log(variance) - 0.5 * (freedom + 1.0) * np.log1p(far**2)
    return logs


def log_mean(logs: Array, weights: Array) -> float:
    """Log of the weighted mean of densities given by their logs; at least that of 1e-300 of the largest."""
    top = float(logs.max())
    mean = float(weights @ np.exp(logs - top))  # zero if all the weight lies elsewhere
    return top + math.log(max(mean, 1e-300))
