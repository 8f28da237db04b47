"""What a look at each candidate is worth: how far it is expected to lower the least mean of them all."""

import math

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete import compiled
from rasp_tuner.engine.discrete.kernel import JITTER

LOOKS = np.array([1.0, 5.0, 25.0])  # at one point, that the value is averaged over: under noise one tells little


def knowledge_gradient(mean: Array, covariance: Array, noise: float) -> Array:
    """[m] how far a noisy look at each of m candidates is expected to lower the least mean of them all.

    For each look x the best alternative j alone is counted: max over j of E[(best - (mean_j + s_j Z))+], where s_j is
    how far that look moves j against the best. Several looks at x may be worth more than as many times one.
    """
    if compiled.ready():
        return compiled.knowledge_gradient(mean, covariance, noise, JITTER, LOOKS)
    order = mean.argsort(kind="stable")
    gap = mean[order] - mean[order[0]]
    apart = np.abs(covariance.take(order, axis=1) - covariance[:, order[:1]])  # [x, j]
    nearer = np.maximum.accumulate(apart, axis=1)[:, :-1]
    counts = np.ones(apart.shape, dtype=bool)
    np.greater(apart[:, 1:], nearer, out=counts[:, 1:])  # a better alternative that moves as far is worth more
    look, other = counts.nonzero()
    looks, variance = LOOKS[:, None], np.maximum(covariance.diagonal(), JITTER)
    spread = np.maximum(apart[look, other] / np.sqrt(variance + noise / looks)[:, look], 1e-12)  # [looks, .]
    worth = (spread * expected_excess(gap[other] / spread) / looks).max(axis=0)
    value: Array = np.maximum.reduceat(worth, (other == 0).nonzero()[0])
    return value


def expected_excess(gap: Array) -> Array:
    """E[(Z - gap)+] of a standard normal Z, for gap >= 0: density - gap * tail."""
    density = np.exp(-0.5 * np.minimum(gap, 40.0) ** 2) / math.sqrt(2.0 * math.pi)
    t = 1.0 / (1.0 + 0.2316419 * gap)  # the tail by Abramowitz and Stegun 26.2.17, to 7.5e-8 of the density at 0
    a, b, c, d, e = 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429
    tail = density * t * (a + t * (b + t * (c + t * (d + t * e))))
    excess: Array = np.maximum(density - gap * tail, 0.0)
    return excess
