"""StudyCalls: every call of a study as steps; Study and AsyncStudy perform them."""

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

from rasp_tuner.base.checks import number, show
from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.client.exchange import Attempt, Exchange, Request, Start, Steps
from rasp_tuner.client.fallback import Fallbacks, FallbackShare, RecommendationCache, is_fallback
from rasp_tuner.client.outbox import Outbox, QueuedRequest
from rasp_tuner.client.pending import PendingAnswer, SpareAnswers, send
from rasp_tuner.client.wire import context_json, metrics_json, params_json
from rasp_tuner.errors import ExpiredSuggestion, InvalidValue, RaspError, UnknownSuggestion
from rasp_tuner.gain.versus_default import VersusDefault
from rasp_tuner.space import Params
from rasp_tuner.tuner import Context
from rasp_tuner.types import Budget, Explanation, Margin, Revisit, Suggestion
from rasp_tuner.what_if import WhatIf

REFRESH_DEADLINES = 5.0  # between recommendations fetched to fall back on: a slow server is spared
FALLBACKS_HEADER = "Rasp-Fallbacks"  # fallbacks/asks since the latest report

Observed = Literal["learned", "duplicate"]


@dataclass(frozen=True, slots=True)
class TellReply:
    """The result of a tell."""

    id: str
    status: Literal["learned", "duplicate", "queued", "dropped", "rejected"]
    late: bool = False  # it came after the suggestion had expired; it was learned anyway
    error: str | None = None  # why it was rejected; only in a batch


class StudyCalls:
    """One study; thread-safe. docs of the calls are in study.py."""

    def __init__(self, name: str, default: Params, exchange: Exchange, outbox: Outbox, prefetch: bool) -> None:
        self.name = name
        self.share = FallbackShare(name)
        self.path = f"/v1/studies/{quote(name, safe='')}"
        self._exchange, self._outbox, self._prefetch = exchange, outbox, prefetch
        self._recommendations, self._fallbacks, self._spares = RecommendationCache(default), Fallbacks(), SpareAnswers()
        self._refresh_at = 0.0
        self._latest_context: Any = None

    def ask(self, context: Context) -> Steps[Suggestion]:
        seen = self._latest_context = context_json(context)
        if self._exchange.asks_wait:
            answer = yield from self._post("ask", {"context": seen})
        else:
            try:
                answer = yield from self._ask_in_time(seen)
            except ServerUnavailable:
                self.share.count(True)
                params = self._recommendations.best(seen)
                return Suggestion(self._fallbacks.make(seen, params), params)
            yield from self._refresh(seen)
        self.share.count(False)
        return _suggestion(answer)

    def ask_ahead(self, context: Context) -> Steps[None]:
        seen = context_json(context)
        if not self._spares.has(seen):
            with suppress(ServerUnavailable):  # the next ask tries again
                self._spares.put((yield from self._send_ask(seen)))

    def ask_batch(self, contexts: Sequence[Context]) -> Steps[list[Suggestion]]:
        answer = yield from self._post("ask/batch", {"contexts": [context_json(context) for context in contexts]})
        return [_suggestion(one) for one in answer["suggestions"]]

    def should_stop(self, id: str, partial: Mapping[str, float]) -> Steps[bool]:
        body = {"id": _text("id", id), "metrics": metrics_json(partial)}
        if is_fallback(id):
            return False
        stop: bool = (yield from self._post("partial", body))["stop"]
        return stop

    def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> Steps[TellReply]:
        body = _tell_json(id, metrics, params, stopped, control)
        if is_fallback(id):
            return (yield from self._tell_fallback(body))
        report = self.share.take_report()
        try:
            reply = _tell_reply((yield from self._post("tell", body, _report_header(report))))
        except ServerUnavailable:
            self.share.report_lost(report)
            raise
        yield from self._ask_next()
        return reply

    def tell_later(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> Steps[TellReply]:
        body = _tell_json(id, metrics, params, stopped, control)
        if is_fallback(id):
            return (yield from self._tell_fallback(body))
        yield from self._outbox.put(QueuedRequest(f"{self.path}/tell", body, self._ask_next))
        return TellReply(id, "queued")

    def tell_failed(self, id: str, reason: str, params: Mapping[str, object] | None) -> Steps[TellReply]:
        body = {"id": _text("id", id), "reason": _text("reason", reason), **_ran_json(params)}
        if is_fallback(id):
            self._fallbacks.tell(id, None, body.get("params"))
            return TellReply(id, "dropped")
        reply = _tell_reply((yield from self._post("tell_failed", body)))
        yield from self._ask_next()
        return reply

    def tell_failed_later(self, id: str, reason: str, params: Mapping[str, object] | None) -> Steps[TellReply]:
        if is_fallback(id):
            return (yield from self.tell_failed(id, reason, params))
        body = {"id": _text("id", id), "reason": _text("reason", reason), **_ran_json(params)}
        yield from self._outbox.put(QueuedRequest(f"{self.path}/tell_failed", body, self._ask_next))
        return TellReply(id, "queued")

    def flush(self, timeout: float) -> Steps[bool]:
        return (yield from self._outbox.flush(timeout))

    def tell_batch(
        self, tells: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]]
    ) -> Steps[list[TellReply]]:
        listed: list[Mapping[str, Any]]
        listed = [{"id": id, "metrics": m} for id, m in tells.items()] if isinstance(tells, Mapping) else list(tells)
        items = [_item_json(item) for item in listed]
        own = {i for i, item in enumerate(items) if is_fallback(_text("id", item.get("id")))}
        sent = [item for i, item in enumerate(items) if i not in own]
        answers: Iterator[Any] = iter(())
        if sent:
            answers = iter((yield from self._post("tell/batch", {"tells": sent}))["results"])
        replies = []
        for i, item in enumerate(items):
            replies.append((yield from self._tell_fallback_item(item)) if i in own else _tell_reply(next(answers)))
        return replies

    def observe(
        self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float], key: str | None
    ) -> Steps[Observed]:
        body = {
            "context": context_json(context),
            "params": params_json(params),
            "metrics": metrics_json(metrics),
            "key": uuid.uuid4().hex if key is None else _text("key", key),
        }
        status: Observed = (yield from self._post("observe", body))["status"]
        return status

    def tell_sums(self, source: str, sequence: int, sums: Sequence[Mapping[str, Any]]) -> Steps[Observed]:
        body = {"source": source, "sequence": sequence, "sums": list(sums)}
        status: Observed = (yield from self._post("tells", body))["status"]
        return status

    def policy(self, outcomes: int | None, version: str | None) -> Steps[dict[str, Any] | None]:
        """A policy; None if it is still the one of this version."""
        path = f"{self.path}/policy" + ("" if outcomes is None else f"?outcomes={outcomes}")
        known = None if version is None else {"If-None-Match": f'"{version}"'}
        policy: dict[str, Any] | None = (yield from self._exchange.call(Request("GET", path, headers=known))).body
        return policy

    def recommend(self, context: Context) -> Steps[Params]:
        seen = context_json(context)
        request = Request("POST", f"{self.path}/recommend", {"context": seen})
        if self._exchange.asks_wait:
            params: Params = (yield from self._exchange.call(request)).body["params"]
            return params
        try:
            self._exchange.server.check_sendable()
            pending = yield from send(self._exchange, request, seen)
            params = (yield from pending.result())["params"]
        except ServerUnavailable:
            return self._recommendations.best(seen)
        self._recommendations.remember(seen, params)
        return params

    def margins(self, context: Context) -> Steps[dict[str, Margin]]:
        reply = yield from self._post("recommend", {"context": context_json(context)})
        return {name: Margin(**margin) for name, margin in reply.get("margins", {}).items()}

    def what_if(self, context: Context, params: Mapping[str, object] | None) -> Steps[WhatIf]:
        reply = yield from self._post("what-if", {"context": context_json(context), **_ran_json(params)})
        return WhatIf.from_json(reply)

    def explain(self, id: str) -> Steps[Explanation]:
        if is_fallback(_text("id", id)):
            raise UnknownSuggestion(f"{id!r} is a fallback, which the server never saw: there is nothing to explain")
        why = (yield from self.suggestion(id))["why"]
        if why is None:
            raise ExpiredSuggestion(f"suggestion {id!r} is so old that its explanation was dropped")
        known: dict[str, Any] = {}
        for name in (field.name for field in fields(Explanation) if field.name in why):
            known[name] = tuple(why[name]) if isinstance(why[name], list) else why[name]
        seen = known.get("seen")
        if seen is not None:
            known["seen"] = Revisit(**{field.name: seen[field.name] for field in fields(Revisit) if field.name in seen})
        return Explanation(**known)

    def set_frozen(self, frozen: bool, default: bool = False) -> Steps[None]:
        self._spares.clear()  # they explore, or do not
        yield from self._post("freeze" if frozen else "unfreeze", {"at": "default"} if default else {})

    def waiting(self) -> Steps[list[dict[str, Any]]]:
        found: list[dict[str, Any]] = (yield from self.get("/waiting"))["waiting"]
        return found

    def decide(self, id: str, action: Literal["approve", "refuse"], for_s: float | None = None) -> Steps[None]:
        body = {"id": _text("id", id)} | ({} if for_s is None else {"for_s": number("for_s", for_s)})
        self._spares.clear()  # an answer that was asked ahead does not know of it
        yield from self._exchange.call(Request("POST", f"{self.path}/{action}", body), idempotent=False)

    def get(self, path: str) -> Steps[dict[str, Any]]:
        found: dict[str, Any] = (yield from self._exchange.call(Request("GET", f"{self.path}{path}"))).body
        return found

    def budget(self) -> Steps[Budget | None]:
        report = (yield from self.get(""))["budget_report"]
        return None if report is None else Budget(**report)

    def versus_default(self) -> Steps[VersusDefault | None]:
        report = (yield from self.get(""))["versus_default"]
        return None if report is None else VersusDefault.from_json(report)

    def scales(self) -> Steps[dict[str, str]]:
        view = yield from self.get("")
        found: dict[str, str] = view.get("scales", dict.fromkeys(view["metrics"], "linear"))
        return found

    def suggestions(self, limit: int) -> Steps[list[dict[str, Any]]]:
        found: list[dict[str, Any]] = (yield from self.get(f"/suggestions?limit={limit}"))["suggestions"]
        return found

    def suggestion(self, id: str) -> Steps[dict[str, Any]]:
        return (yield from self.get(f"/suggestions/{quote(id, safe='')}"))

    def delete(self) -> Steps[None]:
        self._spares.clear()
        yield from self._exchange.call(Request("DELETE", self.path), idempotent=False)

    def forget(self, timeout: float, which: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        request = Request("POST", f"{self.path}/forget", which)
        answer = yield from self._exchange.call(request, idempotent=False, timeout=timeout)
        found: dict[str, Any] = answer.body
        return found

    def _post(self, action: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Steps[Any]:
        request = Request("POST", f"{self.path}/{action}", body, headers=headers)
        return (yield from self._exchange.call(request)).body

    def _send_ask(self, context: Any) -> Steps[PendingAnswer]:
        """An ask on its way; ServerUnavailable while the server is left alone."""
        self._exchange.server.check_sendable()
        report = self.share.take_report()
        request = Request("POST", f"{self.path}/ask", {"context": context}, headers=_report_header(report))
        return (yield from send(self._exchange, request, context, lambda: self.share.report_lost(report)))

    def _ask_in_time(self, context: Any) -> Steps[Any]:
        """The server's suggestion, if it is there before the deadline; a later one is kept for the next ask."""
        pending = self._spares.take(context) or (yield from self._send_ask(context))
        try:
            return (yield from pending.result())
        except ServerUnavailable:
            if pending.usable:
                self._spares.put(pending)
            raise

    def _ask_next(self) -> Steps[None]:
        """After an answer: the ask of the next step, in the context of the latest."""
        if self._prefetch and not self._exchange.asks_wait:
            yield from self.ask_ahead(self._latest_context)

    def _refresh(self, context: Any) -> Steps[None]:
        """At intervals, fetch the recommendation for this context, to fall back on."""
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_DEADLINES * self._exchange.server.deadline
            yield Start(self._look_up(context))

    def _look_up(self, context: Any) -> Steps[None]:
        request = Request("POST", f"{self.path}/recommend", {"context": context})
        answer = yield Attempt(request, self._exchange.server.patience)
        self._recommendations.remember(context, answer.body["params"])

    def _tell_fallback(self, told: Mapping[str, Any]) -> Steps[TellReply]:
        id, metrics = told["id"], told["metrics"]
        made = self._fallbacks.tell(id, metrics, told.get("params"))
        if made is None:
            return TellReply(id, "duplicate")
        stopped = _stopped_json(told.get("stopped", False))
        body = {"context": made.context, "params": made.ran, "metrics": metrics, "key": id, **stopped}
        yield from self._outbox.put(QueuedRequest(f"{self.path}/observe", body))
        return TellReply(id, "queued")

    def _tell_fallback_item(self, item: Mapping[str, Any]) -> Steps[TellReply]:
        try:
            if "metrics" in item:
                return (yield from self._tell_fallback(item))
            return (yield from self.tell_failed(item["id"], item.get("failed", ""), item.get("params")))
        except RaspError as error:
            return TellReply(item["id"], "rejected", error=str(error))


class ExportCheck:
    """Checks the lines of an export as they come: the last one has the checksum of those before."""

    def __init__(self, study: str) -> None:
        self._study, self._digest, self._last = study, hashlib.sha256(), ""

    def add(self, line: str) -> str:
        if self._last:
            self._digest.update(f"{self._last}\n".encode())
        self._last = line
        return line

    def end(self) -> None:
        """Raise ServerUnavailable unless it is whole."""
        if not self._last.endswith(f'"sha256":"{self._digest.hexdigest()}"}}'):
            raise ServerUnavailable(
                f"the export of {self._study!r} broke off: its checksum is missing or does not match"
            )


def _report_header(report: tuple[int, int]) -> dict[str, str]:
    return {FALLBACKS_HEADER: f"{report[0]}/{report[1]}"} if report[1] else {}


def _tell_reply(answer: Mapping[str, Any]) -> TellReply:
    error = answer.get("error")
    return TellReply(answer["id"], answer["status"], bool(answer.get("late")), error["message"] if error else None)


def _tell_json(
    id: str,
    metrics: Mapping[str, float],
    params: Mapping[str, object] | None,
    stopped: bool,
    control: Mapping[str, float] | None,
) -> dict[str, Any]:
    told = {"id": _text("id", id), "metrics": metrics_json(metrics)}
    return {**told, **_ran_json(params), **_stopped_json(stopped), **_control_json(control)}


def _item_json(item: Mapping[str, Any]) -> Mapping[str, Any]:
    told = {**item, **({"metrics": metrics_json(item["metrics"])} if "metrics" in item else {})}
    return {**told, **_ran_json(told.pop("params", None)), **_control_json(told.pop("control", None))}


def _suggestion(answer: Mapping[str, Any]) -> Suggestion:
    return Suggestion(answer["id"], answer["params"], answer.get("stop"))


def _stopped_json(stopped: object) -> dict[str, Any]:
    """The field of a tell; left out of whole runs."""
    if not isinstance(stopped, bool):
        raise InvalidValue(f"stopped must be True or False, got {show(stopped)}")
    return {"stopped": True} if stopped else {}


def _ran_json(params: Mapping[str, object] | None) -> dict[str, Any]:
    """The field of a tell; left out if what was suggested ran."""
    return {} if params is None else {"params": params_json(params)}


def _control_json(control: Mapping[str, float] | None) -> dict[str, Any]:
    return {} if control is None else {"control": metrics_json(control)}


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{field} must be a string, got {show(value)}")
    return value
