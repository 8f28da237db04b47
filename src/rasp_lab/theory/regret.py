"""Theorem "dynamic regret under idealized regimes": the regret of RA-GD stays below sum_r C_r for ever.

The paper's C_r builds on its sandwich and so fails where a minimiser lies on the boundary; the mended one does not.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_lab.theory.descent import DescentConstants, draw_relative_step
from rasp_lab.theory.problems import Regime, draw_regime, quadratic_1d
from rasp_lab.theory.ragd import play
from rasp_lab.theory.sandwich import upper
from rasp_tuner.base.numerics import Array


def printed_constant(descent: DescentConstants, distance: float) -> float:
    """The paper's C_r = L d^2 / (2 (1 - q)) for a start at this distance."""
    require(distance >= 0.0, "a distance is not negative", distance=distance)
    return upper(descent.smoothness, distance) / (1.0 - descent.q)


def regret_to_go(descent: DescentConstants, distance: float, tilt: float) -> float:
    """V(d) = G* d / (1 - kappa) + L d^2 / (2 (1 - kappa^2)): all regret still to come from this distance."""
    kappa = descent.kappa
    return tilt * distance / (1.0 - kappa) + upper(descent.smoothness, distance) / (1.0 - kappa**2)


def constant(descent: DescentConstants, distance: float, tilt: float) -> float:
    """The mended C_r: the lesser of V(d) and of what telescoping the descent inequality gives."""
    first = upper(descent.smoothness, distance, tilt)
    slack = min(1.0, 2.0 - descent.step * descent.smoothness)
    telescoped = first / slack + 0.5 * max(1.0 / descent.step - descent.mu, 0.0) * distance**2
    return min(regret_to_go(descent, distance, tilt), telescoped)


def total(regimes: Sequence[Regime], descent: DescentConstants, starts: Array, *, printed: bool) -> float:
    """sum_r C_r."""
    pairs = [(regime, regime.distance(start)) for regime, start in zip(regimes, starts, strict=True)]
    if printed:
        return sum(printed_constant(descent, distance) for _, distance in pairs)
    return sum(constant(descent, distance, regime.tilt) for regime, distance in pairs)


def draw_world(rng: np.random.Generator, *, interior: bool = False) -> tuple[list[Regime], DescentConstants, Array]:
    """Two to four regimes, a step and a start for each."""
    dim, count = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    regimes = [draw_regime(rng, dim, interior=interior or bool(rng.integers(2))) for _ in range(count)]
    return (
        regimes,
        DescentConstants.on(*regimes, relative_step=draw_relative_step(rng)),
        rng.uniform(-1, 1, (count, dim)),
    )


def _trials(rng: np.random.Generator, *, printed: bool, interior: bool = False) -> Iterator[Trial]:
    while True:
        regimes, descent, starts = draw_world(rng, interior=interior)
        regrets = play(regimes, descent, starts, rng.integers(len(regimes), size=100).tolist())
        yield Trial(float(regrets.sum()), total(regimes, descent, starts, printed=printed))


def one_step_home(*, printed: bool) -> Trial:
    """f(w) = x + x^2 / 2 on x >= 0 from x = 0.1 with eta = 1: home in one step, regret 0.105, the paper's C 0.005."""
    regimes, starts = [quadratic_1d(-1.0, slope=1.0)], np.array([[-0.9]])
    descent = DescentConstants.on(*regimes, relative_step=1.0)
    regret = float(play(regimes, descent, starts, [0] * 10).sum())
    return Trial(regret, total(regimes, descent, starts, printed=printed), "x + x^2/2 on x >= 0, from x = 0.1, eta = 1")


CLAIMS = (
    Claim(
        "regret",
        "paper",
        "R_T <= sum_r L d_r^2 / (2 (1 - q))",
        "perfect retrieval, minimisers anywhere in Theta",
        partial(_trials, printed=True),
        (partial(one_step_home, printed=True),),
    ),
    Claim(
        "regret, interior",
        "mended",
        "R_T <= sum_r L d_r^2 / (2 (1 - q)), the paper's constant",
        "perfect retrieval, minimisers in the interior of Theta",
        partial(_trials, printed=True, interior=True),
    ),
    Claim(
        "regret",
        "mended",
        "R_T <= sum_r min(V(d_r), (G* d_r + L d_r^2/2) / min(1, 2 - eta L) + (1/eta - mu)+ d_r^2/2)",
        "perfect retrieval, minimisers anywhere in Theta",
        partial(_trials, printed=False),
        (partial(one_step_home, printed=False),),
    ),
)
