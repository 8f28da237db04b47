"""CompiledOne: the compiled kernel bound to one tuner; the same functions as for many, without what many cost.

Numbers pass through memory whose addresses are known: to look one up costs as much as the arithmetic itself.
"""

import math
import operator

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.family import Choice, Comparison, Forecast, Trial
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.native import Bound, NativeBelief, address
from rasp_tuner.engine.kernel.state import Dims, E, State
from rasp_tuner.engine.quadratic.draws import SOURCES, draws_for


class CompiledOne:
    """A tuner that is alone in its state; not for several threads at once."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        self.dims, self.state = dims, state
        self._call = Bound(dims, default, state)
        self._empty = NativeBelief(dims, 1)  # of a tuner without samples, which does not look at it
        widths = {
            "context": dims.context, "point": dims.knobs, "losses": dims.columns, "failed": 1, "logs": E,
            "y": 1, "draws": draws_needed(dims), "out": dims.knobs + E + 3,
        }  # fmt: skip
        memory, start = np.zeros(sum(widths.values())), 0
        self.given: dict[str, Array] = {}  # parts of this memory
        self.at: dict[str, int] = {}  # and where they are
        for name, width in widths.items():
            self.given[name], self.at[name] = memory[start : start + width], address(memory) + 8 * start
            start += width
        self.out = self.at["out"]

    def believe(self, context: Array) -> "CompiledBelief":
        belief = NativeBelief(self.dims, 1)
        self.given["context"][:] = context
        self._call.believe(self.at["context"], belief.address)
        return CompiledBelief(self, belief)

    def learn(self, trial: Trial, belief: "CompiledBelief | None", forecast: Forecast | None) -> None:
        given, at = self.given, self.at
        given["point"][:], given["context"][:], given["losses"][:] = trial.point, trial.context, trial.losses
        given["failed"][0] = trial.failed
        if forecast is not None:
            given["logs"][:] = forecast.log_densities
        arrays = self._empty if belief is None else belief.arrays
        self._call.learn(arrays.address, at["point"], at["context"], at["losses"], at["failed"], at["logs"])

    def run(self, name: str, belief: NativeBelief, *arguments: int) -> list[float]:
        """What a function leaves in `out`."""
        getattr(self._call, name)(belief.address, *arguments)
        numbers: list[float] = self.given["out"].tolist()
        return numbers


class CompiledBelief:
    """Good until its tuner learns."""

    def __init__(self, one: CompiledOne, arrays: NativeBelief) -> None:
        self._one, self.arrays = one, arrays
        self.weights: Array = arrays.weights[0]

    @property
    def noise(self) -> float:
        head: list[float] = self.arrays.buffer[0, : 2 * E + 4].tolist()  # weights, noises, spread, offset, origin, a
        return math.fsum(map(operator.mul, head[:E], head[E : 2 * E])) * head[-1] * head[-1]

    def predict(self, points: Array) -> tuple[Array, Array]:
        points = np.ascontiguousarray(points)
        out = np.empty((2, len(points)))
        at = address(out)
        self._one.run("predict", self.arrays, address(points), len(points), at, at + 8 * len(points))
        return out[0], out[1]

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        one, pair = self._one, np.stack([point, other])
        at = address(pair)
        mean, variance, *_ = one.run("compare", self.arrays, at, at + 8 * one.dims.knobs, one.out, one.out + 8)
        return mean, variance

    def against(self, point: Array, default: Array) -> Comparison:
        del default  # it is the tuner's own
        one = self._one
        one.given["point"][:] = point
        level, mean, variance, expected, own, other, *_ = one.run("against", self.arrays, one.at["point"], one.out)
        return Comparison(level, mean, variance, expected, (own, other))

    def forecast(self, point: Array, y: float) -> Forecast:
        one, out = self._one, self._one.out
        one.given["point"][:], one.given["y"][0] = point, y
        numbers = one.run("forecast", self.arrays, one.at["point"], one.at["y"], out, out + 8, out + 16)
        return Forecast(numbers[0], numbers[1], np.array(numbers[2 : 2 + E]))

    def choose(self, rng: np.random.Generator) -> Choice:
        one, out, d = self._one, self._one.out, self._one.dims.knobs
        one.given["draws"][:] = draws_for(one.dims, one.state, rng)
        numbers = one.run("choose", self.arrays, one.at["draws"], out, out + 8 * d, out + 8 * d + 8, out + 8 * d + 16)
        return Choice(np.array(numbers[:d]), SOURCES[int(numbers[d])], numbers[d + 1], numbers[d + 2])

    def best(self) -> Array | None:
        one = self._one
        return np.array(one.run("best", self.arrays, one.out)[: one.dims.knobs])

    def similar(self) -> Array:
        similar: Array = self.arrays.kernels[0, 2, : int(self._one.state.count[0])]
        return similar
