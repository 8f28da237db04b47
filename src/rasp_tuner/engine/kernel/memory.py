"""Memory of B tuners: slots of contexts with prompts, merged when full, never thrown away. Symbols as in state.py.

symbol    shape      meaning
wobble    [B, c]     half the mean squared change of a dimension from one sample to the next
spread    [B, c]     its variance over all samples
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.masks import Flags, Rows, assign_where, chunks, column
from rasp_tuner.engine.kernel.state import SLOTS, SPARE_SLOTS, Dims, Places, State

SHARP_STEPS = 64  # steps in which a slot is not merged: what is recent stays sharp
MERGE_CANDIDATES = 32  # slots that look for a partner then; they take turns
SAME_PLACE = 1e-12  # of the size of two keys: a smaller squared distance is rounding
LARGEST_GAP = 1e300  # a distance that overflows is still shorter than one that is ruled out
JUMP_TIMES = 6.0  # a change of more than this many times the usual one tells of a new situation, not of wobble
LEAST_SHARE = 0.0025  # of the spread: contexts that move smoothly still have neighbours
REACH_DEVIATIONS = 1.36  # deviations of the usual distance between neighbours that still count as near
ALIKE_REACHES = 2.0  # times that reach: beyond, a situation has nothing in common with another
MEAN_DISTANCE = 2.0  # of neighbours: a squared change in units of half its mean
LARGEST_DISTANCE = 2.0 * MEAN_DISTANCE  # the most that one adds to those statistics
SCALES_SETTLED_SAMPLES = 32  # samples from which on one more hardly changes the scales of the context


class Scales(NamedTuple):
    """Of the dimensions of a context."""

    both: Array  # [B, 2, c] factors that turn squared differences into mean squares, in units of wobble and of spread
    moved: Places  # [B] how many have moved at all; the others have factors of zero


def scales(dims: Dims, state: State, contexts: Array | None = None) -> Scales:
    """As they are; or as if these contexts [B, c] had come, where one more may change much."""
    n = state.steps[:, None]
    changes = state.changes / np.maximum(n - 1.0, 1.0)
    now = _scales(state.mean, state.moment, changes)
    if contexts is None or not dims.context:
        return now
    young = ((state.steps < SCALES_SETTLED_SAMPLES) | (now.moved < dims.context))[:, None]
    relative = contexts - state.origin
    mean = np.where(young, (n * state.mean + relative) / (n + 1.0), state.mean)
    moment = np.where(young, (n * state.moment + relative**2) / (n + 1.0), state.moment)
    return _scales(mean, moment, changes)


def gaps(dims: Dims, state: State, contexts: Array, n: int | None = None) -> Array:
    """[B, 2, n] mean squared distances of contexts [B, c] to n slots: in units of the wobble, and of the spread."""
    n = dims.rows if n is None else n
    if not dims.context:
        return np.zeros((state.size, 2, n))
    difference = state.keys[:, :n] - (contexts - state.origin)[:, None]
    difference *= difference
    return scales(dims, state, contexts).both @ difference.mT


def reach(state: State) -> Array:
    """[B] how far apart, in units of the wobble, two contexts of one situation may well lie."""
    return MEAN_DISTANCE + REACH_DEVIATIONS * np.sqrt(np.maximum(state.distance[:, 1] - state.distance[:, 0] ** 2, 0.0))


def write(dims: Dims, state: State, contexts: Array, psi: Array, trust: Array) -> None:
    """A new slot for one sample of each tuner: contexts [B, c], psi [B, q] and how far it is trusted [B]."""
    assign_where(state.origin, state.steps == 0.0, contexts)
    now = contexts - state.origin
    _observe(state, bounded(state, contexts) - state.origin)
    above, beside, _ = triangle(dims.sample)
    slot = column(state.count)
    state.keys[slot] = now
    state.prompts[slot] = psi[:, above] * psi[:, beside]
    state.trust.swapaxes(1, 2)[slot] = trust[:, None]
    state.counts[slot] = 1.0
    state.last[slot] = state.steps
    state.latest[...] = state.count
    state.steps += 1.0
    state.count += 1.0
    for rows in chunks(state.count == dims.rows, dims.rows * max(MERGE_CANDIDATES, dims.prompt)):
        _merge(dims, state, rows)


def bounded(state: State, contexts: Array) -> Array:
    """[B, c] contexts as scales are learned from them: no value is absurd."""
    return np.minimum(np.maximum(contexts, state.context_least), state.context_most)


@lru_cache
def triangle(q: int) -> tuple[Places, Places, Array]:
    """Rows and columns [P] of the entries of an upper triangle, row by row; and how often the matrix has them."""
    above, beside = np.triu_indices(q)
    times = np.where(above == beside, 1.0, 2.0)
    return above, beside, times


def seen_before(state: State, rows: Rows, slots: Places, others: Flags) -> Flags:
    """[b, s] whether some slots [b, s] are in situations that came before, and one of `others` is in theirs.

    Those are [b, s, n]: some of the first n slots, for each that is asked about.
    """
    n = others.shape[2]
    steps = state.steps[rows][:, None, None]
    keys = state.keys[rows][:, :n]
    now = np.take_along_axis(keys, np.broadcast_to(slots[:, :, None], (*slots.shape, keys.shape[2])), axis=1)
    mean, moment, changes = (array[rows][:, None] for array in (state.mean, state.moment, state.changes))
    changes = changes / np.maximum(steps - 1.0, 1.0)
    own = _scales(mean, moment, changes)
    young = (steps < SCALES_SETTLED_SAMPLES) | (own.moved < keys.shape[2])[:, :, None]
    mean = np.where(young, (steps * mean + now) / (steps + 1.0), mean)
    moment = np.where(young, (steps * moment + now**2) / (steps + 1.0), moment)
    scale = _scales(mean, moment, changes).both[:, :, 0]
    gaps = (((now[:, :, None] - keys[:, None]) ** 2) @ scale[..., None])[..., 0]
    near = gaps < ALIKE_REACHES * reach(state)[rows][:, None, None]
    earlier = np.arange(n) < slots[:, :, None]
    before: Flags = np.any(near & earlier, axis=2) & np.any(near & others, axis=2)
    return before


def _scales(mean: Array, moment: Array, changes: Array) -> Scales:
    """Of contexts with these statistics [..., c]."""
    wobble, spread, moved = _wobble(mean, moment, changes)
    both = 1.0 / (np.stack([wobble, spread], axis=-2) * np.maximum(moved, 1)[..., None, None])
    return Scales(both, moved)


def _wobble(mean: Array, moment: Array, changes: Array) -> tuple[Array, Array, Places]:
    """Wobble and spread [..., c], infinite where nothing has moved yet; and how many dimensions have [...]."""
    variance = moment - mean * mean
    moving = variance > 1e-12 * moment
    spread = np.where(moving, variance, np.inf)
    return np.maximum(changes, LEAST_SHARE * spread), spread, moving.sum(axis=-1)


def _observe(state: State, now: Array) -> None:
    """Take contexts relative to the first, [B, c], into the statistics."""
    n, late = state.steps[:, None], state.steps > 3.0
    wobble, _, moved = _wobble(state.mean, state.moment, state.changes / np.maximum(n - 1.0, 1.0))
    change = (now - state.previous) ** 2  # the first one is zero
    size = np.minimum((change / wobble).sum(axis=1) / np.maximum(moved, 1), LARGEST_DISTANCE)[:, None]
    step = (np.concat([size, size * size], axis=1) - state.distance) / np.maximum(n - 3.0, 1.0)
    assign_where(state.distance, late, state.distance + step)
    assign_where(change, late, np.minimum(change, 2.0 * JUMP_TIMES * wobble))
    state.changes += 0.5 * change
    state.previous[...] = now
    n = n + 1.0
    state.mean += (now - state.mean) / n
    state.moment += (now * now - state.moment) / n


def _merge(dims: Dims, state: State, rows: Rows) -> None:
    """Fold near slots of full tuners into one, pair by pair: of some that take turns, and of any that are not fresh."""
    keys, counts, last, steps = (array[rows] for array in (state.keys, state.counts, state.last, state.steps))
    tuners, slots = np.arange(len(steps))[:, None], np.arange(dims.rows)
    fresh = last > (steps - 1.0 - SHARP_STEPS)[:, None]
    enough = (~fresh).sum(axis=1) >= 2 * (dims.rows - SLOTS)  # not where many tuners of a few samples each were merged
    fresh = fresh & enough[:, None]
    settled = np.argsort(fresh, axis=1, stable=True)  # these come first
    turns = MERGE_CANDIDATES * (steps.astype(np.int64) // SPARE_SLOTS)[:, None] + slots[:MERGE_CANDIDATES]
    turn = settled[tuners, turns % (~fresh).sum(axis=1)[:, None]]
    gaps = _gaps_between(keys, scales(dims, state).both[rows][:, 0], turn, tuners)
    gaps = np.where(fresh[:, None] | (slots == turn[:, :, None]), np.inf, gaps)
    near, gone = _pairs(turn, gaps, tuners, dims.rows - SLOTS)
    heirs, heritage = counts[tuners, near], counts[tuners, gone]
    share = (heritage / (heirs + heritage))[:, :, None]
    dropped = np.zeros_like(fresh)
    dropped[tuners, gone] = True
    kept = np.argsort(dropped, axis=1, stable=True)[:, :SLOTS]
    last[tuners, near] = np.maximum(last[tuners, near], last[tuners, gone])
    counts[tuners, near] = heirs + heritage
    for whole, part in ((state.last, last), (state.counts, counts)):
        whole[rows, :SLOTS] = part[tuners, kept]
    for whole in (state.keys, state.trust.swapaxes(1, 2)):
        part = whole[rows]
        part[tuners, near] += share * (part[tuners, gone] - part[tuners, near])
        whole[rows, :SLOTS] = part[tuners, kept]
    prompts = state.prompts[rows]
    prompts[tuners, near] += prompts[tuners, gone]
    state.prompts[rows, :SLOTS] = prompts[tuners, kept]
    state.count[rows] = SLOTS
    state.latest[rows] = SLOTS - 1.0


def _gaps_between(keys: Array, scale: Array, turn: Places, tuners: Places) -> Array:
    """[b, t, R] squared distances, under weights [b, c], between some of the keys [b, R, c] and all of them.

    Keys that are the same are at no distance at all: whoever is first wins, and not whose rounding is luckiest.
    """
    sizes = (keys**2 @ scale[:, :, None])[:, :, 0]
    both = sizes[:, None] + sizes[tuners, turn][:, :, None]
    gaps = both - (2.0 * scale[:, None] * keys[tuners, turn]) @ keys.mT
    return np.minimum(np.where(gaps > SAME_PLACE * both, gaps, 0.0), LARGEST_GAP)


def _pairs(turn: Places, gaps: Array, tuners: Places, count: int) -> tuple[Places, Places]:
    """The nearest pairs [b, count], each slot in one at most: those that stay, and those that are folded into them."""
    size, candidates, rows = gaps.shape
    everyone = tuners[:, 0]
    gaps = np.concat([gaps, np.full_like(gaps[:, :1], np.inf)], axis=1)  # the row of those that are no candidates
    place = np.full_like(gaps[:, 0], candidates, dtype=np.int64)
    place[tuners, turn] = np.arange(candidates)
    pairs = []
    for _ in range(count):
        nearest = np.argmin(gaps.reshape((size, -1)), axis=1)
        pair = turn[everyone, nearest // rows], nearest % rows
        pairs.append(pair)
        for slot in pair:
            gaps[everyone, :, slot] = np.inf
            gaps[everyone, place[everyone, slot]] = np.inf
    one, other = (np.stack(slots, axis=1) for slots in zip(*pairs, strict=True))
    return np.minimum(one, other), np.maximum(one, other)
