"""What all situations of a tuner have in common: the prior of a bowl not known yet, and the noise. Symbols: state.py.

symbol    shape      meaning
a         [B]        the curvature all situations share: the unit that coefficients are measured in
rho       [B, E]     variance of one observation around its mean, in units of a^2
G, b      [B, p, p]  sums of phi phi' over samples; [B, p] of phi y
"""

import math
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import ABSURD_DEVIATIONS
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.evidence import FARTHEST
from rasp_tuner.engine.kernel.masks import Flags, Rows, assign_where, row_max
from rasp_tuner.engine.kernel.state import NOISES, Dims, E, L, State

OPTIMUM_VARIANCE = 0.25  # of an optimum around the default
OWN_DEVIATION, COMMON_DEVIATION = 0.3, 0.4  # of a knob's own curvature and of the common one, in units of a
LEVEL_VARIANCE = ABSURD_DEVIATIONS**2  # of the least y, in units of a, while nothing is known
LARGEST_LEVEL = 1e30  # in units of a: a metric that jumps must not overflow
TINY = 1e-100  # a curvature where y is constant, so that no logarithm sees a zero
CURVATURE_RATE = 0.3  # of one step towards the curvature that is likeliest now
RATE = 0.1  # of one step towards what the leading expert sees
SETTLED_LEVELS = 0.1  # variance below which levels that agree lower it slowly, since some are rare:
SETTLED_RATE = RATE * RATE  # so much of one step
NOISE_ODDS = 2.0  # nats against each noise that the curvature is estimated with, but the one before
DECADE_ODDS = 1.0  # nats against a variance ten times larger or smaller than that
LOCAL_ODDS = 3.0  # nats against every local expert but the blind one
KEEP = 0.97  # of scores, a step: old ones fade
FREEDOM = 5.0  # of the Student-t density: one sample in the tail does not end a hypothesis
STUDENT_NORM = math.lgamma((FREEDOM + 1.0) / 2.0) - math.lgamma(FREEDOM / 2.0) - 0.5 * math.log(FREEDOM * math.pi)

ESTIMATE_NOISES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # rho that the curvature is estimated with
START_NOISE = ESTIMATE_NOISES[2]  # rho before any sample: the middle one
ESTIMATE_ODDS = NOISE_ODDS * np.arange(5.0)  # nats against them
NOISE_LOGS = np.log(np.logspace(-4.0, 0.0, NOISES))  # of the rho that are weighed
NOISE_VARIANCES = np.exp(NOISE_LOGS)
NOISE_PRIOR = -DECADE_ODDS * np.abs(NOISE_LOGS - np.log(START_NOISE)) / np.log(10.0)  # their scores before any sample
EXPERT_PRIOR = np.array([0.0, *[-LOCAL_ODDS] * (L - 1), *[0.0] * (E - L)])  # scores of experts before any sample


class PooledPrior(NamedTuple):
    """Of the coefficients of a bowl, in units of a, level left out."""

    mean: Array  # [B, p]
    precision: Array  # [B, p, p]
    pull: Array  # [B, p] their product
    level_variance: Array  # [B]


def prior(dims: Dims, state: State) -> PooledPrior:
    """Of a bowl that is not known yet, by what the tuner's situations have shown so far."""
    d, p, size = dims.knobs, dims.features, state.size
    known = state.curvature > 0.0
    level_variance = np.minimum(np.maximum(4.0 * state.level_variance, 0.01), LEVEL_VARIANCE)
    level_variance = np.where(known, level_variance, LEVEL_VARIANCE)
    where, unsure = state.location, state.location_variance
    mean = np.concat([(unsure + where**2).sum(axis=1)[:, None], -2.0 * where, np.ones_like(where)], axis=1)
    precision = np.zeros((size, p, p))
    own, both = OWN_DEVIATION**2, COMMON_DEVIATION**2
    common = both / (own + d * both)
    precision[:, 1 + d :, 1 + d :] = -common / own
    diagonal = precision.reshape((size, p * p))[:, :: p + 1]  # a view
    diagonal[:, 0] = 1.0 / np.where(known, level_variance + 0.1 * d, LEVEL_VARIANCE)
    diagonal[:, 1 : 1 + d] = 0.25 / unsure
    diagonal[:, 1 + d :] = (1.0 - common) / own
    return PooledPrior(mean, precision, (precision @ mean[:, :, None])[:, :, 0], level_variance)


def centred_level(state: State, offset: Array, a: Array) -> Array:
    """[B] level of the least y, less the offset, in units of a; 0 while it is unknown."""
    level = np.minimum(np.maximum((state.level - offset) / a, -LARGEST_LEVEL), LARGEST_LEVEL)
    return np.where(state.curvature > 0.0, level, 0.0)


def estimate(prior: PooledPrior, G: Array, b: Array, rest: Array, level: Array) -> Array:
    """[B] the likeliest curvature, whatever the noise; `rest` [B] are sums of y^2, `level` the expected least y.

    For each noise the evidence is largest at one curvature, in closed form; then the noises are weighed by it.
    """
    noises, n = np.array(ESTIMATE_NOISES), np.maximum(G[:, :1, 0], TINY)
    rest = (rest - level * (2.0 * b[:, 0] - level * n[:, 0]))[:, None]
    b = b - level[:, None] * G[:, :, 0]
    precision = G[:, None] / noises[:, None, None] + prior.precision[:, None]
    sides = np.empty((*precision.shape[:3], 2))
    sides[..., 0], sides[..., 1] = b[:, None] / noises[:, None], prior.pull[:, None]
    solved = np.linalg.solve(precision, sides)
    along = solved.mT @ b[:, None, :, None]  # [B, 5, 2, 1]: by the data, and by the prior
    square = np.maximum(rest - along[:, :, 0, 0], np.maximum(1e-20 * np.abs(rest), TINY**2)) / noises
    linear = along[:, :, 1, 0] / noises
    root = np.sqrt(linear**2 + 4.0 * n * square)
    a = np.where(linear >= 0.0, 2.0 * square / (root + np.abs(linear)), (root - linear) / (2.0 * n))
    a = np.maximum(a, TINY)  # that of answers without noise may be 0
    steep, ratio, logs = linear / a, square / a**2, np.log(a)
    shift = (solved[:, :, :, 1] @ (G @ prior.mean[:, :, None]))[:, :, 0] / noises
    determinant = np.linalg.slogdet(precision)[1]
    evidence = steep - 0.5 * (ratio + shift + n * np.log(noises) + determinant) - n * logs - ESTIMATE_ODDS
    # plus a little: too steep is safer than too flat
    logs = logs + np.minimum(0.5 / np.maximum(2.0 * ratio - steep, 0.5), 1.0)
    weights = np.exp(evidence - row_max(evidence))
    likeliest: Array = np.maximum(np.exp((weights * logs).sum(axis=1) / weights.sum(axis=1)), TINY)
    return likeliest


def track(state: State, least: Array, likeliest: Array, spread: Array, tracked: Flags) -> None:
    """Move what is shared towards what is seen now, in the tuners that are `tracked`.

    That is the least y [B] of the leading expert, and the likeliest curvature, of which the first begins it, and the
    spread of y; where they were not looked at, the curvature as it is, and 0.
    """
    known = state.curvature > 0.0
    curvature, level = np.where(known, state.curvature, likeliest), np.where(known, state.level, least)
    gap = least - level
    far = np.minimum(np.abs(gap) / curvature, 1e6) ** 2
    curvature = curvature * np.minimum(np.maximum(likeliest / curvature, 0.3), 3.0) ** CURVATURE_RATE
    largest = np.maximum(spread, 0.995 * state.largest)
    limited = np.minimum(np.maximum(curvature, 0.1 * largest), 100.0 * largest)
    assign_where(state.level, tracked, level + RATE * gap)
    change = far - state.level_variance
    rate = np.where((change > 0.0) | (state.level_variance > SETTLED_LEVELS), RATE, SETTLED_RATE)
    assign_where(state.level_variance, tracked, state.level_variance + rate * change)
    assign_where(state.curvature, tracked, np.where(largest > 0.0, limited, curvature))
    assign_where(state.largest, tracked, largest)


def outliers_found(state: State, rows: Rows, found: Flags, a: Array) -> None:
    """Where false measurements were found [b], they had bent what is shared, and were taken for noise.

    Without them the curvature is `a` [b] at most.
    """
    curvature, noises = state.curvature[rows], state.noises[rows]
    known = found & (curvature > 0.0)
    state.curvature[rows] = np.where(known, np.minimum(curvature, a), curvature)
    state.largest[rows] = np.where(known, 0.0, state.largest[rows])
    state.noises[rows] = np.where(found[:, None, None], NOISE_PRIOR, noises)


def noise_variances(noises: Array) -> Array:
    """rho [B, E]: the geometric mean of the variances, weighted by their scores [B, E, NOISES]."""
    weights = np.exp(noises)
    variances: Array = np.exp(weights @ NOISE_LOGS / weights.sum(axis=2))
    return variances


def observe_noise(state: State, errors: Array, unsure: Array, rows: Flags) -> None:
    """Take in what came less what was expected, in units of a, and the variance of that expectation, [B, E] each."""
    scores = KEEP * state.noises + (1.0 - KEEP) * NOISE_PRIOR
    scores += log_student(errors[:, :, None], unsure[:, :, None] + NOISE_VARIANCES)
    assign_where(state.noises, rows, scores - row_max(scores))


def log_student(gap: Array, variance: Array) -> Array:
    """Log density of Student's t, `gap` away from its centre; finite for every gap up to 1e100 and variance > 0."""
    far = np.minimum(np.abs(gap) / np.sqrt(FREEDOM * variance), FARTHEST)
    log: Array = STUDENT_NORM - 0.5 * np.log(variance) - 0.5 * (FREEDOM + 1.0) * np.log1p(far**2)
    return log
