"""NumpySingle: the functions in NumPy bound to one tuner: a batch of one."""

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.family import ByExpert, Choice, Comparison, RunOutcome
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.believe import believe
from rasp_tuner.engine.kernel.choose import best, choose, draws_needed
from rasp_tuner.engine.kernel.learn import learn
from rasp_tuner.engine.kernel.predict import against, forecast, predict
from rasp_tuner.engine.kernel.state import Dims, E, State
from rasp_tuner.engine.quadratic.draws import SOURCES, draw
from rasp_tuner.optimizer.optimizer import NOTHING, Waiting

NO_LOGS = np.zeros((1, E))


class NumpySingle:
    """A tuner that is alone in its state."""

    def __init__(self, dims: Dims, default: Array, state: State) -> None:
        self.dims, self.default, self.state = dims, default, state

    def believe(self, context: Array) -> "NumpyBelief":
        return NumpyBelief(self, believe(self.dims, self.state, self.default, context[None]))

    def learn(self, trial: RunOutcome, belief: "NumpyBelief | None", forecast: ByExpert | None) -> None:
        arrays = (self.believe(trial.context) if belief is None else belief).arrays
        logs = NO_LOGS if forecast is None else forecast.log_densities[None]
        told = trial.point[None], trial.context[None], trial.losses[None], np.array([float(trial.failed)])
        learn(self.dims, self.state, arrays, self.default, *told, logs)


class NumpyBelief:
    """Good until its tuner learns."""

    knows_default = True  # what ran in a situation is not kept apart
    lacks_default = False

    def __init__(self, one: NumpySingle, arrays: SlotBelief) -> None:
        self._one, self.arrays = one, arrays
        self._known = one.dims, one.state, arrays, one.default  # what every function is given
        self.weights: Array = arrays.weights[0]  # [E]
        self.a = float(arrays.a[0])
        self.noise = float(self.weights @ arrays.noises[0]) * self.a**2

    def predict(self, points: Array) -> tuple[Array, Array]:
        means, variances = predict(*self._known, points[None])
        return means[0], variances[0]

    def against(self, point: Array, default: Array) -> Comparison:
        del default  # it is the tuner's own
        told = against(*self._known, point[None])
        level, mean, variance, expected, own, other = (float(number[0]) for number in told)
        return Comparison(level, mean, variance, expected, (own, other))

    def forecast(self, point: Array, y: float) -> ByExpert:
        mean, variance, logs = forecast(*self._known, point[None], np.array([y]))
        return ByExpert(float(mean[0]), float(variance[0]), logs[0])

    def choose(self, rng: np.random.Generator, waiting: Waiting = NOTHING) -> Choice:
        """The least expected y, less what an observation is worth, among experts' optima and moves around them."""
        del waiting  # every choice is drawn anew
        draws = np.empty(draws_needed(self._one.dims))
        draw(rng, self._one.dims, self._one.state, draws)
        point, source, mean, variance = choose(*self._known, draws[None])
        return Choice(point[0], SOURCES[int(source[0])], float(mean[0]), float(variance[0]))

    def best(self) -> Array | None:
        """The least posterior mean among the experts' minimisers, their mean, the best tried and the default."""
        point: Array = best(*self._known)[0]
        return point

    def similar(self) -> Array:
        return self.arrays.kernels[0, 2, : int(self._one.state.count[0])]
