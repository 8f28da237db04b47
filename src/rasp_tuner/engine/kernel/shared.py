"""What all situations of a tuner have in common: the prior of a bowl not known yet, and the noise. Symbols: state.py.

symbol    shape      meaning
a         [B]        the curvature all situations share: the unit that coefficients are measured in
rho       [B, E]     variance of one observation around its mean, in units of a^2
G, b      [B, p, p]  sums of phi phi' over samples; [B, p] of phi y
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import NOISES, Dims, State, Tensor

OPTIMUM_VARIANCE = 0.25  # of an optimum around the default
OWN_DEVIATION, COMMON_DEVIATION = 0.3, 0.4  # of a knob's own curvature and of the common one, in units of a
OWN_DEVIATION_LEAST = 0.1  # of the first, once the knobs' curvatures are known
LEVEL_VARIANCE = 25.0  # of the least y, in units of a, while nothing is known
LARGEST_LEVEL = 1e30  # in units of a: a metric that jumps must not overflow
TINY = 1e-100  # a curvature where y is constant, so that no logarithm sees a zero
NOISE_ODDS = 2.0  # nats against each noise that the curvature is estimated with, but the one before
START_NOISE = 1e-2  # rho before any sample
DECADE_ODDS = 1.0  # nats against a variance ten times larger or smaller than that


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
    noise_prior: Tensor  # [NOISES] scores before any sample


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
    )
    return Constants(*(xp.asarray(array, dtype=xp.float64, device=device) for array in arrays))


def prior(dims: Dims, state: State) -> Prior:
    """Of a bowl that is not known yet, by what the tuner's situations have shown so far."""
    xp, d, p, size = namespace(state.shape), dims.knobs, dims.features, state.size
    known = state.curvature > 0.0
    tracked = xp.where(known, state.tracked, 0.0)
    own = xp.clip(OWN_DEVIATION / xp.sqrt(1.0 + tracked / 20.0), OWN_DEVIATION_LEAST, None) ** 2
    level_variance = xp.where(known, xp.clip(4.0 * state.level_variance, 0.01, LEVEL_VARIANCE), LEVEL_VARIANCE)
    shape = xp.where(known[:, None], state.shape, 1.0)
    where, unsure = state.location, state.location_variance
    mean = xp.concat([xp.sum(unsure + where**2, axis=1, keepdims=True), -2.0 * shape * where, shape], axis=1)
    precision = xp.zeros((size, p, p), dtype=mean.dtype, device=mean.device)
    common = COMMON_DEVIATION**2 / (own + d * COMMON_DEVIATION**2)
    precision[:, 1 + d :, 1 + d :] = (-common / own)[:, None, None]
    diagonal = xp.reshape(precision, (size, p * p))[:, :: p + 1]  # a view
    diagonal[:, 0] = 1.0 / (level_variance + 0.1 * d * xp.astype(known, mean.dtype))
    diagonal[:, 1 : 1 + d] = 0.25 / unsure
    diagonal[:, 1 + d :] = ((1.0 - common) / own)[:, None]
    return Prior(mean, precision, (precision @ mean[:, :, None])[:, :, 0], level_variance)


def centred_level(state: State, offset: Tensor, a: Tensor) -> Tensor:
    """[B] level of the least y, less the offset, in units of a; 0 while it is unknown."""
    xp = namespace(state.level)
    level = xp.clip((state.level - offset) / a, -LARGEST_LEVEL, LARGEST_LEVEL)
    return xp.where(state.curvature > 0.0, level, 0.0)


def estimate(prior: Prior, G: Tensor, b: Tensor, rest: Tensor, level: Tensor) -> Tensor:
    """[B] the likeliest curvature, whatever the noise; `rest` [B] are sums of y^2, `level` the expected least y.

    For each noise the evidence is largest at one curvature, in closed form; then the noises are weighed by it.
    """
    xp = namespace(G)
    fixed = constants(xp, G.device)
    noises, n = fixed.estimate_noises, xp.clip(G[:, :1, 0], TINY, None)
    rest = (rest - level * (2.0 * b[:, 0] - level * n[:, 0]))[:, None]
    b = b - level[:, None] * G[:, :, 0]
    precision = G[:, None] / noises[:, None, None] + prior.precision[:, None]
    pull = xp.broadcast_to(prior.pull[:, None], precision.shape[:3])
    solved = xp.linalg.solve(precision, xp.stack([b[:, None] / noises[:, None], pull], axis=3))
    along = xp.matrix_transpose(solved) @ b[:, None, :, None]  # [B, 5, 2, 1]: by the data, and by the prior
    square = xp.maximum(rest - along[:, :, 0, 0], xp.clip(1e-20 * xp.abs(rest), TINY**2, None)) / noises
    linear = along[:, :, 1, 0] / noises
    root = xp.sqrt(linear**2 + 4.0 * n * square)
    a = xp.where(linear >= 0.0, 2.0 * square / (root + xp.abs(linear)), (root - linear) / (2.0 * n))
    a = xp.clip(a, TINY, None)  # that of answers without noise may be 0
    steep, ratio, logs = linear / a, square / a**2, xp.log(a)
    shift = (solved[:, :, :, 1] @ (G @ prior.mean[:, :, None]))[:, :, 0] / noises
    determinant = xp.linalg.slogdet(precision)[1]
    evidence = steep - 0.5 * (ratio + shift + n * xp.log(noises) + determinant) - n * logs - fixed.estimate_odds
    # plus a little: too steep is safer than too flat
    logs = logs + xp.clip(0.5 / xp.clip(2.0 * ratio - steep, 0.5, None), None, 1.0)
    weights = xp.exp(evidence - xp.max(evidence, axis=1, keepdims=True))
    return xp.clip(xp.exp(xp.sum(weights * logs, axis=1) / xp.sum(weights, axis=1)), TINY, None)


def noise_variances(noises: Tensor) -> Tensor:
    """rho [B, E]: the geometric mean of the variances, weighted by their scores [B, E, NOISES]."""
    xp = namespace(noises)
    weights = xp.exp(noises)
    return xp.exp(weights @ constants(xp, noises.device).logs / xp.sum(weights, axis=2))
