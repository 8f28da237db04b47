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

from rasp_tuner.engine.kernel.memory import bounded
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.select import EVERY, Mask, Rows, Seen, chosen, chunks, column, put, uniform
from rasp_tuner.engine.kernel.shared import centred_level, noise_variances, prior
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, State, Tensor
from rasp_tuner.engine.kernel.trust import CHI2_MEDIAN, masked_median, residual_trust

SLOPE_VARIANCE = 0.6  # variance of how the optimum moves with x, in units of that of the optimum itself
REFRESH_EVERY_STEPS = 8  # between looks at the principal components, once there are PLENTY_SAMPLES
PLENTY_SAMPLES = 40
YOUNG_SAMPLES, YOUNG_EXTRA_STEPS = 50, 3  # samples up to which every fit takes so many steps more
LARGEST_TARGET = 1e12  # in units of the curvature: a constant metric that jumps must not overflow
FARTHEST_COMPONENT = 3.0  # deviations: one absurd context must not throw the optimum out
FARTHEST_OPTIMUM = 1e3  # in u, which lies in [-2, 2]: one absurd context must not throw the others out
STEP_LENGTHS = (1.0, 0.4, 0.1)  # lengths tried in turn


class Window(NamedTuple):
    """Samples that are fitted to, with how much each counts."""

    u: Tensor
    x: Tensor
    y: Tensor
    trust: Tensor  # [b, n] in units of 1 / rho


@lru_cache
def sketch(dims: Dims, xp: Tensor, device: Tensor) -> Tensor:
    """[c, w] the random projection of long contexts: always the same."""
    drawn = np.random.default_rng(7).normal(size=(dims.context, dims.width)) / np.sqrt(dims.width)
    return xp.asarray(drawn, dtype=xp.float64, device=device)


def reduced(dims: Dims, contexts: Tensor) -> Tensor:
    """[B, w] contexts, projected if they are long."""
    if dims.context == dims.width:
        return contexts
    return contexts @ sketch(dims, namespace(contexts), contexts.device)


def encoded(dims: Dims, state: State, contexts: Tensor) -> Tensor:
    """x [B, 1 + r] of contexts [B, c]."""
    return _components(reduced(dims, contexts)[:, None], state.centre, state.encode)[:, 0]


def observe(dims: Dims, state: State, u: Tensor, contexts: Tensor, losses: Tensor, trust: Tensor) -> None:
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


def restore_trust(state: State, mask: Mask) -> None:
    """The latest sample of these tuners was no mistake after all."""
    row = column((state.steps - 1.0) % WINDOW_SAMPLES)
    latest = state.window_weights[row]
    put(latest, mask, 1.0)
    state.window_weights[row] = latest


def fit(dims: Dims, state: State, a: Tensor, offset: Tensor, mask: Mask, seen: Seen) -> None:
    """Gauss-Newton towards y = losses @ weights - offset [B], in units of a [B], for the tuners in a mask."""
    # here, and not when a sample comes: theta and its covariance must be in the same encoding
    steps, n = seen.steps(state), min(int(seen.most), WINDOW_SAMPLES)
    rows = chosen(mask & ((steps < PLENTY_SAMPLES) | (steps % REFRESH_EVERY_STEPS == 0.0)))
    if rows is not None:
        _refresh(dims, state, rows)
    mean, precision = _prior(dims, state, centred_level(state, offset, a))
    noise = noise_variances(state.noises)[:, -1]
    for group, times in ((steps < YOUNG_SAMPLES, 1 + YOUNG_EXTRA_STEPS), (steps >= YOUNG_SAMPLES, 1)):
        for rows in chunks(mask & group, state.size, WINDOW_SAMPLES * dims.coefficients):
            task = Task(a[rows][:, None], offset[rows][:, None], mean[rows], precision[rows], noise[rows][:, None])
            _fit(dims, state, rows, n, task, times)


def inverse(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """[b, m, m] and where there is one, [b]; zeros elsewhere: no matrix spoils it for the others."""
    xp = namespace(matrices)
    if xp is not np:
        inverses, wrong = xp.linalg.inv_ex(matrices)
        return xp.where((wrong == 0)[:, None, None], inverses, 0.0), wrong == 0
    try:
        inverses = xp.linalg.inv(matrices)
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return xp.zeros_like(matrices), xp.zeros_like(matrices[:, 0, 0], dtype=xp.bool)
        half = len(matrices) // 2
        parts = zip(inverse(matrices[:half]), inverse(matrices[half:]), strict=True)
        both, there = (xp.concat(pair, axis=0) for pair in parts)
        return both, there
    return inverses, xp.ones_like(matrices[:, 0, 0], dtype=xp.bool)


class Task(NamedTuple):
    """What is fitted, in units of the curvature."""

    a: Tensor  # [b, 1] that curvature
    offset: Tensor  # [b, 1] of y, in its own units
    mean: Tensor  # [b, m] prior of theta
    precision: Tensor  # [b, m, m]
    noise: Tensor  # [b, 1] rho


def _fit(dims: Dims, state: State, rows: Rows, n: int, task: Task, times: int) -> None:
    """So many steps for some tuners; a tuner stops where none helps, and forgets its fit where there is no step."""
    xp, d, steps = namespace(state.theta), dims.knobs, state.steps[rows]
    a, offset, prior, precision, noise = task
    used = xp.arange(n, device=steps.device) < steps[:, None]
    u = state.window_points[rows, :n]
    x = _components(state.window_contexts[rows, :n], state.centre[rows], state.encode[rows])
    y = _limited(((state.window_losses[rows, :n] @ state.weights[rows][:, :, None])[:, :, 0] - offset) / a)
    theta = xp.concat([(state.theta[rows, :1] - offset) / a, state.theta[rows, 1:]], axis=1)
    theta[:, 1 : 1 + d] /= a
    theta[:, : 1 + d] = _limited(theta[:, : 1 + d])
    theta = xp.where(state.fitted[rows][:, None] > 0.0, theta, prior)
    gaps, squares, residual = _residual(theta, u, x, y)
    left = residual**2
    usual = xp.maximum(masked_median(left, used)[:, None] / CHI2_MEDIAN, noise)
    trust = xp.where(used, residual_trust(left, usual) * state.window_weights[rows, :n] / noise, 0.0)
    root = xp.sqrt(trust)[:, :, None]
    moving = there = xp.ones_like(steps, dtype=xp.bool)
    covariance = None
    jacobian = xp.empty((*y.shape, dims.coefficients), dtype=y.dtype, device=y.device)
    for again in range(times):
        if again:
            gaps, squares, residual = _residual(theta, u, x, y)
        jacobian[:, :, :1], jacobian[:, :, 1 : 1 + d] = root, root * squares
        slopes = (-2.0 * theta[:, None, 1 : 1 + d] * (root * gaps))[:, :, :, None] * x[:, :, None]
        jacobian[:, :, 1 + d :] = slopes.reshape((*slopes.shape[:2], -1))
        found, exists = inverse(jacobian.mT @ jacobian + precision)
        there, moving = there & (exists | ~moving), moving & exists
        covariance = found if covariance is None else xp.where(moving[:, None, None], found, covariance)
        away = theta - prior
        pull = _times(precision, away)
        step = _times(found, _times(jacobian.mT, root[:, :, 0] * residual) - pull)
        cost = (trust * residual**2).sum(axis=1) + (away * pull).sum(axis=1)
        theta, moving = _moved(theta, step, cost, moving, task, Window(u, x, y, trust))
        if uniform(moving) is False:
            break
    theta[:, : 1 + d] *= a
    theta[:, :1] += offset
    theta, covariance = (
        xp.where(there[:, None], theta, state.theta[rows]),
        xp.where(there[:, None, None], covariance, state.covariance[rows]),
    )
    state.theta[rows], state.covariance[rows] = theta, covariance
    state.unit[rows] = xp.where(there, a[:, 0], state.unit[rows])
    state.fitted[rows] = xp.astype(there, theta.dtype)


def _moved(
    theta: Tensor, step: Tensor, cost: Tensor, moving: Tensor, task: Task, window: Window
) -> tuple[Tensor, Tensor]:
    """Theta a step further, by the first length that costs no more; and which tuners [b] found one."""
    xp = namespace(theta)
    rows: Rows | None = EVERY
    searching = xp.asarray(moving, copy=True)
    for length in STEP_LENGTHS:
        here, (u, x, y, trust) = theta[rows], (array[rows] for array in window)
        there = here + length * step[rows]
        away = there - task.mean[rows]
        after = (trust * _residual(there, u, x, y)[2] ** 2).sum(axis=1)
        after += (away * _times(task.precision[rows], away)).sum(axis=1)
        better = searching[rows] & (after <= cost[rows])
        theta[rows] = xp.where(better[:, None], there, here)
        searching[rows] = searching[rows] & ~better
        rows = chosen(searching)  # few as a rule
        if rows is None:
            break
    return theta, moving & ~searching


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """[b, m] the product of matrices [b, m, n] with vectors [b, n]."""
    return (matrix @ vector[:, :, None])[:, :, 0]


def _limited(y: Tensor) -> Tensor:
    xp = namespace(y)
    return xp.minimum(xp.maximum(y, -LARGEST_TARGET), LARGEST_TARGET)


def _residual(theta: Tensor, u: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gaps to the optimum [b, n, d], their squares, and what is left of y [b, n]."""
    d = u.shape[2]
    moves = theta[:, 1 + d :].reshape((len(theta), d, x.shape[2]))
    gaps = u - x @ moves.mT
    squares = gaps**2
    return gaps, squares, y - theta[:, :1] - (squares @ theta[:, 1 : 1 + d, None])[:, :, 0]


def _components(contexts: Tensor, centre: Tensor, encode: Tensor) -> Tensor:
    """x [b, n, 1 + r] of reduced contexts [b, n, w]."""
    xp = namespace(contexts)
    x = (contexts - centre[:, None]) @ encode
    one = xp.ones((*x.shape[:2], 1), dtype=x.dtype, device=x.device)
    return xp.concat([one, xp.minimum(xp.maximum(x, -FARTHEST_COMPONENT), FARTHEST_COMPONENT)], axis=2)


def _refresh(dims: Dims, state: State, rows: Rows) -> None:
    """Look at the components of some tuners anew, and re-express the optimum in them."""
    xp, d, r = namespace(state.theta), dims.knobs, dims.rank
    moments, mean, centre, before = (
        array[rows] for array in (state.reduced_moments, state.reduced_mean, state.centre, state.encode)
    )
    variance = xp.linalg.diagonal(moments)
    spread = xp.sqrt(xp.where(variance > 1e-12 * (variance + mean**2), variance, 1.0))
    if dims.width > r:
        sizes, axes = xp.linalg.eigh(moments / (spread[:, :, None] * spread[:, None]))
        top, size = axes[:, :, -r:], xp.sqrt(xp.maximum(sizes[:, None, -r:], 1e-9))
        encode, decode = top / size / spread[:, :, None], top * size * spread[:, :, None]  # [b, w, r] both
    else:
        unit = xp.eye(r, dtype=mean.dtype, device=mean.device)
        encode, decode = unit / spread[:, None], unit * spread[:, None]
    old = xp.reshape(state.theta[rows, 1 + d :], (len(mean), d, 1 + r))
    slopes = old[:, :, 1:] @ before.mT  # [b, d, w] by the reduced context
    here = old[:, :, :1] + slopes @ (mean - centre)[:, :, None]
    moved = xp.reshape(xp.concat([here, slopes @ decode], axis=2), (len(mean), -1))
    moved = xp.minimum(xp.maximum(moved, -FARTHEST_OPTIMUM), FARTHEST_OPTIMUM)
    fitted = state.fitted[rows][:, None] > 0.0
    state.theta[rows, 1 + d :] = xp.where(fitted, moved, state.theta[rows, 1 + d :])
    state.centre[rows], state.encode[rows] = mean, encode


def _prior(dims: Dims, state: State, level: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [B, m] and precision [B, m, m] of theta, in units of the curvature."""
    xp, d, r, m, size = namespace(level), dims.knobs, dims.rank, dims.coefficients, state.size
    common = prior(dims, state)
    moves = xp.zeros((size, d, 1 + r), dtype=level.dtype, device=level.device)
    moves[:, :, 0] = state.location
    mean = xp.concat([level[:, None], common.mean[:, 1 + d :], moves.reshape((size, -1))], axis=1)
    precision = xp.zeros((size, m, m), dtype=level.dtype, device=level.device)
    precision[:, 1 : 1 + d, 1 : 1 + d] = common.precision[:, 1 + d :, 1 + d :]
    moves[...] = (1.0 / (state.location_variance * SLOPE_VARIANCE))[:, :, None]
    moves[:, :, 0] = 1.0 / state.location_variance
    diagonal = precision.reshape((size, m * m))[:, :: m + 1]  # a view
    diagonal[:, 0] = 1.0 / common.level_variance
    diagonal[:, 1 + d :] = moves.reshape((size, -1))
    return mean, precision
