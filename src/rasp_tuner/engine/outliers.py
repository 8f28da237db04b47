"""Which of a few samples are false measurements: the worst ones, if the others are likelier without them.

Two false measurements hide each other, so samples are not judged one by one: "the k worst are false" are rival
hypotheses, compared by the evidence of a bowl whose steepness is chosen by those that are left. One Cholesky factor
of the samples in order of their y holds the evidence of all of them.

symbol   shape     meaning
phi, y   [n, p]    features of the samples; [n] their target
a        [n]       the likeliest curvature of the bowl, for each hypothesis
q        [n]       1 to n: how many of the samples are true
"""

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array

NOISE = 0.3  # variance in units of a^2; what situations differ by is noise here
ROW = 3  # false ones in a row are none: the world has changed
FEWEST = 4  # samples that can say anything
SHARE = 3  # no more than one in so many is false
TINY = 1e-100  # in units of the range of y: a curvature where all that is left is alike


def suspects(y: Array) -> NDArray[np.intp]:
    """The worst third, best first."""
    worst: NDArray[np.intp] = y.argsort(kind="stable")[len(y) - len(y) // SHARE :]
    return worst


def unlikely(
    phi: Array, y: Array, mean: Array, covariance: Array, may: NDArray[np.bool_], odds: float
) -> tuple[NDArray[np.bool_], float]:
    """Which samples [n] are false, and the curvature that the others have; only some `may` be. In order of time.

    `mean` [p] and `covariance` [p, p] are the prior of the coefficients, in units of the curvature and its square.
    """
    n, false = len(y), np.zeros(len(y), dtype=bool)
    size = float(np.ptp(y)) if n >= FEWEST else 0.0
    if not size > 0.0:
        return false, 0.0
    y = y - np.median(y)
    worst = suspects(y)
    order = np.concatenate([y.argsort(kind="stable")[: n - len(worst)], worst[~may[worst]], worst[may[worst]]])
    f, z = phi[order], y[order] / size
    lower = np.linalg.cholesky(f @ covariance @ f.T + NOISE * np.eye(n))
    by_y, by_prior = np.linalg.solve(lower, np.stack([z, f @ mean], axis=1)).T
    q = np.arange(1, n + 1)
    square, linear = (by_y**2).cumsum(), (by_y * by_prior).cumsum()
    a = np.maximum((np.sqrt(linear**2 + 4.0 * q * square) - linear) / (2.0 * q), TINY)
    evidence = linear / a - 0.5 * square / a**2 - 0.5 * (by_prior**2).cumsum() - q * np.log(a)
    evidence -= np.log(np.diag(lower)).cumsum() + 0.5 * q * np.log(2.0 * np.pi)
    evidence += (n - q) * np.log(odds)  # false ones lie anywhere within the range of y
    evidence[: n - int(may[worst].sum()) - 1] = -np.inf
    true = int(evidence.argmax()) + 1
    false[order[true:]] = True
    begins = np.flatnonzero(np.convolve(false, np.ones(ROW), "valid") == ROW)  # n >= FEWEST > ROW
    if len(begins):
        honest = may.copy()
        honest[begins[:, None] + np.arange(ROW)] = False
        return unlikely(phi, y, mean, covariance, honest, odds)
    return false, float(a[true - 1]) * size
