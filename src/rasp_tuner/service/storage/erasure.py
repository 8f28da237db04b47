"""Erasure: which records are to be forgotten, and the study as if they had never been.

A record is an ask with its answer, or an observation. What is left of the log is replayed by a new tuner under the rule
of study.py: it is asked in every context that is left, and where it answers otherwise than the log, the logged
parameters count. So the tuner is, bit for bit, one that was run on the log that is left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rasp_tuner.service.http_errors import Problem, invalid
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import Desk
from rasp_tuner.service.study.events import Event, ask_number
from rasp_tuner.service.study.live_study import LiveStudy

AT_THE_DESK = 200  # events that are replayed while everybody waits; more are replayed beside the writer

Range = tuple[float | None, float | None]  # low and high, both included; None: open


@dataclass(frozen=True, slots=True)
class Where:
    """Which records: those for which everything that is given holds."""

    after: float | None = None  # asked, answered or observed at this time or later
    before: float | None = None  # and before that time
    context: Mapping[str, Range] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # of the context's dimensions, for contexts given in order; "0", "1" if they have none
    ids: frozenset[int] = frozenset()  # numbers of asks; together with keys: either
    keys: frozenset[str] = frozenset()  # of observations

    def timely(self, at: float) -> bool:
        return (self.after is None or at >= self.after) and (self.before is None or at < self.before)

    def fits(self, event: Event) -> bool:
        """Whether an ask or observation is meant, time apart."""
        if (self.ids or self.keys) and event.ask not in self.ids and event.key not in self.keys:
            return False
        seen = event.body["context"]
        values = seen if isinstance(seen, Mapping) else dict(zip(self.names, seen or (), strict=False))
        return all(_inside(values[name], *limits) for name, limits in self.context.items())


@dataclass(slots=True)
class Sieve:
    """Two rounds over the events in their order: `look` at all of them, then `kept` says which stay."""

    where: Where
    asks: set[int] = field(default_factory=set)  # to be erased, with their answers
    seqs: set[int] = field(default_factory=set)  # of observations to be erased
    _fit: set[int] = field(default_factory=set)

    def look(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == "observe":
                if self.where.timely(event.at) and self.where.fits(event):
                    self.seqs.add(event.seq)
            elif event.ask is not None:
                if event.kind == "ask" and self.where.fits(event):
                    self._fit.add(event.ask)
                if event.ask in self._fit and self.where.timely(event.at):
                    self.asks.add(event.ask)

    def kept(self, event: Event) -> bool:
        return event.kind != "forgot" and event.ask not in self.asks and event.seq not in self.seqs

    @property
    def records(self) -> int:
        return len(self.asks) + len(self.seqs)


class Cancelled(Exception):
    """The server stops: nothing is erased now."""


class Remainder:
    """A study in the making: what is left of another one's log as it is now, and all that comes after."""

    def __init__(self, store: Store, old: LiveStudy, where: Where) -> None:
        self._store, self._sieve = store, Sieve(where)
        self._study, self._upto, self._handed, self._before = old.id, old.seq, old.handed, old.counts.erased
        self._live = LiveStudy(0, old.definition, old.created)
        self._events: list[Event] = []
        self.cancelled = False  # set it, from any thread, to end a replay

    @property
    def name(self) -> str:
        return self._live.definition.name

    @property
    def records(self) -> int:
        """How many are erased."""
        return self._sieve.records

    def derive(self) -> int:
        """Sift and replay what is on disk, in any thread; how many records are erased."""
        whole = list(self._store.tail(self._study, 0, self._upto))
        self._sieve.look(whole)
        if self.records:
            kept = [event for event in whole if self._sieve.kept(event)]
            at = kept[0].at if kept else self._live.created
            self._take(Event(1, "forgot", at, self._told(self._handed)))
            self._extend(whole)
        return self.records

    def catch_up(self) -> int:
        """Replay what came meanwhile, in any thread; how many records are erased."""
        self._extend(self._store.tail(self._study, self._upto))
        return self.records

    def finish(self, desk: Desk) -> bool:
        """Put it in the old study's place; False if so much came meanwhile that it must catch up first."""
        old = desk.study(self.name, writes=True)
        if old.id != self._study:
            raise Problem(409, "conflict", "the study was replaced meanwhile: nothing was erased, try again", "name")
        if old.seq - self._upto > AT_THE_DESK:
            return False
        self._extend(self._store.tail(self._study, self._upto))
        self._extend(desk.unsaved(old))
        live = self._live
        live.floor, live.counts.diverged = live.handed, 0  # what came meanwhile diverged for the same reason
        self._events[0] = replace(self._events[0], body=self._told(live.handed))
        desk.replace(live, self._events)
        return True

    def _told(self, handed: int) -> dict[str, Any]:
        return {"handed": handed, "records": self._before + self.records}

    def _extend(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.cancelled:
                raise Cancelled
            if self._sieve.kept(event):
                self._take(event)
            self._upto = event.seq

    def _take(self, event: Event) -> None:
        event = replace(event, seq=self._live.seq + 1)
        self._live.apply(event)
        self._events.append(event)


def where(wanted: Mapping[str, Any], live: LiveStudy) -> Where:
    """The filter of a request, or a 422: for nothing at all, or for what the study does not have."""
    if not wanted:
        raise invalid("say which records: after, before, context, ids or keys; DELETE takes the whole study")
    context = live.definition.context
    names = context if isinstance(context, list) else [str(i) for i in range(context or 0)]
    ranges = wanted.get("context", {})
    for name in ranges:
        if name not in names:
            raise invalid(f"context has no {name!r} in this study", f"context.{name}")
    limits = {name: (x[0], x[1]) if isinstance(x, list) else (x, x) for name, x in ranges.items()}
    numbers = {id: ask_number(id) for id in wanted.get("ids", ())}
    for id, number in numbers.items():
        if number is None:
            raise invalid(f"ids: {id!r} is no id of a suggestion", "ids")
    known = frozenset(number for number in numbers.values() if number is not None)
    return Where(
        wanted.get("after"), wanted.get("before"), limits, tuple(names), known, frozenset(wanted.get("keys", ()))
    )


def _inside(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
