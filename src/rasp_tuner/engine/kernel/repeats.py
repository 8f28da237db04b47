"""Means of many runs: what one tuner learned as a sample counts as all the runs that it is the mean of.

The sums of a slot are those of its samples. So the runs of one point add up to what they would have come to one by one,
but for products of two metrics, of which means and variances say nothing. In C and NumPy alike: only sums are touched.
"""

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.engine.kernel.memory import triangle
from rasp_tuner.engine.kernel.pooled_prior import KEEP, NOISE_PRIOR, NOISE_VARIANCES, log_student
from rasp_tuner.engine.kernel.state import Dims, State


def weigh(dims: Dims, state: State, default: Array, point: Array, losses: Array, count: int, scatter: Array) -> None:
    """Have the latest sample, mean losses [C] at a point [d], count as so many runs with this variance [C] of one."""
    slot, p = int(state.latest[0]), dims.features
    u = 2.0 * (point - default)
    relative = np.clip(losses - state.first[0], -LARGEST, LARGEST)
    psi = np.concatenate([[1.0], u, u * u, relative])
    above, beside, _ = triangle(dims.sample)
    more = (count - 1.0) * psi[above] * psi[beside]
    own = (above == beside) & (above >= p)
    more[own] += count * scatter
    state.prompts[0, slot] += more
    state.counts[0, slot] += count - 1.0
    _observe_scatter(state, count, float(scatter @ state.weights[0] ** 2))


def _observe_scatter(state: State, count: int, variance: float) -> None:
    """Score noises by runs that scatter around their own mean: each as if it had come after the one before.

    Noises are shares of the common curvature, so that it is not less than the largest of them needs.
    """
    if not state.curvature[0] > 0.0:
        return
    deviation = np.sqrt(variance * count / (count - 1.0))
    state.curvature[0] = max(state.curvature[0], deviation / np.sqrt(NOISE_VARIANCES[-1]))
    faded = KEEP ** (count - 1)
    weight, gap = (1.0 - faded) / (1.0 - KEEP), deviation / state.curvature[0]
    scores = faded * state.noises[0] + (1.0 - faded) * NOISE_PRIOR + weight * log_student(gap, NOISE_VARIANCES)
    state.noises[0] = scores - scores.max(axis=1, keepdims=True)
