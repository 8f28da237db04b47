"""AsyncStudy: one study of a server, used like a Tuner; its calls are awaited, those of `Study` wait."""

import hashlib
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

from rasp_tuner.base.checks import flag, number, show
from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.client.exchange import Exchange, HttpRequest
from rasp_tuner.client.fallback import Fallbacks, FallbackShare, RecommendationCache, is_fallback
from rasp_tuner.client.outbox import Outbox
from rasp_tuner.client.pending import PendingAnswer, SpareAnswers
from rasp_tuner.client.situation import Situation
from rasp_tuner.client.wire import context_json, metrics_json, params_json
from rasp_tuner.errors import ExpiredSuggestion, InvalidValue, RaspError, UnknownSuggestion
from rasp_tuner.gain.versus_default import VersusDefault
from rasp_tuner.space import Params
from rasp_tuner.trial import AsyncTrial
from rasp_tuner.tuner import Context
from rasp_tuner.types import Budget, Explanation, KnobShares, Margin, Revisit, Suggestion
from rasp_tuner.what_if import WhatIf

REFRESH_DEADLINES = 5.0  # between recommendations fetched to fall back on: a slow server is spared
STREAM_TIMEOUT_S = 40.0  # without data; the server sends a heartbeat every 15 s

Observed = Literal["learned", "duplicate"]


@dataclass(frozen=True, slots=True)
class TellReply:
    """The result of a tell."""

    id: str
    status: Literal["learned", "duplicate", "queued", "dropped", "rejected"]
    late: bool = False  # it came after the suggestion had expired; it was learned anyway
    error: str | None = None  # why it was rejected; only in a batch


class AsyncStudy:
    """Asks and tells over HTTP, on one event loop. Made by `AsyncClient.create` and `AsyncClient.study`.

    `ask` and `recommend` answer within `ask_deadline` seconds whatever the server does: from the server, else with the
    latest known recommendation for about the same context, else with the default. All other calls are retried until the
    client's timeout is over, and then raise ServerUnavailable.
    """

    def __init__(self, name: str, default: Params, exchange: Exchange, outbox: Outbox) -> None:
        self._name, self._path = name, f"/v1/studies/{quote(name, safe='')}"
        self._exchange, self._outbox = exchange, outbox
        self._share = FallbackShare(name)
        self._recommendations, self._fallbacks, self._spares = RecommendationCache(default), Fallbacks(), SpareAnswers()
        self._refresh_at = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self._exchange.url}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def asks(self) -> int:
        """How many asks were answered, by the server or without it."""
        return self._share.asks

    @property
    def fallbacks(self) -> int:
        """How many of them without the server."""
        return self._share.fallbacks

    async def ask(self, context: Context = None) -> Suggestion:
        """Parameters to run in this context, under an id to tell with.

        `is_fallback(id)` says whether the client answered without the server; tell a fallback like any other.
        """
        seen = context_json(context)
        if self._exchange.asks_wait:
            answer = await self._post("ask", {"context": seen})
        else:
            try:
                answer = await self._ask_in_time(seen)
            except ServerUnavailable:
                self._share.count(True)
                params = self._recommendations.best(seen)
                return Suggestion(self._fallbacks.make(seen, params), params)
            self._refresh(seen)
        self._share.count(False)
        return _suggestion(answer)

    async def ask_batch(self, contexts: Sequence[Context]) -> list[Suggestion]:
        """A suggestion for each context, in one request; no fallback: ServerUnavailable if there is no answer."""
        answer = await self._post("ask/batch", {"contexts": [context_json(context) for context in contexts]})
        return [_suggestion(one) for one in answer["suggestions"]]

    def trial(self, context: Context = None) -> AsyncTrial:
        """One ask and its answer around a block, as `Tuner.trial`; `t.check(...)` asks the server."""
        return AsyncTrial(lambda: self.ask(context), self)

    async def should_stop(self, id: str, partial: Mapping[str, float]) -> bool:
        """Whether the run of `id` should be ended, by what its metric came to so far; False for a fallback.

        End it then, and `tell(id, partial, stopped=True)`.
        """
        body = {"id": _text("id", id), "metrics": metrics_json(partial)}
        return False if is_fallback(id) else bool((await self._post("partial", body))["stop"])

    async def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> TellReply:
        """The result, once it is on the server's disk; if there is no answer in time, it is queued and sent later.

        A fallback is queued at once, as an observation. With `ask_deadline=None` it raises ServerUnavailable instead.

        `params` says what ran, for a system that clips or rounds settings; knobs it leaves out ran as suggested.
        `stopped`: the run was ended here, and would have come to these metrics or worse. `control` has the same
        metrics, measured at the same time under the default; of a fallback it is not sent.
        """
        body = _tell_json(id, metrics, params, stopped, control)
        return self._tell_fallback(body) if is_fallback(id) else await self._post_or_queue("tell", body)

    async def tell_later(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> TellReply:
        """Queue it and send it in the background, for code that may not wait. The queue is in memory only."""
        body = _tell_json(id, metrics, params, stopped, control)
        return self._tell_fallback(body) if is_fallback(id) else self._queue("tell", body)

    async def tell_failed(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> TellReply:
        """The result; the failure of a fallback is dropped, because `observe` has no failures."""
        body = _failed_json(id, reason, params)
        if is_fallback(id):
            return self._drop_fallback(body)
        return await self._post_or_queue("tell_failed", body)

    async def tell_failed_later(
        self, id: str, reason: str = "", params: Mapping[str, object] | None = None
    ) -> TellReply:
        """Queue it and send it in the background, as `tell_later` does."""
        body = _failed_json(id, reason, params)
        return self._drop_fallback(body) if is_fallback(id) else self._queue("tell_failed", body)

    async def flush(self, timeout: float = 5.0) -> bool:
        """Whether all that its client has queued was sent within so many seconds."""
        return await self._outbox.flush(timeout)

    async def tell_batch(
        self, tells: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]]
    ) -> list[TellReply]:
        """One result for each tell; a refused one has the status "rejected" and the error.

        `tells` is `{id: metrics}`, or a list of `{"id": ..., "metrics": ...}` and `{"id": ..., "failed": reason}`, each
        with "params" if something else ran than was suggested.
        """
        listed: list[Mapping[str, Any]]
        listed = [{"id": id, "metrics": m} for id, m in tells.items()] if isinstance(tells, Mapping) else list(tells)
        items = [_item_json(item) for item in listed]
        own = {i for i, item in enumerate(items) if is_fallback(_text("id", item.get("id")))}
        sent = [item for i, item in enumerate(items) if i not in own]
        answers: Iterator[Any] = iter((await self._post("tell/batch", {"tells": sent}))["results"] if sent else ())
        return [
            self._tell_fallback_item(item) if i in own else _tell_reply(next(answers)) for i, item in enumerate(items)
        ]

    async def observe(
        self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float], key: str | None = None
    ) -> Observed:
        """Whether it was new; a repeated key changes nothing. Without a key one is made, so retries are safe."""
        body = {
            "context": context_json(context),
            "params": params_json(params),
            "metrics": metrics_json(metrics),
            "key": uuid.uuid4().hex if key is None else _text("key", key),
        }
        status: Observed = (await self._post("observe", body))["status"]
        return status

    async def tell_sums(self, source: str, sequence: int, sums: Sequence[Mapping[str, Any]]) -> Observed:
        """Whether sums of runs were new; what a source sends twice under one number counts once (docs/EDGE.md)."""
        body = {"source": source, "sequence": sequence, "sums": list(sums)}
        status: Observed = (await self._post("tells", body))["status"]
        return status

    async def policy(self, outcomes: int | None = None, version: str | None = None) -> dict[str, Any] | None:
        """A policy that explores, for decisions without a request; None if it is still the one of this version.

        `outcomes`: how many are expected before the next one is fetched.
        """
        path = f"{self._path}/policy" + ("" if outcomes is None else f"?outcomes={outcomes}")
        known = None if version is None else {"If-None-Match": f'"{version}"'}
        policy: dict[str, Any] | None = (await self._exchange.call(HttpRequest("GET", path, headers=known))).body
        return policy

    async def recommend(self, context: Context = None) -> Params:
        """The best parameters known, without exploring; falls back as `ask` does."""
        seen = context_json(context)
        request = HttpRequest("POST", f"{self._path}/recommend", {"context": seen})
        if self._exchange.asks_wait:
            params: Params = (await self._exchange.call(request)).body["params"]
            return params
        try:
            self._exchange.server.check_sendable()
            params = (await PendingAnswer(self._exchange, request, seen).result())["params"]
        except ServerUnavailable:
            return self._recommendations.best(seen)
        self._recommendations.remember(seen, params)
        return params

    async def margins(self, context: Context = None) -> dict[str, Margin]:
        """How far the recommended parameters keep each metric from its limit in this context, if it has one."""
        reply = await self._post("recommend", {"context": context_json(context)})
        return {name: Margin(**margin) for name, margin in reply.get("margins", {}).items()}

    async def what_if(self, context: Context = None, params: Mapping[str, object] | None = None) -> WhatIf:
        """What these parameters are expected to give here, beside the default and the recommendation; see `Tuner`."""
        reply = await self._post("what-if", {"context": context_json(context), **_ran_json(params)})
        return WhatIf.from_json(reply)

    async def explain(self, id: str) -> Explanation:
        """Why `id` was suggested and, once told, its result; `str()` gives it in words."""
        if is_fallback(_text("id", id)):
            raise UnknownSuggestion(f"{id!r} is a fallback, which the server never saw: there is nothing to explain")
        why = (await self.suggestion(id))["why"]
        if why is None:
            raise ExpiredSuggestion(f"suggestion {id!r} is so old that its explanation was dropped")
        known: dict[str, Any] = {}
        for name in (field.name for field in fields(Explanation) if field.name in why):
            known[name] = tuple(why[name]) if isinstance(why[name], list) else why[name]
        seen = known.get("seen")
        if seen is not None:
            known["seen"] = Revisit(**{field.name: seen[field.name] for field in fields(Revisit) if field.name in seen})
        if "knobs" in known:
            known["knobs"] = KnobShares.from_json(known["knobs"])
        return Explanation(**known)

    async def freeze(self, *, default: bool = False) -> None:
        """Stop exploring: until `unfreeze`, every ask gets the recommendation, or, if `default`, the default."""
        self._spares.clear()  # they explore
        await self._post("freeze", {"at": "default"} if default else {})

    async def unfreeze(self) -> None:
        """Explore again."""
        self._spares.clear()
        await self._post("unfreeze", {})

    async def waiting(self) -> list[dict[str, Any]]:
        """Suggestions that wait for a person, oldest first: `id`, `params`, `changes` against what `runs`, `stop`, why.

        Only studies with `approve_s` have some.
        """
        return list((await self._get("/waiting"))["waiting"])

    async def approve(self, id: str) -> None:
        """Let a suggestion that waits run: at the next ask in its situation."""
        await self._decide("approve", {"id": _text("id", id)})

    async def refuse(self, id: str, for_s: float | None = None) -> None:
        """Not these settings, nor nearly the same, for so many seconds; by default a day."""
        until = {} if for_s is None else {"for_s": number("for_s", for_s)}
        await self._decide("refuse", {"id": _text("id", id), **until})

    async def view(self) -> dict[str, Any]:
        """The definition, the counts (asks, tells, failures, observations, late, expired, pending, learned), `scales`
        and `budget_report`."""
        return await self._get("")

    async def budget(self) -> Budget | None:
        """What suggestions have cost and gained against the default so far; None without a budget."""
        report = (await self._get(""))["budget_report"]
        return None if report is None else Budget(**report)

    async def versus_default(self) -> VersusDefault | None:
        """What suggestions have gained against the default; None while too little is known."""
        report = (await self._get(""))["versus_default"]
        return None if report is None else VersusDefault.from_json(report)

    async def situations(self) -> list[Situation]:
        """By context values: what is recommended where, what that gains, and from which knobs; `str()` says it."""
        return [Situation(one) for one in (await self._get("/situations"))["situations"]]

    async def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""
        return dict((await self._get(""))["scales"])

    async def suggestions(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest suggestions, newest first, each with its state and an explanation in words."""
        return list((await self._get(f"/suggestions?limit={limit}"))["suggestions"])

    async def suggestion(self, id: str) -> dict[str, Any]:
        """One suggestion, however old; `why` holds the fields of its Explanation while the tuner has them."""
        return await self._get(f"/suggestions/{quote(id, safe='')}")

    async def history(self, points: int = 600) -> dict[str, Any]:
        """Series of error, metrics and parameters in at most so many points, regimes and events."""
        return await self._get(f"/history?points={points}")

    async def live(self) -> AsyncIterator[dict[str, Any]]:
        """The latest step, each time there is a new one, at most five a second; ends when the server stops."""
        async for rows in self.live_groups():
            for row in rows:
                yield row

    async def export(self) -> AsyncIterator[str]:
        """The lines of the study's whole log, for `Client.import_study`; ServerUnavailable if it breaks off."""
        async for lines in self.export_groups():
            for line in lines:
                yield line

    async def live_groups(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The same as `live`, as many at a time as arrive together."""
        async for lines in self._exchange.lines(f"{self._path}/live", STREAM_TIMEOUT_S):
            yield [json.loads(line[5:]) for line in lines if line.startswith("data:")]

    async def export_groups(self) -> AsyncGenerator[list[str], None]:
        """The same as `export`, as many at a time as arrive together. The last line has the checksum of the others."""
        digest, last = hashlib.sha256(), ""
        async for lines in self._exchange.lines(f"{self._path}/export", STREAM_TIMEOUT_S):
            for line in lines:
                digest.update(f"{last}\n".encode() if last else b"")
                last = line
            yield lines
        if not last.endswith(f'"sha256":"{digest.hexdigest()}"}}'):
            raise ServerUnavailable(f"the export of {self.name!r} broke off: its checksum is missing or does not match")

    async def delete(self) -> None:
        """Delete the study and all its data."""
        self._spares.clear()
        await self._exchange.call(HttpRequest("DELETE", self._path), idempotent=False)

    async def forget(self, *, timeout: float = 600.0, **which: Any) -> dict[str, Any]:
        """Erase records, in files too: `{"erased": count, "scrubbed": files are clean}`.

        `which` has one or more of after, before (unix seconds), context ({name: number or [low, high]}), ids, keys (of
        observations); a record is erased if it meets all given conditions.
        """
        request = HttpRequest("POST", f"{self._path}/forget", which)
        return dict((await self._exchange.call(request, idempotent=False, timeout=timeout)).body)

    async def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self._exchange.call(HttpRequest("GET", f"{self._path}{path}"))).body
        return found

    async def _post(self, action: str, body: Mapping[str, Any]) -> Any:
        return (await self._exchange.call(HttpRequest("POST", f"{self._path}/{action}", body))).body

    async def _decide(self, action: str, body: Mapping[str, Any]) -> None:
        self._spares.clear()  # a late answer does not know of it
        await self._exchange.call(HttpRequest("POST", f"{self._path}/{action}", body), idempotent=False)

    async def _post_or_queue(self, action: str, body: Mapping[str, Any]) -> TellReply:
        try:
            return _tell_reply(await self._post(action, body))
        except ServerUnavailable:
            if self._exchange.asks_wait:
                raise
            return self._queue(action, body)

    def _queue(self, action: str, body: Mapping[str, Any]) -> TellReply:
        self._outbox.put(HttpRequest("POST", f"{self._path}/{action}", body))
        return TellReply(body["id"], "queued")

    def _send_ask(self, context: Any) -> PendingAnswer:
        """An ask on its way; ServerUnavailable while the server is left alone."""
        self._exchange.server.check_sendable()
        return PendingAnswer(self._exchange, HttpRequest("POST", f"{self._path}/ask", {"context": context}), context)

    async def _ask_in_time(self, context: Any) -> Any:
        """The server's suggestion, if it is there before the deadline; a later one is kept for the next ask."""
        pending = self._spares.take(context) or self._send_ask(context)
        try:
            return await pending.result()
        except ServerUnavailable:
            if pending.usable:
                self._spares.put(pending)
            raise

    def _refresh(self, context: Any) -> None:
        """At intervals, fetch the recommendation for this context, to fall back on."""
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_DEADLINES * self._exchange.server.deadline
            self._exchange.start(self._look_up(context))

    async def _look_up(self, context: Any) -> None:
        request = HttpRequest("POST", f"{self._path}/recommend", {"context": context})
        answer = await self._exchange.attempt(request, self._exchange.server.patience)
        self._recommendations.remember(context, answer.body["params"])

    def _tell_fallback(self, told: Mapping[str, Any]) -> TellReply:
        id, metrics = told["id"], told["metrics"]
        made = self._fallbacks.tell(id, metrics, told.get("params"))
        if made is None:
            return TellReply(id, "duplicate")
        stopped = _stopped_json(told.get("stopped", False))
        body = {"context": made.context, "params": made.ran, "metrics": metrics, "key": id, **stopped}
        self._outbox.put(HttpRequest("POST", f"{self._path}/observe", body))
        return TellReply(id, "queued")

    def _drop_fallback(self, failed: Mapping[str, Any]) -> TellReply:
        self._fallbacks.tell(failed["id"], None, failed.get("params"))
        return TellReply(failed["id"], "dropped")

    def _tell_fallback_item(self, item: Mapping[str, Any]) -> TellReply:
        try:
            return self._tell_fallback(item) if "metrics" in item else self._drop_fallback(item)
        except RaspError as error:
            return TellReply(item["id"], "rejected", error=str(error))


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


def _failed_json(id: str, reason: str, params: Mapping[str, object] | None) -> dict[str, Any]:
    return {"id": _text("id", id), "reason": _text("reason", reason), **_ran_json(params)}


def _item_json(item: Mapping[str, Any]) -> Mapping[str, Any]:
    told = {**item, **({"metrics": metrics_json(item["metrics"])} if "metrics" in item else {})}
    return {**told, **_ran_json(told.pop("params", None)), **_control_json(told.pop("control", None))}


def _suggestion(answer: Mapping[str, Any]) -> Suggestion:
    return Suggestion(answer["id"], answer["params"], answer.get("stop"))


def _stopped_json(stopped: object) -> dict[str, Any]:
    """The field of a tell; left out of whole runs."""
    return {"stopped": True} if flag("stopped", stopped) else {}


def _ran_json(params: Mapping[str, object] | None) -> dict[str, Any]:
    """The field of a tell; left out if what was suggested ran."""
    return {} if params is None else {"params": params_json(params)}


def _control_json(control: Mapping[str, float] | None) -> dict[str, Any]:
    return {} if control is None else {"control": metrics_json(control)}


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{field} must be a string, got {show(value)}")
    return value
