"""Which scale a metric is easier to predict on: its own, or its logarithm (the choice of Box and Cox).

symbol   shape   meaning
x, u     [n, .]  contexts in units of their deviation; points, from -1 to 1
K        [n, n]  kernel: quadratics of the point, half shared by all contexts and half own to similar ones
"""

import numpy as np

from rasp_tuner.core.distance import pairwise_squares
from rasp_tuner.core.numerics import Array

NEIGHBOURS = 8  # samples of similar context that count as one situation
LEVEL_VARIANCE = 0.3  # of log(metric) between situations: a deviation of 1.7 times
MOST_WITHIN = 0.6  # the variance of log(metric) within a situation: a deviation of 2.2 times
LEVEL_RATIO = 6.0  # of the whole variance to that within a situation
LIKELIER_FROM_SAMPLES, LIKELIER_NATS = 16, 0.7  # a sample
FALSE_ONE_IN = 6  # the worst values are left out: false measurements would ask for a logarithm
NOISES = (0.01, 0.3)  # of K, the better of which counts
CONTEXT_WIDTH = 0.3  # of contexts that are still similar, in deviations
SHARED = 0.5  # of the kernel that all contexts have in common
TINY = 1e-20


def levels_apart(contexts: Array, logs: Array) -> bool:
    """Whether the level of a metric differs by factors between situations, and by far less within one."""
    if len(logs) < 2 * NEIGHBOURS:
        return False
    alike = _gaps(contexts).argsort(axis=1, kind="stable")[:, :NEIGHBOURS]
    within = float(logs[alike].var(axis=1, ddof=1).mean())
    total = float(logs.var())
    return within < MOST_WITHIN and total - within > LEVEL_VARIANCE and total > LEVEL_RATIO * within


def easier_in_logs(contexts: Array, points: Array, logs: Array) -> bool:
    """Whether samples are far likelier if their logarithms [n] are predicted instead of the values themselves."""
    if len(logs) < LIKELIER_FROM_SAMPLES:
        return False
    kept = np.sort(logs.argsort(kind="stable")[: len(logs) - len(logs) // FALSE_ONE_IN])
    contexts, logs, u = contexts[kept], logs[kept], 2.0 * points[kept] - 1.0
    like = np.exp(_gaps(contexts) / (-2.0 * CONTEXT_WIDTH**2 * max(contexts.shape[1], 1)))
    kernel = (SHARED + (1.0 - SHARED) * like) * (1.0 + (u @ u.T) / u.shape[1]) ** 2
    inverses = [np.linalg.inv(kernel + noise * np.eye(len(kernel))) for noise in NOISES]
    centred = np.minimum(np.maximum(logs - logs.mean(), -100.0), 100.0)
    linear, log = (max(_likelihood(inverse, target) for inverse in inverses) for target in (np.exp(centred), centred))
    return log - linear > LIKELIER_NATS


def _gaps(contexts: Array) -> Array:
    """[n, n] squared distances, each dimension in units of its deviation."""
    spread = contexts.std(axis=0)
    return pairwise_squares((contexts - contexts.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))


def _likelihood(inverse: Array, target: Array) -> float:
    """Mean log density of each target given all others, up to a constant."""
    z = target - np.median(target)
    own = inverse.diagonal()
    size = max(float(np.abs(z).max()), TINY)
    variance = max(float(np.median((inverse @ (z / size)) ** 2 / own)), TINY)  # the median: outliers do not decide
    return 0.5 * float(np.log(own).mean()) - 0.5 * float(np.log(variance)) - float(np.log(size))
