"""Edge: decisions by a policy that is kept fresh, without a request for any of them; what comes of them is summed."""

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rasp_tuner.base.checks import number
from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.errors import InvalidValue, RaspError
from rasp_tuner.policy.evaluate import Pick, check, pick_of, read_context
from rasp_tuner.policy.sums import OutcomeSums
from rasp_tuner.tuner import Context

MOST_BATCHES = 600  # that wait for a server that is away; beyond, the oldest are dropped
MOST_SUMS_SENT = 500  # in one request
CLOSE_WAIT_S = 5.0  # for what is still to be sent

log = logging.getLogger("rasp_tuner.client")


class EdgeStudy(Protocol):
    """What an edge needs of a study."""

    def policy(self, outcomes: int | None = None, version: str | None = None) -> dict[str, Any] | None: ...

    def tell_sums(self, source: str, sequence: int, sums: Sequence[Mapping[str, Any]]) -> str: ...


class Edge:
    """Picks and tells from any thread; one thread sends sums and fetches the policy every `every_s` seconds.

    A server that is away changes nothing for those who pick. Batches wait and are sent again, each under its number, so
    that it counts once. What was not sent when the process dies is lost.
    """

    def __init__(self, study: EdgeStudy, every_s: float = 1.0) -> None:
        self._every_s = number("every_s", every_s)
        if not self._every_s > 0.0:
            raise InvalidValue(f"every_s must be above 0, got {every_s!r}")
        self._study, self._source, self._sequence = study, uuid.uuid4().hex, 0
        self._lock, self._ending = threading.Lock(), threading.Event()  # of the sums
        self._exchanging = threading.Lock()  # of the batches: one thread at a time sends
        policy = study.policy()
        if policy is None:
            raise ServerUnavailable("the server sent no policy")
        self._sums = OutcomeSums(check(policy))
        self._waiting: deque[tuple[int, list[dict[str, Any]]]] = deque()
        self.outcomes = self.sent = self.dropped = 0  # told; on the server's disk; not sent for too long, or refused
        self._told_before, self._latest = 0, time.monotonic()
        self._thread = threading.Thread(target=self._keep_going, name="rasp-edge", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Edge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def policy(self) -> Mapping[str, Any]:
        """The policy of this moment."""
        return self._sums.policy

    def pick(self, context: Context = None, key: Any = None) -> Pick:
        """What this key runs in this context."""
        return pick_of(self._sums.policy, context, key)

    def tell(self, pick: Pick, context: Context, metrics: Mapping[str, float]) -> None:
        """Count what a pick came to. Picks of an older policy count as well: their parameters say what ran."""
        try:
            if pick.leaf >= 0:
                read_context(self._sums.policy["context"], context)
            with self._lock:
                self._sums.add(pick, context, metrics)
                self.outcomes += pick.leaf >= 0
        except (ValueError, OverflowError) as reason:
            raise InvalidValue(str(reason)) from None

    def flush(self) -> bool:
        """Send what is there; whether all of it is on the server's disk."""
        with self._exchanging:
            dropped = self.dropped
            self._collect()
            return self._send() and self.dropped == dropped

    def close(self) -> None:
        """Stop, after one more attempt to send."""
        self._ending.set()
        self._thread.join(CLOSE_WAIT_S)

    def _keep_going(self) -> None:
        while not self._ending.wait(self._every_s):
            self.flush()
            if not self._waiting:
                self._refresh()
        self.flush()

    def _collect(self) -> None:
        """Put the sums up to now into batches, each with a number."""
        with self._lock:
            taken = self._sums.take()
        for at in range(0, len(taken), MOST_SUMS_SENT):
            self._queue(taken[at : at + MOST_SUMS_SENT])
        while len(self._waiting) > MOST_BATCHES:
            self._drop(self._waiting.popleft()[1], "the server is away for too long")

    def _queue(self, sums: list[dict[str, Any]]) -> None:
        self._waiting.append((self._sequence, sums))
        self._sequence += 1

    def _send(self) -> bool:
        while self._waiting:
            sequence, sums = self._waiting[0]
            try:
                self._study.tell_sums(self._source, sequence, sums)
            except ServerUnavailable:
                return False  # the same again, under the same number
            except RaspError as refused:
                if isinstance(refused, InvalidValue) and len(sums) > 1:  # one of them is wrong
                    self._queue(sums[: len(sums) // 2])
                    self._queue(sums[len(sums) // 2 :])
                else:
                    self._drop(sums, str(refused))
            else:
                self.sent += sum(one["count"] for one in sums)
            self._waiting.popleft()
        return True

    def _refresh(self) -> None:
        """Take the latest policy; say how many outcomes come in until the next."""
        told, now = self.outcomes, time.monotonic()
        here = (told - self._told_before) * self._every_s / max(now - self._latest, 1e-3)
        self._told_before, self._latest = told, now
        expected = 1 << max(round(here), 1).bit_length()  # rounded, so that a server makes few different policies
        try:
            policy = self._study.policy(expected, self._sums.policy["explore"]["version"])
            if policy is not None:
                sums = OutcomeSums(check(policy))
                with self._exchanging:
                    with self._lock:
                        left, self._sums = self._sums.take(), sums
                    if left:  # of the policy before
                        self._queue(left)
        except ServerUnavailable:
            return
        except (RaspError, ValueError) as reason:
            log.warning("no new policy: %s", reason)

    def _drop(self, sums: list[dict[str, Any]], why: str) -> None:
        lost = sum(one["count"] for one in sums)
        self.dropped += lost
        log.warning("%d outcomes are dropped: %s", lost, why)
