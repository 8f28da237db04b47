"""What two discrete families learned, as the state of one: the rows of both, and sums. Symbols as in family.py."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array

if TYPE_CHECKING:
    from rasp_tuner.engine.discrete.family import DiscreteFamily

State = Mapping[str, Array]
REFITS = 25  # steps up the evidence, in which hyperparameters come near their best
SAMPLES = ("points", "raw", "values", "counts", "failed", "doubt")  # [n, ...] of the rows; the rest follows from these


def merge(self: "DiscreteFamily", other: "DiscreteFamily", weights: Array, first: bool) -> None:
    """Take in the rows of another family; those of one point in similar contexts become one.

    Hyperparameters start anew: neither family knows what the contexts of both are worth.
    """
    if not (self.samples and other.samples):
        if other.samples:
            self.restore(other.state())
        self.reweigh(weights)
        return
    one, two = (self, other) if first else (other, self)
    both, constants = _joined(one.state(), two.state(), self._window), self._constants
    self.restore(_without_likeness({**self._empty(), **both, "weights": weights}))
    self.restore(_alike(self.state(), constants.similar, constants.memory))
    if len(self.state()["points"]) > constants.capacity:
        self.restore(_bounded(self.state(), constants.capacity, constants.kept))
    for _ in range(REFITS):
        self.restore(_without_likeness(self.state()))


def _joined(one: State, other: State, window: int) -> dict[str, Array]:
    """All rows of two states with samples, and their sums; the rest follows when it is restored."""
    pair, (n, m) = (one, other), (float(state["clock"][0]) for state in (one, other))
    rows = {name: np.concatenate([state[name] for state in pair]) for name in SAMPLES}
    size = len(rows["points"])
    rest = {name: np.zeros((size, *one[name].shape[1:])) for name in ("noises", "rivals", "contexts")}
    square = {name: np.zeros((size, size)) for name in ("gram", "inverse")}
    gap = other["mean"] - one["mean"]
    return {
        **rows, **rest, **square,
        "mean": (n * one["mean"] + m * other["mean"]) / (n + m),
        "squares": one["squares"] + other["squares"] + n * (m / (n + m)) * gap**2,
        "clock": np.array([n + m, 0.0]),
        "repeats": _sum(one["repeats"], other["repeats"]),
        "tried": np.maximum(one["tried"], other["tried"]),
        "reach": one["reach"] + other["reach"] - 1.0,  # each began with one of each
        "since_default": np.minimum(one["since_default"], other["since_default"]),
        **_unreached(pair, rows["points"]),
        "late": _late(pair, window),
    }  # fmt: skip


def _alike(state: State, similar: float, memory: float) -> dict[str, Array]:
    """Rows of one point in similar contexts become one, as when it is measured again; a copy."""
    rows = {name: state[name].copy() for name in SAMPLES}
    counts, keep = rows["counts"], np.ones(len(rows["counts"]), dtype=bool)
    same = (rows["points"][:, None] == rows["points"]).all(axis=2) & (rows["failed"][:, None] == rows["failed"])
    for i, j in zip(*np.nonzero(np.triu(same & (state["likeness"] > similar), 1)), strict=True):
        if keep[i] and keep[j]:
            share = counts[j] / (counts[i] + counts[j])
            for name in ("raw", "values", "doubt"):
                rows[name][i] += share * (rows[name][j] - rows[name][i])
            counts[i], keep[j] = min(counts[i] + counts[j], memory + 1.0), False
    return _only({**state, **rows}, keep)


def _bounded(state: State, capacity: int, kept: float) -> dict[str, Array]:
    """The same with no more rows than that: those go that the others predict best and that are not the best."""
    inverse, keep = state["inverse"].copy(), np.ones(len(state["points"]), dtype=bool)
    dear = (state["rivals"] < kept) & (state["failed"] == 0.0)
    while keep.sum() > capacity:
        spare = np.where(keep, 1.0 / np.where(keep, np.diag(inverse), 1.0) - state["noises"], np.inf)
        row = int(np.where(dear & (keep & ~dear).any(), np.inf, spare).argmin())
        inverse -= np.outer(inverse[row], inverse[row] / inverse[row, row])
        keep[row] = False
    return _only(state, keep)


def _only(state: State, keep: NDArray[np.bool_]) -> dict[str, Array]:
    """The state with some of its rows."""
    rows = {name: state[name][keep] for name in (*SAMPLES, "noises", "rivals", "contexts")}
    square = {name: state[name][np.ix_(keep, keep)] for name in ("gram", "inverse")}
    return {**_without_likeness(state), **rows, **square}


def _without_likeness(state: State) -> dict[str, Array]:
    """From which all that follows from the rows is computed anew when it is restored."""
    return {name: array for name, array in state.items() if name != "likeness"}


def _sum(one: Array, other: Array) -> Array:
    """Of statistics of repeats; who has seen none has a single number."""
    if len(one) != len(other):
        return max(one, other, key=len)
    return one + other


def _unreached(pair: tuple[State, State], points: Array) -> dict[str, Array]:
    """What was asked for and ran as something else in both, unless it ran as it was in either."""
    asked, where = (np.concatenate([state[name] for state in pair]) for name in ("unreached", "unreached_in"))
    never = ~(asked[:, None] == points).all(axis=2).any(axis=1)
    return {"unreached": asked[never], "unreached_in": where[never]}


def _late(pair: tuple[State, State], window: int) -> Array:
    """The latest samples of both in turns, oldest first."""
    parts = [state["late"] for state in pair if len(state["late"])]
    if not window or not parts:
        return pair[0]["late"]
    ages = np.concatenate([np.arange(len(part), 0.0, -1.0) for part in parts])
    order = (-ages).argsort(kind="stable")[-window:]
    late: Array = np.concatenate(parts)[order]
    return late
