"""Three tabular streams: tune a gradient-boosted regressor while the data drift (paper, Section Real-world tabular).

omega is the number of a batch, 0 to 99. The loss is a measured validation MSE, looked up in the tables that
`stream_tables.py` makes, so regret is exact. docs/STREAMS.md says what was measured and how.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.stream_data import load
from rasp_tuner.base.numerics import Array
from rasp_tuner.space import MOST_DIGITS, Float, Int, Space
from rasp_tuner.types import Metric

BATCHES = 100
NOISE = 0.05  # standard deviation of the logarithm of the reported MSE; refits differ about as much

LEVELS: dict[str, tuple[float, ...]] = {  # of the table, in the order of its axes
    "learning_rate": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    "n_estimators": (5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 63, 80, 100, 125, 160),
    "max_depth": (1, 2, 3, 4, 5),
    "subsample": (0.5, 0.75, 1.0),
}
SCIKIT_LEARN_DEFAULT = {"learning_rate": 0.1, "n_estimators": 100, "max_depth": 3, "subsample": 1.0}


KNOBS: dict[str, Float | Int] = {
    "learning_rate": Float(0.01, 0.5, log=True, digits=MOST_DIGITS),
    "n_estimators": Int(5, 160, log=True),
    "max_depth": Int(1, 5),
    "subsample": Float(0.5, 1.0, step=0.25),
}


class TabularStream(ExperimentDomain[int]):
    """A table of measured losses, one batch a step; after the last batch the first comes again."""

    metrics = {"val_mse": Metric("min")}  # noqa: RUF012
    space = Space(KNOBS)

    def __init__(self, name: str, dataset: str) -> None:
        self.name = name
        table = load(f"{dataset}_table")
        self._mse = table["mse"].astype(np.float64)  # [100, 6, 16, 5, 3]
        self._minimum = self._mse.reshape(BATCHES, -1).min(axis=1)  # [100]
        self._context: Array = table["context"].astype(np.float64)  # [100, d_c]
        self.context_dim = self._context.shape[1]
        self._units = [  # where the levels lie in the unit box
            np.array([knob.to_unit(level) for level in LEVELS[name]]) for name, knob in KNOBS.items()
        ]

    def build_sequence(self, horizon: int, seed: int) -> Sequence[int]:
        """Batches 0, 1, ... 99, 0, 1, ...: the data are given, so the seed moves only the noise."""
        del seed
        return [step % BATCHES for step in range(horizon)]

    def context_fn(self, omega: int) -> Array:
        context: Array = self._context[omega].copy()
        return context

    def metric_fn(self, theta: Array, omega: int, rng: np.random.Generator) -> dict[str, float]:
        return {"val_mse": self.true_loss(theta, omega) * math.exp(NOISE * rng.standard_normal())}

    def true_loss(self, theta: Array, omega: int) -> float:
        """The MSE measured at the level of the table nearest to each knob (on the knob's own scale)."""
        cell = [
            int(np.abs(units - knob.to_unit(value)).argmin())
            for knob, units, value in zip(KNOBS.values(), self._units, theta, strict=True)
        ]
        return float(self._mse[(omega, *cell)])

    def minimum(self, omega: int) -> float:
        return float(self._minimum[omega])

    @property
    def default(self) -> Array:
        """The settings before tuning: scikit-learn's default."""
        return self.space.to_unit(SCIKIT_LEARN_DEFAULT)


STREAMS: dict[str, Callable[[], TabularStream]] = {
    "S1_California_Housing": partial(TabularStream, "S1_California_Housing", "california"),
    "S2_Boston_Housing": partial(TabularStream, "S2_Boston_Housing", "boston"),
    "S3_Digits": partial(TabularStream, "S3_Digits", "digits"),
}
