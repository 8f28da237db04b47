"""LiveStudy: a tuner with its asks, answers and history; it changes only by events.

Time comes from the event and every number from its JSON. So replaying a log gives, bit for bit, the study that wrote
it. A command (ask, tell, observe, freeze) returns the event to log, or None if nothing changed; a refused one raises
and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rasp_tuner.base.checks import whole
from rasp_tuner.errors import ExpiredSuggestion, UnknownSuggestion
from rasp_tuner.feature_flags import reason_for
from rasp_tuner.report.situation_gains import NAMES_IN_LABEL
from rasp_tuner.report.situations import context_words
from rasp_tuner.service.service_errors import Conflict
from rasp_tuner.service.study.alerts import alerts, health
from rasp_tuner.service.study.approvals import Approvals
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.event_time import next_time
from rasp_tuner.service.study.events import Event, EventLog, Kind, actor, ask_id, ask_number
from rasp_tuner.service.study.flag_leases import FlagLeases
from rasp_tuner.service.study.history import StudyHistory, ToldStep
from rasp_tuner.service.study.suggestion_record import SuggestionRecord, put_bounded, unknown_suggestion
from rasp_tuner.space import Space
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation, Suggestion, Why

RECENT_SUGGESTIONS = 200  # that are listed
SITUATION_CONTEXTS = 60  # different ones that situations with gains are made of
TEXT_KINDS = ("category", "name")  # of contexts, whose texts a tuner keeps only as hashes
MIN_STEPS_TO_CHART, MAX_STEPS_TO_CHART = 8, 32  # that wait to be added to the history: many cost little more than one
SUMS_SHOWN = 8  # of those that were told together, in charts
ANSWERS_IN_MEMORY = 4_096  # and keys of observations; older ones are read from the log


@dataclass(slots=True)
class Counts:
    """Stored in snapshots by name: do not rename the fields."""

    asks: int = 0
    tells: int = 0
    failures: int = 0
    observations: int = 0
    late: int = 0
    dropped: int = 0  # unanswered asks pushed out by newer ones and not answered since
    diverged: int = 0  # replayed asks with other parameters than in the log, apart from erasures
    erased: int = 0  # records


@dataclass(slots=True)
class SavedState:
    """What is known of its latest snapshot, also of one that is being encoded; not stored."""

    seq: int = 0  # of its last event
    replay_cpu_s: float = 0.0  # CPU seconds that the events since then took
    cost_cpu_s: float = 0.0  # that making it took
    loaded_seq: int = 0  # events up to this one were read from disk


class LiveStudy:
    """One study in memory; used by the writer's thread only."""

    def __init__(self, id: int, definition: StudyDefinition, created: float, tuner: Tuner | None = None) -> None:
        self.id, self.definition, self.created = id, definition, created
        self.tuner = definition.tuner() if tuner is None else tuner
        self._history = StudyHistory(definition)
        self._steps_to_chart: list[ToldStep] = []
        self._wire = definition.to_wire()
        self._space = Space.from_json(definition.space)
        self.seq = 0
        self.last_at: float | None = None
        self.next_ask = 0  # number of the next ask
        self.erased_below = 0  # ask numbers below it may be missing because of an erasure
        self.counts, self.flags = Counts(), FlagLeases()
        wait_s = definition.approve_s
        self.approvals = None if wait_s is None else Approvals(wait_s, self._space, self._same_situation)
        self.switched: dict[str, Any] | None = None  # by whom and when it was last frozen or unfrozen
        self.pending: dict[int, SuggestionRecord] = {}  # in order of asking, like the tuner's ledger
        self.recent: dict[int, SuggestionRecord] = {}
        self._answers: dict[int, SuggestionRecord] = {}
        self._observed: dict[str, Event] = {}
        self.saved = SavedState()
        self.problems: dict[str, str] = {}  # what is wrong, in words, by what found it; kept by whoever holds the study

    # commands

    def ask(self, context: Any, at: float, flag: dict[str, str] | None = None) -> Event:
        """Ask the tuner; the event holds the suggestion, and `flag` with its reason, if it is for one."""
        at = next_time(at, self.last_at, self.definition.name)
        suggestion = self._suggest(context, at)
        body = {"context": context, "params": suggestion.params}
        if flag is not None:
            reason = reason_for(suggestion.params, self.definition.default, self.best_known(context))
            body["flag"] = {**flag, "reason": reason}
        event = Event(self.seq + 1, "ask", at, body, self.next_ask)
        self._add_ask(event, suggestion.id, foreign=False)
        return event

    def tell(
        self,
        id: str,
        at: float,
        log: EventLog,
        metrics: dict[str, float] | None,
        reason: str = "",
        params: dict[str, Any] | None = None,
        stopped: bool = False,
        control: dict[str, float] | None = None,
    ) -> Event | SuggestionRecord:
        """The event to log, or the record if the same answer was given before; `metrics` None: it failed.

        `params` says what ran; knobs it leaves out ran as suggested. `stopped`: the run was ended at these metrics.
        `control`: the metrics of the default beside it.
        """
        number = ask_number(id)
        if number is None:
            raise unknown_suggestion(id)
        record = self.pending.get(number)
        body: dict[str, Any] = {"reason": reason} if metrics is None else {"metrics": metrics}
        if record is None:
            record = self._answers.get(number) or self._read_from_log(number, log)
            if record.status != "pending":
                return record.check_same_answer(metrics, reason, params, self._space, stopped, control)
            body |= {"asked_at": record.asked_at, "context": record.context, "params": record.params}
        if params is not None and (ran := record.what_ran(params, self._space)) is not None:
            body["ran"] = ran
        if stopped:
            body["stopped"] = True
        if control is not None:
            body["control"] = control
        return self._applied("failed" if metrics is None else "tell", at, body, ask=number)

    def observe(
        self,
        context: Any,
        params: dict[str, Any],
        metrics: dict[str, float],
        key: str | None,
        at: float,
        log: EventLog,
        stopped: bool = False,
    ) -> Event | None:
        """The event to log, or None if this key was observed before."""
        body: dict[str, Any] = {"context": context, "params": params, "metrics": metrics}
        if stopped:
            body["stopped"] = True
        differs = Conflict(f"the key {key!r} was observed before with other values", "key")
        return self._once("observe", key, body, at, log, differs)

    def tell_sums(
        self, sums: list[dict[str, Any]], source: str | None, sequence: int, at: float, log: EventLog
    ) -> Event | None:
        """The event to log, or None if this source has sent what has this number before; a source of None: never."""
        key = None if source is None else f"sums/{source}/{sequence}"
        what = f"source {source!r} has sent something else as number {sequence}"
        differs = Conflict(f"{what}: numbers go up, and a source that begins anew takes another name", "sequence")
        return self._once("sums", key, {"sums": sums}, at, log, differs)

    def _once(
        self, kind: Kind, key: str | None, body: dict[str, Any], at: float, log: EventLog, differs: Conflict
    ) -> Event | None:
        """The event to log, or None if this key was told before; raises `differs` if it came with something else."""
        before = None if key is None else self._observed.get(key) or log.observation_by_key(self.id, key)
        if before is not None:
            if before.body != body:
                raise differs
            return None
        return self._applied(kind, at, body, key=key)

    def freeze(self, frozen: bool, at: float, *, default: bool = False, by: str | None = None) -> Event | None:
        """The event to log, or None if the study is in that state already; `default`: every ask gets the default."""
        default = frozen and default
        if (self.tuner.frozen, self.tuner.frozen_at_default) == (frozen, default):
            return None
        body = {"by": by, "at": "default" if default else None}
        return self._applied(
            "freeze" if frozen else "unfreeze", at, {name: x for name, x in body.items() if x is not None}
        )

    def decide(self, id: str, approved: bool, at: float, for_s: float, by: str | None = None) -> Event:
        """What a person says to a suggestion that waits; a refusal holds for so many seconds."""
        waits = self._must_approve().get(id, at)
        body: dict[str, Any] = {"id": id, "params": waits.params} | ({} if by is None else {"by": by})
        if not approved:
            body["until"] = next_time(at, self.last_at, self.definition.name) + for_s
        return self._applied("approve" if approved else "refuse", at, body)

    # replay

    def apply(self, event: Event) -> None:
        """Apply an event; raises before anything has changed."""
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} cannot follow event {self.seq}")
        getattr(self, f"_apply_{event.kind}")(event)

    def _apply_ask(self, event: Event) -> None:
        if event.ask is None or event.ask >= self.erased_below:
            if event.ask != self.next_ask:
                raise ValueError(f"event {event.seq}: ask {event.ask} where {self.next_ask} is next")
        elif event.ask < self._lowest_next_ask:
            raise ValueError(f"event {event.seq}: ask {event.ask} where {self._lowest_next_ask} may be next")
        suggestion = self._suggest(event.body["context"], event.at)
        foreign = suggestion.params != event.body["params"]
        if foreign:
            self._space.to_unit(event.body["params"])  # raises if they are not in the space
        self._add_ask(event, suggestion.id, foreign)

    def _apply_forgot(self, event: Event) -> None:
        if event.seq != 1:
            raise ValueError(f"event {event.seq}: only the first event of a log can be an erasure")
        self.next_ask = self.erased_below = whole("handed", event.body["handed"], 0, 2**62)
        self.counts.erased = whole("records", event.body["records"], 0, 2**62)
        self._advance(event)

    def _apply_tell(self, event: Event) -> None:
        """An answer: metrics, or that the run failed."""
        record, failed = self._ask_answered_by(event), event.kind == "failed"
        answered = record.answered(event)
        why = self._learn(answered)
        late = self._close_ask(event, answered)
        self.counts.tells += not failed
        self.counts.failures += failed
        gains = {} if why is None or failed else self.tuner.latest_step_gain()
        ran, relevance = record.learned_params, self.tuner.relevance()
        self._chart_later(ToldStep(event.at, record.context, ran, answered.metrics, why, gains, late, relevance))

    _apply_failed = _apply_tell

    def _apply_observe(self, event: Event) -> None:
        context, params, metrics = event.body["context"], event.body["params"], event.body["metrics"]
        self.tuner.observe(context, params, metrics, stopped=event.body.get("stopped") is True)
        self._count_observed(event, 1)
        self._chart_later(ToldStep(event.at, context, params, metrics, None, {}, relevance=self.tuner.relevance()))

    def _apply_sums(self, event: Event) -> None:
        sums = event.body["sums"]
        self._count_observed(event, self.tuner.tell_sums(sums))
        relevance = self.tuner.relevance()
        for one in sorted(sums, key=lambda one: -one["count"])[:SUMS_SHOWN]:
            context = one["contexts"][0] if one["contexts"] else None
            means = {name: parts["sum"] / one["count"] for name, parts in one["metrics"].items()}
            self._chart_later(ToldStep(event.at, context, one["params"], means, None, {}, relevance=relevance))

    def _count_observed(self, event: Event, runs: int) -> None:
        self._advance(event)
        self.counts.observations += runs
        if event.key is not None:
            put_bounded(self._observed, event.key, event, ANSWERS_IN_MEMORY)

    def _apply_freeze(self, event: Event) -> None:
        serves = event.body.get("at")
        if serves not in (None, "default"):
            raise ValueError(f"event {event.seq}: a study cannot be frozen at {str(serves)[:80]!r}")
        self._switch(event, "freeze" if serves is None else "default")
        self.tuner.freeze(default=serves == "default")

    def _apply_unfreeze(self, event: Event) -> None:
        self._switch(event, "unfreeze")
        self.tuner.unfreeze()

    def _apply_approve(self, event: Event) -> None:
        self._space.to_unit(event.body["params"])  # raises if they are not in the space
        self._must_approve().approve(self.tuner, event.body["id"], event.body["params"])
        self._decided(event, "approved")

    def _apply_refuse(self, event: Event) -> None:
        self._space.to_unit(event.body["params"])
        self._must_approve().refuse(self.tuner, event.body["id"], event.body["params"], event.body["until"])
        self._decided(event, "refused")

    def _decided(self, event: Event, mark: str) -> None:
        by = actor(event)
        self._advance(event)
        self.history.add_mark(event.at, mark, by)

    def _must_approve(self) -> Approvals:
        if self.approvals is None:
            message = "suggestions of this study run without approval: it was created without approve_s"
            raise Conflict(message)
        return self.approvals

    def _switch(self, event: Event, mark: str) -> None:
        self.switched, self.flags.valid_from = {"by": actor(event), "at": event.at}, self._lowest_next_ask
        self._advance(event)
        self.history.add_mark(event.at, mark, self.switched["by"])

    # views

    @property
    def history(self) -> StudyHistory:
        """The data of its charts, up to now."""
        steps, self._steps_to_chart = self._steps_to_chart, []
        for step in steps:
            self._history.add_step(step)
        return self._history

    def chart(self) -> None:
        """Add the steps that wait to the charts, if they are enough; called when nobody waits for an answer."""
        if len(self._steps_to_chart) >= MIN_STEPS_TO_CHART:
            _ = self.history

    def _chart_later(self, step: ToldStep) -> None:
        self._steps_to_chart.append(step)
        if len(self._steps_to_chart) >= MAX_STEPS_TO_CHART:
            _ = self.history

    def expires_at(self, record: SuggestionRecord) -> float:
        return record.asked_at + self.definition.lease_s

    def answer_was_late(self, event: Event) -> bool:
        """Whether an answer that was just applied came after its lease."""
        return event.ask is not None and self._answers[event.ask].late

    def overdue_count(self, now: float) -> int:
        """How many pending asks are past their lease; they are in order of asking."""
        count = 0
        for record in self.pending.values():
            if self.expires_at(record) >= now:
                break
            count += 1
        return count

    @property
    def health(self) -> str:
        """ "good", or all that is wrong, in words."""
        return health(self.problems, self.counts.diverged)

    @property
    def serves(self) -> str:
        """What an ask gets: suggestions, or, frozen, the recommendation or the default."""
        return "default" if self.tuner.frozen_at_default else "recommendation" if self.tuner.frozen else "suggestions"

    def view(self, now: float) -> dict[str, Any]:
        overdue, counts = self.overdue_count(now), self.counts
        budget, versus, looks = self.tuner.budget(), self.tuner.versus_default(), self.tuner.looks()
        view = {
            **self._wire,
            "created": self.created,
            "frozen": self.tuner.frozen,
            "serves": self.serves,
            "switched": self.switched,
            "asks": counts.asks,
            "tells": counts.tells,
            "failures": counts.failures,
            "observations": counts.observations,
            "late": counts.late,
            "expired": counts.dropped + overdue,
            "pending": len(self.pending) - overdue,
            "waiting": 0 if self.approvals is None else self.approvals.count(now),
            "erased": counts.erased,
            "learned": self.tuner.learned,
            "last_event_at": self.last_at,
            "scales": self.tuner.scales,
            "health": self.health,
            "budget_report": None if budget is None else asdict(budget),
            "versus_default": None if versus is None else versus.to_json(),
            "looks": None if looks is None else {**asdict(looks), "ended": looks.ended, "words": str(looks)},
            **self.history.summary(),
        }
        return {**view, "alerts": alerts(view)}

    def best_known(self, context: Any) -> dict[str, Any]:
        """What is recommended: of what was approved, if that is needed."""
        return self.tuner.recommend(context, among=self._among(context))

    def _among(self, context: Any) -> list[dict[str, Any]] | None:
        """Of which settings something can be recommended; None: of all."""
        return None if self.approvals is None else self.approvals.allowed(context)

    def waiting(self, now: float) -> list[dict[str, Any]]:
        """The suggestions that wait for a person."""
        return [] if self.approvals is None else self.approvals.view(self.tuner, now)

    def chart_data(self, points: int, since: float | None = None) -> dict[str, Any]:
        """The answer to GET history: series and events, with situations named by their context values."""
        found, labels = self.history.chart_data(points, since), self._situation_labels()
        for one in found["situations"]:
            one["label"] = labels.get(one["regime"], "")
        return found

    def situations(self) -> list[dict[str, Any]]:
        """What is recommended in which situation, what that gains, and from which knobs."""
        kinds = self.definition.context if isinstance(self.definition.context, Mapping) else {}
        texts: dict[str, set[str]] = {name: set() for name, kind in kinds.items() if kind.get("kind") in TEXT_KINDS}
        for record in self.recent.values():
            for name, seen in texts.items():
                value = record.context.get(name) if isinstance(record.context, Mapping) else None
                seen.update([value] if isinstance(value, str) else [])
        return [one.to_json() for one in self.tuner.situations(texts, contexts=SITUATION_CONTEXTS)]

    def _situation_labels(self) -> dict[int, str]:
        """The contexts of each situation in words, of the latest suggestions."""
        met: dict[int, list[Mapping[str, Any]]] = {}
        for record in self.recent.values():
            if isinstance(record.context, Mapping) and (label := self.history.situation(record.context)) is not None:
                met.setdefault(label, []).append(record.context)
        everywhere = [context for own in met.values() for context in own]
        names = list(everywhere[0]) if everywhere else []
        varying = [name for name in names if len({str(context.get(name)) for context in everywhere}) > 1]
        names = varying[:NAMES_IN_LABEL]
        others = {label: [one for other in met if other != label for one in met[other]] for label in met}
        return {label: context_words(own, names, others[label]) for label, own in met.items()}

    def recommend(self, context: Any) -> dict[str, Any]:
        params = self.best_known(context)
        margins = self.tuner.margins(context, None if self.approvals is None else params)
        return {"params": params, "margins": {name: asdict(margin) for name, margin in margins.items()}}

    def what_if(self, context: Any, params: dict[str, Any] | None) -> dict[str, Any]:
        """What these parameters are expected to give, beside the default and the recommendation; also in words."""
        found = self.tuner.what_if(context, params, among=self._among(context))
        return {**found.to_json(), "words": str(found)}

    def stop_of(self, number: int) -> float | None:
        """The value of the metric from which on the run of a suggestion that waits should be ended."""
        return self.tuner.reasons(self._tuner_id(self.pending[number])).stop

    def partial(self, id: str, metrics: dict[str, float]) -> dict[str, Any]:
        """Whether the run of a suggestion should be ended, by what it came to so far."""
        number = ask_number(id)
        record = None if number is None else self.pending.get(number)
        if record is None or number is None:
            if number is not None and number in self._answers:
                raise Conflict(f"suggestion {id!r} was answered: its run is over", "id")
            raise unknown_suggestion(id)
        stop = self.tuner.should_stop(self._tuner_id(record), metrics)
        return {"stop": stop, "limit": self.stop_of(number)}

    def suggestions(self, limit: int, now: float) -> list[dict[str, Any]]:
        """The newest suggestions, newest first."""
        newest = list(self.recent.values())[::-1][:limit]
        return [self._suggestion_json(record, self._explanation(record), now) for record in newest]

    def suggestion(self, id: str, log: EventLog, now: float) -> dict[str, Any]:
        """One suggestion, however old, with its explanation while the tuner still has it."""
        number = ask_number(id)
        if number is None:
            raise unknown_suggestion(id)
        record = self.recent.get(number) or self.pending.get(number) or self._read_from_log(number, log)
        why = self._explanation(record)
        if why is not None:
            why = replace(why, knobs=self.tuner.knob_shares(self._tuner_id(record)))
        return {**self._suggestion_json(record, why, now), "why": None if why is None else asdict(why)}

    # internals

    def _suggest(self, context: Any, at: float) -> Suggestion:
        """What runs now, as the tuner or those who approve have it."""
        if self.approvals is None:
            return self.tuner.ask(context)
        return self.approvals.ask(self.tuner, context, at)

    def _same_situation(self, one: Any, other: Any) -> bool:
        if one == other:
            return True
        known = self.history.situation(one)
        return known is not None and known == self.history.situation(other)

    def _applied(
        self, kind: Kind, at: float, body: dict[str, Any], ask: int | None = None, key: str | None = None
    ) -> Event:
        """The event to log, applied."""
        event = Event(self.seq + 1, kind, next_time(at, self.last_at, self.definition.name), body, ask, key)
        self.apply(event)
        return event

    @property
    def _lowest_next_ask(self) -> int:
        """The lowest number that the next ask from before an erasure may have."""
        return next(reversed(self.recent), -1) + 1

    def _advance(self, event: Event) -> None:
        if self.last_at is not None and event.at < self.last_at:
            self._clock_went_back(event.at)
        self.seq, self.last_at = event.seq, event.at

    def _clock_went_back(self, now: float) -> None:
        """What happened before now was not later than now, whatever the clock said."""
        asked = {number: one._replace(asked_at=min(one.asked_at, now)) for number, one in self.pending.items()}
        self.pending = asked
        self.recent |= {number: asked[number] for number in self.recent.keys() & asked.keys()}

    def _add_ask(self, event: Event, id: str, foreign: bool) -> None:
        if event.ask is None:
            raise ValueError(f"event {event.seq}: an ask without a number")
        b, own, flag = event.body, ask_number(id), event.body.get("flag")
        record = SuggestionRecord(event.ask, event.at, b["context"], b["params"], foreign=foreign, inner=own, flag=flag)
        self.counts.asks += 1
        self.counts.diverged += foreign and event.ask >= self.erased_below
        self.next_ask = max(self.next_ask, event.ask + 1)
        self.counts.dropped += put_bounded(self.pending, event.ask, record, self.definition.max_pending)
        put_bounded(self.recent, record.number, record, RECENT_SUGGESTIONS)
        self.flags.add(record)
        self._advance(event)

    def _ask_answered_by(self, event: Event) -> SuggestionRecord:
        """The ask that an answer belongs to, with what ran; if it was dropped, the answer's event contains it."""
        number = -1 if event.ask is None else event.ask
        b = event.body
        record = self.pending.get(number) or SuggestionRecord(
            number, b["asked_at"], b["context"], b["params"], late=True
        )
        return record._replace(ran=record.what_ran(b["ran"], self._space)) if "ran" in b else record

    def _learn(self, told: SuggestionRecord) -> Why | None:
        """Learn an answer and give its reasons; None if the tuner had dropped the ask and learned an observation."""
        if not (told.late or told.foreign):
            id = self._tuner_id(told)
            try:
                if told.metrics is None:
                    self.tuner.tell_failed(id, told.reason or "", told.ran)
                else:
                    self.tuner.tell(id, told.metrics, told.ran, stopped=told.stopped, control=told.control)
            except ExpiredSuggestion:
                pass  # asks that diverged in a replay fill the ledger, which dropped this one
            else:
                return self.tuner.reasons(id)  # for charts
        if told.metrics is not None:
            self.tuner.observe(told.context, told.learned_params, told.metrics, stopped=told.stopped)
        else:
            self.tuner.observe_failed(told.context, told.learned_params)
        return None

    def _tuner_id(self, record: SuggestionRecord) -> str:
        """The tuner's own id: in the record, else computed, as asks since the latest erasure are numbered alike."""
        if record.inner is not None:
            return ask_id(record.inner)
        asks_before = self.counts.asks - (self.next_ask - self.erased_below)
        return ask_id(record.number - self.erased_below + asks_before) if record.number >= self.erased_below else ""

    def _close_ask(self, event: Event, record: SuggestionRecord) -> bool:
        """Move an ask from pending to answered; returns whether the answer came late."""
        late = record.late or event.at > self.expires_at(record)
        if late != record.late:
            record = record._replace(late=late)
        if self.pending.pop(record.number, None) is None:
            self.counts.dropped -= 1
        self.counts.late += late
        if record.number in self.recent:
            self.recent[record.number] = record
        put_bounded(self._answers, record.number, record, ANSWERS_IN_MEMORY)
        self._advance(event)
        return late

    def _read_from_log(self, number: int, log: EventLog) -> SuggestionRecord:
        found = log.events_of_ask(self.id, number)
        if not found:
            raise unknown_suggestion(ask_id(number), erased=number < self.erased_below)
        asked, *answers = found
        record = SuggestionRecord(number, asked.at, asked.body["context"], asked.body["params"])
        if not answers:
            return record._replace(late=True)
        answer = answers[0]
        late = answer.at > self.expires_at(record) or "params" in answer.body
        record = record._replace(late=late, ran=answer.body.get("ran"))
        return record.answered(answer)

    def _explanation(self, record: SuggestionRecord) -> Explanation | None:
        try:
            why = self.tuner.explain(self._tuner_id(record), visits=record.context is None)  # else the study knows more
        except UnknownSuggestion:
            return None
        return self.history.with_visits(replace(why, context=record.context), record.context, record.asked_at)

    def _suggestion_json(self, record: SuggestionRecord, why: Explanation | None, now: float) -> dict[str, Any]:
        overdue = record.status == "pending" and (self.expires_at(record) < now or record.number not in self.pending)
        return record.to_json(overdue, *(("", ()) if why is None else (str(why), why.details)))
