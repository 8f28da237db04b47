"""Two domains beyond the paper's: an adversarial context whose answer is not the start, and regimes that come back."""

import numpy as np

from rasp_lab.bench.domains.schedules import recurring
from rasp_lab.bench.domains.synthetic import adversarial_context
from rasp_lab.bench.domains.target import Condition, TargetDomain, cube, squares, visits
from rasp_tuner.base.numerics import Array

A2_OPTIMUM = (0.80, 0.25, 0.70, 0.20, 0.65)  # in A1 the start is the answer; here it is as far as in the other domains

H1_BLOCK = (5, 20)  # steps a regime lasts: T = 100 holds about eight blocks, so most regimes return
H1_OPTIMA: Array = np.array(
    [
        [0.20, 0.75, 0.35, 0.60, 0.80],
        [0.70, 0.30, 0.80, 0.25, 0.40],
        [0.40, 0.60, 0.20, 0.85, 0.25],
        [0.80, 0.20, 0.60, 0.40, 0.65],
    ]
)
H1_CONTEXTS: Array = np.array([[1.0, 0.2, 0.1], [0.1, 1.0, 0.3], [0.3, 0.1, 1.0], [0.9, 0.9, 0.8]])  # about 1 apart
H1_SPREAD = 0.15  # of the context: regimes stay apart, but no two visits look alike
H1_NOISE = 0.015  # about 5% of the static default's loss


def adversarial_offcentre() -> TargetDomain:
    """A1 with its optimum moved off the box centre."""
    return adversarial_context("A2_Adversarial_Offcentre", A2_OPTIMUM)


def recurring_regimes() -> TargetDomain:
    """Four regimes revisited in blocks of random length, seen through a noisy context."""

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        regime = recurring(horizon, len(H1_OPTIMA), *H1_BLOCK, rng)
        return visits(regime, H1_CONTEXTS[regime] + H1_SPREAD * rng.normal(size=(horizon, 3)), H1_OPTIMA)

    return TargetDomain("H1_Recurring_Regimes", cube(5), "loss", squares(np.ones(5)), H1_NOISE, stream)
