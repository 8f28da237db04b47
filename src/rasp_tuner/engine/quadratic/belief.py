"""QuadraticBelief: what the quadratic family of one tuner holds true in one context; the kernel's belief of one."""

from typing import Any

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.family import Choice, Forecast
from rasp_tuner.engine.kernel.backend import Kernel
from rasp_tuner.engine.kernel.choose import candidates
from rasp_tuner.engine.kernel.state import Dims, State

SOURCES = ("predicted optimum", "best tried", "probe near it", "first probe")


class QuadraticBelief:
    """Good until its family learns."""

    def __init__(self, dims: Dims, kernel: Kernel, state: State, arrays: Any) -> None:
        self._dims, self._kernel, self._state, self.arrays = dims, kernel, state, arrays
        self.weights: Array = arrays.weights[0]  # [E]
        self.a = float(arrays.a[0])
        self.noise = float(self.weights @ arrays.noises[0]) * self.a**2

    def predict(self, points: Array) -> tuple[Array, Array]:
        means, variances = self._kernel.predict(self._state, self.arrays, points[None])
        return means[0], variances[0]

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        mean, variance = self._kernel.compare(self._state, self.arrays, point[None], other[None])
        return float(mean[0]), float(variance[0])

    def forecast(self, point: Array, y: float) -> Forecast:
        mean, variance, logs = self._kernel.forecast(self._state, self.arrays, point[None], np.array([y]))
        return Forecast(float(mean[0]), float(variance[0]), logs[0])

    def choose(self, rng: np.random.Generator) -> Choice:
        """The least expected y, less what an observation is worth, among experts' optima and moves around them."""
        draws = self._draws(rng)
        point, source, mean, variance = self._kernel.choose(self._state, self.arrays, draws[None])
        return Choice(point[0], SOURCES[int(source[0])], float(mean[0]), float(variance[0]))

    def best(self) -> Array | None:
        """The least posterior mean among the experts' minimisers, their mean, the best tried and the default."""
        best: Array = self._kernel.best(self._state, self.arrays)[0]
        return best

    def similar(self) -> Array:
        similar: Array = self.arrays.kernels[0, 2, : int(self._state.count[0])]
        return similar

    def _draws(self, rng: np.random.Generator) -> Array:
        knobs = self._dims.knobs
        draws = np.zeros(knobs + candidates(self._dims))
        if self._state.count[0] < 2:  # a first probe: one knob, one way; drawn as version 0.1 did
            draws[0] = (rng.integers(knobs) + 0.5) / knobs
            draws[1] = 0.5 * (rng.choice([-1.0, 1.0]) > 0.0)
            return draws
        return rng.random(len(draws))
