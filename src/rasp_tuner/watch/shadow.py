"""A shadow's forecast: what going live would gain. Nothing of it has run, so it is no measured gain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rasp_tuner.gain.versus_default import NORMAL_90, NORMAL_95
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.types import Direction


class ExpectedGain(NamedTuple):
    """What a recommendation is expected to gain over what runs: a share of it, positive where it is better."""

    gain: float
    half_width: float  # of its interval of 95%
    same: bool  # nothing better than what runs is known


def forecast(running: Expected, recommended: Expected, same: bool, direction: Direction) -> ExpectedGain | None:
    """What a recommendation would gain; None where what runs is expected to give nothing to take a share of."""
    level = abs(running.mean)
    if same:
        return ExpectedGain(0.0, 0.0, True)
    if level < 1e-300:
        return None
    sign = 1.0 if direction == "min" else -1.0
    halves = (0.5 * (one.high - one.low) / NORMAL_90 * NORMAL_95 for one in (running, recommended))
    return ExpectedGain(sign * (running.mean - recommended.mean) / level, math.hypot(*halves) / level, False)


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


def shadow_gain(forecasts: Sequence[ExpectedGain]) -> ShadowGain:
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
