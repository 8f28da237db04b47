"""Whether a metric is compared by its logarithm: where its levels differ by factors between situations.

Where samples are kept, also where the evidence is for logarithms (gp/family.py).

Contexts are in units of their metric (contexts/context_metric.py). B are tuners, n samples of each, of which those in
use count.
"""

import math

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import ALIKE
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.scalar_or_batch import Condition, Number

NEIGHBOURS = 8  # nearest samples that count as one situation, if they are alike
LEVEL_VARIANCE = 0.3  # of log(metric) between situations: a deviation of 1.7 times
MOST_WITHIN = 2.0 * LEVEL_VARIANCE  # the variance of log(metric) within a situation: a deviation of 2.2 times
LEVEL_RATIO = 6.0  # of the whole variance to that within a situation
ALIKE_GAP = -2.0 * math.log(ALIKE)  # squared: beyond, two contexts are of different situations
SAME_GAP = 1e-9  # squared: rounding
FIRST_LOOK = 2 * NEIGHBOURS  # samples
LEAST_LOGS_GAIN = 2.0  # log evidence: values are compared as they are until their logarithms fit surely better
LOOK_EVERY_STEPS = (4, 16, 64)  # up to so many times NEIGHBOURS of samples; the last for good


def due(seen: Number) -> Condition:
    """Whether to look at the scale after so many samples: often while little is known."""
    *first, last = LOOK_EVERY_STEPS
    often = seen % last == 0
    for every in first:
        often = often | ((seen <= NEIGHBOURS * every) & (seen % every == 0))
    return often & (seen >= FIRST_LOOK)


def levels_apart(contexts: Array, logs: Array, used: Flags) -> Flags:
    """[B] whether the level of a metric differs by factors between situations, and by far less within one.

    Of samples [B, n] in use, the contexts [B, n, c] in units of their metric, and the logarithms [B, n] of the values.
    """
    if logs.shape[1] < FIRST_LOOK:
        return np.zeros(len(used), dtype=bool)
    far = np.where(used[:, None], _gaps(np.where(used[:, :, None], contexts, 0.0)), np.inf)
    nearest = np.sort(far, axis=2)[:, :, :NEIGHBOURS]
    eighth = nearest[:, :, -1]
    reach = np.where(nearest[:, :, 1] < ALIKE_GAP, np.minimum(eighth, ALIKE_GAP), eighth)
    near = np.astype(far <= reach[:, :, None] + SAME_GAP, np.float64)  # all of them where many are the same
    count, known = near.sum(axis=2), np.where(used, logs, 0.0)
    middle = (near @ known[:, :, None])[:, :, 0] / count
    squares = np.sum(near * (known[:, None] - middle[:, :, None]) ** 2, axis=2)
    within = _mean(squares / (count - 1.0), used)
    total = _mean((logs - _mean(logs, used)[:, None]) ** 2, used)
    apart: Flags = (within < MOST_WITHIN) & (total - within > LEVEL_VARIANCE) & (total > LEVEL_RATIO * within)
    apart &= used.sum(axis=1) >= FIRST_LOOK
    return apart


def _gaps(x: Array) -> Array:
    """[B, n, n] squared distances between contexts."""
    squares = np.sum(x * x, axis=2)
    gaps: Array = np.clip(squares[:, :, None] + squares[:, None] - 2.0 * (x @ x.mT), 0.0, None)
    return gaps


def _mean(values: Array, used: Flags) -> Array:
    """Over the last axis [..., n], of what is in use."""
    mean: Array = np.sum(np.where(used, values, 0.0), axis=-1) / np.sum(used, axis=-1)
    return mean
