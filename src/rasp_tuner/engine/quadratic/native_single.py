"""NativeSingle: the compiled kernel bound to one tuner; the same functions as for many, without what many cost.

Numbers pass through memory whose addresses are known: to look one up costs as much as the arithmetic itself.
"""

import ctypes
from collections.abc import Callable
from functools import partial

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.family import ByExpert, Choice, Comparison, RunOutcome
from rasp_tuner.engine.kernel.belief import BeliefBuffer, length, places
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.native import ARGUMENTS, NUMBER, POINTER, address, dims_struct, function, state_struct
from rasp_tuner.engine.kernel.shared_structs import OneStruct
from rasp_tuner.engine.kernel.state import Dims, E, State
from rasp_tuner.engine.quadratic.draws import SOURCES, draw
from rasp_tuner.optimizer.optimizer import NOTHING, Waiting

OFTEN, SELDOM = ("believe", "against", "choose", "forecast", "learn"), ("predict", "best")


class BeliefMemory(BeliefBuffer):
    """Of one belief."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims, np.empty((1, length(dims))))
        self.address = address(self.buffer)


class NativeSingle:
    """A tuner that is alone in its state; not for several threads at once."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        self.dims, self.state = dims, state
        widths = {
            "context": dims.context, "draws": draws_needed(dims), "point": dims.knobs, "y": 1, "losses": dims.columns,
            "failed": 1, "logs": E, "chosen": dims.knobs, "noise": 1, "figures": 9,
        }  # fmt: skip
        given = {name: np.zeros(width) for name, width in widths.items()}
        self.context, self.draws, self.point, self.y, self.losses, self.failed, *told = given.values()
        self.logs, self.chosen, self.noise, self.figures = told
        rows, where, arrays = np.zeros(1, dtype=np.int64), dims_struct(dims, default), state_struct(dims, state)
        one = OneStruct(where.address, arrays.address, **{name: address(array) for name, array in given.items()})
        self._owners = where, arrays, rows, one, given
        # those of OFTEN take the address of a belief, and find all else by its name in single.c; others take addresses
        self.call: dict[str, Callable[..., None]] = {}
        for name in OFTEN:
            self.call[name] = partial(function(f"rasp_one_{name}", [POINTER, POINTER]), ctypes.addressof(one))
        for name in SELDOM:
            own = function(f"rasp_{name}", [POINTER, POINTER, POINTER, NUMBER, *ARGUMENTS[name]])
            self.call[name] = partial(own, where.address, arrays.address, address(rows), 1)
        self.similar = places(dims)["kernels"][0].start + 2 * dims.rows  # where it begins in a belief
        self._empty = BeliefMemory(dims)  # of a tuner without samples, which does not look at it
        self._spare: BeliefMemory | None = None  # memory of a belief that is good no more

    def believe(self, context: Array) -> "NativeBelief":
        arrays = BeliefMemory(self.dims) if self._spare is None else self._spare
        self._spare = None
        self.context[:] = context
        self.call["believe"](arrays.address)
        return NativeBelief(self, arrays)

    def learn(self, trial: RunOutcome, belief: "NativeBelief | None", forecast: ByExpert | None) -> None:
        self.point[:], self.context[:], self.losses[:] = trial.point, trial.context, trial.losses
        self.failed[0] = trial.failed
        if forecast is not None:
            self.logs[:] = forecast.log_densities
        self.call["learn"]((self._empty if belief is None else belief.arrays).address)
        self._spare = None if belief is None else belief.arrays


class NativeBelief:
    """Good until its tuner learns: the next one may have its memory."""

    knows_default = True  # what ran in a situation is not kept apart
    lacks_default = False

    def __init__(self, one: NativeSingle, arrays: BeliefMemory) -> None:
        self._one, self.arrays = one, arrays
        self.noise = one.noise.item()
        self._beside: tuple[Array, list[float]] | None = None  # a point that was set beside the default, and how it is

    @property
    def weights(self) -> Array:
        weights: Array = self.arrays.buffer[0, :E]
        return weights

    def predict(self, points: Array) -> tuple[Array, Array]:
        points = np.ascontiguousarray(points)
        out = np.empty((2, len(points)))
        at = address(out)
        self._one.call["predict"](self.arrays.address, address(points), len(points), at, at + 8 * len(points))
        return out[0], out[1]

    def against(self, point: Array, default: Array) -> Comparison:
        del default  # it is the tuner's own
        if self._beside is None or self._beside[0] is not point:
            self._one.point[:] = point
            self._one.call["against"](self.arrays.address)
            self._beside = point, self._one.figures.tolist()[3:]
        level, mean, variance, expected, own, other = self._beside[1]
        return Comparison(level, mean, variance, expected, (own, other))

    def forecast(self, point: Array, y: float) -> ByExpert:
        one = self._one
        one.point[:], one.y[0] = point, y
        one.call["forecast"](self.arrays.address)
        mean, variance, _, *beside = one.figures.tolist()
        self._beside = point, beside
        return ByExpert(mean, variance, one.logs.copy())

    def choose(self, rng: np.random.Generator, waiting: Waiting = NOTHING) -> Choice:
        del waiting  # every choice is drawn anew
        one = self._one
        draw(rng, one.dims, one.state, one.draws)
        one.call["choose"](self.arrays.address)
        source, mean, variance, *beside = one.figures.tolist()
        point = one.chosen.copy()
        self._beside = point, beside
        return Choice(point, SOURCES[int(source)], mean, variance)

    def best(self) -> Array | None:
        best = np.empty(self._one.dims.knobs)
        self._one.call["best"](self.arrays.address, address(best))
        return best

    def similar(self) -> Array:
        start, count = self._one.similar, int(self._one.state.count[0])
        similar: Array = self.arrays.buffer[0, start : start + count]
        return similar
