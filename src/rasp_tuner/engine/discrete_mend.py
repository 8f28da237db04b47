"""What the discrete family learned, as if it had been told otherwise. To be deleted with engine/discrete."""

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.threads import one_thread
from rasp_tuner.engine.discrete.belief import DiscreteBelief
from rasp_tuner.engine.discrete.family import DiscreteFamily
from rasp_tuner.engine.family import Forecast, Trial


class MendedDiscreteFamily(DiscreteFamily):
    """The family, with the two changes that are made to all of its past."""

    _inside: Array | None = None

    def learn(self, trial: Trial, belief: DiscreteBelief | None, forecast: Forecast | None) -> None:
        self._inside = trial.bounded
        super().learn(trial, belief, forecast)

    def _observe(self, context: Array) -> None:
        super()._observe(context if self._inside is None else self._inside)

    @one_thread()
    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        s, k = self.state(), len(factors)
        if not len(s["points"]):
            return self.reweigh(weights)
        s["values"] = s["values"] * factors + shifts
        s["weights"] = weights.copy()
        if len(s["repeats"]) > 1:
            s["repeats"][1:] *= np.outer(factors, factors).ravel()
        if len(s["late"]):
            s["late"][:, -k:] = s["late"][:, -k:] * factors + shifts
        return self.restore(s)

    def forget(self) -> None:
        weights = self._state["weights"]
        self._state = {**self._empty(), "weights": weights}
        self._fit = self._derive()

    @one_thread()
    def bound_contexts(self, least: Array, most: Array) -> None:
        s = self.state()
        inside = s["raw"].clip(least, most)
        if np.array_equal(inside, s["raw"]):
            return
        share = s["counts"][:, None] / s["counts"].sum()
        s["mean"] = (share * inside).sum(axis=0)
        s["squares"] = (share * (inside - s["mean"]) ** 2).sum(axis=0) * s["clock"][0]
        del s["likeness"]  # so that all is looked at anew
        self.restore(s)
