"""Objective: metrics -> the one target that the engine minimises."""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.checks import show
from rasp_tuner.core.metric_table import MetricTable
from rasp_tuner.core.numerics import LARGEST, Array, assign
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.types import Direction, Metric

ROUNDING = 1e-10  # of a metric's mean: a smaller deviation is none


class Objective(MetricTable):
    """Metrics [K] as losses, where lower is better, and the weights that turn all of history into one target.

    The target of a single metric is that metric. With several, each counts by its weight over its standard deviation.
    The deviations are looked at again whenever the number of samples has doubled. In between, old and new targets are
    computed in exactly the same way.
    """

    def __init__(self, metrics: Mapping[str, Metric | Direction]) -> None:
        super().__init__(metrics)
        self._signs = np.array([1.0 if metric.direction == "min" else -1.0 for metric in self.metrics.values()])
        self._moments = np.zeros((3, len(self._signs)))  # mean, sum of squares around it, worst
        self._scales = np.ones(len(self._signs))
        self.seen = 0
        self._set_weights()

    def _set_weights(self) -> None:
        given = np.array([metric.weight for metric in self.metrics.values()])
        self.weights: Array = given / given.sum() / self._scales  # [K] so that target = losses @ weights
        self._limits = LARGEST * np.minimum(self._scales, 1.0)  # what was tiny and is huge now has a finite target

    def to_minimise(self, values: Mapping[str, float]) -> Array:
        """Checked metrics as a vector [K] where lower is better."""
        checked = self.check(values)
        losses: Array = self._signs * np.array(list(checked.values()))
        return np.minimum(np.maximum(losses, -self._limits), self._limits)

    def observe(self, losses: Array) -> bool:
        """Take in one sample [K]; whether it changed the weights."""
        mean, squares, worst = self._moments
        self.seen += 1
        gap = losses - mean
        mean += gap / self.seen
        squares += np.minimum(np.abs(gap), LARGEST) * np.minimum(np.abs(losses - mean), LARGEST)
        worst[:] = losses if self.seen == 1 else np.maximum(worst, losses)
        if len(losses) == 1 or self.seen < 2 or self.seen & (self.seen - 1):
            return False
        spread = np.sqrt(squares / self.seen)
        self._scales = np.where(spread > ROUNDING * np.abs(mean), spread, 1.0)
        self._set_weights()
        return True

    def worst(self) -> Array:
        """[K] what a failure counts as: a deviation worse than the worst seen."""
        _, squares, worst = self._moments
        failed: Array = np.clip(worst + np.sqrt(squares / max(self.seen, 1)), -LARGEST, LARGEST)
        return failed

    def reweigh(self, weights: Mapping[str, float]) -> None:
        """Other weights from now on, for some or all metrics."""
        if not isinstance(weights, Mapping):
            raise InvalidValue(f"weights must map metric names to numbers, got {show(weights)}")
        changed = dict(self.metrics)
        for name, weight in weights.items():
            if name not in changed:
                raise InvalidValue(f"weights: no metric {show(name)}; there are {list(changed)}")
            try:
                changed[name] = Metric(changed[name].direction, weight)
            except InvalidSpace as reason:
                raise InvalidValue(f"weights[{name!r}]: {reason}") from None
        self.metrics = changed
        self._set_weights()

    def state(self) -> dict[str, Array]:
        return {"moments": self._moments, "scales": self._scales, "seen": np.array(float(self.seen))}

    def restore(self, state: Mapping[str, Array]) -> None:
        assign(self._moments, state["moments"])
        assign(self._scales, state["scales"])
        self.seen = int(state["seen"])
        self._set_weights()
