"""What B tuners have learned, as if it had been told otherwise: in other units, or without absurd contexts.

Symbols as in state.py; b are the tuners that are changed. Both functions change the state in place.
"""

from rasp_tuner.engine.kernel.memory import triangle
from rasp_tuner.engine.kernel.moving import reduced
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Dims, State, Tensor
from rasp_tuner.engine.kernel.trust import OUTLIER_TRUST


def restate(
    dims: Dims, state: State, rows: Tensor, factors: Tensor, shifts: Tensor, weights: Tensor, scale: Tensor
) -> None:
    """Losses [b, k] become losses * factors + shifts; y = losses @ weights then varies `scale` [b] times as much.

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


def mend_scales(dims: Dims, state: State, rows: Tensor) -> None:
    """Have the scales that contexts within their bounds give, of some tuners [b]: values outside of them were absurd.

    They are taken anew from the slots, of dimensions that had absurd values.
    """
    xp, w, least, most = namespace(state.steps), dims.width, state.context_least[rows], state.context_most[rows]
    origin, count = state.origin[rows], state.count[rows][:, None]
    used = (xp.arange(dims.rows, device=state.steps.device) < count)[:, :, None]
    keys = xp.where(used, state.keys[rows] + origin[:, None], least[:, None])
    inside = xp.minimum(xp.maximum(keys, least[:, None]), most[:, None])
    absurd = xp.any(inside != keys, axis=1)  # [b, c]
    if not xp.any(absurd):
        return
    share = xp.where(used[:, :, 0], state.counts[rows], 0.0)
    share = (share / xp.sum(share, axis=1)[:, None])[:, :, None]
    short = xp.reshape(reduced(dims, xp.reshape(inside, (-1, dims.context))), (*inside.shape[:2], w))
    mean = xp.sum(share * short, axis=1)
    gap = short - mean[:, None]
    some = xp.any(absurd, axis=1)[:, None]
    state.reduced_mean[rows] = xp.where(some, mean, state.reduced_mean[rows])
    state.reduced_moments[rows] = xp.where(some[:, :, None], (share * gap).mT @ gap, state.reduced_moments[rows])
    if w == dims.context:  # a sample far away from all others would pull the moving optimum there
        late = state.window_contexts[rows]
        far = xp.any(absurd[:, None] & ((late < least[:, None]) | (late > most[:, None])), axis=2)
        state.window_weights[rows] = xp.where(far, OUTLIER_TRUST, state.window_weights[rows])
    state.fitted[rows] = xp.where(some[:, 0], 0.0, state.fitted[rows])
    nearer = xp.where(absurd, xp.minimum(xp.maximum(origin, least), most), origin)
    state.keys[rows] += (origin - nearer)[:, None]
    previous = xp.where(absurd, xp.minimum(xp.maximum(state.previous[rows] + origin, least), most) - nearer, 0.0)
    state.previous[rows] = xp.where(absurd, previous, state.previous[rows])
    inside = inside - nearer[:, None]
    mean, moment = xp.sum(share * inside, axis=1), xp.sum(share * inside**2, axis=1)
    most_changes = (moment - mean**2) * xp.maximum(state.steps[rows] - 1.0, 1.0)[:, None]  # as of any order
    state.origin[rows] = nearer
    for array, value in (
        (state.mean, mean),
        (state.moment, moment),
        (state.changes, xp.minimum(state.changes[rows], xp.maximum(most_changes, 0.0))),
    ):
        array[rows] = xp.where(absurd, value, array[rows])
