"""AsyncClient and AsyncStudy: the calls of Client and Study, to be awaited. What they do is said there."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rasp_tuner.client.async_transport import AsyncTransport
from rasp_tuner.client.client import URL
from rasp_tuner.client.client_calls import ClientCalls, Metrics, Space
from rasp_tuner.client.exchange import AskDeadline, key_headers
from rasp_tuner.client.study import STREAM_TIMEOUT_S
from rasp_tuner.client.study_calls import ExportCheck, Observed, StudyCalls, TellReply
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.gain.versus_default import VersusDefault
from rasp_tuner.space import Params
from rasp_tuner.trial import AsyncTrial
from rasp_tuner.tuner import Context
from rasp_tuner.types import Budget, Explanation, Margin, Suggestion
from rasp_tuner.what_if import WhatIf


class AsyncStudy:
    """One study of a server; made by `AsyncClient.create` and `AsyncClient.study`."""

    def __init__(self, calls: StudyCalls, transport: AsyncTransport) -> None:
        self._calls, self._transport, self._run = calls, transport, transport.run

    def __repr__(self) -> str:
        return f"<AsyncStudy {self.name!r} at {self._transport.url}>"

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def asks(self) -> int:
        return self._calls.share.asks

    @property
    def fallbacks(self) -> int:
        return self._calls.share.fallbacks

    async def ask(self, context: Context = None) -> Suggestion:
        return await self._run(self._calls.ask(context))

    async def ask_ahead(self, context: Context = None) -> None:
        await self._run(self._calls.ask_ahead(context))

    async def ask_batch(self, contexts: Sequence[Context]) -> list[Suggestion]:
        return await self._run(self._calls.ask_batch(contexts))

    def trial(self, context: Context = None) -> AsyncTrial:
        return AsyncTrial(lambda: self.ask(context), self)

    async def should_stop(self, id: str, partial: Mapping[str, float]) -> bool:
        return await self._run(self._calls.should_stop(id, partial))

    async def tell(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> TellReply:
        return await self._run(self._calls.tell(id, metrics, params, stopped, control))

    async def tell_later(
        self,
        id: str,
        metrics: Mapping[str, float],
        params: Mapping[str, object] | None = None,
        *,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> TellReply:
        return await self._run(self._calls.tell_later(id, metrics, params, stopped, control))

    async def tell_failed(self, id: str, reason: str = "", params: Mapping[str, object] | None = None) -> TellReply:
        return await self._run(self._calls.tell_failed(id, reason, params))

    async def tell_failed_later(
        self, id: str, reason: str = "", params: Mapping[str, object] | None = None
    ) -> TellReply:
        return await self._run(self._calls.tell_failed_later(id, reason, params))

    async def flush(self, timeout: float = 5.0) -> bool:
        return await self._run(self._calls.flush(timeout))

    async def tell_batch(
        self, tells: Mapping[str, Mapping[str, float]] | Sequence[Mapping[str, Any]]
    ) -> list[TellReply]:
        return await self._run(self._calls.tell_batch(tells))

    async def observe(
        self, context: Context, params: Mapping[str, object], metrics: Mapping[str, float], key: str | None = None
    ) -> Observed:
        return await self._run(self._calls.observe(context, params, metrics, key))

    async def tell_sums(self, source: str, sequence: int, sums: Sequence[Mapping[str, Any]]) -> Observed:
        return await self._run(self._calls.tell_sums(source, sequence, sums))

    async def policy(self, outcomes: int | None = None, version: str | None = None) -> dict[str, Any] | None:
        return await self._run(self._calls.policy(outcomes, version))

    async def recommend(self, context: Context = None) -> Params:
        return await self._run(self._calls.recommend(context))

    async def margins(self, context: Context = None) -> dict[str, Margin]:
        return await self._run(self._calls.margins(context))

    async def what_if(self, context: Context = None, params: Mapping[str, object] | None = None) -> WhatIf:
        return await self._run(self._calls.what_if(context, params))

    async def explain(self, id: str) -> Explanation:
        return await self._run(self._calls.explain(id))

    async def freeze(self, *, default: bool = False) -> None:
        await self._run(self._calls.set_frozen(True, default))

    async def unfreeze(self) -> None:
        await self._run(self._calls.set_frozen(False))

    async def waiting(self) -> list[dict[str, Any]]:
        return await self._run(self._calls.waiting())

    async def approve(self, id: str) -> None:
        await self._run(self._calls.decide(id, "approve"))

    async def refuse(self, id: str, for_s: float | None = None) -> None:
        await self._run(self._calls.decide(id, "refuse", for_s))

    async def view(self) -> dict[str, Any]:
        return await self._run(self._calls.get(""))

    async def budget(self) -> Budget | None:
        return await self._run(self._calls.budget())

    async def situations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._run(self._calls.get("/situations")))["situations"]
        return found

    async def versus_default(self) -> VersusDefault | None:
        return await self._run(self._calls.versus_default())

    async def scales(self) -> dict[str, str]:
        return await self._run(self._calls.scales())

    async def suggestions(self, limit: int = 50) -> list[dict[str, Any]]:
        return await self._run(self._calls.suggestions(limit))

    async def suggestion(self, id: str) -> dict[str, Any]:
        return await self._run(self._calls.suggestion(id))

    async def history(self, points: int = 600) -> dict[str, Any]:
        return await self._run(self._calls.get(f"/history?points={points}"))

    async def live(self) -> AsyncIterator[dict[str, Any]]:
        async for line in self._transport.lines(f"{self._calls.path}/live", STREAM_TIMEOUT_S):
            if line.startswith("data:"):
                yield json.loads(line[5:])

    async def export(self) -> AsyncIterator[str]:
        check = ExportCheck(self.name)
        async for line in self._transport.lines(f"{self._calls.path}/export", STREAM_TIMEOUT_S):
            yield check.add(line)
        check.end()

    async def delete(self) -> None:
        await self._run(self._calls.delete())

    async def forget(self, *, timeout: float = 600.0, **which: Any) -> dict[str, Any]:
        return await self._run(self._calls.forget(timeout, which))


class AsyncClient:
    """Studies of one server, for one event loop; the end of an `async with` closes it. Arguments as for Client."""

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        ask_deadline: AskDeadline = "auto",
        queue: int = 10_000,
        prefetch: bool = False,
    ) -> None:
        self._calls = ClientCalls(url, timeout, ask_deadline, queue, prefetch, asyncio.Event)
        self._transport = AsyncTransport(self._calls.exchange.url, key_headers(key))
        self._run = self._transport.run

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.url}>"

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def queued(self) -> int:
        return len(self._calls.outbox)

    @property
    def dropped(self) -> int:
        return self._calls.outbox.dropped

    async def create(
        self,
        name: str,
        space: Space,
        metrics: Metrics,
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> AsyncStudy:
        return self._study(await self._run(self._calls.create(name, space, metrics, context, default, settings)))

    async def create_from(self, definition: Mapping[str, Any]) -> tuple[AsyncStudy, bool]:
        study, new = await self._run(self._calls.create_from(definition))
        return self._study(study), new

    async def study(self, name: str, default: Mapping[str, object] | None = None) -> AsyncStudy:
        return self._study(await self._run(self._calls.study(name, default)))

    async def studies(self) -> list[dict[str, Any]]:
        return await self._run(self._calls.studies())

    async def studies_page(
        self, limit: int = 50, offset: int = 0, find: str = "", sort: str = "name"
    ) -> dict[str, Any]:
        return await self._run(self._calls.studies_page(limit, offset, find, sort))

    async def import_study(self, lines: Iterable[str], name: str | None = None) -> AsyncStudy:
        return self._study(await self._run(self._calls.import_study(lines, name)))

    async def flush(self, timeout: float = 5.0) -> bool:
        return await self._run(self._calls.outbox.flush(timeout))

    async def close(self, timeout: float = 1.0) -> None:
        await self.flush(timeout)
        self._calls.outbox.close()
        await self._transport.close()

    def _study(self, calls: StudyCalls) -> AsyncStudy:
        return AsyncStudy(calls, self._transport)
