"""What tuners have learned, as if it had been told otherwise: in other units, or without absurd contexts.

Symbols as in state.py; b are the tuners that are changed. Both functions change the state in place. They are needed a
few times in the life of a tuner, so that there is no compiled half.
"""

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.memory import triangle
from rasp_tuner.engine.kernel.moving import reduced
from rasp_tuner.engine.kernel.outliers import OUTLIER_TRUST
from rasp_tuner.engine.kernel.state import Dims, State

Places = NDArray[np.int64]


def restate(dims: Dims, state: State, tuners: Places, factors: Array, shifts: Array, weights: Array) -> None:
    """Losses [b, k] become losses * factors + shifts, and y = losses @ weights [b, k]: by a factor and a shift, too.

    Exact: losses are kept relative to the first, so that shifts concern that one only.
    """
    above, beside, _ = triangle(dims.sample)
    each = np.concatenate([np.ones((len(tuners), dims.features)), factors], axis=1)  # [b, q] of psi
    before = state.weights[tuners]
    used, rows = np.abs(before).argmax(axis=1), np.arange(len(tuners))
    scale = (factors * weights)[rows, used] / before[rows, used]  # [b] of y
    state.prompts[tuners] *= (each[:, above] * each[:, beside])[:, None]
    state.window_losses[tuners] *= factors[:, None]
    state.first[tuners] = state.first[tuners] * factors + shifts
    state.weights[tuners] = weights
    for array in (state.curvature, state.level, state.largest, state.unit):
        array[tuners] *= scale
    state.theta[tuners, : 1 + dims.knobs] *= scale[:, None]


def mend_scales(dims: Dims, state: State, tuners: Places) -> None:
    """Have the scales that contexts within their bounds give, of tuners that had others: those were absurd."""
    for tuner in tuners:
        _mend(dims, state, int(tuner))


def _mend(dims: Dims, state: State, tuner: int) -> None:
    """Take scales anew from the slots of one tuner, for the dimensions that had absurd values."""
    least, most, origin = state.context_least[tuner], state.context_most[tuner], state.origin[tuner].copy()
    n, steps = int(state.count[tuner]), float(state.steps[tuner])
    keys, counts = state.keys[tuner, :n], state.counts[tuner, :n, None]
    contexts = keys + origin
    inside = np.clip(contexts, least, most)
    outside = inside != contexts
    absurd = outside.any(axis=0)  # [c]
    if not absurd.any():
        return
    nearer = np.where(absurd, np.clip(origin, least, most), origin)
    keys += origin - nearer
    state.origin[tuner] = nearer
    state.previous[tuner] = np.clip(state.previous[tuner] + origin, least, most) - nearer
    share, relative = counts / counts.sum(), inside - nearer
    order = state.last[tuner, :n].argsort(kind="stable")
    in_time = relative[order[~outside.any(axis=1)[order]]]
    changes = 0.5 * (np.diff(in_time, axis=0) ** 2).sum(axis=0) * ((steps - 1.0) / max(len(in_time) - 1, 1))
    for array, value in (
        (state.mean, (share * relative).sum(axis=0)),
        (state.moment, (share * relative**2).sum(axis=0)),
        (state.changes, np.minimum(state.changes[tuner], changes)),
    ):
        array[tuner] = np.where(absurd, value, array[tuner])
    short = reduced(dims, inside)
    gap = short - (share * short).sum(axis=0)
    state.reduced_mean[tuner], state.reduced_moments[tuner] = (share * short).sum(axis=0), (share * gap).T @ gap
    state.fitted[tuner] = 0.0  # the optimum moved along axes that are no more
    if dims.width == dims.context:  # nor must a sample that is far away from all others pull it there
        late = state.window_contexts[tuner]
        far = ((late < least) | (late > most)).any(axis=1)
        state.window_weights[tuner, far] = OUTLIER_TRUST
