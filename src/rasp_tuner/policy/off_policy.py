"""What other settings, or another policy, would have come to, by the sums of a policy that explores. Nothing runs anew.

    found = value_of(sums, "p99_ms", new_policy)       # had it decided in the place of those that did
    for one in settings_compared(sums, "p99_ms"):      # what each setting of a leaf came to, beside what is recommended
        ...

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
from rasp_tuner.policy.evaluate import WEIGHTS, leaf_of

LEAST_RUNS = 2  # of which a spread is known

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
