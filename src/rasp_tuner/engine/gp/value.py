"""What a look at a candidate is worth: the knowledge gradient, in units of a.

A look moves the means of all points by one random number. Without interactions the least mean falls by the sum, over
knobs, of how far the least along each falls: exact for an additive world. A look at a point that differs in several knobs
is worth at least what that point alone may turn out to be. The larger of both counts.

symbol     shape    meaning
mean       [m]      of the candidates, x0 first
moved      [m, m]   deviation by which a look at the first moves the mean of the second
"""

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.gp import native_gp
from rasp_tuner.engine.gp.knobs import Knobs
from rasp_tuner.engine.gp.posterior import LEAST_VARIANCE
from rasp_tuner.engine.gp.search import Candidates, parabola

LEAST_BEND = 0.2  # of the mean along a continuous knob: a flat one would promise too much
MOST_SHIFT = 0.25  # of the box that one look may move a continuous optimum by
NODES = np.array([-2.5, -1.75, -1.25, -0.85, -0.5, -0.17, 0.17, 0.5, 0.85, 1.25, 1.75, 2.5])
NODE_WEIGHTS = np.exp(-0.5 * NODES**2) * np.gradient(NODES)
NODE_WEIGHTS /= NODE_WEIGHTS.sum()
NODE_TABLE = np.stack([NODES, NODE_WEIGHTS])
LOOKS = np.array([1.0, 5.0, 25.0])  # under noise one look tells little and several may tell much: the best per look counts


def knowledge_gradient(knobs: Knobs, found: Candidates, mean: Array, covariance: Array, noise: float) -> Array:
    """[m] how far a look at each candidate is expected to lower the least mean."""
    if knobs.tables is not None:
        lines = (found.lines, found.line_knob)
        return native_gp.value(knobs.tables, found.points, *lines, mean, covariance, noise, NODE_TABLE, LOOKS)
    variance = np.maximum(covariance.diagonal(), LEAST_VARIANCE)
    value = np.zeros(len(mean))
    for looks in LOOKS.tolist():
        moved = covariance / np.sqrt(variance + noise / looks)[:, None]
        along = np.zeros(len(mean))
        for j in range(knobs.dim):
            own = found.lines[found.line_knob == j]
            if knobs.levels[j] is None:
                x = found.points[own, j] - found.points[0, j]
                bend = max(float(parabola(x, mean[own] - mean[0])[1]), LEAST_BEND)
                slope, _ = parabola(x, moved[:, own] - moved[:, :1])
                along += np.minimum(slope**2 / (4.0 * bend), MOST_SHIFT * np.abs(slope))
            else:
                along += fall(mean[np.append(0, own)], moved[:, np.append(0, own)])
        value = np.maximum(value, np.maximum(along, fall(mean, moved)) / looks)
    return value


def fall(mean: Array, moved: Array) -> Array:
    """[m] min(mean) - E min(mean + moved z) of a standard normal z, for each row of moved [m, k]; mean [k]."""
    expected = sum(w * (mean + moved * z).min(axis=1) for z, w in zip(NODES.tolist(), NODE_WEIGHTS.tolist(), strict=True))
    return np.maximum(mean.min() - expected, 0.0)
