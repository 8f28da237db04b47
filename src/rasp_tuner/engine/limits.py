"""LimitModel: what is known of one metric that has a limit, by an engine of its own; and how safe points are by it.

The bound of a fixed limit is of single runs: nine in ten keep it, noise included, by intervals as wide as calibration
asks for. A limit relative to the default is kept by what is expected: noise of the machine hits the default as well.
"""

import math

import numpy as np

from rasp_tuner.base.common_constants import NINE_IN_TEN
from rasp_tuner.base.numerics import SMALLEST, Array
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.family import predict_one
from rasp_tuner.engine.safety import FAR
from rasp_tuner.engine.scalar_or_batch import erfc
from rasp_tuner.types import Limit, Margin, Metric

ROUNDING = 1e-12  # of a limit: what is closer lies on it


class LimitModel:
    """One metric with its limit. Points [d] lie in the unit box, targets are as the engine minimises them."""

    def __init__(self, name: str, metric: Metric, limit: Limit, engine: Engine) -> None:
        self.name, self.limit, self.engine = name, limit, engine
        self._sign = 1.0 if metric.direction == "min" else -1.0
        self.whole = True  # whether all values so far were whole numbers, as counts are

    @property
    def knows(self) -> bool:
        """Whether anything was measured."""
        return bool(self.engine.objective.seen)

    def broken(self, context: Array, value: float) -> bool:
        """Whether a run that came to this value passed the limit, as far as that is known."""
        limit = self.limit.value
        if self.limit.relative:
            engine = self.engine
            level = engine.beside(engine.believe(context), engine.default).level
            limit *= self._sign * engine.objective.own_units(level)
        return self._sign * (value - limit) > 0.0

    @property
    def edge(self) -> float:
        """The fixed limit, or halfway to the next whole number: a count is above 0 from 1 on, and its mean at once."""
        limit = self.limit.value
        return self._sign * (math.floor(self._sign * limit) + 0.5) if self.whole else limit

    def see(self, value: float) -> None:
        """Take in that a run came to this value."""
        self.whole = self.whole and float(value).is_integer()

    def kept(self, context: Array, points: Array) -> Array:
        """[n] probability that a run at each of points [n, d] keeps the limit in this context."""
        means, deviations, limit = self._outlook(context, points)
        return np.array([_below(mean, deviation, limit) for mean, deviation in zip(means, deviations, strict=True)])

    def room(self, context: Array, points: Array) -> Array:
        """[n] how many deviations below the limit a run at each of points [n, d] is expected; for a search."""
        belief, engine = self.engine.believe(context), self.engine
        means, variances = belief.predict(points)
        if self.limit.relative:
            level, unsure = predict_one(belief, engine.default)
            limit = engine.objective.target_of(self.limit.value * self._sign * engine.objective.own_units(level))
            itself = (points == engine.default).all(axis=1)
            wide = engine.wider * np.sqrt(np.where(itself, 0.0, variances + unsure))
        else:
            limit = engine.objective.target_of(self.edge)
            wide = engine.factor * np.sqrt(np.maximum(variances + belief.noise, SMALLEST))
        apart = limit - means
        apart = np.where(np.abs(apart) <= ROUNDING * abs(limit), 0.0, apart)
        room: Array = np.where(wide > 0.0, apart / np.maximum(wide, SMALLEST), np.where(apart >= 0.0, FAR, -FAR))
        return np.clip(room, -FAR, FAR)

    def margin(self, context: Array, point: Array) -> Margin:
        """How far `point` [d] stays from the limit, in the metric's own units."""
        (mean,), (deviation,), limit = self._outlook(context, point[None])
        own = self.engine.objective.own_units
        expected, bound, most = (self._sign * own(y) for y in (mean, mean + NINE_IN_TEN * deviation, limit))
        if not self.limit.relative:
            bound, most = float(round(bound)) if self.whole else bound, self.limit.value
        return Margin(expected, bound, most, _below(mean, deviation, limit))

    def _outlook(self, context: Array, points: Array) -> tuple[list[float], list[float], float]:
        """Means and deviations [n] of the target at points, and the target that is the limit."""
        engine = self.engine
        belief = engine.believe(context)
        if self.limit.relative:
            beside = [engine.beside(belief, point) for point in points]
            value = self.limit.value * self._sign * engine.objective.own_units(beside[0].level)
            limit = engine.objective.target_of(value)
            return [own.level + own.mean for own in beside], [own.deviation for own in beside], limit
        means, variances = belief.predict(points)
        wide = np.sqrt(np.maximum(variances + belief.noise, SMALLEST)) * engine.factor
        return means.tolist(), wide.tolist(), engine.objective.target_of(self.edge)


def _below(mean: float, deviation: float, limit: float) -> float:
    """Probability of a normal number to lie below a limit, or on it if it is certain."""
    if deviation == 0.0:
        return 1.0 if mean <= limit else 0.0
    apart = min(max((mean - limit) / deviation, -FAR), FAR)
    return 0.5 * float(erfc(apart / math.sqrt(2.0)))
