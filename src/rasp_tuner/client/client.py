"""Client: a connection to one server; it creates and opens studies."""

import os
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

from rasp_tuner.client.outbox import Outbox
from rasp_tuner.client.study import Study
from rasp_tuner.client.transport import Transport, positive_seconds
from rasp_tuner.client.wire import context_schema_json, metric_specs_json, params_json, space_json
from rasp_tuner.core.checks import whole
from rasp_tuner.core.context_encoder import Schema
from rasp_tuner.space import Knob
from rasp_tuner.types import Direction, Metric

URL = "http://127.0.0.1:8321"


class Client:
    """Studies of one server. It may be used from many threads and after a fork; the end of a `with` closes it.

    url           where `rasp serve` listens
    key           an API key, `rasp_...`; not needed on the server's own machine while the server has no keys
    timeout       seconds a call may take, with all its retries, before it raises ServerUnavailable
    ask_deadline  seconds after which `ask` and `recommend` answer without the server; None: they wait, and raise
    queue         how many tells wait in memory for a server that is down; beyond that the oldest are dropped
    """

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        ask_deadline: float | None = 0.05,
        queue: int = 10_000,
    ) -> None:
        self._deadline = None if ask_deadline is None else positive_seconds("ask_deadline", ask_deadline)
        size = whole("queue", queue, 1, 10_000_000)
        self._transport = Transport(url, key, timeout)
        self._outbox = Outbox(self._transport, size)
        own = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (forked := own()) and forked())

    def __repr__(self) -> str:
        return f"<Client of {self._transport.url}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def queued(self) -> int:
        """How many tells wait to be sent."""
        return len(self._outbox)

    @property
    def dropped(self) -> int:
        """How many queued tells were lost: pushed out of the full queue, or refused by the server."""
        return self._outbox.dropped

    def create(
        self,
        name: str,
        space: Mapping[str, Knob | Mapping[str, Any]],
        metrics: Mapping[str, Metric | Direction | Mapping[str, Any]],
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> Study:
        """The study of this definition, created if it does not exist; Conflict if the name has another definition.

        Arguments as for `Tuner`; `settings`: constraints, preset, seed, guard, budget, switching_cost, screen,
        max_pending, lease_s, the seconds after which an unanswered ask counts as expired, and ttl_s, after which
        records are erased.
        """
        definition = {
            "name": name,
            "space": space_json(space),
            "metrics": metric_specs_json(metrics),
            "context": context_schema_json(context),
            **settings,
        }
        if default is not None:
            definition["default"] = params_json(default, "default")
        return self.create_from(definition)[0]

    def create_from(self, definition: Mapping[str, Any]) -> tuple[Study, bool]:
        """The study of a definition in the JSON of the HTTP API, and whether it is new."""
        answer = self._transport.call("POST", "/v1/studies", definition)
        return self._study(answer.body), answer.status == 201

    def study(self, name: str, default: Mapping[str, object] | None = None) -> Study:
        """An existing study; raises UnknownStudy if the server has none of this name.

        With `default` no request is made, so a program can start and run on the default while the server is down. The
        study must then be created by someone else, or `ask` raises UnknownStudy.
        """
        if default is not None:
            return self._study({"name": name, "default": params_json(default, "default")})
        return self._study(self._transport.call("GET", f"/v1/studies/{quote(name, safe='')}").body)

    def studies(self) -> list[dict[str, Any]]:
        """The views of all studies that the key allows."""
        views: list[dict[str, Any]] = self._transport.call("GET", "/v1/studies").body["studies"]
        return views

    def import_study(self, lines: Iterable[str], name: str | None = None) -> Study:
        """The study of an export, rebuilt on this server under its own name or another."""
        content = "".join(f"{line.rstrip()}\n" for line in lines).encode()
        path = "/v1/studies/import" + ("" if name is None else f"?name={quote(name, safe='')}")
        timeout = max(self._transport.timeout, 600.0)  # the server replays it before it answers
        return self._study(self._transport.call("POST", path, content=content, idempotent=False, timeout=timeout).body)

    def flush(self, timeout: float = 5.0) -> bool:
        """Whether all queued tells were sent within so many seconds."""
        return self._outbox.flush(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """Wait so many seconds for queued tells to be sent, then drop them and close all connections."""
        self._outbox.flush(timeout)
        self._outbox.close()
        self._transport.close()

    def _after_fork(self) -> None:
        """Reset in the child of a fork: a web server may make the client before it forks its workers."""
        self._transport.reset_after_fork()
        self._outbox.reset_after_fork()

    def _study(self, view: Mapping[str, Any]) -> Study:
        return Study(view["name"], view["default"], self._transport, self._outbox, self._deadline)
