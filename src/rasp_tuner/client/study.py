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
from rasp_tuner.client.fallback import Fallbacks, Known, is_fallback
from rasp_tuner.client.outbox import Outbox
from rasp_tuner.client.transport import Transport
from rasp_tuner.client.wire import context_json, metrics_json, params_json
from rasp_tuner.core.checks import show
from rasp_tuner.errors import ExpiredSuggestion, InvalidValue, RaspError, UnknownSuggestion
from rasp_tuner.space import Params
from rasp_tuner.tuner import Context
from rasp_tuner.types import Explanation, Suggestion

REFRESH_S = 0.25  # between looks at the recommendation to fall back on
SILENCE_S = 40.0  # of a live stream, whose heart beats every 15 s


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a tell."""

    id: str
    status: Literal["learned", "duplicate", "queued", "dropped", "rejected"]
    late: bool = False  # it came after the suggestion had expired, and was learned all the same
    error: str | None = None  # why it was rejected; only in a batch


class Study:
    """Asks and tells over HTTP; may be used from many threads. Made by `Client.study` and `Client.create`.

    `ask` and `recommend` answer within `ask_deadline` seconds whatever the server does: from the server, else the
    last recommendation known for the nearest context, else the default. All other calls are tried again until the
    client's timeout is over, and then raise ServerUnavailable.
    """

    def __init__(
        self, name: str, default: Params, transport: Transport, outbox: Outbox, ask_deadline: float | None
    ) -> None:
        self.name = name
        self.fallbacks = 0  # answers the client gave by itself
        self._path = f"/v1/studies/{quote(name, safe='')}"
        self._transport, self._outbox, self._deadline = transport, outbox, ask_deadline
        self._known, self._made = Known(default), Fallbacks()
        self._refresh_at = 0.0

    def __repr__(self) -> str:
        return f"<Study {self.name!r} at {self._transport.url}>"

    def ask(self, context: Context = None) -> Suggestion:
        """Parameters to run in this context, under an id to tell with.

        `is_fallback(id)` says whether the server was out of reach; a fallback is told like any other.
        """
        seen = context_json(context)
        try:
            answer = self._urgent("ask", seen)
        except ServerUnavailable:
            if self._deadline is None:
                raise
            params = self._fall_back(seen)
            return Suggestion(self._made.make(seen, params), params)
        self._refresh(seen)
        return Suggestion(answer["id"], answer["params"])

    def ask_batch(self, contexts: Sequence[Context]) -> list[Suggestion]:
        """A suggestion for each context, in one request; no fallback: ServerUnavailable if there is no answer."""
        body = {"contexts": [context_json(context) for context in contexts]}
        answer = self._transport.call("POST", f"{self._path}/ask/batch", body).body
        return [Suggestion(one["id"], one["params"]) for one in answer["suggestions"]]

    def tell(self, id: str, metrics: Mapping[str, float]) -> Told:
        """What became of it, once it is on the server's disk; a fallback's is queued, and observed later."""
        told = metrics_json(metrics)
        if is_fallback(_text("id", id)):
            return self._tell_fallback(id, told)
        return _told(self._transport.call("POST", f"{self._path}/tell", {"id": id, "metrics": told}).body)

    def tell_later(self, id: str, metrics: Mapping[str, float]) -> Told:
        """Queued at once, sent in the background; for code that may not wait. The queue is in memory only."""
        told = metrics_json(metrics)
        if is_fallback(_text("id", id)):
            return self._tell_fallback(id, told)
        self._outbox.put(f"{self._path}/tell", {"id": id, "metrics": told})
        return Told(id, "queued")

    def tell_failed(self, id: str, reason: str = "") -> Told:
        """What became of it; a fallback's failure cannot be learned, for nobody explored there: it is dropped."""
        body = {"id": _text("id", id), "reason": _text("reason", reason)}
        if is_fallback(id):
            self._made.told(id, None)
            return Told(id, "dropped")
        return _told(self._transport.call("POST", f"{self._path}/tell_failed", body).body)

    def tell_batch(self, tells: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]]) -> list[Told]:
        """One result a tell, each judged alone; what is refused comes back as "rejected", with the error.

        `tells` is `{id: metrics}`, or a list of `{"id": ..., "metrics": ...}` and `{"id": ..., "failed": reason}`.
        """
        listed: list[Mapping[str, Any]]
        listed = [{"id": id, "metrics": m} for id, m in tells.items()] if isinstance(tells, Mapping) else list(tells)
        items = [{**item, "metrics": metrics_json(item["metrics"])} if "metrics" in item else item for item in listed]
        own = {i for i, item in enumerate(items) if is_fallback(_text("id", item.get("id")))}
        sent = [item for i, item in enumerate(items) if i not in own]
        answers: Iterator[Any] = iter(())
        if sent:
            answers = iter(self._transport.call("POST", f"{self._path}/tell/batch", {"tells": sent}).body["results"])
        return [self._told_own(items[i]) if i in own else _told(next(answers)) for i in range(len(items))]

    def observe(
        self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float], key: str | None = None
    ) -> Literal["learned", "duplicate"]:
        """Whether it was new; the same key again changes nothing. One is made if none is given, so retries are safe."""
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
            params: Params = self._urgent("recommend", seen)["params"]
        except ServerUnavailable:
            if self._deadline is None:
                raise
            return self._fall_back(seen)
        self._known.remember(seen, params)
        return params

    def explain(self, id: str) -> Explanation:
        """Why `id` was suggested and, once told, what came of it; `str()` gives it in words."""
        if is_fallback(_text("id", id)):
            raise UnknownSuggestion(f"{id!r} is a fallback, which the server never saw: there is nothing to explain")
        why = self.suggestion(id)["why"]
        if why is None:
            raise ExpiredSuggestion(f"suggestion {id!r} is so old that the tuner has let go of its reasons")
        known: dict[str, Any] = {}
        for name in (field.name for field in fields(Explanation) if field.name in why):
            known[name] = tuple(why[name]) if isinstance(why[name], list) else why[name]
        return Explanation(**known)

    def freeze(self) -> None:
        """Stop exploring: until `unfreeze`, every ask gets the recommendation."""
        self._transport.call("POST", f"{self._path}/freeze")

    def unfreeze(self) -> None:
        """Explore again."""
        self._transport.call("POST", f"{self._path}/unfreeze")

    def view(self) -> dict[str, Any]:
        """The definition and the counts: asks, tells, failures, observations, late, expired, pending, learned."""
        return self._get("")

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
        for line in self._transport.lines(f"{self._path}/live", SILENCE_S):
            if line.startswith("data:"):
                yield json.loads(line[5:])

    def export(self) -> Iterator[str]:
        """The lines of the study's whole log, for `Client.import_study`; ServerUnavailable if it breaks off."""
        digest, last = hashlib.sha256(), ""
        for line in self._transport.lines(f"{self._path}/export", SILENCE_S):
            if last:
                digest.update(f"{last}\n".encode())
            last = line
            yield line
        if not last.endswith(f'"sha256":"{digest.hexdigest()}"}}'):
            raise ServerUnavailable(f"the export of {self.name!r} broke off: its checksum is missing or does not match")

    def delete(self) -> None:
        """Delete the study with all it learned."""
        self._transport.call("DELETE", self._path, again=False)

    def forget(self, *, timeout: float = 600.0, **which: Any) -> dict[str, Any]:
        """Erase records as if they had never been: `{"erased": count, "scrubbed": files are clean, "backups": ...}`.

        `which` has one or more of after, before (unix seconds), context ({name: number or [low, high]}), ids, keys (of
        observations); a record is erased if all that is given holds for it.
        """
        answer = self._transport.call("POST", f"{self._path}/forget", which, again=False, timeout=timeout)
        found: dict[str, Any] = answer.body
        return found

    def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._transport.call("GET", f"{self._path}{path}").body
        return found

    def _urgent(self, action: str, context: Any) -> dict[str, Any]:
        path, body = f"{self._path}/{action}", {"context": context}
        if self._deadline is None:
            answer = self._transport.call("POST", path, body)
        else:
            answer = self._transport.within(self._deadline, "POST", path, body)
        found: dict[str, Any] = answer.body
        return found

    def _fall_back(self, context: Any) -> Params:
        self.fallbacks += 1
        return self._known.best(context)

    def _refresh(self, context: Any) -> None:
        """Now and then, in the background, learn what would be recommended here."""
        now = time.monotonic()
        if self._deadline is None or now < self._refresh_at:
            return
        self._refresh_at = now + REFRESH_S

        def look() -> None:
            answer = self._transport.once("POST", f"{self._path}/recommend", {"context": context}, timeout=1.0)
            self._known.remember(context, answer.body["params"])

        self._transport.later(look)

    def _tell_fallback(self, id: str, metrics: dict[str, float]) -> Told:
        made = self._made.told(id, metrics)
        if made is None:
            return Told(id, "duplicate")
        body = {"context": made.context, "params": made.params, "metrics": metrics, "key": id}
        self._outbox.put(f"{self._path}/observe", body)
        return Told(id, "queued")

    def _told_own(self, item: Mapping[str, Any]) -> Told:
        try:
            if "metrics" in item:
                return self._tell_fallback(item["id"], item["metrics"])
            return self.tell_failed(item["id"], item.get("failed", ""))
        except RaspError as error:
            return Told(item["id"], "rejected", error=str(error))


def _told(answer: Mapping[str, Any]) -> Told:
    error = answer.get("error")
    return Told(answer["id"], answer["status"], bool(answer.get("late")), error["message"] if error else None)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{field} must be a string, got {show(value)}")
    return value
