"""Limits on sizes, counts and rates. The defaults suit a small server."""

import ipaddress
import time
from dataclasses import dataclass

from rasp_tuner.feature_flags import FLAG_LEASE_S


@dataclass(frozen=True, slots=True)
class Limits:
    body: int = 1_048_576  # bytes of a request
    import_body: int = 268_435_456  # bytes of an imported study, and of all that are read at a time
    bodies: int = 67_108_864  # bytes of all other requests that are read or answered at a time; more are refused
    batch: int = 1_000  # asks or tells in one request
    knobs: int = 64
    metrics: int = 16
    context: int = 256
    choices: int = 1_000  # of one knob
    studies: int = 10_000
    studies_in_memory: int = 512  # about a megabyte each; others are loaded when they are needed
    waiting: int = 2_000  # asks and tells waiting for the writer; more are refused
    streams: int = 256  # open live streams
    streams_of_one: int = 64  # of one key, or of one address if there are no keys
    connections: int = 10_000
    connections_of_one: int = 1_000  # of one address, but for loopback: the machine's own programs, or a proxy
    rate: float = 5_000.0  # requests a second from one key, or from one address if there are no keys
    burst: float = 10_000.0
    flag_lease: float = (
        FLAG_LEASE_S  # seconds for which a targeting key keeps its suggestion, if the study allows as much
    )


class TokenBuckets:
    """One token bucket for each caller; bounded: the longest unused one is dropped first."""

    MAX_CALLERS = 10_000

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> bool:
        """Whether the caller may make one more request now."""
        now = time.monotonic()
        level, at = self._levels.pop(caller, (self._burst, now))
        level = min(level + (now - at) * self._rate, self._burst)
        allowed = level >= 1.0
        self._levels[caller] = (level - 1.0 if allowed else level), now
        if len(self._levels) > self.MAX_CALLERS:
            del self._levels[next(iter(self._levels))]
        return allowed


class ConnectionCount:
    """How many connections are open, in all and of each address."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._open: dict[str, int] = {}
        self._total = 0

    def enter(self, address: str) -> bool:
        """Whether one more may be opened; if so it is counted, until `leave`."""
        here = self._open.get(address, 0)
        if self._total >= self._most or (here >= self._most_of_one and not is_loopback(address)):
            return False
        self._open[address] = here + 1
        self._total += 1
        return True

    def leave(self, address: str) -> None:
        self._total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address, or be it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
