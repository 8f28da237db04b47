"""ClientCalls: every call of a client as steps; Client and AsyncClient perform them."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from rasp_tuner.base.checks import STUDY_NAME, show, whole
from rasp_tuner.client.errors import UnknownStudy
from rasp_tuner.client.exchange import AskDeadline, Exchange, Request, Signal, Steps
from rasp_tuner.client.outbox import Outbox
from rasp_tuner.client.study_calls import StudyCalls
from rasp_tuner.client.wire import context_schema_json, metric_specs_json, params_json, space_json
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.space import Knob
from rasp_tuner.types import Direction, Metric

Space = Mapping[str, Knob | Mapping[str, Any]]
Metrics = Mapping[str, Metric | Direction | Mapping[str, Any]]
MOST_IN_PAGE, MOST_OFFSET = 10_000, 10**9  # studies; the server's own limits
LEAST_IMPORT_S = 600.0  # the server replays a study before it answers


class ClientCalls:
    """One server, one queue; thread-safe. docs of the calls are in client.py."""

    def __init__(
        self,
        url: str,
        timeout: float,
        ask_deadline: AskDeadline,
        queue: int,
        prefetch: bool,
        signal: Callable[[], Signal],
    ) -> None:
        self.exchange = Exchange(url, timeout, ask_deadline, signal)
        self.outbox = Outbox(self.exchange, whole("queue", queue, 1, 10_000_000))
        self._prefetch = prefetch

    def create(
        self,
        name: str,
        space: Space,
        metrics: Metrics,
        context: Schema,
        default: Mapping[str, object] | None,
        settings: Mapping[str, Any],
    ) -> Steps[StudyCalls]:
        definition = {
            "name": name,
            "space": space_json(space),
            "metrics": metric_specs_json(metrics),
            "context": context_schema_json(context),
            **settings,
        }
        if default is not None:
            definition["default"] = params_json(default, "default")
        return (yield from self.create_from(definition))[0]

    def create_from(self, definition: Mapping[str, Any]) -> Steps[tuple[StudyCalls, bool]]:
        answer = yield from self.exchange.call(Request("POST", "/v1/studies", definition))
        return self._study(answer.body), answer.status == 201

    def study(self, name: str, default: Mapping[str, object] | None) -> Steps[StudyCalls]:
        if not isinstance(name, str) or not re.fullmatch(STUDY_NAME, name):
            raise UnknownStudy(f"no study {show(name)}; names are 1 to 64 of A-Z a-z 0-9 . _ - and start with no dot")
        if default is not None:
            return self._study({"name": name, "default": params_json(default, "default")})
        return self._study((yield from self.exchange.call(Request("GET", f"/v1/studies/{quote(name, safe='')}"))).body)

    def studies(self) -> Steps[list[dict[str, Any]]]:
        views: list[dict[str, Any]] = (yield from self.exchange.call(Request("GET", "/v1/studies"))).body["studies"]
        return views

    def studies_page(self, limit: int, offset: int, find: str, sort: str) -> Steps[dict[str, Any]]:
        limit, offset = whole("limit", limit, 1, MOST_IN_PAGE), whole("offset", offset, 0, MOST_OFFSET)
        query = urlencode({"limit": limit, "offset": offset, "find": find, "sort": sort})
        page: dict[str, Any] = (yield from self.exchange.call(Request("GET", f"/v1/studies?{query}"))).body
        return page

    def import_study(self, lines: Iterable[str], name: str | None) -> Steps[StudyCalls]:
        content = "".join(f"{line.rstrip()}\n" for line in lines).encode()
        path = "/v1/studies/import" + ("" if name is None else f"?name={quote(name, safe='')}")
        timeout = max(self.exchange.timeout, LEAST_IMPORT_S)
        request = Request("POST", path, content=content)
        return self._study((yield from self.exchange.call(request, idempotent=False, timeout=timeout)).body)

    def reset_after_fork(self) -> None:
        self.exchange.reset_after_fork()
        self.outbox.reset_after_fork()

    def _study(self, view: Mapping[str, Any]) -> StudyCalls:
        return StudyCalls(view["name"], view["default"], self.exchange, self.outbox, self._prefetch)
