"""Memory of B tuners: slots of contexts with prompts, merged when full, never thrown away. Symbols as in state.py.

symbol    shape      meaning
wobble    [B, c]     half the mean squared change of a dimension from one sample to the next
spread    [B, c]     its variance over all samples
"""

from typing import NamedTuple

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Dims, State, Tensor

JUMP_TIMES = 6.0  # a change of more than this many times the usual one tells of a new situation, not of wobble
LEAST_SHARE = 0.0025  # of the spread: contexts that move smoothly still have neighbours
REACH_DEVIATIONS = 1.36  # deviations of the usual distance between neighbours that still count as near
SETTLED_SAMPLES = 32  # samples from which on one more hardly changes the scales of the context


class Scales(NamedTuple):
    """Of the dimensions of a context."""

    both: Tensor  # [B, 2, c] factors that turn squared differences into mean squares, in units of wobble and of spread
    most: Tensor  # [B, c] squared change beyond which it tells of a new situation; infinite where none has come yet
    moved: Tensor  # [B] how many have moved at all; the others have factors of zero


def scales(dims: Dims, state: State, contexts: Tensor | None = None) -> Scales:
    """As they are; or as if these contexts [B, c] had come, where one more may change much."""
    xp, n = namespace(state.steps), state.steps[:, None]
    changes = state.changes / xp.clip(n - 1.0, 1.0, None)
    now = _scales(xp, state.mean, state.moment, changes)
    if contexts is None or not dims.context:
        return now
    young = (state.steps < SETTLED_SAMPLES) | (now.moved < dims.context)
    if not xp.any(young):
        return now
    relative, young = contexts - state.origin, young[:, None]
    mean = xp.where(young, (n * state.mean + relative) / (n + 1.0), state.mean)
    moment = xp.where(young, (n * state.moment + relative**2) / (n + 1.0), state.moment)
    return _scales(xp, mean, moment, changes)


def gaps(dims: Dims, state: State, contexts: Tensor) -> Tensor:
    """[B, 2, R] mean squared distances of contexts [B, c] to each slot: in units of the wobble, and of the spread."""
    xp = namespace(state.keys)
    if not dims.context:
        return xp.zeros((state.size, 2, dims.rows), dtype=state.keys.dtype, device=state.keys.device)
    difference = state.keys - (contexts - state.origin)[:, None]
    difference *= difference
    return scales(dims, state, contexts).both @ xp.matrix_transpose(difference)


def reach(state: State) -> Tensor:
    """[B] how far apart, in units of the wobble, two contexts of one situation may well lie."""
    xp = namespace(state.distance)
    return 2.0 + REACH_DEVIATIONS * xp.sqrt(xp.clip(state.distance[:, 1] - state.distance[:, 0] ** 2, 0.0, None))


def _scales(xp: Tensor, mean: Tensor, moment: Tensor, changes: Tensor) -> Scales:
    variance = moment - mean**2
    moving = variance > 1e-12 * moment
    moved = xp.sum(xp.astype(moving, mean.dtype), axis=1)
    spread = xp.where(moving, variance, xp.inf)
    wobble = xp.maximum(changes, LEAST_SHARE * spread)
    both = 1.0 / (xp.stack([wobble, spread], axis=1) * xp.clip(moved, 1.0, None)[:, None, None])
    return Scales(both, 2.0 * JUMP_TIMES * wobble, moved)
