"""What the discrete family learned, as if it had been told otherwise. To be deleted with engine/discrete."""

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.threads import one_thread
from rasp_tuner.engine.discrete.family import DiscreteFamily


class MendedDiscreteFamily(DiscreteFamily):
    """The family, with the two changes that are made to all of its past."""

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
        s, c = self.state(), len(least)
        inside = s["raw"].clip(least, most)
        absurd = (inside != s["raw"]).any(axis=0)
        if not absurd.any():
            return
        least, most = np.where(absurd, least, -np.inf), np.where(absurd, most, np.inf)
        s["raw"] = s["raw"].clip(least, most)
        share = s["counts"][:, None] / s["counts"].sum()
        s["mean"] = (share * s["raw"]).sum(axis=0)
        s["squares"] = (share * (s["raw"] - s["mean"]) ** 2).sum(axis=0) * s["clock"][0]
        s["unreached_in"] = s["unreached_in"].clip(least, most)
        if len(s["late"]):
            s["late"][:, :c] = s["late"][:, :c].clip(least, most)
        del s["likeness"]  # so that all is looked at anew
        self.restore(s)
