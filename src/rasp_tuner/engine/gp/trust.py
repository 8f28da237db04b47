"""Which samples are false, and how much each counts. Pure functions.

The noise is a scale mixture: a row has the noise s2 / trust. A sample is false with odds FALSE_ODDS, and then its error
is of any size. Else it is normal; but what was fitted to few rows is not known well, so that its forecast has the
Student's t of value.py. The first sample of a situation is right: the situation may be unlike all others.

symbol     shape      meaning
n          scalar     rows
"""

import math

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.common_constants import ABSURD_DEVIATIONS, EARLY_SAMPLES, FEWEST_SAMPLES, LIKELY
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import likeness

FREEDOM = 4.0  # of Student's t, of the noise: the usual robust choice
FALSE_ODDS = 1e-2  # prior odds of a false sample, as for quadratics
FALSE_SIZES = 11.0  # 2 log(1e6) / sqrt(2 pi): its error is of any size up to a million deviations
FAMILIAR = 1.0  # rows like this one: without them its situation is a new one
FALSE_SHARE = 1.0 / 3.0  # of the rows, at most, that are false together
LEAST_TRUST = 1e-9  # of a row: its noise stays finite, and it can come back
NORMAL_MAD = 1.4826  # deviation over the median distance, of a normal distribution
MOST_LOG = 500.0  # its exponential is finite


def without_like(levels: Array, trust: Array) -> NDArray[np.bool_]:
    """[n] which rows have a choice, of k knobs [n, k], that no other row has which is trusted [n].

    One bad option says little about others, so that nothing else tells how bad it may be: a ruinous one is no mistake.
    """
    others = trust > LIKELY
    same = (levels[:, None] == levels) & others[:, None]
    alone: NDArray[np.bool_] = (same.sum(axis=1) == others[:, None]).any(axis=1)
    return alone


def suspects(y: Array, counts: Array, z: Array, levels: Array, trust: Array) -> NDArray[np.bool_]:
    """[n] which of few rows ran once, and lie far from most rows, also from those of situations like theirs.

    y [n]: around their median. z [n, d_c]: contexts in their metric. Levels and trust: see without_like.
    """
    far = _far(y) if FEWEST_SAMPLES <= len(y) < EARLY_SAMPLES else np.zeros(len(y), dtype=bool)
    if far.any():
        far &= ~without_like(levels, trust)  # what no other can contradict
    if not far.any():
        return far
    order = y.argsort()
    alike = likeness(z, z)
    np.fill_diagonal(alike, 0.0)
    among = alike[:, order].cumsum(axis=1)
    middle = y[order[(among >= LIKELY * among[:, -1:]).argmax(axis=1)]]  # the weighted median of the others
    far = far & _far(y - middle) & (counts == 1.0) & (among[:, -1] >= FAMILIAR)
    return far if far.sum() <= FALSE_SHARE * len(y) else np.zeros_like(far)


def _far(apart: Array) -> NDArray[np.bool_]:
    """[n] which distances from the middle are far beyond the usual ones."""
    size = np.abs(apart)
    far: NDArray[np.bool_] = size > ABSURD_DEVIATIONS * NORMAL_MAD * np.sort(size)[len(size) // 2]
    return far


def if_false(y: Array, far: NDArray[np.bool_], noise: float, scale: float) -> float:
    """What is added to the log evidence of rows with LEAST_TRUST if they are false: anywhere within the range of y."""
    range_of_y = float(y.max() - y.min())
    return float(far.sum()) * (
        0.5 * math.log(2.0 * math.pi * noise / LEAST_TRUST) + math.log(scale * FALSE_ODDS / range_of_y)
    )


def trusted(
    squares: Array, variance: Array, alike: Array, noise: Array, freedom: float, false: NDArray[np.bool_]
) -> Array:  # fmt: skip
    """[n] weights of samples, each so far (squared) from its forecast of such a variance, under such a noise.

    `alike`: how many others are of situations like its own; `freedom`: of the forecast. A false one has a noise of the
    size of its error: that says nothing about the noise of others.
    """
    z = squares / (variance + noise)
    rarity = np.minimum(0.5 * (freedom + 1.0) * np.log1p(z / freedom), MOST_LOG)
    odds = FALSE_ODDS / FALSE_SIZES * np.exp(rarity) / np.sqrt(np.maximum(z, 1.0))
    right = np.where(false, 0.0, 1.0 / (1.0 + odds))
    weights: Array = right * student_weight(z) + (1.0 - right) * noise / np.maximum(squares, noise)
    # all is right within one deviation
    return np.where((alike >= FAMILIAR) & (false | (z > 1.0)), np.maximum(weights, LEAST_TRUST), 1.0)


def student_weight(z: Array) -> Array:
    """[n] of right samples, z squared deviations from their forecasts: Student's t."""
    return np.minimum(1.0, (FREEDOM + 1.0) / (FREEDOM + z))
