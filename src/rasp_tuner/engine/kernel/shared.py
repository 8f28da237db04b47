"""What all situations of a tuner have in common: the prior of a bowl not known yet, and the noise. Symbols: state.py.

symbol    shape      meaning
a         [B]        the curvature all situations share: the unit that coefficients are measured in
rho       [B, E]     variance of one observation around its mean, in units of a^2
G, b      [B, p, p]  sums of phi phi' over samples; [B, p] of phi y
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.select import Mask, Rows, put, top
from rasp_tuner.engine.kernel.state import NOISES, Dims, E, L, State, Tensor

OPTIMUM_VARIANCE = 0.25  # of an optimum around the default
OWN_DEVIATION, COMMON_DEVIATION = 0.3, 0.4  # of a knob's own curvature and of the common one, in units of a
OWN_DEVIATION_LEAST = 0.1  # of the first, once the knobs' curvatures are known
LEVEL_VARIANCE = 25.0  # of the least y, in units of a, while nothing is known
LARGEST_LEVEL = 1e30  # in units of a: a metric that jumps must not overflow
TINY = 1e-100  # a curvature where y is constant, so that no logarithm sees a zero
CURVATURE_RATE = 0.3  # of one step towards the curvature that is likeliest now
RATE = 0.1  # of one step towards what the leading expert sees
NOISE_ODDS = 2.0  # nats against each noise that the curvature is estimated with, but the one before
START_NOISE = 1e-2  # rho before any sample
DECADE_ODDS = 1.0  # nats against a variance ten times larger or smaller than that
LOCAL_ODDS = 3.0  # nats against every local expert but the blind one
KEEP = 0.97  # of scores, a step: old ones fade
FREEDOM = 5.0  # of the Student-t density: one sample in the tail does not end a hypothesis
FARTHEST = 1e150  # deviations: beyond, squares overflow
STUDENT = math.lgamma((FREEDOM + 1.0) / 2.0) - math.lgamma(FREEDOM / 2.0) - 0.5 * math.log(FREEDOM * math.pi)


class Prior(NamedTuple):
    """Of the coefficients of a bowl, in units of a, level left out."""

    mean: Tensor  # [B, p]
    precision: Tensor  # [B, p, p]
    pull: Tensor  # [B, p] their product
    level_variance: Tensor  # [B]


class Constants(NamedTuple):
    """Where the state is."""

    estimate_noises: Tensor  # [5] rho that the curvature is estimated with
    estimate_odds: Tensor  # [5] nats against them
    variances: Tensor  # [NOISES] rho that are weighed
    logs: Tensor  # [NOISES] of these
    noise_prior: Tensor  # [NOISES] their scores before any sample
    expert_prior: Tensor  # [E] scores of the experts before any sample


@lru_cache
def constants(xp: Tensor, device: Tensor) -> Constants:
    """As arrays of the namespace, made once for each device."""
    logs = np.log(np.logspace(-4.0, 0.0, NOISES))
    arrays = (
        np.logspace(-4.0, 0.0, 5),
        NOISE_ODDS * np.arange(5.0),
        np.exp(logs),
        logs,
        -DECADE_ODDS * np.abs(logs - np.log(START_NOISE)) / np.log(10.0),
        np.array([0.0, *[-LOCAL_ODDS] * (L - 1), *[0.0] * (E - L)]),
    )
    return Constants(*(xp.asarray(array, dtype=xp.float64, device=device) for array in arrays))


def prior(dims: Dims, state: State) -> Prior:
    """Of a bowl that is not known yet, by what the tuner's situations have shown so far."""
    xp, d, p, size = namespace(state.shape), dims.knobs, dims.features, state.size
    known = state.curvature > 0.0
    tracked = xp.where(known, state.tracked, 0.0)
    own = xp.maximum(OWN_DEVIATION / xp.sqrt(1.0 + tracked / 20.0), OWN_DEVIATION_LEAST) ** 2
    level_variance = xp.minimum(xp.maximum(4.0 * state.level_variance, 0.01), LEVEL_VARIANCE)
    level_variance = xp.where(known, level_variance, LEVEL_VARIANCE)
    shape = xp.where(known[:, None], state.shape, 1.0)
    where, unsure = state.location, state.location_variance
    mean = xp.concat([(unsure + where**2).sum(axis=1)[:, None], -2.0 * shape * where, shape], axis=1)
    precision = xp.zeros((size, p, p), dtype=mean.dtype, device=mean.device)
    common = COMMON_DEVIATION**2 / (own + d * COMMON_DEVIATION**2)
    precision[:, 1 + d :, 1 + d :] = (-common / own)[:, None, None]
    diagonal = precision.reshape((size, p * p))[:, :: p + 1]  # a view
    diagonal[:, 0] = 1.0 / xp.where(known, level_variance + 0.1 * d, LEVEL_VARIANCE)
    diagonal[:, 1 : 1 + d] = 0.25 / unsure
    diagonal[:, 1 + d :] = ((1.0 - common) / own)[:, None]
    return Prior(mean, precision, (precision @ mean[:, :, None])[:, :, 0], level_variance)


def centred_level(state: State, offset: Tensor, a: Tensor) -> Tensor:
    """[B] level of the least y, less the offset, in units of a; 0 while it is unknown."""
    xp = namespace(state.level)
    level = xp.minimum(xp.maximum((state.level - offset) / a, -LARGEST_LEVEL), LARGEST_LEVEL)
    return xp.where(state.curvature > 0.0, level, 0.0)


def estimate(prior: Prior, G: Tensor, b: Tensor, rest: Tensor, level: Tensor) -> Tensor:
    """[B] the likeliest curvature, whatever the noise; `rest` [B] are sums of y^2, `level` the expected least y.

    For each noise the evidence is largest at one curvature, in closed form; then the noises are weighed by it.
    """
    xp = namespace(G)
    fixed = constants(xp, G.device)
    noises, n = fixed.estimate_noises, xp.maximum(G[:, :1, 0], TINY)
    rest = (rest - level * (2.0 * b[:, 0] - level * n[:, 0]))[:, None]
    b = b - level[:, None] * G[:, :, 0]
    precision = G[:, None] / noises[:, None, None] + prior.precision[:, None]
    sides = xp.empty((*precision.shape[:3], 2), dtype=G.dtype, device=G.device)
    sides[..., 0], sides[..., 1] = b[:, None] / noises[:, None], prior.pull[:, None]
    solved = xp.linalg.solve(precision, sides)
    along = solved.mT @ b[:, None, :, None]  # [B, 5, 2, 1]: by the data, and by the prior
    square = xp.maximum(rest - along[:, :, 0, 0], xp.maximum(1e-20 * xp.abs(rest), TINY**2)) / noises
    linear = along[:, :, 1, 0] / noises
    root = xp.sqrt(linear**2 + 4.0 * n * square)
    a = xp.where(linear >= 0.0, 2.0 * square / (root + xp.abs(linear)), (root - linear) / (2.0 * n))
    a = xp.maximum(a, TINY)  # that of answers without noise may be 0
    steep, ratio, logs = linear / a, square / a**2, xp.log(a)
    shift = (solved[:, :, :, 1] @ (G @ prior.mean[:, :, None]))[:, :, 0] / noises
    determinant = xp.linalg.slogdet(precision)[1]
    evidence = steep - 0.5 * (ratio + shift + n * xp.log(noises) + determinant) - n * logs - fixed.estimate_odds
    # plus a little: too steep is safer than too flat
    logs = logs + xp.minimum(0.5 / xp.maximum(2.0 * ratio - steep, 0.5), 1.0)
    weights = xp.exp(evidence - top(evidence))
    return xp.maximum(xp.exp((weights * logs).sum(axis=1) / weights.sum(axis=1)), TINY)


def track(
    state: State, curvatures: Tensor, least: Tensor, likeliest: Tensor | None, spread: Tensor | None, tracked: Mask
) -> None:
    """Move what is shared towards what is seen now, in the tuners that are `tracked`.

    That is the curvatures [B, d] and the least y [B] of the leading expert, and the likeliest curvature of all; the
    first of these begins it. `spread` is that of y; 0 where it was not looked at. Both are None if that was nowhere.
    """
    xp, d, curvature, level = namespace(least), curvatures.shape[1], state.curvature, state.level
    if likeliest is not None:
        known = curvature > 0.0
        curvature, level = xp.where(known, curvature, likeliest), xp.where(known, level, least)
    gap = least - level
    far = xp.minimum(xp.abs(gap) / curvature, 1e6) ** 2
    relative = curvatures * d / curvatures.sum(axis=1)[:, None]
    shape = state.shape + RATE * (xp.minimum(xp.maximum(relative, 0.2), 4.0) - state.shape)
    largest = 0.995 * state.largest
    if likeliest is not None:
        curvature = curvature * xp.minimum(xp.maximum(likeliest / curvature, 0.3), 3.0) ** CURVATURE_RATE
        largest = xp.maximum(spread, largest)
    limited = xp.minimum(xp.maximum(curvature, 0.1 * largest), 100.0 * largest)
    put(state.level, tracked, level + RATE * gap)
    put(state.level_variance, tracked, state.level_variance + RATE * (far - state.level_variance))
    put(state.shape, tracked, shape * d / shape.sum(axis=1)[:, None])
    put(state.curvature, tracked, xp.where(largest > 0.0, limited, curvature))
    put(state.largest, tracked, largest)


def reset(state: State, rows: Mask) -> None:
    """The target of these tuners means something else now."""
    for array in (state.curvature, state.tracked, state.largest):
        put(array, rows, 0.0)
    put(state.level_variance, rows, 4.0)


def outliers_found(state: State, rows: Rows, found: Tensor, a: Tensor) -> None:
    """Where false measurements were found [b], they had bent what is shared, and were taken for noise.

    Without them the curvature is `a` [b] at most.
    """
    xp, curvature, noises = namespace(a), state.curvature[rows], state.noises[rows]
    known = found & (curvature > 0.0)
    state.curvature[rows] = xp.where(known, xp.minimum(curvature, a), curvature)
    state.largest[rows] = xp.where(known, 0.0, state.largest[rows])
    state.noises[rows] = xp.where(found[:, None, None], constants(xp, a.device).noise_prior, noises)


def noise_variances(noises: Tensor) -> Tensor:
    """rho [B, E]: the geometric mean of the variances, weighted by their scores [B, E, NOISES]."""
    xp = namespace(noises)
    weights = xp.exp(noises)
    return xp.exp(weights @ constants(xp, noises.device).logs / weights.sum(axis=2))


def observe_noise(state: State, errors: Tensor, unsure: Tensor, rows: Mask) -> None:
    """Take in what came less what was expected, in units of a, and the variance of that expectation, [B, E] each."""
    xp = namespace(errors)
    fixed = constants(xp, errors.device)
    scores = KEEP * state.noises + (1.0 - KEEP) * fixed.noise_prior
    scores += log_student(errors[:, :, None], unsure[:, :, None] + fixed.variances)
    put(state.noises, rows, scores - top(scores))


def log_student(gap: Tensor, variance: Tensor) -> Tensor:
    """Log density of Student's t, `gap` away from its centre; finite for every gap up to 1e100 and variance > 0."""
    xp = namespace(variance)
    far = xp.minimum(xp.abs(gap) / xp.sqrt(FREEDOM * variance), FARTHEST)
    return STUDENT - 0.5 * xp.log(variance) - 0.5 * (FREEDOM + 1.0) * xp.log1p(far**2)
