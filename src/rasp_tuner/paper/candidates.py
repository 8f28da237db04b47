"""CandidatePolicy: propose a handful of points, choose one by lower confidence bound (paper, Section Candidate Policy).

All points live in the unit box, so steps are fractions of a knob's range. The paper leaves open how the gradient step
is scaled and how many perturbations are "several": the step is theta_base - base_step * gradient, and there are six.
"""

from dataclasses import dataclass

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.paper.surrogate import Prediction


@dataclass(frozen=True, slots=True)
class RankedPoints:
    """Points [n, d] to rank, which may still lie outside the box, and where each came from."""

    points: Array
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CandidatePolicy:
    """Settings of the search around the current point; it remembers nothing."""

    base_step: float = 0.15  # 0.25 on Flash Crowd and Robot ISP (paper, Table hyperparams)
    kappa: float = 2.0
    stay: float = 0.65  # weight of the current point in the base center; the hint has the rest
    perturbations: int = 6

    def center(self, point: Array, hint: Array | None) -> Array:
        """theta_base = 0.65 theta_t + 0.35 theta_hint (Eq. base_center); the point itself while there is no hint."""
        if hint is None:
            return point
        base: Array = self.stay * point + (1.0 - self.stay) * hint
        return base

    def propose(self, base: Array, gradient: Array, hint: Array | None, rng: np.random.Generator) -> RankedPoints:
        """A gradient step from `base`, uniform perturbations in a box around it, and the hint."""
        noise = rng.uniform(-self.base_step, self.base_step, (self.perturbations, len(base)))
        points = [base - self.base_step * gradient, *(base + noise)]
        sources = ["gradient"] + ["perturbation"] * self.perturbations
        if hint is not None:
            points.append(hint)
            sources.append("hint")
        return RankedPoints(np.array(points), tuple(sources))

    def select(self, prediction: Prediction) -> int:
        """Index of the smallest LCB = mean - kappa sqrt(variance); the first of equals."""
        return int(np.argmin(prediction.mean - self.kappa * np.sqrt(prediction.variance)))
