"""Outbox: what could not be told yet. Bounded; sent in order by one thread, which starts when there is something."""

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rasp_tuner.client.errors import AccessDenied, ServerUnavailable
from rasp_tuner.client.transport import Transport, backoff
from rasp_tuner.errors import RaspError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0  # between attempts on a server that is gone, doubling

log = logging.getLogger("rasp_tuner.client")


@dataclass(frozen=True, slots=True)
class Letter:
    """A request whose repetition changes nothing."""

    path: str
    body: Mapping[str, Any]


class Outbox:
    """For many threads. What the server refuses for good is dropped with a warning: it would block the rest."""

    def __init__(self, transport: Transport, size: int) -> None:
        self._transport, self._size = transport, size
        self._closed = False
        self.renew()

    def renew(self) -> None:
        """Start afresh and empty; for the child of a fork: what waits is the parent's to send."""
        self._letters: deque[Letter] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.dropped = 0  # pushed out by newer ones, or refused

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Have it sent when the server can take it; beyond the size the oldest is dropped."""
        with self._changed:
            if self._closed:
                raise ServerUnavailable(f"the client of {self._transport.url} was closed: nothing can be sent")
            self._letters.append(Letter(path, body))
            if len(self._letters) > self._size:
                self._letters.popleft()
                self.dropped += 1
                log.warning("the outbox holds %d and is full: the oldest was dropped", self._size)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rasp-outbox", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Whether everything was sent within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._letters, timeout)

    def close(self) -> None:
        """Send no more, and wait for what is being sent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._letters or self._closed)
                if self._closed:
                    return
                letter = self._letters[0]
            try:
                self._send(letter)
            except (ServerUnavailable, AccessDenied) as error:  # a key may be mended while this waits
                failures += 1
                if failures == 1:
                    log.warning("%d told, but not sent yet: %s", len(self._letters), error)
                wait = backoff(failures, FIRST_WAIT_S, LONGEST_WAIT_S)
                asked = error.retry_after if isinstance(error, ServerUnavailable) else None
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, max(wait, asked or 0.0))
            else:
                failures = 0
                with self._changed:
                    if self._letters and self._letters[0] is letter:
                        self._letters.popleft()
                    self._changed.notify_all()

    def _send(self, letter: Letter) -> None:
        """Sent, or refused for good; ServerUnavailable or AccessDenied if it should be tried again."""
        try:
            self._transport.call("POST", letter.path, letter.body, timeout=1.0)
        except (ServerUnavailable, AccessDenied):
            raise
        except RaspError as error:
            self.dropped += 1
            log.warning("the server refused what was told, it is dropped: %s (%s)", error, letter.path)
