"""What B tuners hold true, each in one context: a Bayesian regression for each local expert, solved exactly.

symbol   shape        meaning
n        scalar       slots in use, of the tuner with the most
W        [B, L, R]    how much each slot counts for each local expert, and is trusted by it
G, b     [B, L, p, p] pooled sums of phi phi'; [B, L, p] of phi y
rho      [B, E]       variance of one observation, in units of a^2, as each expert sees it
The other symbols are those of state.py and belief.py.
"""

from functools import lru_cache

import numpy as np

from rasp_tuner.base.common_constants import RECENT_STEPS
from rasp_tuner.base.numerics import SMALLEST, Array
from rasp_tuner.contexts.context_metric import ALIKE
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.masks import ALL_ROWS, Flags, chunks, row_max
from rasp_tuner.engine.kernel.memory import gaps, reach
from rasp_tuner.engine.kernel.moving import encoded
from rasp_tuner.engine.kernel.outliers import targets
from rasp_tuner.engine.kernel.pooled_prior import (
    EXPERT_PRIOR,
    START_NOISE,
    PooledPrior,
    centred_level,
    estimate,
    noise_variances,
    prior,
)
from rasp_tuner.engine.kernel.state import Dims, L, Places, State

NARROW_WIDTH = 0.3  # of the narrow kernel, in deviations of the context
FARTHEST_GAP = 26.0  # widths of a kernel: beyond, it would underflow
LEAST_CURVATURE = 0.15  # of a: what a minimiser is computed with at least
MOVING_SETTLED_SAMPLES, MOVING_LOOK_EVERY_STEPS = (
    100,
    4,
)  # after so many, what changes little is looked at one step in so many
MOVING_IDLE_NATS = -7.0  # behind the leader: from there on the moving optimum is idle


def believe(dims: Dims, state: State, default: Array, contexts: Array) -> SlotBelief:
    """In contexts [B, c]; finite for tuners without samples, too."""
    d, n = dims.knobs, max(int(state.count.max()), 1)
    kernels = _kernels(dims, state, contexts, n)
    G, b, rest, offset = _pool(dims, state, kernels, n)
    bowl = prior(dims, state)
    a = _curvature(state, bowl, G, b, rest)
    level = a * centred_level(state, offset, a)
    noises = noise_variances(state.noises)
    rho, pull = noises[:, :L, None], a[:, None] * bowl.pull
    pull[:, 0] += level * bowl.precision[:, 0, 0]
    precision = G / rho[..., None] + bowl.precision[:, None]
    S: Array = np.linalg.inv(precision)  # type: ignore[assignment]  # NumPy's types know less
    mean = (S @ (b / rho + pull[:, None])[..., None])[..., 0]
    mean, S = _pinned(dims, state, default, mean, S, a, level)
    moving, theta, x = _has_say(state), state.theta, encoded(dims, state, contexts)
    share = moving / a
    return SlotBelief(
        weights=_weights(state, moving, kernels[:, 2]),
        noises=noises,
        spread=_spread(dims, state, n),
        offset=offset,
        origin=np.vecdot(state.first, state.weights),
        a=a,
        moving=moving,
        level=(theta[:, 0] - offset) * share,
        ratio=state.unit * share,
        x=x,
        curvatures=theta[:, 1 : 1 + d] * share[:, None],
        optimum=(theta[:, 1 + d :].reshape((-1, d, 1 + dims.rank)) @ x[:, :, None])[:, :, 0],
        mean=mean,
        S=S,
        G=G,
        b=b,
        rest=rest,
        kernels=kernels,
    )


def box(default: Array) -> tuple[Array, Array]:
    """Lowest and highest u [d]: the unit box as seen from the default."""
    low = -2.0 * default
    return low, low + 2.0


def minimisers(low: Array, high: Array, mean: Array, a: Array) -> Array:
    """[B, L, d] where bowls with coefficients [B, L, p] are least within the box."""
    d = len(low)
    curvatures = np.maximum(mean[:, :, 1 + d :], (LEAST_CURVATURE * a)[:, None, None])
    return np.minimum(np.maximum(mean[:, :, 1 : 1 + d] / (-2.0 * curvatures), low), high)


def refresh_now(state: State) -> Flags:
    """[B] whether to spend time on what changes little: always while young, then now and then."""
    now: Flags = (state.steps < MOVING_SETTLED_SAMPLES) | (state.steps % MOVING_LOOK_EVERY_STEPS == 0.0)
    return now


def _kernels(dims: Dims, state: State, contexts: Array, n: int) -> Array:
    """[B, L, R] how much each slot counts for each local expert: any; by its age; by its context, wide and narrow."""
    near = gaps(dims, state, contexts, n)
    near[:, 0] /= reach(state)[:, None]
    near[:, 1] /= 2.0 * NARROW_WIDTH**2
    near = np.minimum(near, FARTHEST_GAP)
    age = (state.last[:, :n] - (state.steps - 1.0)[:, None]) / RECENT_STEPS
    used = _rows(n) < state.count[:, None]
    kernels = np.zeros((state.size, L, dims.rows))
    kernels[:, 0, :n] = used
    kernels[:, 1, :n] = np.where(used, np.exp(age), 0.0)
    kernels[:, 2:, :n] = np.where(used[:, None], np.exp(near * -near), 0.0)
    return kernels


def _pool(dims: Dims, state: State, kernels: Array, n: int) -> tuple[Array, Array, Array, Array]:
    """G, b and the sums [B, L] of y^2, with y less an offset [B]: the blind mean, so that numbers stay small."""
    p, q, w = dims.features, dims.sample, state.weights
    packed = (kernels[:, :, :n] * state.trust[:, :, :n]) @ state.prompts[:, :n]
    sums = np.take(packed, _unpacked(dims), axis=2).reshape((-1, L, q, q))
    G, by_y = sums[:, :, :p, :p], (sums[..., p:] @ w[:, None, :, None])[..., 0]
    b, sums = by_y[:, :, :p], G[:, :, 0]
    offset = b[:, 0, 0] / np.maximum(sums[:, 0, 0], SMALLEST)
    shift = offset[:, None]
    rest = (by_y[:, :, p:] @ w[:, :, None])[..., 0] - shift * (2.0 * b[:, :, 0] - shift * sums[:, :, 0])
    return G, b - shift[..., None] * sums, rest, offset


def _curvature(state: State, bowl: PooledPrior, G: Array, b: Array, rest: Array) -> Array:
    """[B] the curvature all situations share; where it is not tracked yet, as the blind expert sees it."""
    a = state.curvature + 0.0
    for rows in chunks(a == 0.0):
        theirs = PooledPrior(*(part[rows] for part in bowl))
        a[rows] = estimate(theirs, G[rows, 0], b[rows, 0], rest[rows, 0], a[rows])
    return a


def _pinned(
    dims: Dims, state: State, default: Array, mean: Array, S: Array, a: Array, level: Array
) -> tuple[Array, Array]:
    """Posteriors with what a bowl cannot say by itself: its least value is about the level all situations share."""
    d, known = dims.knobs, state.curvature > 0.0
    u = minimisers(*box(default), mean, a)
    f = np.empty(mean.shape)
    f[:, :, 0], f[:, :, 1 : 1 + d], f[:, :, 1 + d :] = 1.0, u, u * u
    Sf = (S @ f[..., None])[..., 0]
    unsure = np.vecdot(f, Sf) + (state.level_variance + START_NOISE)[:, None]
    gain = Sf * (known[:, None] / unsure)[..., None]
    mean = mean + gain * (level[:, None] - np.vecdot(f, mean))[..., None]
    return mean, S - gain[..., None] * Sf[:, :, None]


def _has_say(state: State) -> Array:
    """[B] 1 where the moving optimum has a fit and counts now; while it does not, it is scored like the blind one."""
    return state.fitted * (refresh_now(state) | (state.scores[:, L] > MOVING_IDLE_NATS))


def _weights(state: State, moving: Array, similar: Array) -> Array:
    """[B, E] of the experts; none for a moving optimum without a say.

    What was seen elsewhere says little about who is right in a situation that is like no other [B, R].
    """
    familiar = np.minimum(row_max(similar) / ALIKE, 1.0)
    scores = EXPERT_PRIOR + familiar * (state.scores - EXPERT_PRIOR)
    scores[:, L] = np.where(moving == 0.0, -np.inf, scores[:, L])
    shifted: Array = np.exp(scores - row_max(scores))
    shifted /= shifted.sum(axis=1)[:, None]
    return shifted


def _spread(dims: Dims, state: State, n: int) -> Array:
    """[B] of y: as tracked; else its deviation over the slots, of which nobody has more than n, or 1."""
    y, count = targets(dims, state, ALL_ROWS, n), np.maximum(state.count, 1.0)
    used = _rows(n) < state.count[:, None]
    mean = np.where(used, y, 0.0).sum(axis=1) / count
    away = np.where(used, y - mean[:, None], 0.0)
    deviation = np.sqrt(np.vecdot(away, away) / count)
    return np.where(state.largest == 0.0, np.where(deviation > 0.0, deviation, 1.0), state.largest)


@lru_cache
def _rows(n: int) -> Array:
    """[n] numbers of the rows."""
    return np.arange(float(n))


@lru_cache
def _unpacked(dims: Dims) -> Places:
    """[q q] where each entry of psi psi' is in its packed upper triangle."""
    q = dims.sample
    where, upper = np.zeros((q, q), dtype=np.int64), np.triu_indices(q)
    where[upper] = np.arange(dims.prompt)
    return np.maximum(where, where.T).ravel()
