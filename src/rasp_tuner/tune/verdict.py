"""The verdict: what the final comparison shows, in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rasp_tuner.gain.versus_default import LARGEST_LOG, LEVEL
from rasp_tuner.page.words import TIMES_FROM, counted, number_words, times_words
from rasp_tuner.report.paired import Effect, effect
from rasp_tuner.tune.metric_sources import MetricSource
from rasp_tuner.tune.paired_comparison import PairedRun
from rasp_tuner.types import LIMIT_KEPT

KEEP = "worse: keep the default; "
LEAST_RATIO = 1e-3  # of the default's value: below, a cost hardly falls any more, as zero has no logarithm
Outcome = Literal["better", "same", "worse", "default", "untested"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, over all situations or in one."""

    outcome: Outcome
    words: str
    effects: dict[str, Effect]  # of each metric, and of "objective" where there are several
    pairs: int = 0
    failed_default: int = 0
    failed_recommended: int = 0


def judge(
    groups: Sequence[Sequence[PairedRun]], metrics: Mapping[str, MetricSource], default_ran: bool = True
) -> Verdict:
    """The verdict on pairs, one group for each situation: first whether runs fail, then limits, then the objective.

    `default_ran` is whether any run of the default was fine before.
    """
    pairs = [pair for group in groups for pair in group]
    if not pairs:
        return Verdict("untested", "not compared", {})
    goals = goals_of(metrics)
    effects = _effects([stratum for group in groups for stratum in _strata(group)], metrics, goals)
    failed = sum(pair.default is None for pair in pairs), sum(pair.recommended is None for pair in pairs)
    counts = len(pairs), *failed
    found = main_effect(effects, goals)
    nothing = "every run failed" if set(failed) == {len(pairs)} else "in no pair both ran"
    said = nothing if found is None else effect_words(found, *_kind_of(goals))
    beside = "" if found is None else f"; where both ran: {said.removeprefix(KEEP)}"  # where something else decides
    for outcome, reason in (_by_failures(pairs, default_ran), _by_limits(pairs, metrics)):
        if outcome == "worse":
            return Verdict("worse", f"{KEEP}{reason}", effects, *counts)
        if outcome == "better":
            return Verdict("better", f"{reason}{beside}", effects, *counts)
    if found is None:
        return Verdict("same", f"no difference can be shown: {said}", effects, *counts)
    lower = found.value < found.neutral
    better = lower != is_upwards(goals)
    kept = _by_limits(pairs, metrics)[1]
    words = f"{said}; {kept}" if kept else said
    return Verdict("same" if not found.is_clear else "better" if better else "worse", words, effects, *counts)


def is_ahead(verdict: Verdict, metrics: Mapping[str, MetricSource]) -> bool:
    """Whether the recommendation came out better than the default, clearly or not."""
    found = main_effect(verdict.effects, goals_of(metrics))
    return found is not None and (found.value < found.neutral) == (not is_upwards(goals_of(metrics)))


def main_effect(effects: Mapping[str, Effect], goals: Mapping[str, MetricSource]) -> Effect | None:
    """That of the one metric to be improved, or of several together."""
    return effects.get("objective" if len(goals) > 1 else next(iter(goals)))


def is_upwards(goals: Mapping[str, MetricSource]) -> bool:
    """Whether more is better; several metrics are one cost."""
    return len(goals) == 1 and next(iter(goals.values())).metric.direction == "max"


def goals_of(metrics: Mapping[str, MetricSource]) -> dict[str, MetricSource]:
    """The metrics that are to be improved; those with a weight of zero only have a limit to keep."""
    return {name: source for name, source in metrics.items() if source.metric.weight > 0.0} or dict(metrics)


def _by_failures(pairs: Sequence[PairedRun], default_ran: bool) -> tuple[Outcome, str]:
    """Worse if the recommendation fails more often; better only if chance does not explain that the default does.

    Few pairs are enough where the default never ran, neither in them nor before, and the recommendation always did.
    """
    default, other = (
        sum(side is None for side in sides) for sides in zip(*((p.default, p.recommended) for p in pairs), strict=True)
    )
    words = f"{other} of {len(pairs)} runs failed with the recommendation, {default} with the default"
    if other > default:
        return "worse", words
    alone = sum(p.default is None and p.recommended is not None for p in pairs)
    against = sum(p.recommended is None and p.default is not None for p in pairs)
    chance = 2.0 * sum(math.comb(alone + against, k) for k in range(against + 1)) / 2.0 ** (alone + against)
    never = not default_ran and (default, other) == (len(pairs), 0)
    return ("better", f"more reliable: {words}") if never or chance <= 1.0 - LEVEL else ("same", "")


def _by_limits(pairs: Sequence[PairedRun], metrics: Mapping[str, MetricSource]) -> tuple[Outcome, str]:
    """Worse if the recommendation breaks a limit; better if it keeps one that the default breaks."""
    said: list[str] = []
    outcome: Outcome = "same"
    both = [(p.default, p.recommended) for p in pairs if p.default is not None and p.recommended is not None]
    for name, source in metrics.items():
        if source.metric.limit is None or not both:
            continue
        broken = [sum(source.metric.breaks(pair[side][name], pair[0][name]) for pair in both) for side in (0, 1)]
        allowed = math.ceil((1.0 - LIMIT_KEPT) * len(both))
        said.append(f"{name} within its limit in {len(both) - broken[1]} of {len(both)} runs")
        if broken[1] > allowed and broken[1] >= broken[0]:
            return "worse", said[-1]
        if broken[0] > allowed >= broken[1]:
            outcome = "better"
            said[-1] += f", with the default in {len(both) - broken[0]}"
    return outcome, "; ".join(said)


def effect_words(found: Effect, direction: Literal["min", "max"], is_time: bool, several: bool) -> str:
    """An effect in words: "faster by 23% (18 to 27%)".

    >>> effect_words(Effect("ratio", 0.77, 0.73, 0.82, 20), "min", True, False)
    'faster by 23% (18 to 27%)'
    >>> effect_words(Effect("ratio", 0.1431, 0.1423, 0.1442, 20), "min", True, False)
    'faster by 85.7% (85.6 to 85.8%)'
    >>> effect_words(Effect("ratio", 0.99, 0.93, 1.04, 20), "min", True, False)
    'no difference can be shown: between 7.0% faster and 4.0% slower'
    >>> effect_words(Effect("ratio", 21.2, 19.8, 22.7, 20), "max", False, False)
    'higher: 21 times the default (20 to 23)'
    >>> effect_words(Effect("ratio", 4e-5, 3.8e-5, 4.4e-5, 20), "min", False, False)
    'lower: 4e-05 times the default (3.8e-05 to 4.4e-05)'
    >>> effect_words(Effect("ratio", 1.5, 0.93, 4.04, 20), "min", True, False)
    'no difference can be shown: between 7.0% faster and 4 times the default'
    """
    lower, higher = ("better", "worse") if several else ("faster", "slower") if is_time else ("lower", "higher")
    if not found.is_clear:
        if not math.isfinite(found.low + found.high) or found.kind == "difference":
            return f"no difference can be shown ({counted(found.pairs, 'pair')})"
        most = f"{times_words(found.high)} the default"
        if found.high < TIMES_FROM:
            most = f"{_share(found.high - 1)} {higher}"
        return f"no difference can be shown: between {_share(1 - found.low)} {lower} and {most}"
    word = lower if found.value < found.neutral else higher
    keep = KEEP if (found.value < found.neutral) != (direction == "min") else ""
    if found.kind == "difference":
        sizes = sorted(abs(x) for x in (found.low, found.high))
        return f"{keep}{word} by {number_words(abs(found.value))} ({' to '.join(map(number_words, sizes))})"
    if not LEAST_RATIO <= found.value < TIMES_FROM:  # as percent it would be long, or 100% whatever it is
        ends = " to ".join(times_words(x).removesuffix(" times") for x in (found.low, found.high))
        return f"{keep}{word}: {times_words(found.value)} the default ({ends})"
    low, high = sorted(abs(x - 1.0) for x in (found.low, found.high))
    fine = _share(low) == _share(high) and _share(low, True) != _share(
        high, True
    )  # one digit more, where two bounds would read alike
    bounds = f"{_share(low, fine).rstrip('%')} to {_share(high, fine)}"
    return f"{keep}{word} by {_share(abs(found.value - 1.0), fine)} ({bounds})"


def ratio_words(found: Effect) -> str:
    """An effect as a number: "0.77 (0.73 to 0.82)".

    >>> ratio_words(Effect("ratio", 0.77, 0.73, 0.82, 20))
    '0.770 (0.730 to 0.820)'
    """
    if found.kind == "ratio":
        digits = ".3f" if found.value >= 0.1 else ".3g"
        bounds = f"{found.low:{digits}} to {found.high:{digits}}" if math.isfinite(found.high) else "too few pairs"
        return f"{found.value:{digits}} ({bounds})"
    return f"{found.value:+.3g} ({found.low:+.3g} to {found.high:+.3g})"


def _share(x: float, fine: bool = False) -> str:
    percent = 100.0 * x
    if abs(percent) >= 1000:
        return f"{percent:,.0f}%"
    plain = (9.95 <= abs(percent) < 95.0 and not fine) or abs(percent) > 100.0
    return f"{percent:.0f}%" if plain else f"{percent:.1f}%"


def _kind_of(goals: Mapping[str, MetricSource]) -> tuple[Literal["min", "max"], bool, bool]:
    """Direction of the objective, whether it is a time, and whether it is made of several metrics."""
    if len(goals) > 1:
        return "min", False, True
    source = next(iter(goals.values()))
    return source.metric.direction, source.is_time, False


def _effects(
    groups: Sequence[Sequence[PairedRun]], metrics: Mapping[str, MetricSource], goals: Mapping[str, MetricSource]
) -> dict[str, Effect]:
    found = {}
    both = [[(p.default, p.recommended) for p in group if p.default and p.recommended] for group in groups]
    for name in metrics:
        if (one := effect([[(d[name], r[name]) for d, r in group] for group in both])) is not None:
            found[name] = one
    ratios = [[(1.0, math.exp(min(log_cost(d, r, goals), LARGEST_LOG))) for d, r in group] for group in both]
    if len(goals) > 1 and (whole := effect(ratios)) is not None:
        found["objective"] = whole
    return found


def _strata(pairs: Sequence[PairedRun]) -> list[list[PairedRun]]:
    """Pairs by input, where each has enough for a deviation of its own; else together."""
    by_input: dict[str | None, list[PairedRun]] = {}
    for pair in pairs:
        by_input.setdefault(pair.input, []).append(pair)
    enough = all(
        sum(p.default is not None and p.recommended is not None for p in own) >= 2 for own in by_input.values()
    )
    return list(by_input.values()) if enough else [list(pairs)]


def log_cost(default: Mapping[str, float], other: Mapping[str, float], metrics: Mapping[str, MetricSource]) -> float:
    """The logarithm of several metrics as one ratio, their weighted geometric mean: below 0 is better than the default.

    A metric may be zero or less: the more it falls, the lower the cost.

    >>> from rasp_tuner.tune.metric_sources import metric_of
    >>> errors = {"errors": metric_of("errors", "min")}
    >>> [round(log_cost({"errors": 3.0}, {"errors": e}, errors), 1) for e in (6.0, 3.0, 1.0, 0.0, -3.0)]
    [0.7, 0.0, -1.1, -6.9, -7.9]
    >>> [round(log_cost({"errors": 0.0}, {"errors": e}, errors), 1) for e in (6.0, 1.0, 0.0)]
    [3.5, 1.9, 0.0]
    """
    total = 0.0
    for name, source in metrics.items():
        total += source.metric.sign * source.metric.weight * _apart(default[name], other[name])
    return total / sum(source.metric.weight for source in metrics.values())


def _apart(default: float, other: float) -> float:
    """By how much a value is above the default's; its logarithm where both are positive."""
    if default > 0.0:
        ratio = other / default
        if ratio >= LEAST_RATIO:
            return math.log(ratio)
        part = math.log(LEAST_RATIO) / math.log(ratio) if ratio > 0.0 else 0.0  # 1 at the least ratio, 0 at zero
        return math.log(LEAST_RATIO) + LEAST_RATIO * (part - 1.0) + min(ratio, 0.0)
    if default < 0.0:
        return (other - default) / -default
    return math.copysign(1.0 + math.asinh(abs(other)), other) if other else 0.0  # zero has no scale


def keeps_limits(found: Mapping[str, float], default: Mapping[str, float], metrics: Mapping[str, MetricSource]) -> bool:
    """Whether one run keeps every limit, where the default comes to these values."""
    limited = {name: source.metric for name, source in metrics.items() if source.metric.limit is not None}
    return not any(metric.breaks(found[name], default.get(name)) for name, metric in limited.items())
