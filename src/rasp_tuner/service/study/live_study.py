"""LiveStudy: a tuner, what it was asked and told, and the history of it, all moved by events.

Time comes from the event and every number from its JSON, so replaying a log gives, bit for bit, the study that wrote
it. An order returns the event to be logged, or None where nothing happened; a refused one changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

from rasp_tuner.core.checks import whole
from rasp_tuner.errors import ExpiredSuggestion, UnknownSuggestion
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event, Kind, ask_id, ask_number
from rasp_tuner.service.study.history import History
from rasp_tuner.space import Space
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation

RECENT = 200  # suggestions listed
SLACK = 0.05  # of `ttl_s`, by which a record may outlive it: an erasure replays the whole log
ANSWERED = 4_096  # answers and keys kept at hand; older ones are looked up in the log

Status = Literal["pending", "told", "failed"]


class Log(Protocol):
    """The study's log on disk, for what memory has let go."""

    def of_ask(self, number: int) -> list[Event]:
        """The ask and, if there is one, its answer."""

    def of_key(self, key: str) -> Event | None:
        """The observation under this key."""


@dataclass(frozen=True, slots=True)
class Record:
    """A suggestion and what came of it."""

    number: int
    asked_at: float
    context: Any
    params: dict[str, Any]
    status: Status = "pending"
    metrics: dict[str, float] | None = None
    reason: str | None = None
    late: bool = False
    foreign: bool = False  # the tuner, replayed, would have answered otherwise: the logged parameters count
    inner: int | None = None  # the tuner's own number of it, which is another once records were erased


@dataclass(slots=True)
class Counts:
    asks: int = 0
    tells: int = 0
    failures: int = 0
    observations: int = 0
    late: int = 0
    dropped: int = 0  # unanswered asks that made room for newer ones, and are unanswered still
    diverged: int = 0  # replayed asks that came out otherwise, though nothing was erased since
    erased: int = 0  # records


class LiveStudy:
    """One study in memory; belongs to the writer's thread."""

    def __init__(self, id: int, definition: StudyDefinition, created: float, tuner: Tuner | None = None) -> None:
        self.id, self.definition, self.created = id, definition, created
        self.tuner = definition.tuner() if tuner is None else tuner
        self.history = History(definition, self.tuner.experts)
        self.seq = 0
        self.last_at: float | None = None
        self.first_at: float | None = None  # of the oldest record
        self.handed = 0  # the number of the next ask
        self.floor = 0  # numbers below it may be missing: their records were erased
        self.counts = Counts()
        self.pending: dict[int, Record] = {}  # in order of asking, as the tuner's ledger
        self.recent: dict[int, Record] = {}
        self._answers: dict[int, Record] = {}
        self._observed: dict[str, Event] = {}

    # orders

    def ask(self, context: Any, at: float) -> Event:
        """Asks the tuner; the event holds the answer."""
        suggestion = self.tuner.ask(context)
        event = self._event("ask", at, {"context": context, "params": suggestion.params}, ask=self.handed)
        self._asked(event, suggestion.id, foreign=False)
        return event

    def tell(self, id: str, at: float, log: Log, metrics: dict[str, float] | None, reason: str = "") -> Event | Record:
        """The event to log, or the record of the same answer given before; `metrics` None: it failed."""
        number = ask_number(id)
        if number is None:
            raise _unknown(id)
        record = self.pending.get(number)
        body: dict[str, Any] = {"reason": reason} if metrics is None else {"metrics": metrics}
        if record is None:
            record = self._answers.get(number) or self._from_log(number, log)
            if record.status != "pending":
                return _same(record, metrics, reason)
            body |= {"asked_at": record.asked_at, "context": record.context, "params": record.params}
        event = self._event("failed" if metrics is None else "tell", at, body, ask=number)
        self.apply(event)
        return event

    def observe(
        self, context: Any, params: dict[str, Any], metrics: dict[str, float], key: str | None, at: float, log: Log
    ) -> Event | None:
        """The event to log, or None if this key was observed before."""
        body = {"context": context, "params": params, "metrics": metrics}
        if key is not None:
            before = self._observed.get(key) or log.of_key(key)
            if before is not None:
                if before.body != body:
                    raise Problem(409, "conflict", f"the key {key!r} was observed before with other values", "key")
                return None
        event = self._event("observe", at, body, key=key)
        self.apply(event)
        return event

    def freeze(self, frozen: bool, at: float) -> Event | None:
        """The event to log, or None if it is so already."""
        if self.tuner.frozen == frozen:
            return None
        event = self._event("freeze" if frozen else "unfreeze", at, {})
        self.apply(event)
        return event

    # replay

    def apply(self, event: Event) -> None:
        """Do what the event says; raises before anything has changed."""
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} cannot follow event {self.seq}")
        getattr(self, f"_apply_{event.kind}")(event)

    def _apply_ask(self, event: Event) -> None:
        if event.ask is None or event.ask >= self.floor:
            if event.ask != self.handed:
                raise ValueError(f"event {event.seq}: ask {event.ask} where {self.handed} is next")
        elif event.ask < self._lowest:
            raise ValueError(f"event {event.seq}: ask {event.ask} where {self._lowest} may be next")
        suggestion = self.tuner.ask(event.body["context"])
        foreign = suggestion.params != event.body["params"]
        if foreign:
            Space.from_json(self.definition.space).to_unit(event.body["params"])  # legal at least
        self._asked(event, suggestion.id, foreign)

    def _apply_forgot(self, event: Event) -> None:
        if event.seq != 1:
            raise ValueError(f"event {event.seq}: only the first of a log can tell of what was erased")
        self.handed = self.floor = whole("handed", event.body["handed"], 0, 2**62)
        self.counts.erased = whole("records", event.body["records"], 0, 2**62)
        self._took(event)

    def _apply_tell(self, event: Event) -> None:
        record = self._asked_for(event)
        metrics = event.body["metrics"]
        expected = self.history.expectation(self.tuner, record.context)
        why = self._learn(record, lambda id: self.tuner.tell(id, metrics), metrics)
        late = self._answered(event, replace(record, status="told", metrics=metrics))
        self.counts.tells += 1
        self.history.learned(event.at, record.context, record.params, metrics, why, expected, late=late)

    def _apply_failed(self, event: Event) -> None:
        record = self._asked_for(event)
        reason = event.body["reason"]
        why = self._learn(record, lambda id: self.tuner.tell_failed(id, reason), None)
        late = self._answered(event, replace(record, status="failed", reason=reason))
        self.counts.failures += 1
        self.history.learned(event.at, record.context, record.params, None, why, None, late=late)

    def _apply_observe(self, event: Event) -> None:
        context, params, metrics = event.body["context"], event.body["params"], event.body["metrics"]
        expected = self.history.expectation(self.tuner, context)
        self.tuner.observe(context, params, metrics)
        self._took(event, record=True)
        self.counts.observations += 1
        if event.key is not None:
            _put(self._observed, event.key, event, ANSWERED)
        self.history.learned(event.at, context, params, metrics, None, expected)

    def _apply_freeze(self, event: Event) -> None:
        self.tuner.freeze()
        self._took(event)
        self.history.noted(event.at, "freeze")

    def _apply_unfreeze(self, event: Event) -> None:
        self.tuner.unfreeze()
        self._took(event)
        self.history.noted(event.at, "unfreeze")

    # views

    def expires_at(self, record: Record) -> float:
        return record.asked_at + self.definition.lease_s

    def outlived(self, now: float) -> bool:
        """Whether some record is so much older than `ttl_s` that it is worth replaying the others to be rid of it."""
        ttl = self.definition.ttl_s
        return ttl is not None and self.first_at is not None and now - self.first_at > ttl * (1.0 + SLACK)

    def answer_was_late(self, event: Event) -> bool:
        """Of an answer that was just taken."""
        return event.ask is not None and self._answers[event.ask].late

    def overdue(self, now: float) -> int:
        """How many pending asks have outlived their lease; they are in order of asking."""
        count = 0
        for record in self.pending.values():
            if self.expires_at(record) >= now:
                break
            count += 1
        return count

    def view(self, now: float) -> dict[str, Any]:
        overdue, counts = self.overdue(now), self.counts
        return {
            **self.definition.to_wire(),
            "created": self.created,
            "frozen": self.tuner.frozen,
            "asks": counts.asks,
            "tells": counts.tells,
            "failures": counts.failures,
            "observations": counts.observations,
            "late": counts.late,
            "expired": counts.dropped + overdue,
            "pending": len(self.pending) - overdue,
            "erased": counts.erased,
            "learned": self.tuner.learned,
            "last_event_at": self.last_at,
        }

    def suggestions(self, limit: int, now: float) -> list[dict[str, Any]]:
        """The newest ones first."""
        newest = list(self.recent)[::-1][:limit]
        return [self._shown(self.recent[number], self._why(self.recent[number]), now) for number in newest]

    def suggestion(self, id: str, log: Log, now: float) -> dict[str, Any]:
        """One of them, however old, with the fields of its explanation while the tuner has it."""
        number = ask_number(id)
        if number is None:
            raise _unknown(id)
        record = self.recent.get(number) or self.pending.get(number) or self._from_log(number, log)
        why = self._why(record)
        return {**self._shown(record, why, now), "why": None if why is None else asdict(why)}

    # inside

    def _event(
        self, kind: Kind, at: float, body: dict[str, Any], ask: int | None = None, key: str | None = None
    ) -> Event:
        return Event(self.seq + 1, kind, max(at, self.last_at or at), body, ask, key)

    @property
    def _lowest(self) -> int:
        """The least number that an ask of before an erasure may have now."""
        return next(reversed(self.recent), -1) + 1

    def _took(self, event: Event, record: bool = False) -> None:
        self.seq, self.last_at = event.seq, event.at
        if record and self.first_at is None:
            self.first_at = event.at

    def _asked(self, event: Event, id: str, foreign: bool) -> None:
        if event.ask is None:
            raise ValueError(f"event {event.seq}: an ask without a number")
        inner = ask_number(id)
        record = Record(event.ask, event.at, event.body["context"], event.body["params"], foreign=foreign, inner=inner)
        self.counts.asks += 1
        self.counts.diverged += foreign and event.ask >= self.floor
        self.handed = max(self.handed, event.ask + 1)
        self.counts.dropped += _put(self.pending, event.ask, record, self.definition.max_pending)
        _put(self.recent, event.ask, record, RECENT)
        self._took(event, record=True)

    def _asked_for(self, event: Event) -> Record:
        """The ask that an answer belongs to; one the ledger had dropped comes with the answer."""
        number = -1 if event.ask is None else event.ask
        if number in self.pending:
            return self.pending[number]
        b = event.body
        return Record(number, b["asked_at"], b["context"], b["params"], late=True)

    def _learn(
        self, record: Record, tell: Callable[[str], None], metrics: Mapping[str, float] | None
    ) -> Explanation | None:
        """What the tuner made of an answer; None if it had let go of the ask, and learned it as an observation."""
        if not (record.late or record.foreign):
            id = self._tuners_id(record)
            try:
                tell(id)
            except ExpiredSuggestion:
                pass  # asks that came out otherwise in a replay take room in its ledger: this one fell out of it
            else:
                return self.tuner.explain(id)
        if metrics is not None:
            self.tuner.observe(record.context, record.params, metrics)
        else:
            self.tuner.observe_failed(record.context, record.params)
        return None

    def _tuners_id(self, record: Record) -> str:
        """Asks after the latest erasure are as far apart as the tuner's own numbers; of older ones it is on record."""
        if record.inner is not None:
            return ask_id(record.inner)
        asks_before = self.counts.asks - (self.handed - self.floor)
        return ask_id(record.number - self.floor + asks_before) if record.number >= self.floor else ""

    def _answered(self, event: Event, record: Record) -> bool:
        """Whether it came late."""
        late = record.late or event.at > self.expires_at(record)
        if late != record.late:
            record = replace(record, late=late)
        if self.pending.pop(record.number, None) is None:
            self.counts.dropped -= 1
        self.counts.late += late
        if record.number in self.recent:
            self.recent[record.number] = record
        _put(self._answers, record.number, record, ANSWERED)
        self._took(event)
        return late

    def _from_log(self, number: int, log: Log) -> Record:
        found = log.of_ask(number)
        if not found:
            raise _unknown(ask_id(number), erased=number < self.floor)
        asked, *answers = found
        record = Record(number, asked.at, asked.body["context"], asked.body["params"])
        if not answers:
            return replace(record, late=True)
        answer = answers[0]
        late = answer.at > self.expires_at(record) or "params" in answer.body
        if answer.kind == "failed":
            return replace(record, status="failed", reason=answer.body["reason"], late=late)
        return replace(record, status="told", metrics=answer.body["metrics"], late=late)

    def _why(self, record: Record) -> Explanation | None:
        try:
            return self.tuner.explain(self._tuners_id(record))
        except UnknownSuggestion:
            return None

    def _shown(self, record: Record, why: Explanation | None, now: float) -> dict[str, Any]:
        overdue = record.status == "pending" and (self.expires_at(record) < now or record.number not in self.pending)
        shown: dict[str, Any] = {
            "id": ask_id(record.number),
            "asked_at": record.asked_at,
            "context": record.context,
            "params": record.params,
            "status": "expired" if overdue else record.status,
            "late": record.late and record.status != "pending",
            "explanation": "" if why is None else str(why),
        }
        if record.metrics is not None:
            shown["metrics"] = record.metrics
        if record.reason is not None:
            shown["reason"] = record.reason
        return shown


def _same(record: Record, metrics: Mapping[str, float] | None, reason: str) -> Record:
    """The record, if this is the answer it was given before; else a 409."""
    same = record.reason == reason if metrics is None else record.metrics == metrics
    if not same:
        raise Problem(
            409, "conflict", f"suggestion {ask_id(record.number)!r} was answered before, and not with this", "id"
        )
    return record


def _unknown(id: str, erased: bool = False) -> Problem:
    said = "was handed out in this study" + (", or it was erased" if erased else "")
    return Problem(404, "unknown_suggestion", f"no suggestion {id[:80]!r} {said}", "id")


def _put(records: dict[Any, Any], key: Any, value: Any, size: int) -> bool:
    """Add an entry; whether the oldest one had to go for it."""
    records[key] = value
    if len(records) <= size:
        return False
    del records[next(iter(records))]
    return True
