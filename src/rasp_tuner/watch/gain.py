"""Gains: measured, from steps with suggestions beside steps with the default; and forecast, for a shadow.

Measured: which steps run the default is drawn (schedule.py), and only steps of one mode are compared, so both sides are
spread alike over time. Each value is first divided by what the default was expected to give in its situation,
before the outcome was known: that removes what the load does and, since the order was drawn, prefers neither side.
Canaries and control instances are measured at the same time: their pairs are compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rasp_tuner.core.optimizer import Expected
from rasp_tuner.report.paired import Effect, effect, gain
from rasp_tuner.types import Direction

PAIRED = "pairs"  # of canaries and control instances
LEAST_STEPS = 3  # on either side, before a gain is told


class Outcome(NamedTuple):
    """The objective of one step."""

    group: str  # steps that can be compared: of a mode, or PAIRED
    suggested: bool
    value: float
    level: float | None  # expected of the default in this situation, before the outcome was known


class Forecast(NamedTuple):
    """What a recommendation is expected to gain over what runs: a share of it, positive where it is better."""

    gain: float
    half_width: float  # of the interval that holds it nine times in ten
    same: bool  # nothing better than what runs is known


def group_of(mode: str, has_canaries: bool) -> str:
    """Which steps those of a mode can be compared with."""
    return PAIRED if mode == "canary" and has_canaries else mode


def measured(outcomes: Sequence[Outcome], group: str) -> Effect | None:
    """Suggestions against the default, over the latest steps of a group; None while there are too few.

    Steps before anything was known of the default are left out as soon as there are enough others; so are those of
    which something below zero was expected, where no value ever is.
    """
    found = [one for one in outcomes if one.group == group]
    if group == PAIRED and found and not found[0].suggested:  # the other of its pair is too old to be kept
        found = found[1:]
    positive = all(one.value > 0.0 for one in found)
    known = [one for one in found if one.level is not None and (one.level > 0.0 or not positive)]
    if min(sum(one.suggested for one in known), sum(not one.suggested for one in known)) >= LEAST_STEPS:
        found = known
    adjusted = len(found) == len(known)
    sides: tuple[list[float], list[float]] = ([], [])
    for one in found:
        level = one.level if adjusted and one.level is not None else 1.0 if positive else 0.0
        sides[one.suggested].append(one.value / level if positive else one.value - level)
    default, suggested = sides
    if min(len(default), len(suggested)) < LEAST_STEPS:
        return None
    if group == PAIRED:
        pairs = list(zip(default, suggested, strict=True))
        return effect([pairs if positive else [(0.0, other - one) for one, other in pairs]])
    return gain({"": default}, [("", value) for value in suggested], ratios=positive)


def measured_words(found: Effect | None, name: str) -> str:
    """A measured gain, short.

    >>> measured_words(Effect("ratio", 0.77, 0.73, 0.82, 20), "p99_ms")
    'against the default: p99_ms -23% (-27 to -18%)'
    >>> measured_words(Effect("ratio", 0.9, 0.7, 1.1, 4), "p99_ms")
    'against the default: no difference shown yet'
    """
    if found is None or not found.is_clear:
        return "against the default: no difference shown yet"
    if found.kind == "ratio":
        value, low, high = (f"{100.0 * (x - 1.0):+.0f}" for x in (found.value, found.low, found.high))
        return f"against the default: {name} {value}% ({low} to {high}%)"
    return f"against the default: {name} {found.value:+.3g} ({found.low:+.3g} to {found.high:+.3g})"


def forecast(running: Expected, recommended: Expected, same: bool, direction: Direction) -> Forecast | None:
    """What a recommendation would gain; None where what runs is expected to give nothing to take a share of."""
    level = abs(running.mean)
    if same:
        return Forecast(0.0, 0.0, True)
    if level < 1e-300:
        return None
    sign = 1.0 if direction == "min" else -1.0
    halves = ((one.high - one.low) / 2.0 for one in (running, recommended))
    return Forecast(sign * (running.mean - recommended.mean) / level, math.hypot(*halves) / level, False)


@dataclass(frozen=True)
class ShadowGain:
    """What a shadow can say about what it would gain: by forecast only, and often nothing."""

    steps: int
    changed: int  # steps in which something better than what ran was known
    gain: float  # mean share over all steps
    half_width: float  # errors of forecasts do not cancel over steps: they share a model

    @property
    def is_clear(self) -> bool:
        return self.changed > 0 and self.gain - self.half_width > 0.0


def shadow_gain(forecasts: Sequence[Forecast]) -> ShadowGain:
    n = max(1, len(forecasts))
    return ShadowGain(
        len(forecasts),
        sum(not one.same for one in forecasts),
        math.fsum(one.gain for one in forecasts) / n,
        math.fsum(one.half_width for one in forecasts) / n,
    )


def shadow_words(found: ShadowGain, settings: int, name: str) -> str:
    """What going live would gain, in words; that it cannot be told is a usual answer.

    >>> shadow_words(ShadowGain(9, 0, 0.0, 0.0), 1, "p99_ms")
    'cannot tell what going live would gain: only one setting has run, and nothing is known of others'
    """
    if settings <= 1:
        return "cannot tell what going live would gain: only one setting has run, and nothing is known of others"
    if not found.changed:
        return f"nothing better than what runs is known, of {settings} settings that have run"
    low, high = found.gain - found.half_width, found.gain + found.half_width
    where = f"in {found.changed} of {found.steps} steps something else is recommended"
    if not found.is_clear:
        return (
            f"cannot tell what going live would gain: {name} between {-high:+.0%} and {-low:+.0%} by forecast; {where}"
        )
    return (
        f"going live would make {name} better by {found.gain:.0%} ({low:.0%} to {high:.0%}) by forecast, less what"
        f" exploring costs; {where}"
    )
