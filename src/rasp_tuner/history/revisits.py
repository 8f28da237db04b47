"""Revisit: that a situation was met before, and what is known of how it went then. In words, without a claim that was
not measured.
"""

import time
from dataclasses import dataclass

from rasp_tuner.space import Params, Value

LEAST_SAVED = 3  # steps, and at least this share of those at first: less is not told from noise
LEAST_SHARE_SAVED = 0.5
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
SHOWN_SETTINGS = 4


@dataclass(frozen=True, slots=True)
class Revisit:
    """A known situation that has come back. `str()` of it is a sentence or three."""

    visits: int  # before this one
    last_step: int  # of them
    ago: int  # steps from then until it returned
    first_took: int | None = None  # steps it took at first until it had settled; None: not measured
    took: int | None = None  # the same this time; None: not yet, or not measured
    started_from: Params | None = None  # settings of the visit before that this one began with, or near to
    last_at: float | None = None  # when the visit before ended, in unix seconds; None without a clock
    at: float | None = None  # when it returned
    at_least: bool = False  # whether there may have been more visits, before the steps on record

    @property
    def saved(self) -> int | None:
        """Steps fewer than at first; None if that was not measured, or is too little to tell."""
        fewer = steps_saved(self.first_took, self.took)
        return None if fewer is None else int(fewer)

    def __str__(self) -> str:
        seen = f"Seen {'at least ' if self.at_least else ''}{_times(self.visits)} before, last {self._last()}."
        started = f" Started from the settings of then ({_settings(self.started_from)})." if self.started_from else ""
        return seen + started + self._recovery()

    def _last(self) -> str:
        if self.last_at is None or self.at is None:
            return f"{_steps(self.ago)} earlier"
        gap = max(self.at - self.last_at, 0.0)
        if gap < DAY_S:
            return f"{_steps(self.ago)} and {_duration(gap)} earlier"
        day = time.strftime("%A" if gap < WEEK_S else "%A, %d %B %Y", time.gmtime(self.last_at))
        return f"on {day} (UTC), {_duration(gap)} and {_steps(self.ago)} earlier"

    def _recovery(self) -> str:
        if not self.first_took:
            return ""
        first = f" At first it took about {_steps(self.first_took)} to settle"
        if self.took is None:
            return f"{first}."
        now = f"{first}, this time {self.took or 'none'}"
        return f"{now}: about {_steps(self.saved)} saved." if self.saved is not None else f"{now}."


def steps_saved(first: float | None, now: float | None) -> float | None:
    """Steps fewer than at first, if both were measured and they are enough to tell."""
    if first is None or now is None or first - now < max(LEAST_SAVED, LEAST_SHARE_SAVED * first):
        return None
    return first - now


def _settings(params: Params) -> str:
    shown = [f"{name}={_value(value)}" for name, value in list(params.items())[:SHOWN_SETTINGS]]
    return ", ".join(shown) + (", ..." if len(params) > SHOWN_SETTINGS else "")


def _value(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"


def _steps(count: int | None) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _duration(seconds: float) -> str:
    """In one unit, rounded.

    >>> [_duration(s) for s in (0.2, 59, 90, 5400, 200_000)]
    ['0 seconds', '59 seconds', '2 minutes', '2 hours', '2 days']
    """
    for unit, size in (("day", DAY_S), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0)):
        if seconds >= size or unit == "second":
            count = round(seconds / size)
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    raise AssertionError
