"""Two tuners' memories as one: prompts are sums, so both know the sum of what each knows. Symbols as in state.py.

What is a sum over samples, or their mean, is exact: in any order, up to rounding. The slots of both are kept; only
where there are more than SLOTS do the nearest become one, as in any tuner. What a tuner tracks with every sample (how
good each expert is, the noise, the shared curvature, the moving optimum) is learned anew from what both remember
sample by sample, as if it had come one by one: neither knows how well an expert predicts what the other has seen.
"""

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.common_constants import EARLY_SAMPLES, LIKELY
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.distance import pairwise_squares
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.memory import SHARP_STEPS, scales
from rasp_tuner.engine.kernel.moving import reduced
from rasp_tuner.engine.kernel.native_batch import host_batch
from rasp_tuner.engine.kernel.outliers import FAILED, OUTLIER_TRUST
from rasp_tuner.engine.kernel.state import SLOTS, WINDOW_SAMPLES, Dims, State, blank

Places = NDArray[np.intp]

WINDOW = ("window_points", "window_losses", "window_contexts", "window_weights")
TRACKED = (
    "curvature", "level_variance", "largest", "tracked", "scores", "noises",
    "centre", "encode", "unit", "covariance", "fitted",
)  # fmt: skip


def merged(dims: Dims, default: Array, one: State, other: State, weights: Array) -> State:
    """What two tuners know, as the state of one whose losses have these weights [k]; neither is changed.

    Both have samples. Losses and contexts are kept relative to the first ones of `one`.
    """
    pair = one, _relative_to(dims, other, one)
    both = blank(dims, 1, start(dims))
    both.weights[0] = weights
    for name in ("origin", "first", "previous"):
        getattr(both, name)[:] = getattr(one, name)
    for name in ("steps", "changes"):
        getattr(both, name)[:] = getattr(one, name) + getattr(other, name)
    for name in ("mean", "moment", "distance", "location", "location_variance", "reduced_mean", "reduced_moments"):
        getattr(both, name)[:] = _averaged(name, pair)
    gap, (n, m) = other.reduced_mean - one.reduced_mean, (float(state.steps[0]) for state in pair)
    both.reduced_moments += n / (n + m) * (m / (n + m)) * gap[:, :, None] * gap[:, None]
    _merge_slots(dims, both, pair)
    _merge_windows(both, pair)
    _learn_again(dims, default, both)
    return both


def _averaged(name: str, pair: tuple[State, State]) -> Array:
    """The mean over the samples of both."""
    (n, m), (one, other) = (float(state.steps[0]) for state in pair), (getattr(state, name) for state in pair)
    mean: Array = (n * one + m * other) / (n + m)
    return mean


def _relative_to(dims: Dims, state: State, frame: State) -> State:
    """The same knowledge, with contexts relative to the first of `frame`, and losses to its first ones."""
    state = state.map(np.copy)
    state.mean, state.moment = _context_moments(state, frame.origin)
    state.keys += (state.origin - frame.origin)[:, None]
    more = (state.first - frame.first)[0]
    state.window_losses += more
    above, beside = np.triu_indices(dims.sample)
    full = np.zeros((dims.rows, dims.sample, dims.sample))
    full[:, above, beside] = full[:, beside, above] = state.prompts[0]
    turn = np.eye(dims.sample)
    turn[dims.features :, 0] = more
    state.prompts[0] = (turn @ full @ turn.T)[:, above, beside]
    state.origin, state.first = frame.origin.copy(), frame.first.copy()
    return state


def _context_moments(state: State, origin: Array) -> tuple[Array, Array]:
    """Mean and mean square [1, c] of all contexts, relative to another one than the first."""
    shift = state.origin - origin
    return state.mean + shift, state.moment + shift * (2.0 * state.mean + shift)


def _merge_slots(dims: Dims, both: State, pair: tuple[State, State]) -> None:
    """The slots of both, oldest first; the nearest of them become one until they fit."""
    used = [(state, int(state.count[0])) for state in pair]
    keys, prompts, counts = (
        np.concatenate([getattr(state, name)[0, :n] for state, n in used]) for name in ("keys", "prompts", "counts")
    )
    trust = np.concatenate([state.trust[0, :, :n].T for state, n in used])
    ages = np.concatenate([state.steps[0] - 1.0 - state.last[0, :n] for state, n in used])
    early = np.concatenate([state.early[0, : min(n, EARLY_SAMPLES)] for state, n in used])
    keep = _oldest_first(ages, np.concatenate([prompts[:, 1 : dims.sample], keys], axis=1))
    if both.steps[0] <= EARLY_SAMPLES:  # a slot is a sample then; later, nobody looks
        both.early[0, : len(keep)] = early[keep]
    scale = np.sqrt(scales(dims, both).both[0, 0])
    while len(keep) > SLOTS:
        near, gone = (keep[places] for places in _nearest(keys[keep] * scale, ages[keep], len(keep) - SLOTS))
        share = (counts[gone] / (counts[near] + counts[gone]))[:, None]
        keys[near] += share * (keys[gone] - keys[near])
        trust[near] += share * (trust[gone] - trust[near])
        prompts[near] += prompts[gone]
        counts[near] += counts[gone]
        ages[near] = np.minimum(ages[near], ages[gone])
        keep = keep[~np.isin(keep, gone)]
        keep = keep[(-ages[keep]).argsort(kind="stable")]
    n = len(keep)
    both.keys[0, :n], both.prompts[0, :n], both.counts[0, :n] = keys[keep], prompts[keep], counts[keep]
    both.trust[0, :, :n] = trust[keep].T
    both.last[0, :n] = both.steps[0] - 1.0 - ages[keep]
    both.count[:], both.latest[:] = n, n - 1


def _oldest_first(ages: Array, rows: Array) -> Places:
    """The order of samples by age; of those of one age by what they are [n, .], whichever tuner had them."""
    order: Places = np.lexsort((*rows.T[::-1], -ages))
    return order


def _nearest(keys: Array, ages: Array, most: int) -> tuple[Places, Places]:
    """Up to `most` of the nearest pairs, each slot in one at most: those that stay, and those folded into them.

    What is recent stays sharp.
    """
    gaps = pairwise_squares(keys)
    sharp = ages < np.sort(ages)[SHARP_STEPS]
    gaps[sharp] = gaps[:, sharp] = np.inf
    rows, others = np.triu_indices(len(keys), 1)
    near, gone, free = [], [], ~sharp
    for i in gaps[rows, others].argsort(kind="stable").tolist():
        a, b = rows[i], others[i]
        if free[a] and free[b]:
            free[a] = free[b] = False
            near.append(a)
            gone.append(b)
            if len(near) == most:
                break
    return np.array(near), np.array(gone)


def _merge_windows(both: State, pair: tuple[State, State]) -> None:
    """The latest samples of both, oldest first."""
    ages, parts = [], []
    for state in pair:
        steps = int(state.steps[0])
        those = np.arange(max(steps - WINDOW_SAMPLES, 0), steps)
        ages.append(steps - 1.0 - those)
        parts.append([getattr(state, name)[0, those % WINDOW_SAMPLES] for name in WINDOW])
    stacked = [np.concatenate(part) for part in zip(*parts, strict=True)]
    order = _oldest_first(np.concatenate(ages), np.concatenate(stacked[:3], axis=1))[-WINDOW_SAMPLES:]
    steps = int(both.steps[0])
    into = np.arange(steps - len(order), steps) % WINDOW_SAMPLES
    for name, part in zip(WINDOW, stacked, strict=True):
        getattr(both, name)[0, into] = part[order]


def _learn_again(dims: Dims, default: Array, both: State) -> None:
    """Have another tuner learn again what both remember sample by sample, and take from it what it tracked.

    It begins with the slots that are more than one sample, or that no expert believed.
    """
    weights, d, n = both.weights[0], dims.knobs, int(both.count[0])
    samples = (both.counts[0, :n] == 1.0) & (both.trust[0, :, :n].max(axis=0) >= LIKELY)
    pupil = _with_slots(dims, both, np.flatnonzero(~samples))
    batch = host_batch(dims, default, pupil)
    honest = np.ones(1)  # as of a failure: none is looked at as a false measurement
    for slot in np.flatnonzero(samples):
        sums = both.prompts[:, slot]
        point, losses = default + sums[:, 1 : 1 + d] / 2.0, sums[:, dims.features : dims.sample] + both.first
        context = both.keys[:, slot] + both.origin
        batch.believe(context).tell(point, context, losses, honest, losses @ weights)
        _know_contexts(pupil, both)
    for name in TRACKED:
        getattr(both, name)[:] = getattr(pupil, name)
    more = (pupil.first - both.first) @ weights
    both.level[:], both.theta[:] = pupil.level + more, pupil.theta
    both.theta[:, 0] += more


def _with_slots(dims: Dims, both: State, slots: Places) -> State:
    """A tuner that has only these slots, as if each had been one sample; it has tracked nothing."""
    pupil, n = blank(dims, 1, start(dims)), len(slots)
    for name in ("weights", "location", "location_variance"):
        getattr(pupil, name)[:] = getattr(both, name)
    if not n:
        return pupil
    for name in ("origin", "first", "previous"):
        getattr(pupil, name)[:] = getattr(both, name)
    for name in ("keys", "prompts", "counts"):
        getattr(pupil, name)[:, :n] = getattr(both, name)[:, slots]
    pupil.trust[:, :, :n] = both.trust[:, :, slots]
    pupil.last[:, :n] = np.arange(n)
    pupil.count[:], pupil.steps[:], pupil.latest[:] = n, n, n - 1
    pupil.early[:, :n] = FAILED
    late = slots[-WINDOW_SAMPLES:]
    rows = np.arange(n - len(late), n) % WINDOW_SAMPLES
    means = both.prompts[0, late, : dims.sample] / both.counts[0, late, None]
    pupil.window_points[0, rows], pupil.window_losses[0, rows] = means[:, 1 : 1 + dims.knobs], means[:, dims.features :]
    pupil.window_contexts[0, rows] = reduced(dims, both.keys[0, late] + both.origin[0])
    pupil.window_weights[0, rows] = OUTLIER_TRUST  # a mean of several points does not lie on the bowl
    _know_contexts(pupil, both)
    return pupil


def _know_contexts(pupil: State, both: State) -> None:
    """Have the pupil's statistics of contexts be those of all samples."""
    pupil.mean[:], pupil.moment[:] = _context_moments(both, pupil.origin)
    pupil.changes[:] = both.changes * (max(pupil.steps[0] - 1.0, 1.0) / max(both.steps[0] - 1.0, 1.0))
    for name in ("distance", "reduced_mean", "reduced_moments"):
        getattr(pupil, name)[:] = getattr(both, name)
