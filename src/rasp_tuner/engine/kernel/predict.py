"""What the experts of B tuners expect at some points: each alone, mixed, and one point beside another.

symbol   shape        meaning
u        [B, n, d]    points relative to the default: 2 (point - default), in [-2, 2]
f        [B, p, n]    phi = [1, u, u^2] of them, as columns
o, q     [B, d]       optimum and curvatures of the moving optimum: y / a = level + sum_i q_i (u_i - o_i)^2
h        [p]          slopes of that by level, q and o
H        [B, p, p]    h = H phi: in one context the moving optimum is one more bowl
K        [B, p, p]    covariance of level, q and o in this context
The other symbols are those of state.py and belief.py.
"""

from functools import lru_cache

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.belief import Experts, SlotBelief
from rasp_tuner.engine.kernel.pooled_prior import log_student
from rasp_tuner.engine.kernel.state import Dims, E, State


def predict(dims: Dims, state: State, belief: SlotBelief, default: Array, points: Array) -> tuple[Array, Array]:
    """Mean and variance [B, n] of y at points [B, n, d] of the unit box."""
    mean, variance = _mixed(belief, *each(dims, state, belief, default, points))
    return mean[:, 0], variance[:, 0]


def each(dims: Dims, state: State, belief: SlotBelief, default: Array, points: Array) -> tuple[Array, Array]:
    """Mean and variance [B, E, n] of every expert."""
    means, variances = _each_at(dims, state, belief, features(2.0 * (points - default)))
    return means + (belief.offset + belief.origin)[:, None, None], variances


def against(dims: Dims, state: State, belief: SlotBelief, default: Array, points: Array) -> tuple[Array, ...]:
    """Points [B, d] beside the default: y of the default, mean and variance of the difference, y, variances of both."""
    f = features((2.0 * (points - default))[:, None])
    at_default = np.zeros_like(f)
    at_default[:, 0] = 1.0
    columns = np.concat([f, at_default, f - at_default], axis=2)
    means, variances = (found[:, 0] for found in _mixed(belief, *_each_at(dims, state, belief, columns)))
    base = belief.offset + belief.origin
    return means[:, 1] + base, means[:, 2], variances[:, 2], means[:, 0] + base, variances[:, 0], variances[:, 1]


def forecast(
    dims: Dims, state: State, belief: SlotBelief, default: Array, points: Array, y: Array
) -> tuple[Array, Array, Array]:
    """Mean and variance [B] at points [B, d], and the log densities [B, E] that the experts give to y [B] there."""
    means, variances = each(dims, state, belief, default, points[:, None])
    mean, variance = _mixed(belief, means, variances)
    unsure = variances[:, :, 0] + belief.noises * (belief.a * belief.a)[:, None]
    return mean[:, 0, 0], variance[:, 0, 0], log_student(y[:, None] - means[:, :, 0], unsure)


def features(u: Array) -> Array:
    """Phi of points [B, n, d], as columns [B, p, n]."""
    size, n, d = u.shape
    f = np.empty((size, 1 + 2 * d, n))
    f[:, 0], f[:, 1 : 1 + d], f[:, 1 + d :] = 1.0, u.mT, (u * u).mT
    return f


def experts_of(dims: Dims, state: State, belief: SlotBelief) -> Experts:
    """The experts of a belief; made once."""
    if belief.experts is None:
        belief.experts = _experts(dims, state, belief)
    return belief.experts


def _experts(dims: Dims, state: State, belief: SlotBelief) -> Experts:
    size, d, p, m = state.size, dims.knobs, dims.features, dims.coefficients
    moving = belief.moving[:, None, None] > 0.0
    by_context, by_optimum = _linear_maps(dims)
    o, q, x = belief.optimum, belief.curvatures, belief.x
    P = (np.concat([belief.ratio[:, None], x], axis=1) @ by_context).reshape((size, p, m))
    H = (np.concat([x[:, :1], o, o * o, q, q * o], axis=1) @ by_optimum).reshape((size, p, p))
    K = P @ state.covariance @ P.mT
    KH = K @ H
    mean = belief.a[:, None, None] * (np.concat([belief.level[:, None], q], axis=1)[:, None] @ H[:, : 1 + d])
    mean = np.concat([belief.mean, np.where(moving, mean, belief.mean[:, :1])], axis=1)
    S = np.concat([belief.S, np.where(moving[:, None], (H.mT @ KH)[:, None], belief.S[:, :1])], axis=1)
    return Experts(mean, S, KH[:, 1 + d :], K[:, 1 + d :, 1 + d :])


def _each_at(dims: Dims, state: State, belief: SlotBelief, f: Array) -> tuple[Array, Array]:
    """Mean less the offset, and variance, [B, E, n], of what columns f [B, p, n] make of the coefficients."""
    p, experts = dims.features, experts_of(dims, state, belief)
    Sf = (experts.S.reshape((-1, E * p, p)) @ f).reshape((-1, E, p, f.shape[2]))
    Sf *= f[:, None]
    return experts.mean @ f, np.maximum(Sf.sum(axis=2), 0.0) * (belief.a * belief.a)[:, None, None]


def _mixed(belief: SlotBelief, means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and variance [B, 1, n] of the mixture, from those of its experts [B, E, n]."""
    weights = belief.weights[:, None]
    mean = weights @ means
    apart = means - mean
    return mean, weights @ (variances + apart * apart)


@lru_cache
def _linear_maps(dims: Dims) -> tuple[Array, Array]:
    """Of [ratio, x] to the slopes [p m] of level, q and o by theta; of [1, o, o^2, q, q o] to H [p p]."""
    d, p, m, rank = dims.knobs, dims.features, dims.coefficients, 1 + dims.rank
    by_context, by_optimum = np.zeros((1 + rank, p, m)), np.zeros((1 + 4 * d, p, p))
    shared, knob = np.arange(1 + d), np.arange(d)
    curvature, location = 1 + knob, 1 + d + knob  # rows of h; columns of phi: u, and u^2
    by_context[0, shared, shared] = 1.0
    for j in range(rank):
        by_context[1 + j, location, 1 + d + knob * rank + j] = 1.0
    by_optimum[0, 0, 0] = by_optimum[0, curvature, 1 + d + knob] = 1.0
    by_optimum[1 + knob, curvature, 1 + knob] = -2.0
    by_optimum[1 + d + knob, curvature, 0] = 1.0
    by_optimum[1 + 2 * d + knob, location, 1 + knob] = -2.0
    by_optimum[1 + 3 * d + knob, location, 0] = 2.0
    return by_context.reshape(1 + rank, -1), by_optimum.reshape(1 + 4 * d, -1)
