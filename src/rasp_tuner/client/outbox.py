"""Outbox: a bounded queue of requests that wait for the server. One thread, started on demand, sends them in order."""

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rasp_tuner.client.errors import AccessDenied, ServerUnavailable
from rasp_tuner.client.transport import Transport, backoff
from rasp_tuner.errors import RaspError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0  # between attempts while the server is down, doubling

log = logging.getLogger("rasp_tuner.client")


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request that may be sent more than once (it is idempotent)."""

    path: str
    body: Mapping[str, Any]


class Outbox:
    """Thread-safe. A request that the server refuses for good is dropped with a warning: it would block the rest."""

    def __init__(self, transport: Transport, size: int) -> None:
        self._transport, self._size = transport, size
        self._closed = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Start with an empty queue, in the child of a fork: the parent sends what it had queued."""
        self._requests: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped = 0  # replaced by newer ones, or refused

    def __len__(self) -> int:
        return len(self._requests)

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Queue a request; beyond the size the oldest is dropped."""
        with self._changed:
            if self._closed:
                raise ServerUnavailable(f"the client of {self._transport.url} was closed: nothing can be sent")
            self._requests.append(QueuedRequest(path, body))
            if len(self._requests) > self._size:
                self._requests.popleft()
                self.dropped += 1
                log.warning("the outbox holds %d and is full: the oldest was dropped", self._size)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rasp-outbox", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Whether the queue became empty within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._requests, timeout)

    def close(self) -> None:
        """Stop sending, and wait for the request that is being sent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closed)
                if self._closed:
                    return
                request = self._requests[0]
            try:
                self._send(request)
            except (ServerUnavailable, AccessDenied) as error:  # the key may become valid while this waits
                failures += 1
                if failures == 1:
                    log.warning("%d told, but not sent yet: %s", len(self._requests), error)
                wait = backoff(failures, FIRST_WAIT_S, LONGEST_WAIT_S)
                asked = error.retry_after if isinstance(error, ServerUnavailable) else None
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, max(wait, asked or 0.0))
            else:
                failures = 0
                with self._changed:
                    if self._requests and self._requests[0] is request:
                        self._requests.popleft()
                    self._changed.notify_all()

    def _send(self, request: QueuedRequest) -> None:
        """Send, or drop if refused for good; raises ServerUnavailable or AccessDenied if it should be retried."""
        try:
            self._transport.call("POST", request.path, request.body, timeout=1.0)
        except (ServerUnavailable, AccessDenied):
            raise
        except RaspError as error:
            self.dropped += 1
            log.warning("the server refused what was told, it is dropped: %s (%s)", error, request.path)
