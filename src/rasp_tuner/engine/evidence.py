"""Densities that hypotheses gave to what came back, in logarithms."""

import math

import numpy as np

from rasp_tuner.base.numerics import Array

FARTHEST = 1e150  # deviations: beyond, squares overflow


def log_student(gap: float, variance: float, freedom: float) -> float:
    """Log density of Student's t, `gap` away from its centre; finite for every gap up to 1e100 and variance > 0."""
    norm = math.lgamma((freedom + 1.0) / 2.0) - math.lgamma(freedom / 2.0) - 0.5 * math.log(freedom * math.pi)
    far = min(abs(gap) / math.sqrt(freedom * variance), FARTHEST)
    return norm - 0.5 * math.log(variance) - 0.5 * (freedom + 1.0) * math.log1p(far**2)


def log_mean(logs: Array, weights: Array) -> float:
    """Log of the weighted mean of densities given by their logs; at least that of 1e-300 of the largest."""
    top = float(logs.max())
    mean = float(weights @ np.exp(logs - top))  # zero if all the weight lies elsewhere
    return top + math.log(max(mean, 1e-300))
