"""Outliers: how far to trust a sample, and which of the first few are false measurements.

Two false measurements hide each other, so the first samples are not judged one by one: "the k worst are false" are
rival hypotheses, compared by the evidence of a bowl whose steepness and noise are chosen by those that are left. One
Cholesky factor of the samples in order of their y holds the evidence of all of them, for one noise. Were noise a fixed
share of the steepness, many samples near the optimum would make the few that show the bowl look false.

symbol   shape     meaning
phi, y   [n, p]    features of the samples; [n] their target
a        [M, n]    the likeliest curvature of the bowl, for each noise and hypothesis
q        [n]       1 to n: how many of the samples are true
"""

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array

OUTLYING_DEVIATIONS = 5.0  # at which a sample counts a quarter
LARGEST_RESIDUAL = 1e60  # squared, in units of the usual one: not trusted at all
CHI2_MEDIAN = 0.455  # median of a squared standard normal
NOISES = np.array([1e-4, 1e-2, 0.3])  # [M] variances in units of a^2; what situations differ by is noise here
ROW_SAMPLES = 3  # false ones in a row are none: the world has changed
FEWEST_SAMPLES = 4  # samples that can say anything
ONE_IN = 3  # no more than one in so many is false
TINY = 1e-100  # in units of the range of y: a curvature where all that is left is alike


def residual_trust(squares: Array, scale: Array | float) -> Array:
    """One where a squared residual is about `scale`, near zero where it is far beyond."""
    far = np.minimum(squares, LARGEST_RESIDUAL * scale) / (OUTLYING_DEVIATIONS**2 * scale)
    trust: Array = 1.0 / (1.0 + far) ** 2
    return trust


def suspects(y: Array) -> NDArray[np.intp]:
    """The worst third, best first."""
    worst: NDArray[np.intp] = y.argsort(kind="stable")[len(y) - len(y) // ONE_IN :]
    return worst


def early_outliers(
    phi: Array, y: Array, mean: Array, covariance: Array, may: NDArray[np.bool_], odds: float
) -> tuple[NDArray[np.bool_], float]:
    """Which samples [n] are false, and the curvature that the others have; only some `may` be. In order of time.

    `mean` [p] and `covariance` [p, p] are the prior of the coefficients, in units of the curvature and its square.
    """
    n, false = len(y), np.zeros(len(y), dtype=bool)
    size = float(np.ptp(y)) if n >= FEWEST_SAMPLES else 0.0
    if not size > 0.0:
        return false, 0.0
    y = y - np.median(y)
    worst = suspects(y)
    order = np.concatenate([y.argsort(kind="stable")[: n - len(worst)], worst[~may[worst]], worst[may[worst]]])
    f, z = phi[order], y[order] / size
    lower = np.linalg.cholesky(f @ covariance @ f.T + NOISES[:, None, None] * np.eye(n))
    by_y, by_prior = np.moveaxis(np.linalg.solve(lower, np.stack([z, f @ mean], axis=1)), 2, 0)
    q = np.arange(1, n + 1)
    square, linear = (by_y**2).cumsum(axis=1), (by_y * by_prior).cumsum(axis=1)
    a = np.maximum((np.sqrt(linear**2 + 4.0 * q * square) - linear) / (2.0 * q), TINY)
    evidence = linear / a - 0.5 * square / a**2 - 0.5 * (by_prior**2).cumsum(axis=1) - q * np.log(a)
    evidence -= np.log(lower.diagonal(axis1=1, axis2=2)).cumsum(axis=1) + 0.5 * q * np.log(2.0 * np.pi)
    evidence += (n - q) * np.log(odds)  # false ones lie anywhere within the range of y
    evidence[:, : n - int(may[worst].sum()) - 1] = -np.inf
    alike = np.maximum.accumulate(z) == np.minimum.accumulate(z)
    evidence[:, alike] = -np.inf  # what is left is constant, as of a metric of zeros and ones: it says nothing
    noise, last = divmod(int(evidence.argmax()), n)
    true = last + 1
    false[order[true:]] = True
    begins = np.flatnonzero(np.convolve(false, np.ones(ROW_SAMPLES), "valid") == ROW_SAMPLES)
    if len(begins):
        honest = may.copy()
        honest[begins[:, None] + np.arange(ROW_SAMPLES)] = False
        return early_outliers(phi, y, mean, covariance, honest, odds)
    return false, float(a[noise, last]) * size
