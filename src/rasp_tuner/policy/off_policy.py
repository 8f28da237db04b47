"""What other settings, or another policy, would have come to, by the sums of a policy that explores. Nothing runs anew.

    found = value_of(sums, "p99_ms", new_policy)       # had it decided in the place of those that did
    for one in settings_compared(sums, "p99_ms"):      # what each setting of a leaf came to, beside what is recommended
        ...
    print(edge_gain(sums, default, {"p99_ms": 1.0}))   # what ran, beside the default: one number with its interval

symbol   meaning
p        probability with which a run got its setting: the policy that chose it says so
q        probability with which the other policy would have given it the same
w        q / p: a run counts for so many of the other policy's
b        mean of all runs. What is weighted is the difference from it, or the metric's level would be noise
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

from rasp_tuner.errors import InvalidValue
from rasp_tuner.gain.versus_default import Gain
from rasp_tuner.policy.evaluate import WEIGHTS, leaf_of

LEAST_RUNS = 2  # of which a spread is known
LEAST_DEFAULT_RUNS = 20  # of which the mean is nearly normal, for an interval of a gain
MOST_UNCOVERED = 0.25  # beyond chance: the default did not run where others did, so that nothing is known of it there

Sum = Mapping[str, Any]  # as OutcomeSums.take gives it
Decides = Callable[[Any, Mapping[str, Any]], float]  # a context and parameters -> how likely they run there


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and the interval that holds the true one with the confidence that was asked for."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """What a policy would have come to, each run."""

    value: Estimate
    difference: Estimate  # from what ran
    runs: int  # by which it is judged
    covered: float  # share of its decisions that also ran: 1, but for chance. What did not run counts as the mean


@dataclass(frozen=True, slots=True)
class SettingValue:
    """What a setting came to in a leaf of a policy, each run."""

    policy: str
    leaf: int
    setting: int
    params: Mapping[str, Any]
    probability: float
    runs: int
    value: Estimate | None  # None: one run says nothing of its spread
    difference: Estimate | None  # from what is recommended in that leaf; None: unknown, or it is what is recommended


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
    had = value_of(drawn, metric, lambda _, params: float(params == default))
    by_share = all(_parts(one, metric)[0] > 0.0 for one in drawn) and had.value.mean > 0.0
    unit = had.value.mean if by_share else 1.0
    ends = (sign * had.difference.low / unit, sign * had.difference.high / unit)
    known = default_runs >= LEAST_DEFAULT_RUNS and abs(had.covered - 1.0) <= MOST_UNCOVERED
    low, high = (min(ends), max(ends)) if known else (None, None)
    return Gain("share" if by_share else "difference", sign * had.difference.mean / unit, low, high, sign < 0.0)


def value_of(
    sums: Iterable[Sum], metric: str, policy: Mapping[str, Any] | Decides, confidence: float = 0.95
) -> PolicyValue:
    """What a policy, or a function of context and parameters, would have come to where these sums were made.

    Unbiased, but for one part in the number of runs. Of a sum's contexts those that it kept stand for all.
    """
    decides = policy if callable(policy) else _decides(policy)
    drawn = [one for one in sums if one.get("probability")]
    runs = sum(one["count"] for one in drawn)
    if runs < LEAST_RUNS:
        raise InvalidValue(f"sums must hold at least {LEAST_RUNS} runs that were drawn with a probability, got {runs}")
    b = sum(_parts(one, metric)[0] for one in drawn) / runs
    weights = [_chance(decides, one) / one["probability"] for one in drawn]
    value = _weighted(drawn, weights, metric, b, confidence)
    moved = _weighted(drawn, [w - 1.0 for w in weights], metric, b, confidence)
    covered = sum(w * one["count"] for w, one in zip(weights, drawn, strict=True)) / runs
    return PolicyValue(Estimate(b + value.mean, b + value.low, b + value.high), moved, runs, covered)


def settings_compared(sums: Iterable[Sum], metric: str, confidence: float = 0.95) -> list[SettingValue]:
    """Every setting of every leaf that ran, in order; within a leaf keys are drawn, so that means are comparable."""
    cells: dict[tuple[str, int, int], list[Sum]] = {}
    for one in sums:
        if one.get("probability"):
            cells.setdefault((one["policy"], one["leaf"], one["setting"]), []).append(one)
    means = {place: _moments(own, metric) for place, own in cells.items()}
    found = []
    for place in sorted(cells):
        runs, mean, variance = means[place]
        usual = means.get((*place[:2], 0))
        value = _interval(mean, variance / runs, runs, confidence) if runs >= LEAST_RUNS else None
        difference = None
        if value is not None and usual is not None and place[2] and usual[0] >= LEAST_RUNS:
            error = variance / runs + usual[2] / usual[0]
            difference = _interval(mean - usual[1], error, min(runs, usual[0]), confidence)
        first = cells[place][0]
        found.append(SettingValue(*place, first["params"], first["probability"], runs, value, difference))
    return found


def _decides(policy: Mapping[str, Any]) -> Decides:
    def chance(context: Any, params: Mapping[str, Any]) -> float:
        leaf = leaf_of(policy, context)
        if leaf is None or policy.get("explore") is None:
            return float(params == (policy["default"] if leaf is None else leaf["params"]))
        return float(sum(one["weight"] for one in leaf["settings"] if one["params"] == params)) / WEIGHTS

    return chance


def _chance(decides: Decides, one: Sum) -> float:
    """q of a sum: its mean over the contexts that were kept."""
    contexts = one["contexts"] or [None]
    return sum(decides(context, one["params"]) for context in contexts) / len(contexts)


def _weighted(drawn: list[Sum], weights: list[float], metric: str, b: float, confidence: float) -> Estimate:
    """The mean over all runs of w (y - b)."""
    runs, total, squares = 0, 0.0, 0.0
    for one, w in zip(drawn, weights, strict=True):
        count, (sum_, squares_) = one["count"], _parts(one, metric)
        runs += count
        total += w * (sum_ - b * count)
        squares += w * w * (squares_ - 2.0 * b * sum_ + b * b * count)
    mean = total / runs
    return _interval(mean, max(squares / runs - mean * mean, 0.0) / (runs - 1), runs, confidence)


def _moments(own: list[Sum], metric: str) -> tuple[int, float, float]:
    """Runs, mean, and variance of a single run."""
    runs = sum(one["count"] for one in own)
    total, squares = (sum(_parts(one, metric)[i] for one in own) for i in (0, 1))
    mean = total / runs
    return runs, mean, max(squares - runs * mean * mean, 0.0) / max(runs - 1, 1)


def _parts(one: Sum, metric: str) -> tuple[float, float]:
    if metric not in one["metrics"]:
        raise InvalidValue(f"metric must be one of {', '.join(one['metrics'])}, got {metric!r}")
    return one["metrics"][metric]["sum"], one["metrics"][metric]["squares"]


def _interval(mean: float, variance: float, runs: int, confidence: float) -> Estimate:
    """By Student's t; its quantile by that of the normal, which is right to a percent from four runs on."""
    if not 0.0 < confidence < 1.0:
        raise InvalidValue(f"confidence must be between 0 and 1, got {confidence!r}")
    z, freedom = NormalDist().inv_cdf(0.5 + confidence / 2.0), max(runs - 1, 1)
    t = z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)
    wide = t * sqrt(variance)
    return Estimate(mean, mean - wide, mean + wide)
