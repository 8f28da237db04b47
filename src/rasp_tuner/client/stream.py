"""Tells from a log and policies to it: between edges and a server there may be Redis Streams, or another log.

What a log must be able to do is `TellLog`; redis_streams.py is one. `Bridge` moves messages: a tell is acknowledged
after the server has it on disk, so that a bridge that dies loses none, and the server counts what comes twice once.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rasp_tuner.base.checks import number
from rasp_tuner.client.edge import EdgeStudy
from rasp_tuner.client.errors import AccessDenied, RequestRefused, ServerUnavailable, UnknownStudy
from rasp_tuner.errors import InvalidValue, RaspError

MOST_RECEIVED = 100  # messages at a time
LONGEST_WAIT_S = 30.0  # between attempts, while the server or the log is away
LONGEST_REASON = 500  # characters, of why a message is refused

log = logging.getLogger("rasp_tuner.client")


class Message(NamedTuple):
    """A tell as it lies in a log."""

    id: str
    body: bytes | None  # JSON with source, sequence and sums, as POST .../tells takes it; None: there is none


class TellLog(Protocol):
    """A log of tells that gives each at least once, and keeps the latest policy. A log that is away raises a
    ServerUnavailable; all calls may be made again.
    """

    def receive(self, most: int, wait_s: float) -> Sequence[Message]:
        """Up to so many messages, those first that somebody received and did not acknowledge; waits for the first."""
        ...

    def acknowledge(self, message: Message) -> None:
        """The message is not given again."""
        ...

    def refuse(self, message: Message, reason: str) -> None:
        """Acknowledge a message that nobody can learn; keep it aside, with the reason."""
        ...

    def publish(self, policy: Mapping[str, Any]) -> None:
        """Make this the policy that edges find."""
        ...


class Bridge:
    """Moves tells from a log to a study, and its policy to the log whenever there is a new one."""

    def __init__(self, study: EdgeStudy, tells: TellLog, every_s: float = 1.0) -> None:
        self._every_s = number("every_s", every_s)
        if not self._every_s > 0.0:
            raise InvalidValue(f"every_s must be above 0, got {every_s!r}")
        self._study, self._log = study, tells
        self._version: str | None = None
        self._before, self._latest = 0, time.monotonic() - self._every_s
        self.learned = self.duplicates = self.refused = self.policies = 0  # runs; messages; messages; published

    def run(self, stopping: Callable[[], bool]) -> None:
        """Go on until told to stop; what is away is waited for."""
        wait_s, is_away = 0.0, False
        while not stopping():
            try:
                self.step(min(self._every_s, 1.0))
                if is_away:
                    log.info("both answer again")
                wait_s, is_away = 0.0, False
            except ServerUnavailable as reason:
                if not is_away:
                    log.warning("waiting, nothing is lost: %s", reason)
                is_away, wait_s = True, min(max(2.0 * wait_s, 0.1), LONGEST_WAIT_S)
                until = time.monotonic() + wait_s
                while not stopping() and time.monotonic() < until:
                    time.sleep(min(0.1, wait_s))

    def step(self, wait_s: float = 0.0) -> int:
        """Move what is there, at most MOST_RECEIVED messages; how many they were. Publish the policy if it is time."""
        messages = self._log.receive(MOST_RECEIVED, wait_s)
        for message in messages:
            self._deliver(message)
        if time.monotonic() - self._latest >= self._every_s:
            self.publish()
        return len(messages)

    def publish(self) -> None:
        """Put the study's policy into the log if it is a new one."""
        now = time.monotonic()
        expected = (self.learned - self._before) * self._every_s / max(now - self._latest, 1e-3)
        outcomes = 1 << max(round(expected), 1).bit_length()  # rounded, so that a server makes few different policies
        policy = self._study.policy(outcomes, self._version)
        if policy is not None:
            self._log.publish(policy)
            self._version = policy["explore"]["version"]
            self.policies += 1
        self._before, self._latest = self.learned, now

    def _deliver(self, message: Message) -> None:
        """Tell what a message holds, and acknowledge it then; a message that cannot be told is put aside."""
        try:
            source, sequence, sums = _tell(message.body)
            status = self._study.tell_sums(source, sequence, sums)
        except (ServerUnavailable, AccessDenied, UnknownStudy):
            raise  # not for the message's sake: it stays where it is
        except RaspError as reason:
            if isinstance(reason, RequestRefused) and reason.code != "too_large":
                raise  # there is no such server
            said = str(reason)[:LONGEST_REASON]
            log.warning("message %s is put aside: %s", message.id, said)
            self._log.refuse(message, said)
            self.refused += 1
            return
        self._log.acknowledge(message)
        if status == "duplicate":
            self.duplicates += 1
        else:
            self.learned += sum(one["count"] for one in sums)


def _tell(body: bytes | None) -> tuple[str, int, list[dict[str, Any]]]:
    """Source, sequence and sums; all else is for the server to check."""
    if body is None:
        raise InvalidValue("it has no field named tell")
    try:
        found = json.loads(body)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # NaN, or half of a character
    except (ValueError, RecursionError) as reason:
        raise InvalidValue(f"it is no JSON that can be sent: {reason}") from None
    if not isinstance(found, dict) or set(found) != {"source", "sequence", "sums"}:
        raise InvalidValue("it must be an object with source, sequence and sums, and nothing else")
    if not isinstance(found["sums"], list):
        raise InvalidValue("sums must be a list")
    return found["source"], found["sequence"], found["sums"]
