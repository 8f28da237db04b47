"""What runs at edges gained over the default, by the sums of a policy that explores. Nothing runs anew.

    print(edge_gain(sums, default, {"p99_ms": 1.0}))   # one number with its interval

symbol   meaning
p        probability with which a run got its setting: the policy that chose it says so
w        1 / p of a run of the default, else 0: a run counts for so many of the default
b        mean of all runs. What is weighted is the difference from it, or the metric's level would be noise
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

from rasp_tuner.base.checks import one_of
from rasp_tuner.gain.versus_default import Gain

LEAST_RUNS = 2  # of which a spread is known
LEAST_DEFAULT_RUNS = 20  # of which the mean is nearly normal, for an interval of a gain
MOST_UNCOVERED = 0.25  # beyond chance: the default did not run where others did, so that nothing is known of it there
CONFIDENCE = 0.95  # of the interval

Sum = Mapping[str, Any]  # as OutcomeSums.take gives it


@dataclass(frozen=True, slots=True)
class EdgeGain:
    """What runs at edges gained over the default, measured: policies give it to a known share of the keys."""

    runs: int  # that were drawn with a probability
    default_runs: int  # of them, those that ran the default
    metrics: Mapping[str, Gain]

    @property
    def gain(self) -> Gain:
        """Of the first metric."""
        return next(iter(self.metrics.values()))

    def __str__(self) -> str:
        """In words.

        >>> print(EdgeGain(41_200, 412, {"p99_ms": Gain("share", 0.18, 0.12, 0.23)}))
        saved 18% (12 to 23%) in 41,200 runs at edges, measured against 412 of the default
        """
        few = "" if self.gain.low is not None else ", too few for an interval"
        return f"{self.gain} in {self.runs:,} runs at edges, measured against {self.default_runs:,} of the default{few}"

    def to_json(self) -> dict[str, Any]:
        """With the words of each."""
        metrics = {name: gain.to_json() for name, gain in self.metrics.items()}
        return {"runs": self.runs, "default_runs": self.default_runs, "metrics": metrics, "words": str(self)}


def edge_gain(sums: Iterable[Sum], default: Mapping[str, Any], signs: Mapping[str, float]) -> EdgeGain | None:
    """The gain of what ran over the default, by propensities; None while neither has run.

    `signs`: 1 of a metric that is minimised, -1 of one that is maximised.
    """
    drawn = [one for one in sums if one.get("probability")]
    own = [one for one in drawn if one["params"] == default]
    runs, default_runs = (sum(one["count"] for one in some) for some in (drawn, own))
    if not default_runs or runs < LEAST_RUNS:
        return None
    found = {name: _gain(drawn, default, name, sign, default_runs) for name, sign in signs.items()}
    return EdgeGain(runs, default_runs, found)


def _gain(drawn: list[Sum], default: Mapping[str, Any], metric: str, sign: float, default_runs: int) -> Gain:
    """As a share of the default's level where all values are positive, else in units of the metric."""
    runs = sum(one["count"] for one in drawn)
    b = sum(_parts(one, metric)[0] for one in drawn) / runs
    weights = [float(one["params"] == default) / one["probability"] for one in drawn]
    level = b + _weighted(drawn, weights, metric, b)[0]
    moved, wide = _weighted(drawn, [w - 1.0 for w in weights], metric, b)  # the default, less what ran
    covered = sum(w * one["count"] for w, one in zip(weights, drawn, strict=True)) / runs  # 1, but for chance
    by_share = all(_parts(one, metric)[0] > 0.0 for one in drawn) and level > 0.0
    unit = level if by_share else 1.0
    value, wide = sign * moved / unit, wide / unit
    known = default_runs >= LEAST_DEFAULT_RUNS and abs(covered - 1.0) <= MOST_UNCOVERED
    low, high = (value - wide, value + wide) if known else (None, None)
    return Gain("share" if by_share else "difference", value, low, high, sign < 0.0)


def _weighted(drawn: list[Sum], weights: list[float], metric: str, b: float) -> tuple[float, float]:
    """The mean over all runs of w (y - b), and half the width of its interval."""
    runs, total, squares = 0, 0.0, 0.0
    for one, w in zip(drawn, weights, strict=True):
        count, (sum_, squares_) = one["count"], _parts(one, metric)
        runs += count
        total += w * (sum_ - b * count)
        squares += w * w * (squares_ - 2.0 * b * sum_ + b * b * count)
    mean = total / runs
    return mean, _student(runs - 1) * sqrt(max(squares / runs - mean * mean, 0.0) / (runs - 1))


def _parts(one: Sum, metric: str) -> tuple[float, float]:
    one_of("metric", metric, one["metrics"])
    return one["metrics"][metric]["sum"], one["metrics"][metric]["squares"]


def _student(freedom: int) -> float:
    """The quantile of Student's t by that of the normal, which is right to a percent from three degrees on."""
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)
    return z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)
