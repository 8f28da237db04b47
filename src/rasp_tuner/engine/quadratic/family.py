"""QuadraticFamily: a small Bayesian regression for each expert; experts differ in which samples count.

The case of one tuner: the numbers are in engine/kernel, which serves one tuner and a hundred thousand alike.
"""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.optimizer import Samples
from rasp_tuner.engine.family import Forecast, Trial
from rasp_tuner.engine.kernel.backend import kernel_for
from rasp_tuner.engine.kernel.convert import from_family, to_family
from rasp_tuner.engine.kernel.learn import recent, remembered, reweigh, start
from rasp_tuner.engine.kernel.state import LOCAL_EXPERTS, MOVING_EXPERT, Dims, E, blank
from rasp_tuner.engine.quadratic.belief import QuadraticBelief
from rasp_tuner.engine.quadratic.upgrade import upgraded
from rasp_tuner.types import Slots

NO_LOGS = np.zeros((1, E))
ALL = np.ones(1, dtype=bool)


class QuadraticFamily:
    """Bounded slots of sufficient statistics; every belief is one weighted regression, solved exactly."""

    experts: tuple[str, ...] = (*LOCAL_EXPERTS, MOVING_EXPERT)

    def __init__(self, default: Array, context_dim: int, metrics: int) -> None:
        self.default = default
        self.dims = Dims(len(default), context_dim, metrics)
        self.kernel = kernel_for(self.dims, default)
        self.tuners = blank(self.dims, 1, start(self.dims))  # of one

    @property
    def samples(self) -> int:
        return int(self.tuners.steps[0])

    def believe(self, context: Array) -> QuadraticBelief:
        return QuadraticBelief(self.dims, self.kernel, self.tuners, self.kernel.believe(self.tuners, context[None]))

    def learn(self, trial: Trial, belief: QuadraticBelief | None, forecast: Forecast | None) -> None:
        """Score the experts, then take the trial in; a failed one counts like any other, but is never an outlier."""
        arrays = self.kernel.believe(self.tuners, trial.context[None]) if belief is None else belief.arrays
        logs = NO_LOGS if forecast is None else forecast.log_densities[None]
        failed = np.array([float(trial.failed)])
        self.kernel.learn(
            self.tuners, arrays, trial.point[None], trial.context[None], trial.losses[None], failed, logs
        )

    def reweigh(self, weights: Array) -> None:
        reweigh(self.dims, self.tuners, weights[None], ALL)

    def remembered(self) -> Slots:
        return Slots(*remembered(self.dims, self.tuners, 0))

    def recent(self) -> Samples:
        u, contexts, losses = recent(self.dims, self.tuners, 0)
        losses = losses + self.tuners.first[0]
        return Samples(contexts, self.default + u / 2.0, losses @ self.tuners.weights[0], losses)

    def state(self) -> dict[str, Array]:
        return to_family(self.dims, self.tuners, 0)

    def restore(self, state: Mapping[str, Array]) -> None:
        self.tuners = from_family(self.dims, upgraded(state))
