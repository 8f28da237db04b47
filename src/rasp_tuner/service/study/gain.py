"""Gain: what ran beside what the default would have given, metric by metric, each in its own unit.

A step that ran the default has a gain of exactly 0: nothing is estimated. For any other step the default's value is
expected (`Level`), and the gain is the difference, positive where the step was better. Means come with an interval that
holds the true gain nine times in ten: the noise of the steps, and how well the default is known, which is the same
error in every step and does not average out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

LATELY_STEPS = 200  # over which "lately" is averaged, with older steps fading
DEFAULT_RUNS_KEPT = 64  # runs of the default in one situation; older ones fade
LEAST_DEFAULT_RUNS = 3  # before its level in a situation is taken as known
LEAST_STEPS = 3  # for an interval
NORMAL_90 = 1.645  # deviations on either side that hold nine in ten
LARGEST = 1e100  # of a number that is summed here, so that no sum of squares is infinite


class Level(NamedTuple):
    """What the default gives in a step's situation, in the unit of the metric."""

    value: float
    half_width: float = 0.0  # of the interval that holds it nine times in ten


@dataclass(slots=True)
class DefaultRuns:
    """Runs of the default, of one metric in one situation. Stored by name in snapshots."""

    count: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    def add(self, value: float) -> None:
        self.count = min(self.count + 1.0, DEFAULT_RUNS_KEPT)
        gap = _clipped(value) - self.mean
        self.mean += gap / self.count
        self.variance += (gap * (_clipped(value) - self.mean) - self.variance) / self.count

    def merge(self, other: "DefaultRuns") -> None:
        total = self.count + other.count
        share, gap = other.count / total, other.mean - self.mean
        self.variance += share * (other.variance - self.variance) + share * (1.0 - share) * gap * gap
        self.mean, self.count = self.mean + share * gap, min(total, DEFAULT_RUNS_KEPT)

    @property
    def level(self) -> Level | None:
        """None while there are too few."""
        if self.count < LEAST_DEFAULT_RUNS:
            return None
        return Level(self.mean, NORMAL_90 * math.sqrt(max(self.variance, 0.0) / (self.count - 1.0)))


@dataclass(slots=True)
class GainSums:
    """Weighted sums over steps. Stored by name in snapshots."""

    weight: float = 0.0
    weight2: float = 0.0  # of squared weights
    gain: float = 0.0
    gain2: float = 0.0  # of squared gains
    half_width: float = 0.0  # of the default's level
    level: float = 0.0
    size: float = 0.0  # of the level, without its sign
    missed: float = 0.0  # weight of steps whose gain is not known

    def miss(self, weight: float, keep: float = 1.0) -> None:
        """Count a step whose gain is not known."""
        self.missed = keep * self.missed + weight

    def add(self, gain: float, level: Level, weight: float, keep: float = 1.0) -> None:
        """Add a step; `keep` is what stays of the steps before it."""
        gain, value = _clipped(gain), _clipped(level.value)
        self.weight = keep * self.weight + weight
        self.weight2 = keep * keep * self.weight2 + weight * weight
        self.missed *= keep
        self.gain = keep * self.gain + weight * gain
        self.gain2 = keep * self.gain2 + weight * gain * gain
        self.half_width = keep * self.half_width + weight * _clipped(level.half_width)
        self.level = keep * self.level + weight * value
        self.size = keep * self.size + weight * abs(value)

    def report(self) -> dict[str, float | None] | None:
        """The mean gain of a step with its interval, and as a share of the default's level; None if few are known.

        A share needs levels of one sign, which are not 0.
        """
        if self.weight <= self.missed:
            return None
        mean = self.gain / self.weight
        half = self._half_width(mean)
        share = self.weight / self.size if self.size > 0.0 and abs(self.level) > 0.999 * self.size else None
        bounds = {
            "mean": mean,
            "low": None if half is None else mean - half,
            "high": None if half is None else mean + half,
        }
        shares = {f"{name}_share": None if share is None or x is None else x * share for name, x in bounds.items()}
        return {**bounds, **shares}

    def _half_width(self, mean: float) -> float | None:
        if self.gain2 == 0.0:
            return 0.0  # only the default ran
        count = self.weight * self.weight / self.weight2
        if count < LEAST_STEPS:
            return None
        variance = max(self.gain2 / self.weight - mean * mean, 0.0) / (count - 1.0)
        return math.hypot(NORMAL_90 * math.sqrt(variance), self.half_width / self.weight)


class Gains:
    """The gains of one study: of all steps and lately, by metric; and the default's own runs, by situation."""

    def __init__(self, metrics: Mapping[str, Mapping[str, Any]]) -> None:
        self._signs = {name: 1.0 if spec["direction"] == "min" else -1.0 for name, spec in metrics.items()}
        self._weights = {name: float(spec["weight"]) for name, spec in metrics.items()}
        self._sums = {name: (GainSums(), GainSums()) for name in metrics}
        self._runs: dict[str, dict[str, DefaultRuns]] = {}  # regime -> metric -> runs

    def level_in(self, regime: int | None, name: str) -> Level | None:
        """What the default's own runs in this situation gave."""
        runs = self._runs.get(str(regime), {}).get(name)
        return None if runs is None else runs.level

    def add_default_run(self, regime: int | None, metrics: Mapping[str, float]) -> None:
        here = self._runs.setdefault(str(regime), {})
        for name, value in metrics.items():
            here.setdefault(name, DefaultRuns()).add(value)

    def merge_regimes(self, gone: int, kept: int) -> None:
        """Two situations have become one."""
        runs = self._runs.pop(str(gone), {})
        here = self._runs.setdefault(str(kept), {}) if runs else {}
        for name, more in runs.items():
            here.setdefault(name, DefaultRuns()).merge(more)

    def add(self, name: str, value: float, level: Level | None, is_default: bool, weight: float) -> float | None:
        """The gain of a step in one metric; None where the default's level is not known. Counts `weight` steps."""
        (everything, lately), keep = self._sums[name], (1.0 - 1.0 / LATELY_STEPS) ** weight
        if level is None and not is_default:
            everything.miss(weight)
            lately.miss(weight, keep)
            return None
        if is_default or level is None:
            level, gain = Level(value), 0.0
        else:
            gain = self._signs[name] * (level.value - value)
        everything.add(gain, level, weight)
        lately.add(gain, level, weight, keep)
        return gain

    def joint(self, gains: Mapping[str, float | None], levels: Mapping[str, Level | None]) -> float | None:
        """One number for all metrics: the gain itself of one; of several the weighted mean of their shares."""
        if len(self._weights) == 1:
            return next(iter(gains.values()), None)
        total, sum_of_weights = 0.0, 0.0
        for name, weight in self._weights.items():
            gain, level = gains.get(name), levels.get(name)
            if weight == 0.0:
                continue
            if gain is None or (gain != 0.0 and (level is None or level.value == 0.0)):
                return None
            total += 0.0 if gain == 0.0 or level is None else weight * gain / abs(level.value)
            sum_of_weights += weight
        return _clipped(total / sum_of_weights) if sum_of_weights else None

    def report(self) -> dict[str, Any]:
        """By metric: `all` steps, and `lately`."""
        return {name: {"all": a.report(), "lately": b.report()} for name, (a, b) in self._sums.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "sums": {name: [_fields(part) for part in both] for name, both in self._sums.items()},
            "runs": {
                regime: {name: _fields(part) for name, part in runs.items()} for regime, runs in self._runs.items()
            },
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        for name, (everything, lately) in data["sums"].items():
            self._sums[name] = GainSums(**everything), GainSums(**lately)
        self._runs = {
            regime: {name: DefaultRuns(**part) for name, part in runs.items()} for regime, runs in data["runs"].items()
        }


def _clipped(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def _fields(part: DefaultRuns | GainSums) -> dict[str, float]:
    return {name: getattr(part, name) for name in part.__dataclass_fields__}
