"""Learning of B tuners: one sample each, scored, remembered and fitted. Symbols as in state.py.

symbol   shape   meaning
u        [B, d]  points relative to the default: 2 (point - default), in [-2, 2]
a        [B]     the curvature all situations of a tuner share
"""

import numpy as np
from numpy.typing import ArrayLike

from rasp_tuner.base.common_constants import EARLY_SAMPLES, FEWEST_SAMPLES, NORMAL_FROM_SAMPLES
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.engine.kernel import memory, moving
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.believe import box, minimisers, refresh_now
from rasp_tuner.engine.kernel.masks import Flags, Rows, assign_where, chunks, row_max
from rasp_tuner.engine.kernel.outliers import (
    FAILED,
    recheck_early_samples,
    restore_trust,
    targets,
    trust_in_sample,
    update_trust,
)
from rasp_tuner.engine.kernel.pooled_prior import (
    EXPERT_PRIOR,
    KEEP,
    NOISE_PRIOR,
    OPTIMUM_VARIANCE,
    PooledPrior,
    centred_level,
    estimate,
    observe_noise,
    prior,
    track,
)
from rasp_tuner.engine.kernel.predict import each
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, L, State

LEAST_TRACKED_CURVATURE = 1e-95  # below, nothing has moved y yet
# what is known of a target that means something else now
FORGOTTEN = {"curvature": 0.0, "tracked": 0.0, "largest": 0.0, "level_variance": 4.0, "fitted": 0.0}


def start(dims: Dims) -> dict[str, ArrayLike]:
    """What of a tuner that knows nothing is not zero: for `state.blank`."""
    return {
        "distance": np.array([2.0, 6.0]),
        "context_least": -LARGEST,
        "context_most": LARGEST,
        "level_variance": 4.0,
        "location_variance": np.full(dims.knobs, OPTIMUM_VARIANCE),
        "scores": EXPERT_PRIOR,
        "noises": NOISE_PRIOR,
        "weights": np.ones(dims.columns),
        "window_weights": 1.0,
        "unit": 1.0,
    }


def learn(
    dims: Dims,
    state: State,
    belief: SlotBelief,
    default: Array,
    points: Array,
    contexts: Array,
    losses: Array,
    failed: Array | Flags,
    logs: Array,
) -> None:
    """Score the experts, then take a sample of each tuner in; a failed one counts like any other, but is no outlier.

    The belief [B] is of the contexts [B, c], and logs [B, E] are the densities it gave to the losses [B, k] at the
    points [B, d]. A tuner without samples ignores both, one with fewer than two the latter.
    """
    assign_where(state.first, state.steps == 0.0, losses)
    early = state.steps < EARLY_SAMPLES
    trust = _score(dims, state, belief, default, points, losses, logs)
    assign_where(trust, early, 1.0)  # these are judged together, and again with every one that comes
    u = 2.0 * (points - default)
    relative = np.minimum(np.maximum(losses - state.first, -LARGEST), LARGEST)
    psi = np.concat([0.0 * u[:, :1] + 1.0, u, u * u, relative], axis=1)
    memory.write(dims, state, contexts, psi, trust)
    moving.observe(dims, state, u, contexts, relative, trust)
    latest = np.arange(EARLY_SAMPLES) == state.steps[:, None] - 1.0  # false for those that have more
    state.early[...] = np.where(latest, FAILED * failed[:, None], state.early)
    recheck_early_samples(dims, state, early)
    moving.fit(dims, state, belief.a, belief.offset, (state.steps >= 3.0) & refresh_now(state))


def reweigh(state: State, weights: Array, rows: Flags) -> None:
    """New weights [B, k] of the losses for the tuners in a mask: their target means something else now."""
    assign_where(state.weights, rows, weights)
    for name, value in FORGOTTEN.items():
        assign_where(getattr(state, name), rows, value)


def recent(state: State, tuner: int) -> tuple[Array, Array, Array]:
    """Points u, contexts (reduced if they are long) and losses of a tuner's window, oldest first; copies."""
    seen = int(state.steps[tuner])
    rows = np.arange(max(seen - WINDOW_SAMPLES, 0), seen) % WINDOW_SAMPLES
    u, contexts, losses = (
        array[tuner, rows] for array in (state.window_points, state.window_contexts, state.window_losses)
    )
    return u, contexts, losses


def remembered(state: State, tuner: int) -> tuple[Array, Array, Array]:
    """Mean contexts [N, c], counts [N] and ages [N] of a tuner's slots; copies."""
    n = int(state.count[tuner])
    keys, counts, last = (array[tuner, :n] for array in (state.keys, state.counts, state.last))
    return keys + state.origin[tuner], counts.copy(), float(state.steps[tuner]) - 1.0 - last


def _score(
    dims: Dims,
    state: State,
    belief: SlotBelief,
    default: Array,
    points: Array,
    losses: Array,
    logs: Array,
) -> Array:
    """[B] trust in the samples, after experts, noise and what is shared were moved by those that look true."""
    scored = state.steps >= 2.0
    logs = np.where(scored[:, None], logs, 0.0)  # what a young tuner is given may be anything
    trust, cleared = trust_in_sample(state, belief, logs)
    restore_trust(state, cleared)
    refresh, true = scored & refresh_now(state), scored & (trust >= 0.5)
    scores = KEEP * state.scores + (1.0 - KEEP) * EXPERT_PRIOR + logs
    assign_where(state.scores, true, scores - row_max(scores))
    means, variances = each(dims, state, belief, default, points[:, None])
    a, y = belief.a[:, None], (losses * state.weights).sum(axis=1)[:, None]
    observe_noise(state, (y - means[:, :, 0]) / a, variances[:, :, 0] / (a * a), true)
    _track(dims, state, belief, default, true & (state.steps >= 3.0), refresh)
    update_trust(dims, state, belief, refresh & (state.count >= FEWEST_SAMPLES))
    return trust


def _track(dims: Dims, state: State, belief: SlotBelief, default: Array, true: Flags, refresh: Flags) -> None:
    """Move what all situations share slowly towards what the leading expert sees, for the tuners in `true`."""
    a = belief.a
    count = state.tracked + 1.0
    tracked = true & (count >= NORMAL_FROM_SAMPLES) & (a >= LEAST_TRACKED_CURVATURE)
    leader = np.argmax(state.scores, axis=1)
    local = np.minimum(leader, L - 1)
    known = state.curvature > 0.0
    likeliest, spread = np.where(known, state.curvature, 1.0), np.zeros_like(a)
    for rows in chunks(tracked & (refresh | ~known)):
        one = np.arange(state.size)[rows]
        level = (a * centred_level(state, belief.offset, a))[rows]
        G, b, rest = (array[one, local[rows]] for array in (belief.G, belief.b, belief.rest))
        common = PooledPrior(*(array[rows] for array in prior(dims, state)))  # before this sample counts
        likeliest[rows], spread[rows] = estimate(common, G, b, rest, level), _spread(dims, state, rows)
    assign_where(state.tracked, true, count)
    track(state, _least(belief, default, leader, local), likeliest, spread, tracked)


def _least(belief: SlotBelief, default: Array, leader: Array, local: Array) -> Array:
    """[B] the least value of the leading experts, in units of y, relative to the first sample."""
    d = belief.optimum.shape[1]
    mean = belief.mean[np.arange(len(leader)), local]
    u = minimisers(*box(default), mean[:, None], belief.a)[:, 0]
    least: Array = mean[:, 0] + (u * (mean[:, 1 : 1 + d] + u * mean[:, 1 + d :])).sum(axis=1)
    assign_where(least, (leader == L) & (belief.moving > 0.0), belief.level * belief.a)
    return least + belief.offset


def _spread(dims: Dims, state: State, rows: Rows) -> Array:
    """[b] deviation of y over the slots that are trusted."""
    y, used = targets(dims, state, rows, dims.rows), np.arange(dims.rows) < state.count[rows][:, None]
    trust = np.where(used, state.trust[rows, 0] + 1e-9, 0.0)
    total, weighted = trust.sum(axis=1), trust * y
    variance = (weighted * y).sum(axis=1) / total - (weighted.sum(axis=1) / total) ** 2
    spread: Array = np.sqrt(np.maximum(variance, 0.0))
    return spread
