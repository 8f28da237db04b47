"""CompiledOne: the compiled kernel bound to one tuner; the same functions as for many, without what many cost.

Numbers pass through memory whose addresses are known: to look one up costs as much as the arithmetic itself.
"""

import math
import operator

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.family import Choice, Comparison, Forecast, Trial
from rasp_tuner.engine.kernel.belief import length
from rasp_tuner.engine.kernel.bound import Bound
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.native import NativeBelief, address
from rasp_tuner.engine.kernel.state import Dims, E, State
from rasp_tuner.engine.quadratic.draws import SOURCES, draw


class CompiledOne:
    """A tuner that is alone in its state; not for several threads at once."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        self.dims, self.state = dims, state
        self.context, self.draws = np.zeros(dims.context), np.zeros(draws_needed(dims))  # what a call is given
        self.point, self.y = np.zeros(dims.knobs), np.zeros(1)
        self.losses, self.failed = np.zeros(dims.columns), np.zeros(1)
        self.logs, self.chosen, self.figures = np.zeros(E), np.zeros(dims.knobs), np.zeros(9)  # and what it gives
        given = {
            "context": self.context, "draws": self.draws, "point": self.point, "y": self.y, "losses": self.losses,
            "failed": self.failed, "logs": self.logs, "chosen": self.chosen, "figures": self.figures,
        }  # fmt: skip
        self.call = Bound(dims, default, state, given)
        self._length = length(dims)
        self._empty = NativeBelief(dims, 1)  # of a tuner without samples, which does not look at it

    def believe(self, context: Array) -> "CompiledBelief":
        belief = NativeBelief(self.dims, buffer=np.empty((1, self._length)))
        self.context[:] = context
        self.call.believe(belief.address)
        return CompiledBelief(self, belief)

    def learn(self, trial: Trial, belief: "CompiledBelief | None", forecast: Forecast | None) -> None:
        self.point[:], self.context[:], self.losses[:] = trial.point, trial.context, trial.losses
        self.failed[0] = trial.failed
        if forecast is not None:
            self.logs[:] = forecast.log_densities
        self.call.learn((self._empty if belief is None else belief.arrays).address)


class CompiledBelief:
    """Good until its tuner learns."""

    def __init__(self, one: CompiledOne, arrays: NativeBelief) -> None:
        self._one, self.arrays = one, arrays
        self.weights: Array = arrays.buffer[0, :E]
        head: list[float] = arrays.buffer[0, : 2 * E + 4].tolist()  # weights, noises, spread, offset, origin, a
        self.noise = math.fsum(map(operator.mul, head[:E], head[E : 2 * E])) * head[-1] * head[-1]
        self._beside: tuple[Array, list[float]] | None = None  # a point that was set beside the default, and how it is

    def predict(self, points: Array) -> tuple[Array, Array]:
        points = np.ascontiguousarray(points)
        out = np.empty((2, len(points)))
        at = address(out)
        self._one.call.predict(self.arrays.address, address(points), len(points), at, at + 8 * len(points))
        return out[0], out[1]

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        pair, out = np.stack([point, other]), np.empty(2)
        at, to = address(pair), address(out)
        self._one.call.compare(self.arrays.address, at, at + 8 * self._one.dims.knobs, to, to + 8)
        mean, variance = out.tolist()
        return mean, variance

    def against(self, point: Array, default: Array) -> Comparison:
        del default  # it is the tuner's own
        if self._beside is None or self._beside[0] is not point:
            self._one.point[:] = point
            self._one.call.against(self.arrays.address)
            self._beside = point, self._one.figures.tolist()[3:]
        level, mean, variance, expected, own, other = self._beside[1]
        return Comparison(level, mean, variance, expected, (own, other))

    def forecast(self, point: Array, y: float) -> Forecast:
        one = self._one
        one.point[:], one.y[0] = point, y
        one.call.forecast(self.arrays.address)
        mean, variance, _, *beside = one.figures.tolist()
        self._beside = point, beside
        return Forecast(mean, variance, one.logs.copy())

    def choose(self, rng: np.random.Generator) -> Choice:
        one = self._one
        draw(rng, one.dims, one.state, one.draws)
        one.call.choose(self.arrays.address)
        source, mean, variance, *beside = one.figures.tolist()
        point = one.chosen.copy()
        self._beside = point, beside
        return Choice(point, SOURCES[int(source)], mean, variance)

    def best(self) -> Array | None:
        best = np.empty(self._one.dims.knobs)
        self._one.call.best(self.arrays.address, address(best))
        return best

    def similar(self) -> Array:
        similar: Array = self.arrays.kernels[0, 2, : int(self._one.state.count[0])]
        return similar
