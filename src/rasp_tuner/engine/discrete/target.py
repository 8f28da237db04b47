"""The target of the discrete family: y shifted, scaled, and compressed, so that one prior suits every metric.

Contexts may differ in their level by far more than points do within one. So the scale is the deviation within a
context, and what is compressed is what lies above the level of its context: what is bad need not be known exactly.

symbol     shape      meaning
y          [n]        of the rows; lower is better
likeness   [n, n]     kc, from 0 to 1: how similar the contexts of the rows are
level      [n]        mean y of similar rows
"""

import math
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array

LEVEL_PRIOR = 0.1  # rows that speak for the center of all when the level of a context is averaged
SCALE_PRIOR = 0.5  # rows that speak for the deviation of all when that within a context is estimated
MOST_LEVEL = 100.0  # more would leave no digits for what differs within a context
CONSTANT = 1e-10  # of the largest y: a smaller deviation is rounding


class Target(NamedTuple):
    """Targets of rows, and how they come from y."""

    values: Array  # [n]
    center: float  # median y
    scale: float  # deviation of y within a context
    level: float  # variance of y over all contexts, in units of scale^2; from 1 to MOST_LEVEL
    y: Array  # [n] what they were made from


def target_of(y: Array, likeness: Array, warp: float) -> Target:
    """(level - center) / scale + warped((y - level) / scale), for rows that are alike by `likeness` [n, n]."""
    size = max(float(np.abs(y).max()), 1e-300)
    ordered = np.sort(y)
    center = 0.5 * float(ordered[(len(y) - 1) // 2] + ordered[len(y) // 2])
    alike = likeness @ np.ones(len(y)) + LEVEL_PRIOR
    level = (likeness @ y + LEVEL_PRIOR * center) / alike
    freedom = len(y) - float((1.0 / alike).sum())  # a row on its own has none
    above = y - level
    within, overall = above / size, (y - center) / size
    prior = SCALE_PRIOR / (1.0 + freedom**2)  # soon forgotten, for contexts may be very far apart
    all_squares, mean = float(overall @ overall) / len(y), float(overall.sum()) / len(y)
    deviation = math.sqrt((float(within @ within) + prior * all_squares) / (freedom + prior))
    if deviation <= CONSTANT:
        deviation = 1.0
    scale = size * deviation
    apart = min(max((all_squares - mean**2) / deviation**2, 1.0), MOST_LEVEL)  # the mean is near the median
    return Target((level - center) / scale + warped(above / scale, warp), center, scale, apart, y)


def level_of(likeness: Array, y: Array, center: float) -> float:
    """Mean y [n] of rows that are alike by `likeness` [n], drawn a little towards `center`."""
    return (float(likeness @ y) + LEVEL_PRIOR * center) / (float(likeness.sum()) + LEVEL_PRIOR)


def warped(z: Array, warp: float) -> Array:
    """Identity up to 0, then logarithmic: slope 1 / (1 + z / warp)."""
    return np.where(z > 0.0, warp * np.log1p(np.maximum(z, 0.0) / warp), z)


def unwarped(target: float, warp: float) -> float:
    return warp * math.expm1(min(target, 100.0) / warp) if target > 0.0 else target
