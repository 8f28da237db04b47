"""The times of events, where the machine's clock jumps: forward by a year, say, and back.

Events are in the order in which they happened, so an event did not happen later than any that follows it. A clock that
is put back by a little is waited for: the times stand still. If it is put back by more, they follow it.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from rasp_tuner.service.study.events import Event

MAX_WAIT_S = 60.0  # that times stand still until the clock has caught up
TTL_SLACK = 0.05  # share of `ttl_s` that a record may live longer: an erasure replays the whole log

log = logging.getLogger("rasp_tuner.serve")


def next_time(now: float, last: float | None, study: str) -> float:
    """The time of an event that happens now, after one at `last`."""
    if last is None or now >= last:
        return now
    if last - now <= MAX_WAIT_S:
        return last
    log.warning("the clock went back by %.0f s: study %r goes on with the new time", last - now, study)
    return now


def latest_times(events: Sequence[Event], known: tuple[int, float] | None) -> list[float]:
    """When each event happened at the latest; `known`: that events up to a number happened before a time."""
    times, least = [], float("inf")
    for event in reversed(events):
        if known is not None and event.seq == known[0]:
            least = min(least, known[1])
        least = min(least, event.at)
        times.append(least)
    return times[::-1]


class Aged(Protocol):
    """A study, as far as the age of its records goes."""

    seq: int
    last_at: float | None  # of its latest event
    first_at: float | None  # of its oldest record, at the latest
    known_time: tuple[int, float] | None  # events up to a number happened before this


def has_expired_records(study: Aged, ttl_s: float | None, now: float) -> bool:
    """Whether a record is so old that erasing it is worth a replay; notes when the clock was found to be ahead."""
    if study.last_at is not None and study.last_at > now and (study.known_time or (0, 0.0))[0] < study.seq:
        study.known_time = study.seq, now
    first = study.first_at if study.known_time is None else min(study.first_at or now, study.known_time[1])
    return ttl_s is not None and first is not None and now - first > ttl_s * (1.0 + TTL_SLACK)
