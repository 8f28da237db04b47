"""One tuner's state as named arrays: the snapshots of the quadratic family."""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.numerics import Array, assign
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.state import Dims, State, blank

NUMBERS = ("curvature", "level", "level_variance", "largest", "tracked", "suspected")  # kept as one array
NAMES = {  # in a snapshot: in a state
    "weights": "weights", "first": "first", "shape": "shape", "early": "early",
    "location": "location", "location_variance": "location_variance",
    "evidence/scores": "scores", "noise/scores": "noises",
    "slots/origin": "origin", "slots/latest": "previous", "slots/mean": "mean", "slots/moment": "moment",
    "slots/changes": "changes", "slots/distance": "distance",
    "moving/points": "window_points", "moving/contexts": "window_contexts", "moving/values": "window_losses",
    "moving/weights": "window_weights", "moving/mean": "reduced_mean", "moving/moments": "reduced_moments",
    "moving/centre": "centre", "moving/encode": "encode", "moving/theta": "theta", "moving/covariance": "covariance",
}  # fmt: skip
LATER = ("location", "location_variance")  # older snapshots have none
SLOTS = ("keys", "prompts", "counts", "last")  # only the slots in use are kept


def from_family(dims: Dims, snapshot: Mapping[str, Array]) -> State:
    """The state of one tuner; prompts may be whole matrices, as they were, or their upper triangles."""
    state = blank(dims, 1, start(dims))
    for name, own in NAMES.items():
        if name in snapshot or name not in LATER:
            assign(getattr(state, own)[0], snapshot[name])
    for own, value in zip(NUMBERS, snapshot["numbers"].tolist(), strict=True):
        getattr(state, own)[0] = value
    slots = {name: snapshot[f"slots/{name}"] for name in SLOTS}
    if slots["prompts"].shape[1] == dims.sample**2:
        above, beside = np.triu_indices(dims.sample)
        slots["prompts"] = slots["prompts"][:, above * dims.sample + beside]
    n = len(slots["counts"])
    for name, array in slots.items():
        assign(getattr(state, name)[0, :n], array)
    assign(state.trust[0, :, :n], snapshot["slots/trust"].T)
    state.count[0] = n
    state.steps[0], state.latest[0] = snapshot["slots/clock"].tolist()
    assign(state.unit, snapshot["moving/unit"])
    state.fitted[0] = snapshot["moving/counts"][1]
    return state


def to_family(dims: Dims, state: State, tuner: int) -> dict[str, Array]:  # noqa: ARG001 - called like the others
    """The snapshot of one tuner of a state; copies."""
    one = {name: np.array(array[tuner]) for name, array in state.items()}
    n = int(one["count"])
    return {
        **{name: one[own] for name, own in NAMES.items()},
        **{f"slots/{name}": one[name][:n] for name in SLOTS},
        "slots/trust": one["trust"][:, :n].T,
        "slots/clock": np.array([one["steps"], one["latest"]]),
        "numbers": np.array([one[name] for name in NUMBERS]),
        "moving/unit": one["unit"].reshape(1),
        "moving/counts": np.array([one["steps"], one["fitted"]]),
    }
