"""Erasure: selects the records to erase and rebuilds the study without them.

A record is an ask with its answer, or an observation. A new tuner replays the remaining log by the rule of
live_study.py: it is asked in every remaining context, and where its answer differs from the log, the logged parameters
count. So the new tuner equals, bit for bit, a tuner that was run on the remaining log.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rasp_tuner.contexts import same_text
from rasp_tuner.service.service_errors import Conflict, InvalidRequest
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study.event_time import latest_times
from rasp_tuner.service.study.events import Event, ask_number
from rasp_tuner.service.study.live_study import LiveStudy

MAX_BLOCKING_EVENTS = 200  # replayed while all requests wait; more are replayed outside the writer


@dataclass(frozen=True, slots=True)
class ErasureQuery:
    """Selects the records that meet all given conditions."""

    after: float | None = None  # asked, answered or observed at this time or later
    before: float | None = None  # and before that time
    context: Mapping[str, Any] = field(default_factory=dict)  # by name a value, or [low, high]; None: no limit
    names: tuple[str, ...] = ()  # of the context dimensions, in order; "0", "1", ... if they have none
    ids: frozenset[int] = frozenset()  # numbers of asks; with `keys` too, one of the two must match
    keys: frozenset[str] = frozenset()  # of observations

    def in_time_range(self, at: float) -> bool:
        return (self.after is None or at >= self.after) and (self.before is None or at < self.before)

    def matches(self, event: Event) -> bool:
        """Whether an ask, an observation or sums are selected, apart from their time.

        Sums cannot be erased in part: they are, if any of their contexts is selected.
        """
        if (self.ids or self.keys) and event.ask not in self.ids and event.key not in self.keys:
            return False
        if event.kind == "sums":
            found = [context for one in event.body["sums"] for context in one["contexts"]] or [None]
        else:
            found = [event.body["context"]]
        return any(map(self._is_in, found))

    def _is_in(self, seen: Any) -> bool:
        values = seen if isinstance(seen, Mapping) else dict(zip(self.names, seen or (), strict=False))
        return all(_is_meant(values.get(name), wanted) for name, wanted in self.context.items())


@dataclass(slots=True)
class RecordFilter:
    """Two passes over the events in order: first `scan` all of them, then `keeps` says which stay."""

    query: ErasureQuery
    asks: set[int] = field(default_factory=set)  # to be erased, with their answers
    seqs: set[int] = field(default_factory=set)  # of observations and sums to be erased
    _matching: set[int] = field(default_factory=set)

    def scan(self, events: Sequence[Event], now: float) -> None:
        for event, at in zip(events, latest_times(events, now), strict=True):
            if event.kind in ("observe", "sums"):
                if self.query.in_time_range(at) and self.query.matches(event):
                    self.seqs.add(event.seq)
            elif event.ask is not None:
                if event.kind == "ask" and self.query.matches(event):
                    self._matching.add(event.ask)
                if event.ask in self._matching and self.query.in_time_range(at):
                    self.asks.add(event.ask)

    def keeps(self, event: Event) -> bool:
        return event.kind != "forgot" and event.ask not in self.asks and event.seq not in self.seqs

    @property
    def count(self) -> int:
        return len(self.asks) + len(self.seqs)


class Replay:
    """A study rebuilt from the remaining log of another, up to date with events that arrive meanwhile."""

    def __init__(self, store: Store, old: LiveStudy, query: ErasureQuery) -> None:
        self._store, self._filter = store, RecordFilter(query)
        self._study, self._replayed_seq = old.id, old.seq
        self._next_ask, self._erased_before = old.next_ask, old.counts.erased
        self._live = LiveStudy(0, old.definition, old.created)
        self._events: list[Event] = []

    @property
    def name(self) -> str:
        return self._live.definition.name

    @property
    def erased(self) -> int:
        """How many records are erased."""
        return self._filter.count

    def run(self) -> int:
        """Filter and replay the log on disk, in any thread; returns how many records are erased."""
        whole = list(self._store.events_after(self._study, 0, self._replayed_seq))
        self._filter.scan(whole, time.time())
        if self.erased:
            kept = [event for event in whole if self._filter.keeps(event)]
            at = kept[0].at if kept else self._live.created
            self._append(Event(1, "forgot", at, self._erasure_body(self._next_ask)))
            self._extend(whole)
        return self.erased

    def catch_up(self) -> int:
        """Replay events that arrived meanwhile, in any thread; returns how many records are erased."""
        self._extend(self._store.events_after(self._study, self._replayed_seq))
        return self.erased

    def finish(self, work: UnitOfWork) -> bool:
        """Replace the old study; False if so many events arrived meanwhile that it must catch up first."""
        old = work.study(self.name, writes=True)
        if old.id != self._study:
            raise Conflict("the study was replaced meanwhile: nothing was erased, try again", "name")
        if old.seq - self._replayed_seq > MAX_BLOCKING_EVENTS:
            return False
        self._extend(self._store.events_after(self._study, self._replayed_seq))
        self._extend(work.uncommitted_events(old))
        live = self._live
        live.erased_below, live.counts.diverged = (
            live.next_ask,
            0,
        )  # new asks diverged because of it
        self._events[0] = replace(self._events[0], body=self._erasure_body(live.next_ask))
        work.replace_study(live, self._events)
        return True

    def _erasure_body(self, next_ask: int) -> dict[str, Any]:
        return {"handed": next_ask, "records": self._erased_before + self.erased}

    def _extend(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._filter.keeps(event):
                self._append(event)
            self._replayed_seq = event.seq

    def _append(self, event: Event) -> None:
        event = replace(event, seq=self._live.seq + 1)
        self._live.apply(event)
        self._events.append(event)


def erasure_query(wanted: Mapping[str, Any], live: LiveStudy) -> ErasureQuery:
    """The query of a request; an InvalidRequest if it is empty or names something the study does not have."""
    if not wanted:
        raise InvalidRequest("say which records: after, before, context, ids or keys; DELETE takes the whole study")
    context = live.definition.context
    names = list(context) if isinstance(context, dict | list) else [str(i) for i in range(context or 0)]
    ranges = wanted.get("context", {})
    for name in ranges:
        if name not in names:
            raise InvalidRequest(f"context has no {name!r} in this study", f"context.{name}")
    numbers = {id: ask_number(id) for id in wanted.get("ids", ())}
    for id, number in numbers.items():
        if number is None:
            raise InvalidRequest(f"ids: {id!r} is no id of a suggestion", "ids")
    known = frozenset(number for number in numbers.values() if number is not None)
    return ErasureQuery(
        wanted.get("after"), wanted.get("before"), ranges, tuple(names), known, frozenset(wanted.get("keys", ()))
    )


def _is_meant(value: object, wanted: object) -> bool:
    """Whether a value of a context is the wanted one, or a number within the wanted range."""
    if not isinstance(wanted, list | tuple):
        return same_text(value, wanted)
    low, high = wanted
    return isinstance(value, int | float) and (low is None or value >= low) and (high is None or value <= high)
