"""Lemma "quadratic sandwich": what a distance from the minimiser costs.

The paper's upper side takes the gradient at the minimiser for zero. On the boundary it is not, and costs G* |w - w*|.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_lab.theory.descent import draw_start
from rasp_lab.theory.problems import Regime, quadratic_1d
from rasp_tuner.base.numerics import Array


def lower(mu: float, distance: float) -> float:
    """mu d^2 / 2 <= f(w) - f(w*), on the boundary too."""
    return 0.5 * mu * distance**2


def upper(smoothness: float, distance: float, tilt: float = 0.0) -> float:
    """f(w) - f(w*) <= G* d + L d^2 / 2; without the tilt G* this is what the paper prints."""
    require(tilt >= 0.0 and distance >= 0.0, "tilt and distance are norms", tilt=tilt, distance=distance)
    return tilt * distance + 0.5 * smoothness * distance**2


def _trials(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    """The upper side; the mended one's lower side by turns with it."""
    while True:
        regime, _, point = draw_start(rng)
        yield above(regime, point, printed=printed)
        regime, _, point = draw_start(rng)
        if printed:
            yield above(regime, point, printed=True)
        else:
            yield Trial(lower(regime.mu, regime.distance(point)), regime.excess(point))


def above(regime: Regime, point: Array, *, printed: bool, name: str = "") -> Trial:
    tilt = 0.0 if printed else regime.tilt
    return Trial(regime.excess(point), upper(regime.smoothness, regime.distance(point), tilt), name)


def tilted_quadratic(*, printed: bool) -> Trial:
    """f(w) = x + x^2 / 2 with x = w + 1 >= 0: at x = 0.1 it is 0.105, and the paper allows x^2 / 2 = 0.005."""
    return above(
        quadratic_1d(-1.0, slope=1.0), np.array([-0.9]), printed=printed, name="x + x^2/2 on x >= 0, at x = 0.1"
    )


CLAIMS = (
    Claim(
        "sandwich",
        "paper",
        "f(w) - f* <= L/2 |w - w*|^2",
        "minimiser anywhere in Theta",
        partial(_trials, printed=True),
        (partial(tilted_quadratic, printed=True),),
    ),
    Claim(
        "sandwich",
        "mended",
        "mu/2 |w - w*|^2 <= f(w) - f* <= G* |w - w*| + L/2 |w - w*|^2",
        "minimiser anywhere in Theta; G* = |gradient at w*|",
        partial(_trials, printed=False),
        (partial(tilted_quadratic, printed=False),),
    ),
)
