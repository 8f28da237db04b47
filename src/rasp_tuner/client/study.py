"""Study: one study of a server, used like a Tuner."""

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.client.fallback import Fallbacks, RecommendationCache, is_fallback
from rasp_tuner.client.outbox import Outbox
from rasp_tuner.client.transport import Transport
from rasp_tuner.client.wire import context_json, metrics_json, params_json
from rasp_tuner.core.checks import show
from rasp_tuner.errors import ExpiredSuggestion, InvalidValue, RaspError, UnknownSuggestion
from rasp_tuner.space import Params
from rasp_tuner.tuner import Context
from rasp_tuner.types import Budget, Explanation, Margin, Suggestion

REFRESH_EVERY_S = 0.25  # the recommendation to fall back on
STREAM_TIMEOUT_S = 40.0  # without data; the server sends a heartbeat every 15 s


@dataclass(frozen=True, slots=True)
class TellReply:
    """The result of a tell."""

    id: str
    status: Literal["learned", "duplicate", "queued", "dropped", "rejected"]
    late: bool = False  # it came after the suggestion had expired; it was learned anyway
    error: str | None = None  # why it was rejected; only in a batch


class Study:
    """Asks and tells over HTTP; thread-safe. Made by `Client.create` and `Client.study`.

    `ask` and `recommend` answer within `ask_deadline` seconds whatever the server does: from the server, else with the
    latest known recommendation for the nearest context, else with the default. All other calls are retried until the
    client's timeout is over, and then raise ServerUnavailable.
    """

    def __init__(
        self, name: str, default: Params, transport: Transport, outbox: Outbox, ask_deadline: float | None
    ) -> None:
        self.name = name
        self.fallbacks = 0  # answers given without the server
        self._path = f"/v1/studies/{quote(name, safe='')}"
        self._transport, self._outbox, self._deadline = transport, outbox, ask_deadline
        self._recommendations, self._fallbacks = RecommendationCache(default), Fallbacks()
        self._refresh_at = 0.0

    def __repr__(self) -> str:
        return f"<Study {self.name!r} at {self._transport.url}>"

    def ask(self, context: Context = None) -> Suggestion:
        """Parameters to run in this context, under an id to tell with.

        `is_fallback(id)` says whether the client answered without the server; tell a fallback like any other.
        """
        seen = context_json(context)
        try:
            answer = self._call_within_deadline("ask", seen)
        except ServerUnavailable:
            if self._deadline is None:
                raise
            params = self._fall_back(seen)
            return Suggestion(self._fallbacks.make(seen, params), params)
        self._refresh(seen)
        return Suggestion(answer["id"], answer["params"])

    def ask_batch(self, contexts: Sequence[Context]) -> list[Suggestion]:
        """A suggestion for each context, in one request; no fallback: ServerUnavailable if there is no answer."""
        body = {"contexts": [context_json(context) for context in contexts]}
        answer = self._transport.call("POST", f"{self._path}/ask/batch", body).body
        return [Suggestion(one["id"], one["params"]) for one in answer["suggestions"]]

    def tell(self, id: str, metrics: Mapping[str, float], params: Mapping[str, object] | None = None) -> TellReply:
        """The result, once it is on the server's disk; a fallback is queued and sent later as an observation.

        `params` says what ran, for a system that clips or rounds settings; knobs it leaves out ran as suggested.
        """
        body = {"id": _text("id", id), "metrics": metrics_json(metrics), **_ran_json(params)}
        if is_fallback(id):
            return self._tell_fallback(body)
        return _tell_reply(self._transport.call("POST", f"{self._path}/tell", body).body)

    def tell_later(
        self, id: str, metrics: Mapping[str, float], params: Mapping[str, object] | None = None
    ) -> TellReply:
        """Queue it and send it in the background, for code that may not wait. The queue is in memory only."""
        body = {"id": _text("id", id), "metrics": metrics_json(metrics), **_ran_json(params)}
        if is_fallback(id):
            return self._tell_fallback(body)
        self._outbox.put(f"{self._path}/tell", body)
        return TellReply(id, "queued")

    def tell_failed(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> TellReply:
        """The result; the failure of a fallback is dropped, because `observe` has no failures."""
        body = {"id": _text("id", id), "reason": _text("reason", reason), **_ran_json(params)}
        if is_fallback(id):
            self._fallbacks.tell(id, None, body.get("params"))
            return TellReply(id, "dropped")
        return _tell_reply(self._transport.call("POST", f"{self._path}/tell_failed", body).body)

    def tell_batch(self, tells: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]]) -> list[TellReply]:
        """One result for each tell; a refused one has the status "rejected" and the error.

        `tells` is `{id: metrics}`, or a list of `{"id": ..., "metrics": ...}` and `{"id": ..., "failed": reason}`, each
        with "params" if something else ran than was suggested.
        """
        listed: list[Mapping[str, Any]]
        listed = [{"id": id, "metrics": m} for id, m in tells.items()] if isinstance(tells, Mapping) else list(tells)
        items = [_item_json(item) for item in listed]
        own = {i for i, item in enumerate(items) if is_fallback(_text("id", item.get("id")))}
        sent = [item for i, item in enumerate(items) if i not in own]
        answers: Iterator[Any] = iter(())
        if sent:
            answers = iter(self._transport.call("POST", f"{self._path}/tell/batch", {"tells": sent}).body["results"])
        return [
            self._tell_fallback_item(items[i]) if i in own else _tell_reply(next(answers)) for i in range(len(items))
        ]

    def observe(
        self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float], key: str | None = None
    ) -> Literal["learned", "duplicate"]:
        """Whether it was new; a repeated key changes nothing. Without a key one is made, so retries are safe."""
        body = {
            "context": context_json(context),
            "params": params_json(params),
            "metrics": metrics_json(metrics),
            "key": uuid.uuid4().hex if key is None else _text("key", key),
        }
        status: Literal["learned", "duplicate"] = self._transport.call("POST", f"{self._path}/observe", body).body[
            "status"
        ]
        return status

    def recommend(self, context: Context = None) -> Params:
        """The best parameters known, without exploring; falls back as `ask` does."""
        seen = context_json(context)
        try:
            params: Params = self._call_within_deadline("recommend", seen)["params"]
        except ServerUnavailable:
            if self._deadline is None:
                raise
            return self._fall_back(seen)
        self._recommendations.remember(seen, params)
        return params

    def margins(self, context: Context = None) -> dict[str, Margin]:
        """How far the recommended parameters keep each metric from its limit in this context, if it has one."""
        reply = self._transport.call("POST", f"{self._path}/recommend", {"context": context_json(context)}).body
        return {name: Margin(**margin) for name, margin in reply.get("margins", {}).items()}

    def explain(self, id: str) -> Explanation:
        """Why `id` was suggested and, once told, its result; `str()` gives it in words."""
        if is_fallback(_text("id", id)):
            raise UnknownSuggestion(f"{id!r} is a fallback, which the server never saw: there is nothing to explain")
        why = self.suggestion(id)["why"]
        if why is None:
            raise ExpiredSuggestion(f"suggestion {id!r} is so old that its explanation was dropped")
        known: dict[str, Any] = {}
        for name in (field.name for field in fields(Explanation) if field.name in why):
            known[name] = tuple(why[name]) if isinstance(why[name], list) else why[name]
        return Explanation(**known)

    def freeze(self, *, default: bool = False) -> None:
        """Stop exploring: until `unfreeze`, every ask gets the recommendation, or, if `default`, the default."""
        self._transport.call("POST", f"{self._path}/freeze", {"at": "default"} if default else None)

    def unfreeze(self) -> None:
        """Explore again."""
        self._transport.call("POST", f"{self._path}/unfreeze")

    def view(self) -> dict[str, Any]:
        """The definition, the counts (asks, tells, failures, observations, late, expired, pending, learned), `scales`
        and `budget_report`."""
        return self._get("")

    def budget(self) -> Budget | None:
        """What suggestions have cost and gained against the default so far; None without a budget."""
        report = self.view().get("budget_report")  # servers of version 0.1 have none
        return None if report is None else Budget(**report)

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""
        view = self.view()
        found: dict[str, str] = view.get("scales", dict.fromkeys(view["metrics"], "linear"))
        return found

    def suggestions(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest suggestions, newest first, each with its state and an explanation in words."""
        found: list[dict[str, Any]] = self._get(f"/suggestions?limit={limit}")["suggestions"]
        return found

    def suggestion(self, id: str) -> dict[str, Any]:
        """One suggestion, however old; `why` holds the fields of its Explanation while the tuner has them."""
        return self._get(f"/suggestions/{quote(id, safe='')}")

    def history(self, points: int = 600) -> dict[str, Any]:
        """Series of error, metrics and parameters in at most so many points, regimes and events."""
        return self._get(f"/history?points={points}")

    def live(self) -> Iterator[dict[str, Any]]:
        """The latest step, each time there is a new one, at most five a second; ends when the server stops."""
        for line in self._transport.lines(f"{self._path}/live", STREAM_TIMEOUT_S):
            if line.startswith("data:"):
                yield json.loads(line[5:])

    def export(self) -> Iterator[str]:
        """The lines of the study's whole log, for `Client.import_study`; ServerUnavailable if it breaks off."""
        digest, last = hashlib.sha256(), ""
        for line in self._transport.lines(f"{self._path}/export", STREAM_TIMEOUT_S):
            if last:
                digest.update(f"{last}\n".encode())
            last = line
            yield line
        if not last.endswith(f'"sha256":"{digest.hexdigest()}"}}'):
            raise ServerUnavailable(f"the export of {self.name!r} broke off: its checksum is missing or does not match")

    def delete(self) -> None:
        """Delete the study and all its data."""
        self._transport.call("DELETE", self._path, idempotent=False)

    def forget(self, *, timeout: float = 600.0, **which: Any) -> dict[str, Any]:
        """Erase records, in files too: `{"erased": count, "scrubbed": files are clean, "backups": removed ones}`.

        `which` has one or more of after, before (unix seconds), context ({name: number or [low, high]}), ids, keys (of
        observations); a record is erased if it meets all given conditions.
        """
        answer = self._transport.call("POST", f"{self._path}/forget", which, idempotent=False, timeout=timeout)
        found: dict[str, Any] = answer.body
        return found

    def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.call("GET", f"{self._path}{path}").body
        return found

    def _call_within_deadline(self, action: str, context: Any) -> dict[str, Any]:
        path, body = f"{self._path}/{action}", {"context": context}
        if self._deadline is None:
            answer = self._transport.call("POST", path, body)
        else:
            answer = self._transport.call_within(self._deadline, "POST", path, body)
        found: dict[str, Any] = answer.body
        return found

    def _fall_back(self, context: Any) -> Params:
        self.fallbacks += 1
        return self._recommendations.best(context)

    def _refresh(self, context: Any) -> None:
        """At intervals, fetch the recommendation for this context in the background."""
        now = time.monotonic()
        if self._deadline is None or now < self._refresh_at:
            return
        self._refresh_at = now + REFRESH_EVERY_S

        def look() -> None:
            answer = self._transport.attempt("POST", f"{self._path}/recommend", {"context": context}, timeout=1.0)
            self._recommendations.remember(context, answer.body["params"])

        self._transport.run_in_background(look)

    def _tell_fallback(self, told: Mapping[str, Any]) -> TellReply:
        id, metrics = told["id"], told["metrics"]
        made = self._fallbacks.tell(id, metrics, told.get("params"))
        if made is None:
            return TellReply(id, "duplicate")
        body = {"context": made.context, "params": made.ran, "metrics": metrics, "key": id}
        self._outbox.put(f"{self._path}/observe", body)
        return TellReply(id, "queued")

    def _tell_fallback_item(self, item: Mapping[str, Any]) -> TellReply:
        try:
            if "metrics" in item:
                return self._tell_fallback(item)
            return self.tell_failed(item["id"], item.get("failed", ""), item.get("params"))
        except RaspError as error:
            return TellReply(item["id"], "rejected", error=str(error))


def _tell_reply(answer: Mapping[str, Any]) -> TellReply:
    error = answer.get("error")
    return TellReply(answer["id"], answer["status"], bool(answer.get("late")), error["message"] if error else None)


def _item_json(item: Mapping[str, Any]) -> Mapping[str, Any]:
    told = {**item, **({"metrics": metrics_json(item["metrics"])} if "metrics" in item else {})}
    return {**told, **_ran_json(told.pop("params", None))}


def _ran_json(params: Mapping[str, object] | None) -> dict[str, Any]:
    """The field of a tell; left out if what was suggested ran, which servers of version 0.1 understand too."""
    return {} if params is None else {"params": params_json(params)}


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{field} must be a string, got {show(value)}")
    return value
