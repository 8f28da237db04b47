"""What B tuners have learned, as if it had been told otherwise: in other units, or without absurd contexts.

Symbols as in state.py; b are the tuners that are changed. Both functions change the state in place.
"""

from rasp_tuner.engine.kernel.memory import triangle
from rasp_tuner.engine.kernel.moving import reduced
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Dims, State, Tensor


def restate(
    dims: Dims, state: State, rows: Tensor, factors: Tensor, shifts: Tensor, weights: Tensor, scale: Tensor
) -> None:
    """Losses [b, k] become losses * factors + shifts, and their target y = losses @ weights is `scale` [b] times as far.

    Exact: losses are kept relative to the first, so that shifts concern that one only.
    """
    xp, d, p = namespace(state.steps), dims.knobs, dims.features
    above, beside, _ = triangle(dims.sample, xp, state.steps.device)
    ones = xp.ones_like(state.prompts[rows, 0, :p])
    each = xp.concat([ones, factors], axis=1)  # [b, q] of psi
    state.prompts[rows] *= (each[:, above] * each[:, beside])[:, None]
    state.window_losses[rows] *= factors[:, None]
    state.first[rows] = state.first[rows] * factors + shifts
    state.weights[rows] = weights
    for array in (state.curvature, state.level, state.largest, state.unit):
        array[rows] *= scale
    theta = state.theta[rows]
    theta[:, : 1 + d] *= scale[:, None]
    state.theta[rows] = theta


def bound_contexts(dims: Dims, state: State, rows: Tensor, least: Tensor, most: Tensor) -> None:
    """Have seen contexts between `least` and `most` [b, c]: what lay outside of them was absurd.

    Scales are taken anew from the slots; only of dimensions that had absurd values.
    """
    xp, w = namespace(state.steps), dims.width
    origin, n = state.origin[rows], state.count[rows][:, None]
    used = xp.arange(dims.rows, device=state.steps.device) < n
    keys = xp.where(used[:, :, None], state.keys[rows] + origin[:, None], least[:, None])
    absurd = xp.any(used[:, :, None] & ((keys < least[:, None]) | (keys > most[:, None])), axis=1)  # [b, c]
    if not xp.any(absurd):
        return
    least, most = (xp.where(absurd, bound, far) for bound, far in ((least, -xp.inf), (most, xp.inf)))
    keys = xp.minimum(xp.maximum(keys, least[:, None]), most[:, None])
    previous = xp.minimum(xp.maximum(state.previous[rows] + origin, least), most)
    origin = xp.minimum(xp.maximum(origin, least), most)
    share = xp.where(used, state.counts[rows], 0.0)
    share = (share / xp.sum(share, axis=1)[:, None])[:, :, None]
    short = xp.reshape(reduced(dims, xp.reshape(keys, (-1, dims.context))), (*keys.shape[:2], w))
    mean = xp.sum(share * short, axis=1)
    gap = short - mean[:, None]
    state.reduced_mean[rows], state.reduced_moments[rows] = mean, (share * gap).mT @ gap
    if w == dims.context:
        state.window_contexts[rows] = xp.minimum(xp.maximum(state.window_contexts[rows], least[:, None]), most[:, None])
    keys = xp.where(used[:, :, None], keys - origin[:, None], 0.0)
    mean, moment = xp.sum(share * keys, axis=1), xp.sum(share * keys**2, axis=1)
    variance, changes = xp.maximum(moment - mean**2, 0.0), state.changes[rows]
    most_changes = variance * xp.maximum(state.steps[rows] - 1.0, 1.0)[:, None]  # as of contexts in any order
    state.keys[rows], state.origin[rows], state.previous[rows] = keys, origin, previous - origin
    state.mean[rows], state.moment[rows] = mean, moment
    state.changes[rows] = xp.where(absurd, xp.minimum(changes, most_changes), changes)
