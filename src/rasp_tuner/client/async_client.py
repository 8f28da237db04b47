"""AsyncClient: a connection to one server; it creates and opens studies. Its calls are awaited."""

import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from rasp_tuner.base.checks import STUDY_NAME, show, whole
from rasp_tuner.client.async_study import AsyncStudy
from rasp_tuner.client.errors import UnknownStudy
from rasp_tuner.client.exchange import AskDeadline, Exchange, HttpAnswer, HttpRequest
from rasp_tuner.client.outbox import Outbox
from rasp_tuner.client.wire import context_schema_json, metric_specs_json, params_json, space_json
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.space import Knob
from rasp_tuner.types import Direction, Metric

URL = "http://127.0.0.1:8321"
Space = Mapping[str, Knob | Mapping[str, Any]]
Metrics = Mapping[str, Metric | Direction | Mapping[str, Any]]
MOST_IN_PAGE, MOST_OFFSET = 10_000, 10**9  # studies; the server's own limits
LEAST_IMPORT_S = 600.0  # the server replays a study before it answers


class AsyncClient:
    """Studies of one server, for one event loop; the end of an `async with` closes it.

    url           where `rasp serve` listens
    key           an API key, `rasp_...`; not needed on the server's own machine while the server has no keys
    timeout       seconds a call may take, with all its retries, before it raises ServerUnavailable
    ask_deadline  seconds after which `ask` and `recommend` answer without the server; "auto": four times as long as the
                  slowest recent answer took, between 0.1 and `timeout`; None: they wait, and raise
    queue         how many tells wait in memory for a server that is down; beyond that the oldest are dropped
    """

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        ask_deadline: AskDeadline = "auto",
        queue: int = 10_000,
    ) -> None:
        self._exchange = Exchange(url, key, timeout, ask_deadline)
        self._outbox = Outbox(self._exchange, whole("queue", queue, 1, 10_000_000))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        return self._exchange.url

    @property
    def queued(self) -> int:
        """How many tells wait to be sent."""
        return len(self._outbox)

    @property
    def dropped(self) -> int:
        """How many queued tells were lost: pushed out of the full queue, or refused by the server."""
        return self._outbox.dropped

    async def create(
        self,
        name: str,
        space: Space,
        metrics: Metrics,
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> AsyncStudy:
        """The study of this definition, created if it does not exist; Conflict if the name has another definition.

        Arguments as for `Tuner`; `settings`: constraints, preset, seed, guard, budget, holdout, max_change,
        switching_cost, max_pending; lease_s, the seconds after which an unanswered ask counts as expired;
        approve_s, for how long a suggestion waits for a person.
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
        return (await self.create_from(definition))[0]

    async def create_from(self, definition: Mapping[str, Any]) -> tuple[AsyncStudy, bool]:
        """The study of a definition in the JSON of the HTTP API, and whether it is new."""
        answer = await self._exchange.call(HttpRequest("POST", "/v1/studies", definition))
        return self._study(answer.body), answer.status == 201

    async def study(self, name: str, default: Mapping[str, object] | None = None) -> AsyncStudy:
        """An existing study; raises UnknownStudy if the server has none of this name.

        With `default` no request is made, so a program can start and run on the default while the server is down. The
        study must then be created by someone else, or `ask` raises UnknownStudy.
        """
        if not isinstance(name, str) or not re.fullmatch(STUDY_NAME, name):
            raise UnknownStudy(f"no study {show(name)}; names are 1 to 64 of A-Z a-z 0-9 . _ - and start with no dot")
        if default is not None:
            return self._study({"name": name, "default": params_json(default, "default")})
        return self._study((await self._get(f"/v1/studies/{quote(name, safe='')}")).body)

    async def studies(self) -> list[dict[str, Any]]:
        """The views of all studies that the key allows."""
        return list((await self._get("/v1/studies")).body["studies"])

    async def studies_page(
        self, limit: int = 50, offset: int = 0, find: str = "", sort: str = "name"
    ) -> dict[str, Any]:
        """Some of them: `{"studies": views, "total": how many were found, ...}`, as the HTTP API gives it.

        `find` is a part of the name; `sort` is name, recent, alerts, gain or learned.
        """
        limit, offset = whole("limit", limit, 1, MOST_IN_PAGE), whole("offset", offset, 0, MOST_OFFSET)
        query = urlencode({"limit": limit, "offset": offset, "find": find, "sort": sort})
        return dict((await self._get(f"/v1/studies?{query}")).body)

    async def import_study(self, lines: Iterable[str], name: str | None = None) -> AsyncStudy:
        """The study of an export, rebuilt on this server under its own name or another."""
        content = "".join(f"{line.rstrip()}\n" for line in lines).encode()
        path = "/v1/studies/import" + ("" if name is None else f"?name={quote(name, safe='')}")
        timeout = max(self._exchange.timeout, LEAST_IMPORT_S)
        request = HttpRequest("POST", path, content=content)
        return self._study((await self._exchange.call(request, idempotent=False, timeout=timeout)).body)

    async def flush(self, timeout: float = 5.0) -> bool:
        """Whether all queued tells were sent within so many seconds."""
        return await self._outbox.flush(timeout)

    async def close(self, timeout: float = 1.0) -> None:
        """Wait so many seconds for queued tells to be sent, then drop them and close all connections."""
        await self.flush(timeout)
        await self._exchange.close()

    def drop_connections(self) -> None:
        self._exchange.http.close()

    def reset_after_fork(self) -> None:
        self._exchange.reset_after_fork()
        self._outbox.reset_after_fork()

    async def _get(self, path: str) -> HttpAnswer:
        return await self._exchange.call(HttpRequest("GET", path))

    def _study(self, view: Mapping[str, Any]) -> AsyncStudy:
        return AsyncStudy(view["name"], view["default"], self._exchange, self._outbox)
