"""RealErrorComposer: a dictionary of metrics -> one error e_t in [0, 1] (paper, Section RealErrorComposer).

Laws (Proposition composer, Appendix D): e_t lies in [0, 1]; it is monotone in every badness; moving one metric by
Delta moves e_t by at most w_k / sum w * |Delta| / (4 (sigma_k + eps)) under fixed moments.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rasp_tuner.base.numerics import MOMENTUM, Array, RunningEMA, logistic
from rasp_tuner.base.state_checks import MOMENTS, checked
from rasp_tuner.optimizer.metric_table import MetricTable
from rasp_tuner.types import Direction, Metric


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
        moments = checked(state, {"moments": replace(MOMENTS, shape=(len(rows), 2))}, {})["moments"]
        for ema, own in zip(rows, moments, strict=True):
            ema.moments = own
