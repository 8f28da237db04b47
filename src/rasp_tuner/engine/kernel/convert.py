"""One tuner's state as named arrays, and the checks of what files say about one tuner or many."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rasp_tuner.base.common_constants import EARLY_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import broken, checked
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.state import (
    FAR,
    FAR_OPTIMUM,
    FIELDS,
    LEAST_UNIT,
    Dims,
    L,
    State,
    blank,
    sizes,
)

ROUNDING = 1e-9  # by which sums in a file may pass what their parts allow
LEAST_TOP = -100.0  # of scores, in nats: their largest is 0 or near
SLOTS = {  # arrays of slots, in a file: one row for each that is in use
    **{
        name: replace(FIELDS[name], shape=("n", *FIELDS[name].shape[1:]))
        for name in ("keys", "prompts", "counts", "last")
    },
    "trust": replace(FIELDS["trust"], shape=("n", L)),
}
OTHERS = {name: field for name, field in FIELDS.items() if name not in SLOTS}


def from_family(dims: Dims, snapshot: Mapping[str, Array]) -> State:
    """The state of one tuner that `to_family` described; a SnapshotError if no tuner could have it."""
    arrays = checked(snapshot, {**SLOTS, **OTHERS}, {**sizes(dims), "n": range(dims.rows)})
    n = len(arrays["counts"])
    if arrays["count"] != n:
        raise broken(snapshot, "count", f"be the number of slots, {n}", float(arrays["count"]))
    return _unpacked(dims, snapshot, {name: array if name in SLOTS else array[None] for name, array in arrays.items()})


def to_family(dims: Dims, state: State, tuner: int) -> dict[str, Array]:  # noqa: ARG001 - called like the others
    """The snapshot of one tuner of a state; copies."""
    one = to_packed(state.map(lambda array: array[tuner : tuner + 1]))
    return {name: array.copy() if name in SLOTS else array[0, ...].copy() for name, array in one.items()}


def from_packed(dims: Dims, size: int, saved: Mapping[str, Array]) -> State:
    """The state of many tuners that `to_packed` described; a SnapshotError if no tuners could have it."""
    many = {name: replace(field, shape=("B", *field.shape)) for name, field in OTHERS.items()}
    known = {**sizes(dims), "B": size}
    (count,) = checked(saved, {"count": many["count"]}, known).values()
    return _unpacked(dims, saved, checked(saved, {**SLOTS, **many}, {**known, "n": int(count.sum())}))


def to_packed(state: State) -> dict[str, Array]:
    """Arrays [B, ...] of many tuners; of memory only the slots in use, one after the other."""
    arrays = dict(state.items())
    arrays["trust"] = np.swapaxes(arrays["trust"], 1, 2)
    used = np.arange(arrays["counts"].shape[1]) < arrays["count"][:, None]
    return {name: array[used] if name in SLOTS else array for name, array in arrays.items()}


def _unpacked(dims: Dims, source: Mapping[str, Array], arrays: Mapping[str, Array]) -> State:
    """The state of arrays that were checked one by one, checked as a whole."""
    state = blank(dims, len(arrays["count"]), start(dims))
    used = np.arange(dims.rows) < arrays["count"][:, None]
    for name, array in arrays.items():
        own = getattr(state, name)
        if name in SLOTS:
            (np.swapaxes(own, 1, 2) if name == "trust" else own)[used] = array
        else:
            own[...] = array
    check_rules(dims, source, state)
    return state


def check_rules(dims: Dims, source: Mapping[str, Array], state: State) -> None:
    """Nothing, if the arrays of tuners agree with each other; `source` has the names for a message."""
    count, steps, curvature = state.count, state.steps, state.curvature
    used = np.arange(dims.rows) < count[:, None]
    sums, moves, tops = state.prompts[:, :, 0], state.theta[:, 1 + dims.knobs :], state.noises.max(axis=2)
    past = ~used | (state.last < steps[:, None])
    likely = ~used[:, :, None] | (np.abs(state.prompts) <= state.counts[:, :, None] * _largest_products(dims))
    rules = (
        ("count", "be at most the number of steps", count, count <= steps),
        ("count", f"be the number of steps, up to {EARLY_SAMPLES}", count, (count == steps) | (steps > EARLY_SAMPLES)),
        ("count", "be above 0 after the first step", count, (count > 0.0) | (steps == 0.0)),
        ("latest", "be a slot in use", state.latest, state.latest < np.maximum(count, 1.0)),
        ("last", "hold steps of the past", state.last, past),
        ("prompts", "begin with their counts", sums, ~used | (sums == state.counts)),
        ("prompts", "be sums of as many samples", state.prompts, likely),
        ("curvature", f"be 0 or at least {LEAST_UNIT:g}", curvature, (curvature == 0.0) | (curvature >= LEAST_UNIT)),
        ("theta", f"end with numbers up to {FAR_OPTIMUM:g}", moves, np.abs(moves) <= FAR_OPTIMUM),
        ("scores", "have a largest near 0", state.scores[:, 0], state.scores.max(axis=1) >= LEAST_TOP),
        ("noises", "have a largest near 0", tops, tops >= LEAST_TOP),
    )
    for name, rule, values, good in rules:
        if not good.all():
            raise broken(source, name, rule, float(values[~good][0]))


def _largest_products(dims: Dims) -> Array:
    """[P] what the entries of psi psi' of one sample may come to: u lies in [-2, 2]."""
    d, (above, beside) = dims.knobs, np.triu_indices(dims.sample)
    reach = np.concatenate([[1.0], np.full(d, 2.0), np.full(d, 4.0), np.full(dims.columns, FAR)])
    products: Array = reach[above] * reach[beside] * (1.0 + ROUNDING)
    return products
