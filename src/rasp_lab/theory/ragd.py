"""RA-GD: one projected gradient descent for each regime, on the state that retrieval picks (paper, Section theory)."""

from collections.abc import Sequence

import numpy as np

from rasp_lab.theory.claim import require
from rasp_lab.theory.descent import DescentConstants
from rasp_lab.theory.problems import Regime
from rasp_tuner.base.numerics import Array


def play(
    regimes: Sequence[Regime],
    descent: DescentConstants,
    starts: Array,
    active: Sequence[int],
    retrieved: Sequence[int] | None = None,
    *,
    learn_from_mistakes: bool = True,
) -> Array:
    """Regrets [T] of playing the retrieved regime's state under the active regime's loss, from starts [R, d].

    Where retrieval errs, what comes back is the active regime's gradient, and the wrong state takes the step; with
    `learn_from_mistakes=False` it stays as it is.

    >>> from rasp_lab.theory.problems import quadratic_1d
    >>> pair = [quadratic_1d(0.0), quadratic_1d(1.0)]
    >>> descent = DescentConstants.on(*pair, relative_step=1.0)
    >>> play(pair, descent, np.zeros((2, 1)), active=[0, 1, 0, 1]).tolist()
    [0.0, 0.5, 0.0, 0.0]
    """
    picked = active if retrieved is None else retrieved
    require(len(picked) == len(active), "one retrieval a step", active=len(active), retrieved=len(picked))
    states = np.array(starts, dtype=np.float64)
    require(bool(np.all(np.abs(states) <= 1.0)), "every start must lie in Theta", starts=starts)
    regrets = np.empty(len(active))
    for t, (r, s) in enumerate(zip(active, picked, strict=True)):
        regrets[t], gradient = regimes[r].look(states[s])
        if r == s or learn_from_mistakes:
            states[s] = descent.move(states[s], gradient)
    return regrets
