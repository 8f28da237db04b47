"""ArraysOne: the kernel on arrays bound to one tuner: a batch of one."""

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.family import Choice, Comparison, Forecast, Trial
from rasp_tuner.engine.kernel.backend import Kernel
from rasp_tuner.engine.kernel.belief import Belief
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.state import Dims, E, State
from rasp_tuner.engine.quadratic.draws import SOURCES, draw

NO_LOGS = np.zeros((1, E))


class ArraysOne:
    """A tuner that is alone in its state."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        self.dims, self.state = dims, state
        self.kernel = Kernel(dims, default, compiled=False)

    def believe(self, context: Array) -> "ArraysBelief":
        return ArraysBelief(self, self.kernel.believe(self.state, context[None]))

    def learn(self, trial: Trial, belief: "ArraysBelief | None", forecast: Forecast | None) -> None:
        arrays = (self.believe(trial.context) if belief is None else belief).arrays
        logs = NO_LOGS if forecast is None else forecast.log_densities[None]
        told = trial.point[None], trial.context[None], trial.losses[None], np.array([float(trial.failed)])
        self.kernel.learn(self.state, arrays, *told, logs)


class ArraysBelief:
    """Good until its tuner learns."""

    def __init__(self, one: ArraysOne, arrays: Belief) -> None:
        self._kernel, self._dims, self._state, self.arrays = one.kernel, one.dims, one.state, arrays
        self.weights: Array = arrays.weights[0]  # [E]
        self.a = float(arrays.a[0])
        self.noise = float(self.weights @ arrays.noises[0]) * self.a**2

    def predict(self, points: Array) -> tuple[Array, Array]:
        means, variances = self._kernel.predict(self._state, self.arrays, points[None])
        return means[0], variances[0]

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        mean, variance = self._kernel.compare(self._state, self.arrays, point[None], other[None])
        return float(mean[0]), float(variance[0])

    def against(self, point: Array, default: Array) -> Comparison:
        del default  # it is the tuner's own
        told = self._kernel.against(self._state, self.arrays, point[None])
        level, mean, variance, expected, own, other = (float(number[0]) for number in told)
        return Comparison(level, mean, variance, expected, (own, other))

    def forecast(self, point: Array, y: float) -> Forecast:
        mean, variance, logs = self._kernel.forecast(self._state, self.arrays, point[None], np.array([y]))
        return Forecast(float(mean[0]), float(variance[0]), logs[0])

    def choose(self, rng: np.random.Generator) -> Choice:
        """The least expected y, less what an observation is worth, among experts' optima and moves around them."""
        draws = np.empty(draws_needed(self._dims))
        draw(rng, self._dims, self._state, draws)
        point, source, mean, variance = self._kernel.choose(self._state, self.arrays, draws[None])
        return Choice(point[0], SOURCES[int(source[0])], float(mean[0]), float(variance[0]))

    def best(self) -> Array | None:
        """The least posterior mean among the experts' minimisers, their mean, the best tried and the default."""
        best: Array = self._kernel.best(self._state, self.arrays)[0]
        return best

    def similar(self) -> Array:
        similar: Array = self.arrays.kernels[0, 2, : int(self._state.count[0])]
        return similar
