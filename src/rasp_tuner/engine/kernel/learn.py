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
from rasp_tuner.engine.kernel.believe import LEAST_CURVATURE, box, minimisers, refresh_now
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.predict import each
from rasp_tuner.engine.kernel.select import Mask, Rows, Seen, chosen, look, put, top, uniform, uniform_if_cheap
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
from rasp_tuner.engine.kernel.trust import (
    FAILED,
    FEWEST_SAMPLES,
    OUTLIERS_FROM_SAMPLES,
    recheck_early_samples,
    targets,
    trust_in_sample,
    update_trust,
)

TRACK_FROM_SAMPLES = 5  # on, the curvature is tracked instead of estimated
LEAST_TRACKED_CURVATURE = 1e-95  # below, nothing has moved y yet


def start(dims: Dims) -> dict[str, Any]:
    """What of a tuner that knows nothing is not zero: for `state.blank`."""
    fixed = constants(np, "cpu")
    return {
        "distance": np.array([2.0, 6.0]),
        "context_least": -LARGEST,
        "context_most": LARGEST,
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
    seen = look(state)
    if seen.fewest < 1.0:
        put(state.first, state.steps == 0.0, losses)
    if seen.most >= 2.0:
        trust = _score(dims, state, belief, default, points, losses, logs, seen)
    else:
        trust = xp.ones_like(state.steps)
    early: Mask = seen.fewest < EARLY_SAMPLES and uniform(state.steps < EARLY_SAMPLES)
    put(trust, early, 1.0)  # these are judged together, and again with every one that comes
    u = 2.0 * (points - default)
    relative = xp.minimum(xp.maximum(losses - state.first, -LARGEST), LARGEST)
    psi = xp.concat([0.0 * u[:, :1] + 1.0, u, u * u, relative], axis=1)
    memory.write(dims, state, contexts, psi, trust, seen)
    moving.observe(dims, state, u, contexts, relative, trust)
    if early is not False:
        _recheck(dims, state, failed, early)
    seen = seen._replace(fewest=seen.fewest + 1.0, most=seen.most + 1.0)
    fitted = uniform((seen.fewest >= 3.0 or state.steps >= 3.0) & refresh_now(seen.steps(state)))
    if fitted is not False:
        moving.fit(dims, state, belief.a, belief.offset, fitted, seen)


def reweigh(dims: Dims, state: State, weights: Tensor, rows: Mask) -> None:  # noqa: ARG001 - called like the others
    """New weights [B, k] of the losses for the tuners in a mask: their target means something else now."""
    put(state.weights, rows, weights)
    reset(state, rows)
    put(state.fitted, rows, 0.0)


def recent(state: State, tuner: int) -> tuple[Array, Array, Array]:
    """Points u, contexts (reduced if they are long) and losses of a tuner's window, oldest first; copies."""
    seen = int(state.steps[tuner])
    rows = np.arange(max(seen - WINDOW_SAMPLES, 0), seen) % WINDOW_SAMPLES
    u, contexts, losses = (
        to_numpy(array[tuner])[rows] for array in (state.window_points, state.window_contexts, state.window_losses)
    )
    return u, contexts, losses


def remembered(state: State, tuner: int) -> tuple[Array, Array, Array]:
    """Mean contexts [N, c], counts [N] and ages [N] of a tuner's slots; copies."""
    n = int(state.count[tuner])
    keys, counts, last = (to_numpy(array[tuner, :n]) for array in (state.keys, state.counts, state.last))
    return keys + to_numpy(state.origin[tuner]), counts.copy(), float(state.steps[tuner]) - 1.0 - last


def to_numpy(array: Tensor) -> Array:
    """The same array, on the host."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, dtype=np.float64)


def _score(
    dims: Dims,
    state: State,
    belief: Belief,
    default: Tensor,
    points: Tensor,
    losses: Tensor,
    logs: Tensor,
    seen: Seen,
) -> Tensor:
    """[B] trust in the samples, after experts, noise and what is shared were moved by those that look true."""
    xp = namespace(logs)
    scored: Mask = seen.fewest >= 2.0 or state.steps >= 2.0
    if scored is not True:
        given, logs = logs, xp.zeros_like(logs)  # what a young tuner is given may be anything
        put(logs, scored, given)
    mature: Mask = seen.fewest >= OUTLIERS_FROM_SAMPLES or state.steps >= OUTLIERS_FROM_SAMPLES
    trust, cleared = trust_in_sample(state, belief, logs, mature)
    cleared = uniform_if_cheap(cleared)
    if cleared is not False:
        memory.restore_trust(state, cleared)
        moving.restore_trust(state, cleared)
    refresh = scored & refresh_now(seen.steps(state))
    true = uniform_if_cheap(scored & (trust >= 0.5))
    if true is not False:
        scores = KEEP * state.scores + (1.0 - KEEP) * constants(xp, logs.device).expert_prior + logs
        put(state.scores, true, scores - top(scores))
        means, variances = each(dims, state, belief, default, points[:, None])
        a, y = belief.a[:, None], (losses * state.weights).sum(axis=1)[:, None]
        observe_noise(state, (y - means[:, :, 0]) / a, variances[:, :, 0] / (a * a), true)
        _track(dims, state, belief, default, true & (seen.fewest >= 3.0 or state.steps >= 3.0), refresh, seen)
    if refresh is not False:
        enough: Mask = seen.fewest >= FEWEST_SAMPLES or state.count >= FEWEST_SAMPLES
        update_trust(dims, state, belief, refresh & enough, seen.slots)
    return trust


def _track(dims: Dims, state: State, belief: Belief, default: Tensor, true: Mask, refresh: Mask, seen: Seen) -> None:
    """Move what all situations share slowly towards what the leading expert sees, for the tuners in `true`."""
    xp, a = namespace(state.tracked), belief.a
    count = state.tracked + 1.0
    tracked = uniform_if_cheap(true & (count >= TRACK_FROM_SAMPLES) & (a >= LEAST_TRACKED_CURVATURE))
    leader = xp.argmax(state.scores, axis=1)
    local = xp.minimum(leader, L - 1)
    likeliest = spread = None
    rows = chosen(tracked & (refresh if seen.flattest > 0.0 else refresh | (state.curvature == 0.0)))
    if rows is not None:
        one = xp.arange(state.size, device=a.device)[rows]
        level = (a * centred_level(state, belief.offset, a))[rows]
        G, b, rest = (array[one, local[rows]] for array in (belief.G, belief.b, belief.rest))
        likeliest = xp.where(state.curvature > 0.0, state.curvature, 1.0)
        common = Prior(*(array[rows] for array in prior(dims, state)))  # before this sample counts
        likeliest[rows], spread = estimate(common, G, b, rest, level), xp.zeros_like(a)
        spread[rows] = _spread(dims, state, rows, seen.slots)
    put(state.tracked, true, count)
    if tracked is not False:
        curvatures, least = _summary(belief, default, leader, local)
        track(state, curvatures, least, likeliest, spread, tracked)


def _summary(belief: Belief, default: Tensor, leader: Tensor, local: Tensor) -> tuple[Tensor, Tensor]:
    """Curvatures [B, d] and least value [B] of the leading experts, in units of y, relative to the first sample."""
    xp, d = namespace(leader), belief.optimum.shape[1]
    a = belief.a[:, None]
    mean = belief.mean[xp.arange(len(leader), device=leader.device), local]
    linear, curvatures = mean[:, 1 : 1 + d], xp.maximum(mean[:, 1 + d :], LEAST_CURVATURE * a)
    u = minimisers(*box(default), mean[:, None], belief.a)[:, 0]
    least = mean[:, 0] + (u * (linear + u * mean[:, 1 + d :])).sum(axis=1)
    moves = uniform_if_cheap((leader == L) & (belief.moving > 0.0))
    if moves is not False:
        put(curvatures, moves, xp.maximum(belief.curvatures, LEAST_CURVATURE) * a)
        put(least, moves, belief.level * belief.a)
    return curvatures, least + belief.offset


def _spread(dims: Dims, state: State, rows: Rows, n: int) -> Tensor:
    """[b] deviation of y over the slots that are trusted; nobody uses more than n."""
    xp, count = namespace(state.count), state.count[rows]
    y, used = targets(dims, state, rows, n), xp.arange(n, device=count.device) < count[:, None]
    trust = xp.where(used, state.trust[rows, 0, :n] + 1e-9, 0.0)
    total, weighted = trust.sum(axis=1), trust * y
    return xp.sqrt(xp.maximum((weighted * y).sum(axis=1) / total - (weighted.sum(axis=1) / total) ** 2, 0.0))


def _recheck(dims: Dims, state: State, failed: Tensor, early: Mask) -> None:
    """Note what is known of the latest samples, and look again at all of the tuners that have few."""
    xp = namespace(failed)
    latest = xp.arange(EARLY_SAMPLES, device=failed.device) == state.steps[:, None] - 1.0  # false for the others
    state.early[...] = xp.where(latest, FAILED * failed[:, None], state.early)
    recheck_early_samples(dims, state, early)
