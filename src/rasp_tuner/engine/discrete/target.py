"""The target of the discrete family: y shifted, scaled, and compressed, so that one prior suits every metric.

Contexts may differ in their level by far more than points do within one. So the scale is the deviation within a
context, and what is compressed is what lies above the level of its context: what is bad need not be known exactly.

symbol     shape      meaning
y          [n]        of the rows; lower is better
likeness   [m, n]     kc, from 0 to 1: how similar m contexts are to those of the rows
levels     [m]        mean y of similar rows
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


def target_of(y: Array, likeness: Array, warp: float) -> Target:
    """(level - center) / scale + warped((y - level) / scale), for rows that are alike by `likeness` [n, n]."""
    size = max(float(np.abs(y).max()), 1e-300)
    ordered = np.sort(y)
    center = 0.5 * float(ordered[(len(y) - 1) // 2] + ordered[len(y) // 2])
    level = levels(likeness, y, center)
    freedom = float((1.0 - 1.0 / (likeness.sum(axis=1) + LEVEL_PRIOR)).sum())  # a row on its own has none
    within, overall = (y - level) / size, (y - center) / size
    prior = SCALE_PRIOR / (1.0 + freedom**2)  # soon forgotten, for contexts may be very far apart
    squares = float(within @ within) + prior * float(overall @ overall) / len(y)
    deviation = math.sqrt(squares / (freedom + prior))
    if deviation <= CONSTANT:
        deviation = 1.0
    scale = size * deviation
    apart = min(max(float(overall.var()) / deviation**2, 1.0), MOST_LEVEL)
    return Target((level - center) / scale + warped((y - level) / scale, warp), center, scale, apart)


def levels(likeness: Array, y: Array, center: float) -> Array:
    """[m] mean y of similar rows, drawn a little towards `center`."""
    found: Array = (likeness @ y + LEVEL_PRIOR * center) / (likeness.sum(axis=1) + LEVEL_PRIOR)
    return found


def warped(z: Array, warp: float) -> Array:
    """Identity up to 0, then logarithmic: slope 1 / (1 + z / warp)."""
    return np.where(z > 0.0, warp * np.log1p(np.maximum(z, 0.0) / warp), z)


def unwarped(target: Array, warp: float) -> Array:
    return np.where(target > 0.0, warp * np.expm1(np.clip(target, 0.0, 100.0) / warp), target)
