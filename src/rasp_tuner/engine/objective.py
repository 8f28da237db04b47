"""Objective: metrics -> the one target that the engine minimises.

symbol    shape  meaning
K, C      scalar metrics; columns of losses: a metric on scale "auto" has two, linear and log, any other has one
losses    [C]    lower is better
weights   [C]    target = losses @ weights; zero for the column that its metric does not use
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rasp_tuner.core.checks import show
from rasp_tuner.core.metric_table import MetricTable
from rasp_tuner.core.numerics import LARGEST, Array, assign
from rasp_tuner.engine.scale import easier_in_logs, levels_apart
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.types import Direction, Metric, Scale

ROUNDING = 1e-10  # of a metric's mean: a smaller deviation is none
NEAR_ZERO, NEAR_ZERO_SHARE = 0.05, 0.1  # of the default's level; of the samples that may lie below without harm
LEVEL_SPREAD = 0.5  # deviation of log(what the default would have come to), if levels are to differ
NEAR_ZERO_SAMPLES = 30  # that this share is taken over
LEAP, LEAP_SAMPLES = 50.0, 4  # a value so many times the worst of so many samples or more calls for logarithms
LEAST_UNIT = 1e-300
LARGEST_RATIO = 1e6  # of a loss to that of the default, when they are compared


class Objective(MetricTable):
    """Metrics as losses, and the weights that turn all of history into one target.

    The target of a single metric is that metric, or its logarithm. With several, each counts by its weight over its
    standard deviation, which is looked at again whenever the number of samples has doubled. In between, old and new
    targets are computed in exactly the same way.

    logs_first  whether metrics on "auto" are compared by their logarithms for as long as they are positive
    """

    def __init__(self, metrics: Mapping[str, Metric | Direction], *, logs_first: bool = False) -> None:
        super().__init__(metrics)
        self._logs_first = logs_first
        own = [(k, log) for k, metric in enumerate(self.metrics.values()) for log in _columns(metric.scale)]
        self._metric, self._log = (np.array(column) for column in zip(*own, strict=True))  # [C] whose column; is it log
        self._signs = np.array([1.0 if metric.direction == "min" else -1.0 for metric in self.metrics.values()])
        self._moments = np.zeros((3, len(own)))  # mean, sum of squares around it, worst
        self._deviations = np.ones(len(own))  # that a column is divided by
        logs = ("log", "auto") if logs_first else ("log",)
        self._uses_log = np.array([metric.scale in logs for metric in self.metrics.values()])  # [K]
        self._positive = np.ones(len(self.metrics), dtype=bool)  # [K] whether all values were above zero
        self._levels = np.zeros(3)  # of log(target of the default): count, mean, sum of squares around it
        self._near_zero = 0.0  # share of values that are but a few percent of what the default would have come to
        self.seen = 0
        self._set_weights()

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""
        return {name: "log" if log else "linear" for name, log in zip(self.metrics, self._uses_log, strict=True)}

    @property
    def columns(self) -> int:
        """C."""
        return len(self._metric)

    def _set_weights(self) -> None:
        given = np.array([metric.weight for metric in self.metrics.values()])
        used = self._log == self._uses_log[self._metric]
        self.weights: Array = (given / given.sum())[self._metric] / self._deviations * used
        self._limits = LARGEST * np.minimum(self._deviations, 1.0)  # what was tiny and is huge now has a finite target

    def to_minimise(self, values: Mapping[str, float]) -> Array:
        """Checked metrics as losses [C]."""
        checked = self.check(values)
        for (name, metric), value in zip(self.metrics.items(), checked.values(), strict=True):
            if metric.scale == "log" and value <= 0.0:
                raise InvalidValue(f"metrics[{name!r}] must be above 0, since its scale is 'log'; got {value!r}")
        given = np.array(list(checked.values()))
        logs = np.log(np.where(given > 0.0, given, 1.0))
        losses: Array = self._signs[self._metric] * np.where(self._log, logs[self._metric], given[self._metric])
        return np.minimum(np.maximum(losses, -self._limits), self._limits)

    def of_error(self, error: float) -> Array:
        """Losses [C] of an error that was composed elsewhere."""
        return np.where(self._log, math.log(error) if error > 0.0 else 0.0, error)

    def observe(self, losses: Array) -> bool:
        """Take in one sample [C]; whether it changed the weights."""
        mean, squares, worst = self._moments
        self.seen += 1
        gap = losses - mean
        mean += gap / self.seen
        squares += np.minimum(np.abs(gap), LARGEST) * np.minimum(np.abs(losses - mean), LARGEST)
        worst[:] = losses if self.seen == 1 else np.maximum(worst, losses)
        changed = self.observe_extreme(losses)
        doubled = self.seen >= 2 and not self.seen & (self.seen - 1)
        if len(self.metrics) > 1 and doubled:
            spread = np.sqrt(squares / self.seen)
            self._deviations = np.where(spread > ROUNDING * np.abs(mean), spread, 1.0)
        elif not changed:
            return False
        self._set_weights()
        return True

    def observe_extreme(self, losses: Array) -> bool:
        """Choose the scale by a sample [C] that leaves no choice; whether that changed the weights.

        To be asked before such a sample is used: what is not positive has no logarithm, so its metric is linear for
        ever; and what is many times all that was seen before would drown it on a linear scale.
        """
        fallen = np.zeros(len(self.metrics), dtype=bool)
        fallen[self._metric[~self._log]] = (losses * self._signs[self._metric])[~self._log] <= 0.0
        self._positive &= ~fallen
        gone = fallen & self._uses_log
        leap = self.may_rescale and not self._uses_log[0] and self._leaps(losses)
        if gone.any() or leap:
            self._uses_log = (self._uses_log & ~gone) | leap
            self._set_weights()
        return bool(gone.any()) or leap

    def _leaps(self, losses: Array) -> bool:
        """Whether a single metric is many times the worst that was seen before."""
        return self.seen >= LEAP_SAMPLES and float(losses[0]) > LEAP * float(self._moments[2, 0]) > 0.0

    @property
    def may_rescale(self) -> bool:
        """Whether the scale is open: of one metric on "auto" that was never 0 or less. Several keep their first one."""
        return len(self.metrics) == 1 and len(self._metric) == 2 and bool(self._positive[0])

    def observe_level(self, target: float, default: float) -> None:
        """Take in a target, and the one that the default would have come to in the same situation."""
        value, level = (float(self._signs[0]) * self.own_units(y) for y in (target, default))
        self._near_zero += ((value < NEAR_ZERO * level) - self._near_zero) / min(self.seen, NEAR_ZERO_SAMPLES)
        if level > 0.0:
            count, mean, squares = self._levels.tolist()
            gap = math.log(level) - mean
            mean += gap / (count + 1.0)
            self._levels[:] = count + 1.0, mean, squares + gap * (math.log(level) - mean)

    def choose_scale(self, contexts: Array, points: Array, losses: Array) -> bool:
        """Look again at the scale, by the latest samples [n, .] and their losses [n, C]; whether it changed.

        A logarithm is for levels that differ by factors between situations, and for values that it makes far easier to
        predict. The latter not if they come close to zero, as a distance does: they would never be close enough.
        """
        logs = self._signs[0] * losses[:, 1]
        count, _, squares = self._levels.tolist()
        uses_log = self._logs_first or (squares > LEVEL_SPREAD**2 * count and levels_apart(contexts, logs))
        if not uses_log and self._near_zero <= NEAR_ZERO_SHARE:
            uses_log = bool(self._uses_log[0]) or easier_in_logs(contexts, points, logs)
        if uses_log == bool(self._uses_log[0]):
            return False
        self._uses_log[0] = uses_log
        self._set_weights()
        return True

    def own_units(self, target: float) -> float:
        """A target as a loss in the metric's own units; of several metrics the target itself."""
        if len(self.metrics) > 1 or not self._uses_log[0]:
            return target
        sign = float(self._signs[0])
        return sign * math.exp(min(max(sign * target, -700.0), 700.0))

    def relative(self, gap: float, level: float) -> float:
        """A difference of targets as a share of the loss at `level`: 0.1 is ten percent worse.

        Where a share has no meaning, since the metric changes its sign, of its deviation instead.
        """
        if len(self.metrics) == 1 and self._uses_log[0]:
            return math.expm1(min(gap, math.log(LARGEST_RATIO)))
        mean, squares, _ = self._moments
        spread = np.sqrt(squares / max(self.seen, 1))
        if len(self.metrics) == 1:
            unit = max(abs(level), float(self.weights @ spread))
        else:
            unit = float(self.weights @ np.where(self._log, 1.0, np.maximum(np.abs(mean), spread)))
        return min(gap / max(unit, LEAST_UNIT), LARGEST_RATIO)

    def worst(self) -> Array:
        """[C] what a failure counts as: a deviation worse than the worst seen."""
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
                changed[name] = replace(changed[name], weight=weight)
            except InvalidSpace as reason:
                raise InvalidValue(f"weights[{name!r}]: {reason}") from None
        self.metrics = changed
        self._set_weights()

    def state(self) -> dict[str, Array]:
        return {
            "moments": self._moments,
            "scales": self._deviations,
            "seen": np.array(float(self.seen)),
            "log": self._uses_log.astype(np.float64),
            "positive": self._positive.astype(np.float64),
            "levels": self._levels,
            "near_zero": np.array(self._near_zero),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        assign(self._moments, state["moments"])
        assign(self._deviations, state["scales"])
        self.seen = int(state["seen"])
        if "log" in state:  # version 0.1 had linear scales only, and did not keep the signs
            self._uses_log = state["log"] > 0.0
            self._positive = state["positive"] > 0.0
            assign(self._levels, state["levels"])
            self._near_zero = float(state["near_zero"])
        else:
            self._positive &= False
            self._uses_log &= False
        self._set_weights()


def _columns(scale: Scale) -> tuple[bool, ...]:
    """Whether each column of a metric on this scale is a logarithm."""
    return (False, True) if scale == "auto" else (scale == "log",)
