"""Two tuners' memories as one: prompts are sums, so both know the sum of what each knows. Symbols as in state.py.

Every sum over samples of the merged state is the sum of both, up to rounding. Only where memory is full do near slots
become one, as they do in any tuner. What is tracked instead of summed (the shared shape, the scores of experts) is
averaged by the samples behind it; the moving optimum is fitted anew to the latest samples of both.
"""

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.memory import SHARP_STEPS, scales
from rasp_tuner.engine.kernel.state import EARLY_SAMPLES, SLOTS, WINDOW_SAMPLES, Dims, State, blank

PER_SLOT = ("keys", "prompts", "counts")


def merged(dims: Dims, one: State, other: State) -> State:
    """What both tuners know, as the state of one; losses and contexts are kept relative to those of `one`."""
    if not other.steps[0]:
        return one.map(np.copy)
    if not one.steps[0]:
        return other.map(np.copy)
    other = _relative_to(dims, other, one)
    both, pair = blank(dims, 1, start(dims)), (one, other)
    both.steps[:] = one.steps + other.steps
    for name in ("origin", "first", "weights", "previous"):
        getattr(both, name)[:] = getattr(one, name)
    both.changes[:] = one.changes + other.changes
    for name in ("mean", "moment", "scores", "noises", "location", "location_variance"):
        getattr(both, name)[:] = _averaged(name, pair, one.steps[0], other.steps[0])
    both.distance[:] = _averaged("distance", pair, *(max(state.steps[0] - 3.0, 1e-9) for state in pair))
    _merge_shared(both, pair)
    _merge_slots(dims, both, pair)
    _merge_windows(both, pair)
    early = np.concatenate([state.early[0, : int(state.steps[0])] for state in pair])[:EARLY_SAMPLES]
    both.early[0, : len(early)] = early
    return both


def _averaged(name: str, pair: tuple[State, State], weight: float, other: float) -> Array:
    mean: Array = (weight * getattr(pair[0], name) + other * getattr(pair[1], name)) / (weight + other)
    return mean


def _relative_to(dims: Dims, state: State, frame: State) -> State:
    """The same knowledge, with contexts relative to the first of `frame`, losses to its first ones."""
    state = state.map(np.copy)
    shift = state.origin - frame.origin
    state.keys += shift[:, None]
    state.moment += shift * (2.0 * state.mean + shift)
    state.mean += shift
    more = (state.first - frame.first)[0]
    state.window_losses += more
    state.level += more @ state.weights[0]
    upper = np.triu_indices(dims.sample)
    full = np.zeros((dims.rows, dims.sample, dims.sample))
    full[:, upper[0], upper[1]] = full[:, upper[1], upper[0]] = state.prompts[0]
    turn = np.eye(dims.sample)
    turn[dims.features :, 0] = more
    state.prompts[0] = (turn @ full @ turn.T)[:, upper[0], upper[1]]
    state.origin, state.first = frame.origin.copy(), frame.first.copy()
    return state


def _merge_shared(both: State, pair: tuple[State, State]) -> None:
    """Curvature, level and shape, by the samples that each was tracked for."""
    known = [state for state in pair if state.curvature[0] > 0.0]
    if len(known) < 2:
        for name in ("curvature", "level", "level_variance", "largest", "tracked", "shape"):
            if known:
                getattr(both, name)[:] = getattr(known[0], name)
        return
    weights = (pair[0].tracked[0], pair[1].tracked[0])
    share = weights[0] / sum(weights)
    both.curvature[:] = pair[0].curvature ** share * pair[1].curvature ** (1.0 - share)
    for name in ("level", "level_variance", "shape"):
        getattr(both, name)[:] = _averaged(name, pair, *weights)
    both.largest[:] = np.maximum(pair[0].largest, pair[1].largest)
    both.tracked[:] = sum(weights)


def _merge_slots(dims: Dims, both: State, pair: tuple[State, State]) -> None:
    """The slots of both, older ones first; the nearest of them become one until they fit."""
    used = [int(state.count[0]) for state in pair]
    slots = {
        name: np.concatenate([getattr(s, name)[0, :n] for s, n in zip(pair, used, strict=True)]) for name in PER_SLOT
    }
    trust = np.concatenate([state.trust[0, :, :n].T for state, n in zip(pair, used, strict=True)])
    ages = np.concatenate([state.steps[0] - 1.0 - state.last[0, :n] for state, n in zip(pair, used, strict=True)])
    keep = np.arange(len(ages))
    while len(keep) > SLOTS:
        scale = scales(dims, both).both[0, 0]
        near, gone = _near_pairs(slots["keys"][keep] * np.sqrt(scale), ages[keep], len(keep) - SLOTS)
        near, gone = keep[near], keep[gone]
        share = (slots["counts"][gone] / (slots["counts"][near] + slots["counts"][gone]))[:, None]
        slots["keys"][near] += share * (slots["keys"][gone] - slots["keys"][near])
        trust[near] += share * (trust[gone] - trust[near])
        slots["prompts"][near] += slots["prompts"][gone]
        slots["counts"][near] += slots["counts"][gone]
        ages[near] = np.minimum(ages[near], ages[gone])
        keep = np.setdiff1d(keep, gone)
    n = len(keep)
    for name, array in slots.items():
        getattr(both, name)[0, :n] = array[keep]
    both.trust[0, :, :n] = trust[keep].T
    both.last[0, :n] = both.steps[0] - 1.0 - ages[keep]
    both.count[:], both.latest[:] = n, n - 1


def _near_pairs(keys: Array, ages: Array, most: int) -> tuple[Array, Array]:
    """Up to `most` of the nearest pairs, each row in one at most: rows that stay, and those folded into them."""
    gaps = ((keys[:, None] - keys) ** 2).sum(axis=2)
    sharp = np.sort(ages)[min(SHARP_STEPS, SLOTS // 2)]
    gaps[ages < sharp] = gaps[:, ages < sharp] = np.inf
    rows, others = np.triu_indices(len(keys), 1)
    order = gaps[rows, others].argsort(kind="stable")
    free = np.ones(len(keys), dtype=bool)
    near: list[int] = []
    gone: list[int] = []
    for i in order.tolist():
        a, b = rows[i], others[i]
        if len(near) == most or gaps[a, b] == np.inf:
            break
        if free[a] and free[b]:
            free[a] = free[b] = False
            near.append(a)
            gone.append(b)
    return np.array(near), np.array(gone)


def _merge_windows(both: State, pair: tuple[State, State]) -> None:
    """The latest samples of both, by age; and the moments of their contexts."""
    rows, ages, whose = [], [], []
    for i, state in enumerate(pair):
        steps = int(state.steps[0])
        those = np.arange(max(steps - WINDOW_SAMPLES, 0), steps)
        rows.append(those % WINDOW_SAMPLES)
        ages.append(steps - 1 - those)
        whose.append(np.full(len(those), i))
    row, age, own = np.concatenate(rows), np.concatenate(ages), np.concatenate(whose)
    latest = np.lexsort((own, age))[:WINDOW_SAMPLES][::-1]  # oldest first
    steps = int(both.steps[0])
    into = np.arange(steps - len(latest), steps) % WINDOW_SAMPLES
    for name in ("window_points", "window_contexts", "window_losses", "window_weights"):
        stacked = np.stack([getattr(state, name)[0] for state in pair])
        getattr(both, name)[0, into] = stacked[own[latest], row[latest]]
    n, m = pair[0].steps[0], pair[1].steps[0]
    gap = pair[1].reduced_mean - pair[0].reduced_mean
    both.reduced_mean[:] = _averaged("reduced_mean", pair, n, m)
    both.reduced_moments[:] = _averaged("reduced_moments", pair, n, m)
    both.reduced_moments[:] += n * m / (n + m) ** 2 * gap[:, :, None] * gap[:, None]
