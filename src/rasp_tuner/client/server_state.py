"""ServerState: what the client knows of its server, which says how long an ask waits and whether one is sent at all."""

import itertools
import logging
import secrets
import time

from rasp_tuner.client.errors import ServerUnavailable

FIRST_DEADLINE_S, LEAST_DEADLINE_S = 2.0, 0.1  # of a learned one: before any answer was seen, and of a fast server
TIMES_SLOWEST = 4.0  # an ask waits so many times as long as the slowest recent answer took
FADE = 0.95  # of that time, with every answer
SILENT_DEADLINES = 4.0  # without any answer, until asks no longer wait
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0  # without requests, after two failures in a row

WAIT_JITTER = secrets.SystemRandom()  # only for waits; safe to share between forks

log = logging.getLogger("rasp_tuner.client")


class ServerState:
    """`deadline` is the user's own; None: it is learned from the time that answers take, up to `longest`.

    A slow answer makes a learned deadline longer, also one that came too late to be used. Only a server that cannot be
    reached, refuses, or does not answer at all is left alone.
    """

    def __init__(self, url: str, deadline: float | None, longest: float) -> None:
        self._url, self._learns, self._longest = url, deadline is None, longest
        self._deadline = min(FIRST_DEADLINE_S, longest) if deadline is None else deadline
        self.patience = max(longest, self._deadline)  # seconds, then a late answer is given up
        self._sent: dict[int, float] = {}  # requests without an answer yet -> when they were sent
        self._numbers = itertools.count()
        self._heard_at = 0.0  # the latest answer
        self._failures = 0  # in a row
        self._failed_at = 0.0  # a request sent before that and failing too is the same failure
        self._resume_at = 0.0  # until then no request is sent

    @property
    def deadline(self) -> float:
        """Seconds that an ask waits for its answer now."""
        if self._failures:
            return min(LEAST_DEADLINE_S, self._deadline)
        return 0.0 if self._is_silent() else self._deadline

    def check_sendable(self) -> None:
        """Raise ServerUnavailable while the server is left alone."""
        if time.monotonic() < self._resume_at:
            raise ServerUnavailable(f"{self._url} failed {self._failures} times in a row; it is left alone a moment")
        if self._is_silent():
            raise ServerUnavailable(f"{self._url} does not answer now")

    def record_sent(self) -> int:
        """A number for `record_answer` or `record_failure`."""
        number = next(self._numbers)
        self._sent[number] = time.monotonic()
        return number

    def record_answer(self, number: int) -> None:
        """An answer came, in time or not."""
        took = time.monotonic() - self._sent.pop(number)
        if self._learns:
            wanted = max(TIMES_SLOWEST * took, FADE * self._deadline)
            self._deadline = min(max(wanted, LEAST_DEADLINE_S), self._longest)
        self._heard_at = time.monotonic()
        self.record_success()

    def record_success(self) -> None:
        """The server answers: whatever failed before is over."""
        if self._failures > 1:
            log.warning("%s answers again", self._url)
        self._failures, self._resume_at = 0, 0.0

    def record_failure(self, number: int, error: ServerUnavailable) -> None:
        """Pause requests if this was not the first failure, or if the server asked for a pause."""
        if self._sent.pop(number) < self._failed_at:
            return
        self._failures += 1
        if self._failures == 2:
            log.warning("%s: falling back to what is known until it answers again", error)
        pause = error.retry_after
        if pause is None:
            pause = backoff(self._failures - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S) if self._failures > 1 else 0.0
        self._failed_at = time.monotonic()
        self._resume_at = self._failed_at + pause

    def _is_silent(self) -> bool:
        """Whether requests are on their way and nothing has come back for much longer than usual."""
        oldest = next(iter(self._sent.values()), None)
        most = self._deadline
        if self._learns and self._heard_at:
            most = min(SILENT_DEADLINES * most, self._longest)
        return oldest is not None and time.monotonic() - max(oldest, self._heard_at) > most


def backoff(attempt: int, first: float, longest: float) -> float:
    """Seconds to wait after attempt 1, 2, ...: doubling, bounded, with jitter."""
    return WAIT_JITTER.uniform(0.5, 1.0) * min(first * 2.0 ** min(attempt - 1, 30), longest)
