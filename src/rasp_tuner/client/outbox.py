"""Outbox: a bounded queue of requests that wait for the server. They are sent in order, beside everything else."""

import asyncio
import logging
from collections import deque
from contextlib import suppress

from rasp_tuner.client.errors import AccessDenied, ServerUnavailable
from rasp_tuner.client.exchange import Exchange, HttpRequest
from rasp_tuner.client.server_state import backoff
from rasp_tuner.errors import RaspError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0  # between attempts while the server is down, doubling

log = logging.getLogger("rasp_tuner.client")


class Outbox:
    """Requests that may be sent more than once. One that the server refuses for good is dropped with a warning."""

    def __init__(self, exchange: Exchange, size: int) -> None:
        self._exchange, self._size = exchange, size
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start with an empty queue, in the child of a fork: the parent sends what it had queued."""
        self._requests: deque[HttpRequest] = deque()
        self._delivering: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self.dropped = 0  # replaced by newer ones, or refused

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, request: HttpRequest) -> None:
        """Queue a request; beyond the size the oldest is dropped."""
        if self._exchange.is_closed:
            raise ServerUnavailable(f"the client of {self._exchange.url} was closed: nothing can be sent")
        self._requests.append(request)
        self._empty.clear()
        if len(self._requests) > self._size:
            self._requests.popleft()
            self.dropped += 1
            log.warning("the outbox holds %d and is full: the oldest was dropped", self._size)
        if self._delivering is None or self._delivering.done():
            self._delivering = self._exchange.start(self._deliver())

    async def flush(self, timeout: float) -> bool:
        """Whether the queue became empty within so many seconds."""
        if self._requests and not self._exchange.is_closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout)
        return not self._requests

    async def _deliver(self) -> None:
        """Send what is queued, until nothing is."""
        failures = 0
        while self._requests:
            request = self._requests[0]
            try:
                await self._send(request)
            except (ServerUnavailable, AccessDenied) as error:  # the key may become valid while this waits
                failures += 1
                if failures == 1:
                    log.warning("%d told, but not sent yet: %s", len(self._requests), error)
                wait = backoff(failures, FIRST_WAIT_S, LONGEST_WAIT_S)
                asked = error.retry_after if isinstance(error, ServerUnavailable) else None
                await asyncio.sleep(max(wait, asked or 0.0))
                continue
            failures = 0
            if self._requests and self._requests[0] is request:
                self._requests.popleft()
        self._empty.set()

    async def _send(self, request: HttpRequest) -> None:
        """Send, or drop if refused for good; raises ServerUnavailable or AccessDenied if it should be retried."""
        try:
            await self._exchange.call(request)
        except (ServerUnavailable, AccessDenied):
            raise
        except RaspError as error:
            self.dropped += 1
            log.warning("the server refused what was told, it is dropped: %s (%s)", error, request.path)
