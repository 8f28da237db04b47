"""The times of events, where the machine's clock jumps: forward by a year, say, and back.

Events are in the order in which they happened, so an event did not happen later than any that follows it. A clock that
is put back by a little is waited for: the times stand still. If it is put back by more, they follow it.
"""

import logging
from collections.abc import Sequence

from rasp_tuner.service.study.events import Event

MAX_WAIT_S = 60.0  # that times stand still until the clock has caught up

log = logging.getLogger("rasp_tuner.serve")


def next_time(now: float, last: float | None, study: str) -> float:
    """The time of an event that happens now, after one at `last`."""
    if last is None or now >= last:
        return now
    if last - now <= MAX_WAIT_S:
        return last
    log.warning("the clock went back by %.0f s: study %r goes on with the new time", last - now, study)
    return now


def latest_times(events: Sequence[Event], now: float) -> list[float]:
    """When each event happened at the latest: not after now, and not after any that follows it."""
    times, least = [], now
    for event in reversed(events):
        least = min(least, event.at)
        times.append(least)
    return times[::-1]
