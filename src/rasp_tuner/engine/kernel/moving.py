"""The moving optimum of B tuners: a bowl whose optimum moves linearly with the context; Gauss-Newton on a window.

symbol   shape        meaning
b        scalar       tuners that are fitted now
n        scalar       rows of the window that any of them uses
u        [b, n, d]    points relative to the default, in [-2, 2]
x        [b, n, 1+r]  a one, and the leading principal components of the context, standardised
y        [b, n]       target, in units of the shared curvature
theta    [b, m]       l, q [d] and M [d, 1 + r] of y = l + sum_i q_i (u_i - M_i x)^2
J        [b, n, m]    slope of y by theta, times the root of how much a sample counts
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import EARLY_SAMPLES, FADING_SAMPLES, ODD_DEVIATIONS
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.masks import ALL_ROWS, Flags, Rows, chunks, column, span
from rasp_tuner.engine.kernel.memory import bounded
from rasp_tuner.engine.kernel.outliers import CHI2_MEDIAN, masked_median, residual_trust
from rasp_tuner.engine.kernel.pooled_prior import centred_level, noise_variances, prior
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, State

SLOPE_VARIANCE = 0.6  # variance of how the optimum moves with x, in units of that of the optimum itself
COMPONENTS_EVERY_STEPS = 8  # between looks at the principal components, once there are EARLY_SAMPLES
YOUNG_SAMPLES = int(FADING_SAMPLES)  # up to which every fit takes some steps more
YOUNG_EXTRA_STEPS = 3  # so many
LARGEST_TARGET = 1e12  # in units of the curvature: a constant metric that jumps must not overflow
FARTHEST_OPTIMUM = 1e3  # in u, which lies in [-2, 2]: one absurd context must not throw the others out
STEP_LENGTHS = (1.0, 0.4, 0.1)  # lengths tried in turn


class FitWindow(NamedTuple):
    """Samples that are fitted to, with how much each counts."""

    u: Array
    x: Array
    y: Array
    trust: Array  # [b, n] in units of 1 / rho


@lru_cache
def sketch(dims: Dims) -> Array:
    """[c, w] the random projection of long contexts: always the same."""
    drawn: Array = np.random.default_rng(7).normal(size=(dims.context, dims.width)) / np.sqrt(dims.width)
    return drawn


def reduced(dims: Dims, contexts: Array) -> Array:
    """[B, w] contexts, projected if they are long."""
    if dims.context == dims.width:
        return contexts
    return contexts @ sketch(dims)


def encoded(dims: Dims, state: State, contexts: Array) -> Array:
    """x [B, 1 + r] of contexts [B, c]."""
    x = _components(reduced(dims, contexts)[:, None], state.centre, state.encode)
    return x[:, 0]


def observe(dims: Dims, state: State, u: Array, contexts: Array, losses: Array, trust: Array) -> None:
    """Take a sample of each tuner into the window; `steps` counts it already."""
    short, seen = reduced(dims, contexts), state.steps[:, None]
    row = column((state.steps - 1.0) % WINDOW_SAMPLES)
    state.window_points[row] = u
    state.window_contexts[row] = short
    state.window_losses[row] = losses
    state.window_weights[row] = trust
    short = reduced(dims, bounded(state, contexts))
    gap = short - state.reduced_mean
    state.reduced_mean += gap / seen
    square = gap[:, :, None] * (short - state.reduced_mean)[:, None]
    state.reduced_moments += (square - state.reduced_moments) / seen[:, :, None]


def fit(dims: Dims, state: State, a: Array, offset: Array, mask: Flags) -> None:
    """Gauss-Newton towards y = losses @ weights - offset [B], in units of a [B], for the tuners in a mask."""
    # here, and not when a sample comes: theta and its covariance must be in the same encoding
    steps, n = state.steps, min(int(state.steps.max()), WINDOW_SAMPLES)
    for rows in chunks(mask & ((steps < EARLY_SAMPLES) | (steps % COMPONENTS_EVERY_STEPS == 0.0))):
        _refresh(dims, state, rows)
    mean, precision = _prior(dims, state, centred_level(state, offset, a))
    noise = noise_variances(state.noises)[:, -1]
    for group, times in ((steps < YOUNG_SAMPLES, 1 + YOUNG_EXTRA_STEPS), (steps >= YOUNG_SAMPLES, 1)):
        for rows in chunks(mask & group, WINDOW_SAMPLES * dims.coefficients):
            task = Task(a[rows][:, None], offset[rows][:, None], mean[rows], precision[rows], noise[rows][:, None])
            _fit(dims, state, rows, n, task, times)


def inverse(matrices: Array) -> tuple[Array, Flags]:
    """[b, m, m] and where there is one, [b]; zeros elsewhere: no matrix spoils it for the others."""
    try:
        inverses: Array = np.linalg.inv(matrices)  # type: ignore[assignment]  # NumPy's types know less
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.zeros_like(matrices), np.zeros(1, dtype=bool)
        half = len(matrices) // 2
        parts = zip(inverse(matrices[:half]), inverse(matrices[half:]), strict=True)
        both, there = (np.concat(pair, axis=0) for pair in parts)
        return both, there
    return inverses, np.ones(len(matrices), dtype=bool)


class Task(NamedTuple):
    """What is fitted, in units of the curvature."""

    a: Array  # [b, 1] that curvature
    offset: Array  # [b, 1] of y, in its own units
    mean: Array  # [b, m] prior of theta
    precision: Array  # [b, m, m]
    noise: Array  # [b, 1] rho


def _fit(dims: Dims, state: State, rows: Rows, n: int, task: Task, times: int) -> None:
    """So many steps for some tuners; a tuner stops where none helps, and forgets its fit where there is no step."""
    d, steps = dims.knobs, state.steps[rows]
    a, offset, prior, precision, noise = task
    used = np.arange(n) < steps[:, None]
    u = state.window_points[rows, :n]
    x = _components(state.window_contexts[rows, :n], state.centre[rows], state.encode[rows])
    y = _limited(((state.window_losses[rows, :n] @ state.weights[rows][:, :, None])[:, :, 0] - offset) / a)
    theta = np.concat([(state.theta[rows, :1] - offset) / a, state.theta[rows, 1:]], axis=1)
    theta[:, 1 : 1 + d] /= a
    theta[:, : 1 + d] = _limited(theta[:, : 1 + d])
    theta = np.where(state.fitted[rows][:, None] > 0.0, theta, prior)
    gaps, squares, residual = _residual(theta, u, x, y)
    left = residual**2
    usual = np.maximum(masked_median(left, used)[:, None] / CHI2_MEDIAN, noise)
    trust = np.where(used, residual_trust(left, usual) * state.window_weights[rows, :n] / noise, 0.0)
    root = np.sqrt(trust)[:, :, None]
    moving = there = np.ones(len(steps), dtype=bool)
    covariance = np.zeros_like(precision)
    jacobian = np.empty((*y.shape, dims.coefficients))
    for again in range(times):
        if again:
            gaps, squares, residual = _residual(theta, u, x, y)
        jacobian[:, :, :1], jacobian[:, :, 1 : 1 + d] = root, root * squares
        slopes = (-2.0 * theta[:, None, 1 : 1 + d] * (root * gaps))[:, :, :, None] * x[:, :, None]
        jacobian[:, :, 1 + d :] = slopes.reshape((*slopes.shape[:2], -1))
        found, exists = inverse(jacobian.mT @ jacobian + precision)
        there, moving = there & (exists | ~moving), moving & exists
        covariance = np.where(moving[:, None, None], found, covariance)
        away = theta - prior
        pull = _times(precision, away)
        step = _times(found, _times(jacobian.mT, root[:, :, 0] * residual) - pull)
        cost = (trust * residual**2).sum(axis=1) + (away * pull).sum(axis=1)
        theta, moving = _moved(theta, step, cost, moving, task, FitWindow(u, x, y, trust))
        if not moving.any():
            break
    theta[:, : 1 + d] *= a
    theta[:, :1] += offset
    theta, covariance = (
        np.where(there[:, None], theta, state.theta[rows]),
        np.where(there[:, None, None], covariance, state.covariance[rows]),
    )
    state.theta[rows], state.covariance[rows] = theta, covariance
    state.unit[rows] = np.where(there, a[:, 0], state.unit[rows])
    state.fitted[rows] = there


def _moved(theta: Array, step: Array, cost: Array, moving: Flags, task: Task, window: FitWindow) -> tuple[Array, Flags]:
    """Theta a step further, by the first length that costs no more; and which tuners [b] found one."""
    rows: Rows = ALL_ROWS
    searching = moving.copy()
    for length in STEP_LENGTHS:
        here, (u, x, y, trust) = theta[rows], (array[rows] for array in window)
        there = here + length * step[rows]
        away = there - task.mean[rows]
        after = (trust * _residual(there, u, x, y)[2] ** 2).sum(axis=1)
        after += (away * _times(task.precision[rows], away)).sum(axis=1)
        better = searching[rows] & (after <= cost[rows])
        theta[rows] = np.where(better[:, None], there, here)
        searching[rows] = searching[rows] & ~better
        if not searching.any():
            break
        rows = span(np.flatnonzero(searching))  # few as a rule
    return theta, moving & ~searching


def _times(matrix: Array, vector: Array) -> Array:
    """[b, m] the product of matrices [b, m, n] with vectors [b, n]."""
    return (matrix @ vector[:, :, None])[:, :, 0]


def _limited(y: Array) -> Array:
    return np.minimum(np.maximum(y, -LARGEST_TARGET), LARGEST_TARGET)


def _residual(theta: Array, u: Array, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Gaps to the optimum [b, n, d], their squares, and what is left of y [b, n]."""
    d = u.shape[2]
    moves = theta[:, 1 + d :].reshape((len(theta), d, x.shape[2]))
    gaps = u - x @ moves.mT
    squares = gaps**2
    return gaps, squares, y - theta[:, :1] - (squares @ theta[:, 1 : 1 + d, None])[:, :, 0]


def _components(contexts: Array, centre: Array, encode: Array) -> Array:
    """x [b, n, 1 + r] of reduced contexts [b, n, w]."""
    x = (contexts - centre[:, None]) @ encode
    one = np.ones((*x.shape[:2], 1))
    return np.concat([one, np.minimum(np.maximum(x, -ODD_DEVIATIONS), ODD_DEVIATIONS)], axis=2)


def _refresh(dims: Dims, state: State, rows: Rows) -> None:
    """Look at the components of some tuners anew, and re-express the optimum in them."""
    d, r = dims.knobs, dims.rank
    moments, mean, centre, before = (
        array[rows] for array in (state.reduced_moments, state.reduced_mean, state.centre, state.encode)
    )
    variance = np.linalg.diagonal(moments)
    spread = np.sqrt(np.where(variance > 1e-12 * (variance + mean**2), variance, 1.0))
    if dims.width > r:
        sizes, axes = np.linalg.eigh(moments / (spread[:, :, None] * spread[:, None]))
        top, size = axes[:, :, -r:], np.sqrt(np.maximum(sizes[:, None, -r:], 1e-9))
        encode, decode = top / size / spread[:, :, None], top * size * spread[:, :, None]  # [b, w, r] both
    else:
        unit = np.eye(r)
        encode, decode = unit / spread[:, None], unit * spread[:, None]
    old = np.reshape(state.theta[rows, 1 + d :], (len(mean), d, 1 + r))
    slopes = old[:, :, 1:] @ before.mT  # [b, d, w] by the reduced context
    here = old[:, :, :1] + slopes @ (mean - centre)[:, :, None]
    moved = np.reshape(np.concat([here, slopes @ decode], axis=2), (len(mean), -1))
    moved = np.minimum(np.maximum(moved, -FARTHEST_OPTIMUM), FARTHEST_OPTIMUM)
    fitted = state.fitted[rows][:, None] > 0.0
    state.theta[rows, 1 + d :] = np.where(fitted, moved, state.theta[rows, 1 + d :])
    state.centre[rows], state.encode[rows] = mean, encode


def _prior(dims: Dims, state: State, level: Array) -> tuple[Array, Array]:
    """Mean [B, m] and precision [B, m, m] of theta, in units of the curvature."""
    d, r, m, size = dims.knobs, dims.rank, dims.coefficients, state.size
    common = prior(dims, state)
    moves = np.zeros((size, d, 1 + r))
    moves[:, :, 0] = state.location
    mean = np.concat([level[:, None], common.mean[:, 1 + d :], moves.reshape((size, -1))], axis=1)
    precision = np.zeros((size, m, m))
    precision[:, 1 : 1 + d, 1 : 1 + d] = common.precision[:, 1 + d :, 1 + d :]
    moves[...] = (1.0 / (state.location_variance * SLOPE_VARIANCE))[:, :, None]
    moves[:, :, 0] = 1.0 / state.location_variance
    diagonal = precision.reshape((size, m * m))[:, :: m + 1]  # a view
    diagonal[:, 0] = 1.0 / common.level_variance
    diagonal[:, 1 + d :] = moves.reshape((size, -1))
    return mean, precision
