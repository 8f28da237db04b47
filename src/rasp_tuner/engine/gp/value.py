"""What a look at a candidate is worth: the knowledge gradient, in units of a.

A look moves the means of all points by one random number. Without interactions the least mean falls by the sum, over
knobs, of how far the least along each falls: exact for an additive world. A look at a point that differs in several
knobs is worth at least what that point alone may turn out to be. The larger of both counts.

symbol     shape    meaning
mean       [m]      of the candidates, x0 first
moved      [m, m]   deviation by which a look at the first moves the mean of the second
"""

from functools import lru_cache

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.gp.knobs import Knobs
from rasp_tuner.engine.gp.posterior import LEAST_VARIANCE
from rasp_tuner.engine.gp.search import Candidates, parabola

LEAST_BEND = 0.2  # of the mean along a continuous knob: a flat one would promise too much
MOST_SHIFT = 0.25  # of the box that one look may move a continuous optimum by
# where an expectation over one random number is summed: dense in the middle, and far into the tails
NODES = np.array([-4.5, -2.8, -1.8, -1.1, -0.6, -0.2, 0.2, 0.6, 1.1, 1.8, 2.8, 4.5])
STEPS_BETWEEN = np.gradient(NODES)
TAIL, TAIL_ROWS = 3.0, 2.0  # degrees of freedom of that number without rows; rows for one more


def knowledge_gradient(
    knobs: Knobs, found: Candidates, mean: Array, covariance: Array, noise: float, rows: int
) -> Array:
    """[m] how far a look at each candidate is expected to lower the least mean."""
    weights = weighted_nodes(rows)[1]
    variance = np.maximum(covariance.diagonal(), LEAST_VARIANCE)
    moved, along = covariance / np.sqrt(variance + noise)[:, None], np.zeros(len(mean))
    for j in range(knobs.dim):
        own = found.lines[found.line_knob == j]
        if knobs.levels[j] is None:
            x = found.points[own, j] - found.points[0, j]
            if len(x) < 2 or not x.all() or x[0] == x[1]:  # limits bar one, or rules moved both to the same place
                continue
            bend = max(float(parabola(x, mean[own] - mean[0])[1]), LEAST_BEND)
            slope, _ = parabola(x, moved[:, own] - moved[:, :1])
            along += np.minimum(slope**2 / (4.0 * bend), MOST_SHIFT * np.abs(slope))
        else:
            along += fall(mean[np.append(0, own)], moved[:, np.append(0, own)], weights)
    return np.maximum(along, fall(mean, moved, weights))


def fall(mean: Array, moved: Array, weights: Array) -> Array:
    """[m] min(mean) - E min(mean + moved z) of a standard normal z, for each row of moved [m, k]; mean [k]."""
    expected = sum(w * (mean + moved * z).min(axis=1) for z, w in zip(NODES.tolist(), weights.tolist(), strict=True))
    fallen: Array = np.maximum(mean.min() - expected, 0.0)
    return fallen


@lru_cache(maxsize=256)
def weighted_nodes(rows: int) -> Array:
    """[2, 12] NODES, and weights of Student's t: hyperparameters that were fitted to few rows are not known well."""
    tail = TAIL + rows / TAIL_ROWS
    weights: Array = (1.0 + NODES**2 / tail) ** (-0.5 * (tail + 1.0)) * STEPS_BETWEEN
    return np.stack([NODES, weights / weights.sum()])
