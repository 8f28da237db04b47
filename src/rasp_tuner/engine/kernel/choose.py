"""Which point B tuners try next, and the best one known, each in one context.

symbol   shape          meaning
u        [B, n, d]      candidates, relative to the default: 2 (point - default), in [-2, 2]
f        [B, p, n]      phi = [1, u, u^2] of them, as columns
The other symbols are those of state.py and belief.py.
"""

import math
from functools import lru_cache

import numpy as np

from rasp_tuner.base.numerics import SMALLEST, Array
from rasp_tuner.engine.kernel.belief import Experts, SlotBelief
from rasp_tuner.engine.kernel.believe import LEAST_CURVATURE, box, minimisers
from rasp_tuner.engine.kernel.masks import ALL_ROWS, row_max
from rasp_tuner.engine.kernel.outliers import targets
from rasp_tuner.engine.kernel.predict import experts_of, features, predict
from rasp_tuner.engine.kernel.state import RANK, Dims, E, L, Places, State
from rasp_tuner.engine.scalar_or_batch import erfc

HORIZON_STEPS = 12.0  # in which one more observation shall pay for itself
FIRST_PROBE = 0.35  # length of the first move, along one knob
REACH = (0.1, -0.1, 0.2, -0.2, 0.4, -0.4)  # moves along the least known directions
DIRECTIONS = RANK  # least known ones, along which moves go
TIE = 1e-6  # of the range: a smaller difference is none
EQUAL_WEIGHTS = 1e-9  # of a weight: of experts that differ by less the first leads, whatever rounding says
HANDICAPS = 1.0 - EQUAL_WEIGHTS * np.arange(float(E))  # what weights are multiplied by when the leader is looked for
FARTHEST_OUT = 40.0  # deviations beyond an edge: erfc is zero
ROOT_TWO_PI = math.sqrt(2.0 * math.pi)  # of the normal density
LEAST_WEIGHT = 1e-8  # an expert with less is left out of a choice
PREDICTED_OPTIMUM, BEST_TRIED, PROBE, FIRST = range(4)  # sources


def candidates(dims: Dims) -> int:
    """n: the optima of experts, their mean, the best tried, and moves around the leader's optimum and that one."""
    return E + 2 + 2 * len(REACH) * min(dims.knobs, DIRECTIONS)


def draws_needed(dims: Dims) -> int:
    """D: a jitter for each knob, and what breaks ties between candidates."""
    return dims.knobs + candidates(dims)


def choose(
    dims: Dims, state: State, belief: SlotBelief, default: Array, draws: Array
) -> tuple[Array, Array, Array, Array]:
    """The least expected y, less what an observation is worth, among experts' optima and moves around them.

    Points [B, d], their sources [B], and mean and variance [B] of y there. Draws [B, d + n] are uniform in [0, 1).
    """
    young = state.count < 2.0
    given = dims, state, belief, default, draws
    points, *numbers = zip(_first_probe(*given), _choice(*given), strict=True)
    source, mean, variance = (np.where(young, first, then) for first, then in numbers)
    return np.where(young[:, None], *points), source, mean, variance


def best(dims: Dims, state: State, belief: SlotBelief, default: Array) -> Array:
    """Points [B, d]: the least posterior mean among experts' minimisers, their mean, the best tried and the default."""
    weights = _weights(belief)
    rows = np.arange(state.size)
    hint = _hint(dims, state, belief, rows)[:, None]
    u = np.concat([_centres(belief, *box(default)), hint, np.zeros_like(hint)], axis=1)
    local = (weights[:, None, :L] @ belief.mean) @ features(u)
    gaps = u - belief.optimum[:, None]
    moving = belief.level[:, None] + ((gaps * gaps) @ belief.curvatures[:, :, None])[:, :, 0]
    mean = local[:, 0] + (weights[:, L] * belief.a)[:, None] * moving
    return _point(default, u[rows, mean.argmin(axis=1)])


def _choice(
    dims: Dims, state: State, belief: SlotBelief, default: Array, draws: Array
) -> tuple[Array, Array, Array, Array]:
    """As `choose`, for tuners with samples."""
    d, (low, high) = dims.knobs, box(default)
    rows, weights = np.arange(state.size), _weights(belief)
    experts = experts_of(dims, state, belief)
    centres = _centres(belief, low, high)
    hint = _hint(dims, state, belief, rows)[:, None]
    u = _candidates(dims, belief, rows, draws[:, :d], centres, hint, experts)
    u = np.minimum(np.maximum(u, low), high)
    parts = _parts(belief, experts, centres[:, :E], low, high)
    means, variances, worths = _experts_at(dims, belief, u, centres, parts, experts)
    score = (weights[:, None] @ (means - (HORIZON_STEPS * belief.a)[:, None, None] * worths))[:, 0]
    tie = TIE * (row_max(score) + row_max(-score))
    chosen = (score + tie * draws[:, d:]).argmin(axis=1)  # ties: either way is as good
    means, variances = means[rows, :, chosen], variances[rows, :, chosen]
    mean = np.vecdot(weights, means)
    apart = means - mean[:, None]
    variance = np.vecdot(weights, (belief.a * belief.a)[:, None] * variances + apart * apart)
    source = np.minimum(np.maximum(chosen - E, PREDICTED_OPTIMUM), PROBE)
    return _point(default, u[rows, chosen]), source, mean + (belief.offset + belief.origin), variance


def _first_probe(
    dims: Dims, state: State, belief: SlotBelief, default: Array, draws: Array
) -> tuple[Array, Array, Array, Array]:
    """As `choose`: a move along one knob, drawn at random."""
    d, (low, high) = dims.knobs, box(default)
    along = np.arange(d) == np.floor(draws[:, :1] * d)
    move = np.full_like(draws[:, :1], FIRST_PROBE)
    move = np.where(draws[:, 1:2] < 0.5, -move, move)
    beyond = (along & ((move < low) | (move > high))).any(axis=1)[:, None]  # the default is near this end
    point = _point(default, np.where(along, np.where(beyond, -move, move), 0.0))
    mean, variance = predict(dims, state, belief, default, point[:, None])
    return point, np.full_like(np.arange(state.size), FIRST), mean[:, 0], variance[:, 0]


def _candidates(
    dims: Dims, belief: SlotBelief, rows: Places, draws: Array, centres: Array, hint: Array, experts: Experts
) -> Array:
    """Points u [B, n, d] to compare: the optima of experts, the best tried, moves around the leader's and that one."""
    d = dims.knobs
    leader = (belief.weights * HANDICAPS).argmax(axis=1)
    local = experts.S[rows, leader, 1 : 1 + d, 1 : 1 + d]
    covariance = np.where((leader == L)[:, None, None], experts.location, local)
    flat = covariance.reshape((-1, d * d))
    unsure = flat[:, :: d + 1]
    unsure += (TIE * unsure.sum(axis=1))[:, None] * draws  # knobs not tried yet take turns at random
    moves = _moves(d) @ _eigenvectors(flat.reshape((-1, d, d))).mT
    return np.concat([centres, hint, centres[rows, leader][:, None] + moves, hint + moves], axis=1)


def _centres(belief: SlotBelief, low: Array, high: Array) -> Array:
    """[B, E + 1, d] every expert's minimiser, and their mean."""
    local = minimisers(low, high, belief.mean, belief.a)
    optimum = np.minimum(np.maximum(belief.optimum, low), high)[:, None]
    moved = np.where(belief.moving[:, None, None] > 0.0, optimum, local[:, :1])
    every = np.concat([local, moved], axis=1)
    return np.concat([every, belief.weights[:, None] @ every], axis=1)


def _hint(dims: Dims, state: State, belief: SlotBelief, rows: Places) -> Array:
    """[B, d] the point of the slot with the best y in a situation like this."""
    y, similar = targets(dims, state, ALL_ROWS, dims.rows), belief.kernels[:, 2]
    score = y / belief.spread[:, None] + 2.0 * (1.0 - similar)
    slot = np.where(belief.kernels[:, 0] > 0.0, score, np.inf).argmin(axis=1)
    u: Array = state.prompts[rows, slot, 1 : 1 + dims.knobs] / np.maximum(state.counts[rows, slot], 1.0)[:, None]
    return u


def _experts_at(
    dims: Dims, belief: SlotBelief, u: Array, centres: Array, parts: Array, experts: Experts
) -> tuple[Array, Array, Array]:
    """Mean less the offset, variance, and worth of one observation, [B, E, n], of the experts at u.

    Variances are in units of a^2, worths in units of a. An observation is worth the expected fall of the least y a step
    from then on: where it moves the minimiser by m, that is the curvature times m^2, and it changes the slope there by
    twice the curvature times m.
    """
    d, p, f = dims.knobs, dims.features, features(u)
    mean, S = experts.mean, experts.S
    slopes = S[:, :, 1 : 1 + d] + (2.0 * centres[:, :E])[..., None] * S[:, :, 1 + d :]
    steep = np.maximum(belief.curvatures, LEAST_CURVATURE)
    slopes[:, L] = (2.0 * steep)[..., None] * experts.along
    curvatures = np.maximum(mean[:, :, 1 + d :] / belief.a[:, None, None], LEAST_CURVATURE)
    slopes *= (0.5 * np.sqrt(parts / curvatures))[..., None]
    Sf = (S.reshape((-1, E * p, p)) @ f).reshape((-1, E, p, u.shape[1]))
    moves = (slopes.reshape((-1, E * d, p)) @ f).reshape((-1, E, d, u.shape[1]))
    Sf *= f[:, None]
    moves *= moves
    variances = np.maximum(Sf.sum(axis=2), 0.0)
    worths = moves.sum(axis=2) / (variances + belief.noises[:, :, None])
    return mean @ f, variances, worths


def _parts(belief: SlotBelief, experts: Experts, centres: Array, low: Array, high: Array) -> Array:
    """[B, E, d] the part of what knowing an optimum is worth that is left at an edge, where it can move one way only.

    Without edges it would be t deviations out there: (1 + t^2) Phi(-t) - t phi(t) of 1.
    """
    d = len(low)
    knobs, a, u = np.arange(d), belief.a[:, None, None], centres
    steep = np.maximum(experts.mean[:, :, 1 + d :] / a, LEAST_CURVATURE)
    location = experts.mean[:, :, 1 : 1 + d] / (-2.0 * a * steep)
    slopes, bends = experts.S[:, :, 1 + knobs], experts.S[:, :, 1 + d + knobs]
    variance = slopes[:, :, knobs, 1 + knobs] + 4.0 * u * (
        slopes[:, :, knobs, 1 + d + knobs] + u * bends[:, :, knobs, 1 + d + knobs]
    )
    deviation = np.sqrt(np.maximum(variance, 0.0)) / (2.0 * steep)
    location[:, L], deviation[:, L] = belief.optimum, np.sqrt(np.maximum(experts.location[:, knobs, knobs], 0.0))
    out, parts = np.maximum(low - location, location - high), np.ones_like(location)
    edge = out >= 0.0
    beyond = out[edge]
    t = beyond / np.maximum(np.maximum(deviation[edge], beyond / FARTHEST_OUT), SMALLEST)
    parts[edge] = 0.5 * (1.0 + t * t) * erfc(t / math.sqrt(2.0)) - t * np.exp(-0.5 * t * t) / ROOT_TWO_PI
    return np.maximum(parts, 0.0)


def _weights(belief: SlotBelief) -> Array:
    """[B, E] of the experts that have any to speak of."""
    weights: Array = belief.weights * (belief.weights >= LEAST_WEIGHT)
    weights /= weights.sum(axis=1)[:, None]
    return weights


def _eigenvectors(matrices: Array) -> Array:
    """[B, d, d] in columns, the least variance first; signed so that ties break alike whatever library found them."""
    vectors = np.linalg.eigh(matrices)[1]
    side = _falling(matrices.shape[2]) @ vectors
    return np.where(side < 0.0, -vectors, vectors)


@lru_cache
def _falling(d: int) -> Array:
    """[1, d] 1, 1/2, 1/3, ..."""
    return 1.0 / np.arange(1.0, d + 1.0)[None]


def _point(default: Array, u: Array) -> Array:
    """[B, d] in the unit box."""
    return np.minimum(np.maximum(default + u / 2.0, 0.0), 1.0)


@lru_cache
def _moves(d: int) -> Array:
    """[moves, d] lengths along each eigenvector: the least known direction first."""
    top = min(d, DIRECTIONS)
    lengths = np.zeros((top, len(REACH), d))
    for i in range(top):
        lengths[i, :, d - 1 - i] = REACH
    return lengths.reshape(-1, d)
