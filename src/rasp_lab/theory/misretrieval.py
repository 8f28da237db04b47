"""Theorem "regret decomposition with misretrievals": what M_T retrieval mistakes cost.

The paper counts the regret of the mistaken steps alone, which is right if they leave the wrong state as it is. RA-GD
updates the state it played, so a mistake also sends that state away, and later *correct* steps pay for the way back.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial
from rasp_lab.theory.descent import DescentConstants
from rasp_lab.theory.problems import Regime, quadratic_1d
from rasp_lab.theory.ragd import play
from rasp_lab.theory.regret import draw_world, regret_to_go, total
from rasp_tuner.base.numerics import Array


def worst_loss(regimes: Sequence[Regime]) -> float:
    """Delta_max over all regimes."""
    return max(regime.worst for regime in regimes)


def mistake_cost(regimes: Sequence[Regime], descent: DescentConstants) -> float:
    """K: the most that one mistaken update adds to the regret still to come, max_r V_r(D_r) - V_r(D_r - h_r).

    D_r is the farthest point of Theta from w*_r and h_r = min(eta G, D_r) the longest kick.
    """
    steepest = max(regime.steepest for regime in regimes)
    costs = []
    for regime in regimes:
        kick = min(descent.step * steepest, regime.reach)
        before, after = regime.reach - kick, regime.reach
        costs.append(regret_to_go(descent, after, regime.tilt) - regret_to_go(descent, before, regime.tilt))
    return max(costs)


def printed_bound(regimes: Sequence[Regime], descent: DescentConstants, starts: Array, mistakes: int) -> float:
    """sum_r C_r + M_T Delta_max, with the paper's C_r."""
    return total(regimes, descent, starts, printed=True) + mistakes * worst_loss(regimes)


def frozen_bound(regimes: Sequence[Regime], descent: DescentConstants, starts: Array, mistakes: int) -> float:
    """The same with the mended C_r: for mistakes that update nothing."""
    return total(regimes, descent, starts, printed=False) + mistakes * worst_loss(regimes)


def bound(regimes: Sequence[Regime], descent: DescentConstants, starts: Array, mistakes: int) -> float:
    """sum_r V_r(d_r) + M_T (Delta_max + K): for mistakes that update the wrong state."""
    starting = sum(regret_to_go(descent, r.distance(start), r.tilt) for r, start in zip(regimes, starts, strict=True))
    return starting + mistakes * (worst_loss(regimes) + mistake_cost(regimes, descent))


BOUNDS = {"printed": printed_bound, "frozen": frozen_bound, "mended": bound}


def measure(
    regimes: Sequence[Regime],
    descent: DescentConstants,
    starts: Array,
    active: Sequence[int],
    retrieved: Sequence[int],
    which: str,
    name: str = "",
) -> Trial:
    learn = which != "frozen"
    regret = float(play(regimes, descent, starts, active, retrieved, learn_from_mistakes=learn).sum())
    mistakes = sum(r != s for r, s in zip(active, retrieved, strict=True))
    return Trial(regret, BOUNDS[which](regimes, descent, starts, mistakes), name)


def _trials(rng: np.random.Generator, *, which: str) -> Iterator[Trial]:
    while True:
        # the printed bound is given interior minimisers, so that nothing but the mistakes can break it
        regimes, descent, starts = draw_world(rng, interior=which == "printed")
        active = rng.integers(len(regimes), size=100)
        wrong = rng.uniform(size=100) < rng.choice([0.02, 0.1, 0.5])
        retrieved = np.where(wrong, rng.integers(len(regimes), size=100), active)
        yield measure(regimes, descent, starts, active.tolist(), retrieved.tolist(), which)


def slow_recovery(*, which: str) -> Trial:
    """Two quadratics, both states at their minimisers, so the paper's C_r are zero. Every fiftieth step regime 1 is
    taken for regime 0: its gradient sends state 0 to the edge of Theta, from where eta = 1.9 swings back slowly."""
    step = 1.9
    regimes = [quadratic_1d(0.0), quadratic_1d(1.0 / step)]
    descent = DescentConstants.on(*regimes, relative_step=step)
    starts = np.array([[0.0], [1.0 / step]])
    active, retrieved = ([1] + [0] * 49) * 20, [0] * 1000
    return measure(regimes, descent, starts, active, retrieved, which, "x^2/2, every 50th step misled, eta = 1.9")


def paid_twice(*, which: str) -> Trial:
    """The plainest case, eta = 1: every mistake is paid once when it is made and once when it is undone."""
    regimes, starts = [quadratic_1d(-1.0), quadratic_1d(1.0)], np.array([[-1.0], [1.0]])
    descent = DescentConstants.on(*regimes, relative_step=1.0)
    return measure(regimes, descent, starts, [1, 0] * 50, [0] * 100, which, "every mistake paid twice, eta = 1")


WHERE = "minimisers anywhere in Theta, losses below Delta_max"
CLAIMS = (
    Claim(
        "misretrieval",
        "paper",
        "R_T <= sum_r C_r + M_T Delta_max",
        "interior minimisers; a mistake updates the wrong state, as RA-GD does",
        partial(_trials, which="printed"),
        (partial(slow_recovery, which="printed"), partial(paid_twice, which="printed")),
    ),
    Claim(
        "misretrieval, state kept",
        "mended",
        "R_T <= sum_r C_r + M_T Delta_max, mended C_r",
        f"{WHERE}; a mistake updates nothing",
        partial(_trials, which="frozen"),
        (partial(slow_recovery, which="frozen"), partial(paid_twice, which="frozen")),
    ),
    Claim(
        "misretrieval",
        "mended",
        "R_T <= sum_r V_r(d_r) + M_T (Delta_max + K), K = max_r V_r(D_r) - V_r(D_r - min(eta G, D_r))",
        f"{WHERE}; a mistake updates the wrong state",
        partial(_trials, which="mended"),
        (partial(slow_recovery, which="mended"), partial(paid_twice, which="mended")),
    ),
)
