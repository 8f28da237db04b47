"""Learning of B tuners: one sample each, scored, remembered and fitted. Symbols as in state.py.

symbol   shape   meaning
u        [B, d]  points relative to the default: 2 (point - default), in [-2, 2]
a        [B]     the curvature all situations of a tuner share
"""

from typing import Any

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.engine.kernel import memory, moving
from rasp_tuner.engine.kernel.belief import Belief
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.predict import each
from rasp_tuner.engine.kernel.select import Rows, chosen, put, some
from rasp_tuner.engine.kernel.shared import (
    KEEP,
    OPTIMUM_VARIANCE,
    Prior,
    centred_level,
    constants,
    estimate,
    observe_noise,
    prior,
    reset,
    track,
)
from rasp_tuner.engine.kernel.state import EARLY_SAMPLES, WINDOW_SAMPLES, Dims, L, State, Tensor
from rasp_tuner.engine.kernel.trust import FAILED, recheck_early_samples, targets, trust_in_sample, update_trust

TRACK_FROM_SAMPLES = 5  # on, the curvature is tracked instead of estimated
LEAST_TRACKED_CURVATURE = 1e-95  # below, nothing has moved y yet
LEAST_CURVATURE = 0.15  # of a: what a minimiser is computed with at least
SETTLED_SAMPLES, REFRESH_EVERY_STEPS = 100, 4  # after so many, what changes little is looked at one step in so many


def start(dims: Dims) -> dict[str, Any]:
    """What of a tuner that knows nothing is not zero: for `state.blank`."""
    fixed = constants(np, "cpu")
    return {
        "distance": np.array([2.0, 6.0]),
        "level_variance": 4.0,
        "shape": np.ones(dims.knobs),
        "location_variance": np.full(dims.knobs, OPTIMUM_VARIANCE),
        "scores": fixed.expert_prior,
        "noises": fixed.noise_prior,
        "weights": np.ones(dims.columns),
        "window_weights": 1.0,
        "unit": 1.0,
    }


def learn(
    dims: Dims,
    state: State,
    belief: Belief,
    default: Tensor,
    points: Tensor,
    contexts: Tensor,
    losses: Tensor,
    failed: Tensor,
    logs: Tensor,
) -> None:
    """Score the experts, then take a sample of each tuner in; a failed one counts like any other, but is no outlier.

    The belief [B] is of the contexts [B, c], and logs [B, E] are the densities it gave to the losses [B, k] at the
    points [B, d]. A tuner without samples ignores both, one with fewer than two the latter.
    """
    xp = namespace(points)
    youngest = float(xp.min(state.steps))
    if youngest < 1.0:
        put(state.first, state.steps == 0.0, losses)
    trust = xp.ones_like(state.steps)
    scored = state.steps >= 2.0
    if some(scored):
        trust = _score(dims, state, belief, default, points, losses, xp.where(scored[:, None], logs, 0.0), scored)
    if youngest < EARLY_SAMPLES:  # these are judged together, and again with every one that comes
        trust = xp.where(state.steps < EARLY_SAMPLES, 1.0, trust)
    u = 2.0 * (points - default)
    relative = xp.minimum(xp.maximum(losses - state.first, -LARGEST), LARGEST)
    psi = xp.concat([xp.ones_like(u[:, :1]), u, u**2, relative], axis=1)
    memory.write(dims, state, contexts, psi, trust)
    moving.observe(dims, state, u, contexts, relative, trust)
    if youngest < EARLY_SAMPLES:
        _recheck(dims, state, failed)
    settled = (state.steps >= 3.0) & _refresh_now(state)
    if some(settled):
        moving.fit(dims, state, belief.a, belief.offset, settled)


def reweigh(dims: Dims, state: State, weights: Tensor, rows: Tensor) -> None:  # noqa: ARG001 - called like the others
    """New weights [B, k] of the losses for the tuners in a mask [B]: their target means something else now."""
    put(state.weights, rows, weights)
    reset(state, rows)
    put(state.fitted, rows, 0.0)


def recent(dims: Dims, state: State, tuner: int) -> tuple[Array, Array, Array]:  # noqa: ARG001
    """Points u, contexts (reduced if they are long) and losses of a tuner's window, oldest first; copies."""
    seen = int(state.steps[tuner])
    rows = np.arange(max(seen - WINDOW_SAMPLES, 0), seen) % WINDOW_SAMPLES
    u, contexts, losses = (
        to_numpy(array[tuner])[rows] for array in (state.window_points, state.window_contexts, state.window_losses)
    )
    return u, contexts, losses


def remembered(dims: Dims, state: State, tuner: int) -> tuple[Array, Array, Array]:  # noqa: ARG001
    """Mean contexts [N, c], counts [N] and ages [N] of a tuner's slots; copies."""
    n = int(state.count[tuner])
    keys, counts, last = (to_numpy(array[tuner, :n]) for array in (state.keys, state.counts, state.last))
    return keys + to_numpy(state.origin[tuner]), counts.copy(), float(state.steps[tuner]) - 1.0 - last


def to_numpy(array: Tensor) -> Array:
    """The same array, on the host."""
    return np.asarray(array if isinstance(array, np.ndarray) else array.cpu(), dtype=np.float64)


def _score(
    dims: Dims,
    state: State,
    belief: Belief,
    default: Tensor,
    points: Tensor,
    losses: Tensor,
    logs: Tensor,
    scored: Tensor,
) -> Tensor:
    """[B] trust in the samples, after experts, noise and what is shared were moved by those that look true."""
    xp = namespace(logs)
    trust, cleared = trust_in_sample(state, belief, logs, scored)
    rows = chosen(cleared)
    if rows is not None:
        memory.restore_trust(state, rows)
        moving.restore_trust(state, rows)
    common = prior(dims, state)
    refresh = scored & _refresh_now(state)
    true = scored & (trust >= 0.5)
    if some(true):
        mask = None if bool(xp.all(true)) else true
        scores = KEEP * state.scores + (1.0 - KEEP) * constants(xp, logs.device).expert_prior + logs
        put(state.scores, mask, scores - xp.max(scores, axis=1, keepdims=True))
        means, variances = each(dims, state, belief, default, points[:, None])
        a, y = belief.a[:, None], (losses * state.weights).sum(axis=1)[:, None]
        observe_noise(state, (y - means[:, :, 0]) / a, variances[:, :, 0] / a**2, mask)
        _track(dims, state, belief, default, common, true, refresh)
    if some(refresh):
        update_trust(dims, state, belief, refresh)
    return trust


def _track(
    dims: Dims, state: State, belief: Belief, default: Tensor, common: Prior, true: Tensor, refresh: Tensor
) -> None:
    """Move what all situations share slowly towards what the leading expert sees, where a sample was true [B]."""
    xp, a = namespace(state.tracked), belief.a
    put(state.tracked, true & (state.steps >= 3.0), state.tracked + 1.0)
    tracked = true & (state.tracked >= TRACK_FROM_SAMPLES) & (a >= LEAST_TRACKED_CURVATURE)
    if not some(tracked):
        return
    leader = xp.argmax(state.scores, axis=1)
    local = xp.minimum(leader, L - 1)
    known = state.curvature > 0.0
    likeliest, spread = xp.where(known, state.curvature, 1.0), xp.zeros_like(a)
    rows = chosen(tracked & (refresh | ~known))
    if rows is not None:
        one = xp.arange(state.size, device=a.device)[rows]
        level = (a * centred_level(state, belief.offset, a))[rows]
        G, b, rest = (array[one, local[rows]] for array in (belief.G, belief.b, belief.rest))
        likeliest[rows] = estimate(Prior(*(array[rows] for array in common)), G, b, rest, level)
        spread[rows] = _spread(dims, state, rows)
    curvatures, least = _summary(belief, default, leader, local)
    track(state, curvatures, least, likeliest, spread, None if bool(xp.all(tracked)) else tracked)


def _summary(belief: Belief, default: Tensor, leader: Tensor, local: Tensor) -> tuple[Tensor, Tensor]:
    """Curvatures [B, d] and least value [B] of the leading experts, in units of y, relative to the first sample."""
    xp, d = namespace(leader), belief.optimum.shape[1]
    a = belief.a[:, None]
    mean = belief.mean[xp.arange(len(leader), device=leader.device), local]
    linear, curvatures = mean[:, 1 : 1 + d], xp.maximum(mean[:, 1 + d :], LEAST_CURVATURE * a)
    u = xp.minimum(xp.maximum(linear / (-2.0 * curvatures), -2.0 * default), 2.0 * (1.0 - default))
    least = mean[:, 0] + (u * (linear + u * mean[:, 1 + d :])).sum(axis=1)
    moves = (leader == L) & (belief.moving > 0.0)
    if some(moves):
        curvatures = xp.where(moves[:, None], xp.maximum(belief.curvatures, LEAST_CURVATURE) * a, curvatures)
        least = xp.where(moves, belief.level * belief.a, least)
    return curvatures, least + belief.offset


def _spread(dims: Dims, state: State, rows: Rows) -> Tensor:
    """[b] deviation of y over the slots that are trusted."""
    xp, count = namespace(state.count), state.count[rows]
    n = int(xp.max(count))
    y, used = targets(dims, state, rows, n), xp.arange(n, device=count.device) < count[:, None]
    trust = xp.where(used, state.trust[rows, 0, :n] + 1e-9, 0.0)
    total, weighted = trust.sum(axis=1), trust * y
    return xp.sqrt(xp.maximum((weighted * y).sum(axis=1) / total - (weighted.sum(axis=1) / total) ** 2, 0.0))


def _recheck(dims: Dims, state: State, failed: Tensor) -> None:
    """Note what is known of the latest samples, and look again at all of the tuners that have few."""
    xp = namespace(failed)
    early = state.steps <= EARLY_SAMPLES
    places = xp.arange(EARLY_SAMPLES, device=early.device)
    latest = early[:, None] & (places == state.steps[:, None] - 1.0)
    state.early[...] = xp.where(latest, FAILED * failed[:, None], state.early)
    recheck_early_samples(dims, state, early)


def _refresh_now(state: State) -> Tensor:
    """[B] whether to spend time on what changes little: always while young, then now and then."""
    return (state.steps < SETTLED_SAMPLES) | (state.steps % REFRESH_EVERY_STEPS == 0.0)
