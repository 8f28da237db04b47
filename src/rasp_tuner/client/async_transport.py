"""AsyncTransport: performs the steps of calls on an event loop."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

import httpx

from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.client.exchange import Attempt, HttpAnswer, Start, Steps, Wait, parse_answer
from rasp_tuner.client.transport import closed_error, connection_settings, network_errors

T = TypeVar("T")

log = logging.getLogger("rasp_tuner.client")


class AsyncTransport:
    """One server, one key, one event loop."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url, self._closed = url, False
        self._http = httpx.AsyncClient(**connection_settings(url, headers))
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, steps: Steps[T]) -> T:
        """Perform the steps; gives what they return, or raises what they raise."""
        try:
            step = next(steps)
            while True:
                try:
                    value = await self._perform(step)
                except Exception as error:  # noqa: BLE001 - the steps decide
                    step = steps.throw(error)
                else:
                    step = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    async def _perform(self, step: Attempt | Wait | Start) -> Any:
        if isinstance(step, Attempt):
            return await self._attempt(step)
        if isinstance(step, Wait):
            try:
                return await asyncio.wait_for(cast(asyncio.Event, step.signal).wait(), step.seconds)
            except TimeoutError:
                return False
        if self._closed:
            raise closed_error(self.url)
        task = asyncio.create_task(self.run(step.steps))
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return None

    async def _attempt(self, step: Attempt) -> HttpAnswer:
        if self._closed:
            raise closed_error(self.url)
        request, seconds = step.request, max(step.timeout, 0.001)
        content, headers = request.as_sent()
        with network_errors(self.url, seconds):
            try:
                async with asyncio.timeout(seconds):
                    response = await self._http.request(
                        request.method, request.path, content=content, headers=headers, timeout=httpx.Timeout(seconds)
                    )
            except TimeoutError as reason:
                raise httpx.ReadTimeout("the answer is too slow") from reason
        return parse_answer(self.url, request.path, response.status_code, response.headers, response.content)

    async def lines(self, path: str, silence: float) -> AsyncIterator[str]:
        """The lines of an answer as they arrive; ServerUnavailable after `silence` seconds without data."""
        if self._closed:
            raise closed_error(self.url)
        with network_errors(self.url, silence):
            async with self._http.stream("GET", path, timeout=httpx.Timeout(silence)) as response:
                if response.status_code >= 300:
                    parse_answer(self.url, path, response.status_code, response.headers, await response.aread())
                async for line in response.aiter_lines():
                    yield line

    async def close(self) -> None:
        """Stop all requests, also those that hang."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() or self._closed else task.exception()
        if error is not None and not isinstance(error, ServerUnavailable):
            log.warning("in the background: %s", error)
