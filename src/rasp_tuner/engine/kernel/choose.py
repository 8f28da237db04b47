"""Which point B tuners try next, and the best one known, each in one context.

symbol   shape          meaning
u        [B, n, d]      candidates, relative to the default: 2 (point - default), in [-2, 2]
f        [B, p, n]      phi = [1, u, u^2] of them, as columns
The other symbols are those of state.py and belief.py.
"""

from functools import lru_cache

import numpy as np

from rasp_tuner.engine.kernel.belief import Belief
from rasp_tuner.engine.kernel.believe import LEAST_CURVATURE, box, minimisers
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.predict import Experts, experts_of, features, predict
from rasp_tuner.engine.kernel.select import EVERY, look, top, uniform, uniform_if_cheap
from rasp_tuner.engine.kernel.state import Dims, E, L, State, Tensor
from rasp_tuner.engine.kernel.trust import targets

HORIZON_STEPS = 12.0  # in which one more observation shall pay for itself
FIRST_PROBE = 0.35  # length of the first move, along one knob
REACH = np.array([0.1, -0.1, 0.2, -0.2, 0.4, -0.4])  # moves along the least known directions
DIRECTIONS = 3
TIE = 1e-6  # of the range: a smaller difference is none
EQUAL_WEIGHTS = 1e-9  # of a weight: of experts that differ by less the first leads, whatever rounding says
LEAST_WEIGHT = 1e-8  # an expert with less is left out of a choice
MOST_MATRICES = 30_000  # that one call on a GPU finds the eigenvectors of
PREDICTED_OPTIMUM, BEST_TRIED, PROBE, FIRST = range(4)  # sources


def candidates(dims: Dims) -> int:
    """n: the optima of experts, their mean, the best tried, and moves around the leader's optimum and that one."""
    return E + 2 + 2 * len(REACH) * min(dims.knobs, DIRECTIONS)


def draws_needed(dims: Dims) -> int:
    """D: a jitter for each knob, and what breaks ties between candidates."""
    return dims.knobs + candidates(dims)


def choose(
    dims: Dims, state: State, belief: Belief, default: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The least expected y, less what an observation is worth, among experts' optima and moves around them.

    Points [B, d], their sources [B], and mean and variance [B] of y there. Draws [B, d + n] are uniform in [0, 1).
    """
    seen = look(state)
    young = seen.fewest < 2.0 and uniform(state.count < 2.0)
    if young is True:
        return _first_probe(dims, state, belief, default, draws)
    chosen = _choice(dims, state, belief, default, draws, seen.slots)
    if young is False:
        return chosen
    xp = namespace(draws)
    points, *numbers = zip(_first_probe(dims, state, belief, default, draws), chosen, strict=True)
    source, mean, variance = (xp.where(young, first, then) for first, then in numbers)
    return xp.where(young[:, None], *points), source, mean, variance


def best(dims: Dims, state: State, belief: Belief, default: Tensor) -> Tensor:
    """Points [B, d]: the least posterior mean among experts' minimisers, their mean, the best tried and the default."""
    xp, weights = namespace(belief.weights), _weights(belief)
    rows = _tuners(state, xp)
    hint = _hint(dims, state, belief, rows, dims.rows)[:, None]
    u = xp.concat([_centres(belief, *box(default)), hint, xp.zeros_like(hint)], axis=1)
    local = (weights[:, None, :L] @ belief.mean) @ features(u)
    gaps = u - belief.optimum[:, None]
    moving = belief.level[:, None] + ((gaps * gaps) @ belief.curvatures[:, :, None])[:, :, 0]
    mean = local[:, 0] + (weights[:, L] * belief.a)[:, None] * moving
    return _point(default, u[rows, mean.argmin(axis=1)])


def _choice(
    dims: Dims, state: State, belief: Belief, default: Tensor, draws: Tensor, slots: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `choose`, for tuners with samples, in so many slots at most."""
    xp, d, (low, high) = namespace(draws), dims.knobs, box(default)
    rows, weights = _tuners(state, xp), _weights(belief)
    experts = experts_of(dims, state, belief)
    centres = _centres(belief, low, high)
    hint = _hint(dims, state, belief, rows, slots)[:, None]
    u = _candidates(dims, belief, rows, draws[:, :d], centres, hint, experts)
    u = xp.minimum(xp.maximum(u, low), high)
    inside = (centres[:, :E] > low) & (centres[:, :E] < high)  # an optimum at the edge stays there
    means, variances, worths = _experts_at(dims, belief, u, centres, inside, experts)
    score = (weights[:, None] @ (means - (HORIZON_STEPS * belief.a)[:, None, None] * worths))[:, 0]
    tie = TIE * (top(score) + top(-score))
    chosen = (score + tie * draws[:, d:]).argmin(axis=1)  # ties: either way is as good
    means, variances = means[rows, :, chosen], variances[rows, :, chosen]
    mean = xp.vecdot(weights, means)
    apart = means - mean[:, None]
    variance = xp.vecdot(weights, (belief.a * belief.a)[:, None] * variances + apart * apart)
    source = xp.minimum(xp.maximum(chosen - E, PREDICTED_OPTIMUM), PROBE)
    return _point(default, u[rows, chosen]), source, mean + (belief.offset + belief.origin), variance


def _first_probe(
    dims: Dims, state: State, belief: Belief, default: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `choose`: a move along one knob, drawn at random."""
    xp, d, (low, high) = namespace(draws), dims.knobs, box(default)
    along = xp.arange(d, dtype=draws.dtype, device=draws.device) == xp.floor(draws[:, :1] * d)
    move = xp.full_like(draws[:, :1], FIRST_PROBE)
    move = xp.where(draws[:, 1:2] < 0.5, -move, move)
    beyond = (along & ((move < low) | (move > high))).any(axis=1)[:, None]  # the default is near this end
    point = _point(default, xp.where(along, xp.where(beyond, -move, move), 0.0))
    mean, variance = predict(dims, state, belief, default, point[:, None])
    return point, xp.full_like(_tuners(state, xp), FIRST), mean[:, 0], variance[:, 0]


def _candidates(
    dims: Dims, belief: Belief, rows: Tensor, draws: Tensor, centres: Tensor, hint: Tensor, experts: Experts
) -> Tensor:
    """Points u [B, n, d] to compare: the optima of experts, the best tried, moves around the leader's and that one."""
    xp, d = namespace(centres), dims.knobs
    leader = (belief.weights * _handicaps(xp, centres.device)).argmax(axis=1)
    covariance = experts.S[rows, leader, 1 : 1 + d, 1 : 1 + d]
    if experts.location is not None:
        covariance = xp.where((leader == L)[:, None, None], experts.location, covariance)
    flat = covariance.reshape((-1, d * d))  # a copy, where the library keeps matrices by columns
    unsure = flat[:, :: d + 1]
    unsure += (TIE * unsure.sum(axis=1))[:, None] * draws  # knobs not tried yet take turns at random
    moves = _moves(d, xp, centres.device) @ _eigenvectors(flat.reshape((-1, d, d))).mT
    return xp.concat([centres, hint, centres[rows, leader][:, None] + moves, hint + moves], axis=1)


def _centres(belief: Belief, low: Tensor, high: Tensor) -> Tensor:
    """[B, E + 1, d] every expert's minimiser, and their mean."""
    xp = namespace(belief.mean)
    local = minimisers(low, high, belief.mean, belief.a)
    moved, moving = local[:, :1], uniform_if_cheap(belief.moving > 0.0)
    if moving is not False:
        optimum = xp.minimum(xp.maximum(belief.optimum, low), high)[:, None]
        moved = optimum if moving is True else xp.where(moving[:, None, None], optimum, moved)
    every = xp.concat([local, moved], axis=1)
    return xp.concat([every, belief.weights[:, None] @ every], axis=1)


def _hint(dims: Dims, state: State, belief: Belief, rows: Tensor, n: int) -> Tensor:
    """[B, d] the point of the slot, of n, with the best y in a situation like this."""
    xp, kernels = namespace(belief.kernels), belief.kernels[:, :, :n]
    score = targets(dims, state, EVERY, n) / belief.spread[:, None] + 2.0 * (1.0 - kernels[:, 2])
    slot = xp.where(kernels[:, 0] > 0.0, score, xp.inf).argmin(axis=1)
    return state.prompts[rows, slot, 1 : 1 + dims.knobs] / xp.maximum(state.counts[rows, slot], 1.0)[:, None]


def _experts_at(
    dims: Dims, belief: Belief, u: Tensor, centres: Tensor, inside: Tensor, experts: Experts
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean less the offset, variance, and worth of one observation, [B, E, n], of the experts at u.

    Variances are in units of a^2, worths in units of a. An observation is worth the expected fall of the least y a step
    from then on: where it moves the minimiser by m, that is the curvature times m^2, and it changes the slope there by
    twice the curvature times m.
    """
    xp, d, p, f = namespace(u), dims.knobs, dims.features, features(u)
    mean, S = experts.mean, experts.S
    slopes = S[:, :, 1 : 1 + d] + (2.0 * centres[:, :E])[..., None] * S[:, :, 1 + d :]
    if experts.along is not None:
        steep = xp.maximum(belief.curvatures, LEAST_CURVATURE)
        slopes[:, L] = (2.0 * steep)[..., None] * experts.along
    curvatures = xp.maximum(mean[:, :, 1 + d :] / belief.a[:, None, None], LEAST_CURVATURE)
    slopes *= (inside * (0.5 / xp.sqrt(curvatures)))[..., None]
    Sf = (S.reshape((-1, E * p, p)) @ f).reshape((-1, E, p, u.shape[1]))
    moves = (slopes.reshape((-1, E * d, p)) @ f).reshape((-1, E, d, u.shape[1]))
    Sf *= f[:, None]
    moves *= moves
    variances = xp.maximum(Sf.sum(axis=2), 0.0)
    worths = moves.sum(axis=2) / (variances + belief.noises[:, :, None])
    return mean @ f, variances, worths


def _weights(belief: Belief) -> Tensor:
    """[B, E] of the experts that have any to speak of."""
    weights = belief.weights * (belief.weights >= LEAST_WEIGHT)
    return weights / weights.sum(axis=1)[:, None]


def _eigenvectors(matrices: Tensor) -> Tensor:
    """[B, d, d] in columns, the least variance first; signed so that ties break alike whatever library found them."""
    xp, size = namespace(matrices), len(matrices)
    starts = range(0, size, MOST_MATRICES)
    parts = [xp.linalg.eigh(matrices[start : start + MOST_MATRICES])[1] for start in starts]
    vectors = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
    side = _falling(matrices.shape[2], xp, matrices.device) @ vectors
    return xp.where(side < 0.0, -vectors, vectors)


@lru_cache
def _falling(d: int, xp: Tensor, device: Tensor) -> Tensor:
    """[1, d] 1, 1/2, 1/3, ..."""
    return xp.asarray(1.0 / np.arange(1.0, d + 1.0)[None], device=device)


@lru_cache
def _handicaps(xp: Tensor, device: Tensor) -> Tensor:
    """[E] what weights are multiplied by when the leader is looked for."""
    return xp.asarray(1.0 - EQUAL_WEIGHTS * np.arange(float(E)), device=device)


def _point(default: Tensor, u: Tensor) -> Tensor:
    """[B, d] in the unit box."""
    xp = namespace(u)
    return xp.minimum(xp.maximum(default + u / 2.0, 0.0), 1.0)


@lru_cache
def _moves(d: int, xp: Tensor, device: Tensor) -> Tensor:
    """[moves, d] lengths along each eigenvector: the least known direction first."""
    top = min(d, DIRECTIONS)
    lengths = np.zeros((top, len(REACH), d))
    for i in range(top):
        lengths[i, :, d - 1 - i] = REACH
    return xp.asarray(lengths.reshape(-1, d), device=device)


def _tuners(state: State, xp: Tensor) -> Tensor:
    """[B] the number of each."""
    return xp.arange(state.size, device=state.steps.device)
