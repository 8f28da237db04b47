"""The verdict: what the final comparison shows, in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rasp_tuner.tune.final import Pair
from rasp_tuner.tune.metric_sources import MetricSource
from rasp_tuner.tune.paired import Effect, effect
from rasp_tuner.tune.words import number_words

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


def judge(groups: Sequence[Sequence[Pair]], metrics: Mapping[str, MetricSource]) -> Verdict:
    """The verdict on pairs, one group for each situation."""
    pairs = [pair for group in groups for pair in group]
    groups = [stratum for group in groups for stratum in _strata(group)]
    if not pairs:
        return Verdict("untested", "not compared", {})
    failed = sum(pair.default is None for pair in pairs), sum(pair.recommended is None for pair in pairs)
    effects = _effects(groups, metrics)
    found = next(reversed(effects.values()), None) if len(metrics) > 1 else effects.get(next(iter(metrics)))
    if failed[0] != failed[1]:
        worse = failed[1] > failed[0]
        counts = f"{failed[1]} of {len(pairs)} runs failed with the recommendation, {failed[0]} with the default"
        words = f"worse: keep the default; {counts}" if worse else f"more reliable: {counts}"
        if found is not None and not worse:
            words += f"; where both ran: {effect_words(found, *_kind_of(metrics))}"
        outcome: Outcome = "worse" if worse else "better"
        return Verdict(outcome, words, effects, len(pairs), *failed)
    if found is None:
        return Verdict("same", "no difference can be shown: every run failed", effects, len(pairs), *failed)
    direction = _kind_of(metrics)[0]
    better = found.value < found.neutral if direction == "min" else found.value > found.neutral
    outcome = "same" if not found.is_clear else "better" if better else "worse"
    return Verdict(outcome, effect_words(found, *_kind_of(metrics)), effects, len(pairs), *failed)


def effect_words(found: Effect, direction: Literal["min", "max"], is_time: bool, several: bool) -> str:
    """An effect in words: "faster by 23% (18 to 27%)".

    >>> effect_words(Effect("ratio", 0.77, 0.73, 0.82, 20), "min", True, False)
    'faster by 23% (18 to 27%)'
    >>> effect_words(Effect("ratio", 0.99, 0.93, 1.04, 20), "min", True, False)
    'no difference can be shown: between 7.0% faster and 4.0% slower'
    """
    lower, higher = ("better", "worse") if several else ("faster", "slower") if is_time else ("lower", "higher")
    if not found.is_clear:
        if not math.isfinite(found.low + found.high) or found.kind == "difference":
            return f"no difference can be shown ({found.pairs} pair{'s' * (found.pairs != 1)})"
        return (
            f"no difference can be shown: between {_share(1 - found.low)} {lower} and {_share(found.high - 1)} {higher}"
        )
    word = lower if found.value < found.neutral else higher
    keep = "worse: keep the default; " if (found.value < found.neutral) != (direction == "min") else ""
    if found.kind == "difference":
        sizes = sorted(abs(x) for x in (found.low, found.high))
        return f"{keep}{word} by {number_words(abs(found.value))} ({' to '.join(map(number_words, sizes))})"
    low, high = sorted(abs(x - 1.0) for x in (found.low, found.high))
    bounds = f"{_share(low).rstrip('%')} to {_share(high)}"
    return f"{keep}{word} by {_share(abs(found.value - 1.0))} ({bounds})"


def ratio_words(found: Effect) -> str:
    """An effect as a number: "0.77 (0.73 to 0.82)".

    >>> ratio_words(Effect("ratio", 0.77, 0.73, 0.82, 20))
    '0.770 (0.730 to 0.820)'
    """
    if found.kind == "ratio":
        bounds = f"{found.low:.3f} to {found.high:.3f}" if math.isfinite(found.high) else "too few pairs"
        return f"{found.value:.3f} ({bounds})"
    return f"{found.value:+.3g} ({found.low:+.3g} to {found.high:+.3g})"


def _share(x: float) -> str:
    percent = 100.0 * x
    if abs(percent) >= 1000:
        return f"{percent:,.0f}%"
    return f"{percent:.0f}%" if abs(percent) >= 9.95 else f"{percent:.1f}%"


def _kind_of(metrics: Mapping[str, MetricSource]) -> tuple[Literal["min", "max"], bool, bool]:
    """Direction of the objective, whether it is a time, and whether it is made of several metrics."""
    if len(metrics) > 1:
        return "min", False, True
    source = next(iter(metrics.values()))
    return source.metric.direction, source.is_time, False


def _effects(groups: Sequence[Sequence[Pair]], metrics: Mapping[str, MetricSource]) -> dict[str, Effect]:
    found = {}
    both = [[(p.default, p.recommended) for p in group if p.default and p.recommended] for group in groups]
    for name in metrics:
        if (one := effect([[(d[name], r[name]) for d, r in group] for group in both])) is not None:
            found[name] = one
    if len(metrics) > 1 and (whole := effect([[(1.0, _cost(d, r, metrics)) for d, r in g] for g in both])) is not None:
        found["objective"] = whole
    return found


def _strata(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs by input, where each has enough for a deviation of its own; else together."""
    by_input: dict[str | None, list[Pair]] = {}
    for pair in pairs:
        by_input.setdefault(pair.input, []).append(pair)
    enough = all(
        sum(p.default is not None and p.recommended is not None for p in own) >= 2 for own in by_input.values()
    )
    return list(by_input.values()) if enough else [list(pairs)]


def _cost(default: Mapping[str, float], other: Mapping[str, float], metrics: Mapping[str, MetricSource]) -> float:
    """Several metrics as one ratio: their weighted geometric mean, below one where the recommendation is better."""
    total = 0.0
    for name, source in metrics.items():
        if default[name] <= 0.0 or other[name] <= 0.0:
            continue  # has no ratio: the others decide
        sign = 1.0 if source.metric.direction == "min" else -1.0
        total += sign * source.metric.weight * math.log(other[name] / default[name])
    return math.exp(total / sum(source.metric.weight for source in metrics.values()))


def gain_words(found: Effect | None, metrics: Mapping[str, MetricSource]) -> str:
    """A gain while it is being found, short: "-23% time_s (-27 to -18%)"."""
    name = next(iter(metrics))
    if found is None or found.kind == "difference" or not math.isfinite(found.high):
        return "not known yet"
    value, low, high = (100.0 * (x - 1.0) for x in (found.value, found.low, found.high))
    return f"{name} {value:+.0f}% ({low:+.0f} to {high:+.0f}%)"
