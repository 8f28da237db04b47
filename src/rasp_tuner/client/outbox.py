"""Outbox: a bounded queue of requests that wait for the server. They are sent in order, beside everything else."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rasp_tuner.client.errors import AccessDenied, ServerUnavailable
from rasp_tuner.client.exchange import Exchange, Request, Start, Steps, Wait
from rasp_tuner.client.server_state import backoff
from rasp_tuner.errors import RaspError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0  # between attempts while the server is down, doubling

log = logging.getLogger("rasp_tuner.client")


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request that may be sent more than once (it is idempotent), and what to do once it has arrived."""

    path: str
    body: Mapping[str, Any]
    then: Callable[[], Steps[None]] | None = None


class Outbox:
    """Thread-safe. A request that the server refuses for good is dropped with a warning: it would block the rest."""

    def __init__(self, exchange: Exchange, size: int) -> None:
        self._exchange, self._size = exchange, size
        self._closed = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start with an empty queue, in the child of a fork: the parent sends what it had queued."""
        self._requests: deque[QueuedRequest] = deque()
        self._lock = threading.Lock()
        self._started = False
        self._filled, self._empty, self._closing = (self._exchange.signal() for _ in range(3))
        self._empty.set()
        self.dropped = 0  # replaced by newer ones, or refused

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, request: QueuedRequest) -> Steps[None]:
        """Queue a request; beyond the size the oldest is dropped."""
        with self._lock:
            if self._closed:
                raise ServerUnavailable(f"the client of {self._exchange.url} was closed: nothing can be sent")
            self._requests.append(request)
            self._empty.clear()
            if len(self._requests) > self._size:
                self._requests.popleft()
                self.dropped += 1
                log.warning("the outbox holds %d and is full: the oldest was dropped", self._size)
            starting, self._started = not self._started, True
        if starting:
            yield Start(self._deliver(), lasting=True)
        self._filled.set()

    def flush(self, timeout: float) -> Steps[bool]:
        """Whether the queue became empty within so many seconds."""
        yield Wait(self._empty, timeout)
        return not self._requests

    def close(self) -> None:
        """Stop sending."""
        self._closed = True
        self._closing.set()
        self._filled.set()

    def _deliver(self) -> Steps[None]:
        failures = 0
        while not self._closed:
            self._filled.clear()
            with self._lock:
                request = self._requests[0] if self._requests else None
            if request is None:
                yield Wait(self._filled)
                continue
            try:
                yield from self._send(request)
            except (ServerUnavailable, AccessDenied) as error:  # the key may become valid while this waits
                failures += 1
                if failures == 1:
                    log.warning("%d told, but not sent yet: %s", len(self._requests), error)
                wait = backoff(failures, FIRST_WAIT_S, LONGEST_WAIT_S)
                asked = error.retry_after if isinstance(error, ServerUnavailable) else None
                yield Wait(self._closing, max(wait, asked or 0.0))
                continue
            failures = 0
            with self._lock:
                if self._requests and self._requests[0] is request:
                    self._requests.popleft()
                if not self._requests:
                    self._empty.set()
            if request.then is not None:
                yield Start(request.then())

    def _send(self, request: QueuedRequest) -> Steps[None]:
        """Send, or drop if refused for good; raises ServerUnavailable or AccessDenied if it should be retried."""
        try:
            yield from self._exchange.call(Request("POST", request.path, request.body))
        except (ServerUnavailable, AccessDenied):
            raise
        except RaspError as error:
            if self._closed:
                return
            self.dropped += 1
            log.warning("the server refused what was told, it is dropped: %s (%s)", error, request.path)
