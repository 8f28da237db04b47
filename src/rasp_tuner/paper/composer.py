"""RealErrorComposer: a dictionary of metrics -> one error e_t in [0, 1] (paper, Section RealErrorComposer).

Laws (Proposition composer, Appendix D): e_t lies in [0, 1]; it is monotone in every badness; moving one metric by
Delta moves e_t by at most w_k / sum w * |Delta| / (4 (sigma_k + eps)) under fixed moments.
"""

from collections.abc import Mapping
from typing import cast

import numpy as np

from rasp_tuner.core.checks import number, same_names, show
from rasp_tuner.core.numerics import LARGEST, MOMENTUM, Array, RunningEMA, assign, logistic
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.types import Direction, Metric


class MetricTable:
    """The declared metrics: their checks, directions and weights."""

    def __init__(self, metrics: Mapping[str, Metric | Direction]) -> None:
        if not isinstance(metrics, Mapping) or not metrics:
            raise InvalidSpace(f"metrics must map at least one name to 'min', 'max' or a Metric, got {show(metrics)}")
        self.metrics = {name: _as_metric(name, metric) for name, metric in metrics.items()}

    def check(self, values: object) -> dict[str, float]:
        """The values as floats, or a typed error; state is not touched."""
        given = same_names("metrics", values, self.metrics)
        return {name: number(f"metrics[{name!r}]", given[name]) for name in self.metrics}

    def to_json(self) -> dict[str, dict[str, str | float]]:
        return {name: {"direction": m.direction, "weight": m.weight} for name, m in self.metrics.items()}


class RealErrorComposer(MetricTable):
    """EMA z-score -> logistic -> polarity -> weighted mean; and the anomaly score z_err of the result.

    >>> composer = RealErrorComposer({"p99_ms": "min", "throughput": Metric("max", weight=0.5)})
    >>> round(composer.compose({"p99_ms": 2.0, "throughput": 3.0}), 3)
    0.6
    """

    def __init__(self, metrics: Mapping[str, Metric | Direction], momentum: float = MOMENTUM) -> None:
        super().__init__(metrics)
        self.emas = {name: RunningEMA(momentum) for name in self.metrics}
        self.error_ema = RunningEMA(momentum)

    def compose(self, values: Mapping[str, float]) -> float:
        """e_t in [0, 1], after the moments of every metric have moved towards its new value."""
        checked = self.check(values)
        total = badness = 0.0
        for name, metric in self.metrics.items():
            score = logistic(self.emas[name].observe(checked[name]))
            total += metric.weight
            badness += metric.weight * (score if metric.direction == "min" else 1.0 - score)
        return min(max(badness / total, 0.0), 1.0)

    def anomaly(self, error: float) -> float:
        """z_err: how unusual this error is beside the moving average of errors, which it moves."""
        return self.error_ema.observe(error)

    def state(self) -> dict[str, Array]:
        """Moments [1 + metrics, 2]: of the error first, then of each metric in declared order."""
        return {"moments": np.array([ema.moments for ema in (self.error_ema, *self.emas.values())])}

    def restore(self, state: Mapping[str, Array]) -> None:
        rows = (self.error_ema, *self.emas.values())
        for ema, moments in zip(rows, state["moments"], strict=True):
            ema.moments = moments


class RescoringComposer(MetricTable):
    """Metrics [K] turned so that lower is better, and the weights by which all of history becomes one target.

    The target of one metric is that metric. Several are weighed by their weight over their deviation, which is looked
    at anew whenever the number of samples has doubled: in between, old and new targets are the same thing, exactly.
    """

    def __init__(self, metrics: Mapping[str, Metric | Direction]) -> None:
        super().__init__(metrics)
        self._signs = np.array([1.0 if metric.direction == "min" else -1.0 for metric in self.metrics.values()])
        self._moments = np.zeros((3, len(self._signs)))  # mean, sum of squares around it, worst
        self._scales = np.ones(len(self._signs))
        self.seen = 0
        self._weigh()

    def _weigh(self) -> None:
        given = np.array([metric.weight for metric in self.metrics.values()])
        self.weights: Array = given / given.sum() / self._scales  # [K] so that target = turned metrics @ weights
        self._limits = LARGEST * np.minimum(self._scales, 1.0)  # what was tiny and is huge now has a finite target

    def turn(self, values: Mapping[str, float]) -> Array:
        """Checked metrics as a vector [K] where lower is better."""
        checked = self.check(values)
        turned: Array = self._signs * np.array(list(checked.values()))
        return np.minimum(np.maximum(turned, -self._limits), self._limits)

    def observe(self, turned: Array) -> bool:
        """Take in one sample; whether the weights have changed by it."""
        mean, squares, worst = self._moments
        self.seen += 1
        gap = turned - mean
        mean += gap / self.seen
        squares += np.minimum(np.abs(gap), LARGEST) * np.minimum(np.abs(turned - mean), LARGEST)
        worst[:] = turned if self.seen == 1 else np.maximum(worst, turned)
        if len(turned) == 1 or self.seen < 2 or self.seen & (self.seen - 1):
            return False
        spread = np.sqrt(squares / self.seen)
        self._scales = np.where(spread > 0.0, spread, 1.0)
        self._weigh()
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
        self._weigh()

    def state(self) -> dict[str, Array]:
        return {"moments": self._moments, "scales": self._scales, "seen": np.array(float(self.seen))}

    def restore(self, state: Mapping[str, Array]) -> None:
        assign(self._moments, state["moments"])
        assign(self._scales, state["scales"])
        self.seen = int(state["seen"])
        self._weigh()


def _as_metric(name: object, metric: object) -> Metric:
    if not isinstance(name, str) or not name:
        raise InvalidSpace(f"metric names must be non-empty strings, got {show(name)}")
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric in ("min", "max"):
        return Metric(cast(Direction, metric))
    raise InvalidSpace(f"metrics[{name!r}] must be 'min', 'max' or a Metric, got {show(metric)}")
