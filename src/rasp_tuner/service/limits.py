"""Limits on sizes, counts and rates. The defaults suit a small server."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    body: int = 1_048_576  # bytes of a request
    import_body: int = 268_435_456  # bytes of an imported study
    batch: int = 1_000  # asks or tells in one request
    knobs: int = 64
    metrics: int = 16
    context: int = 256
    choices: int = 1_000  # of one knob
    studies: int = 256
    waiting: int = 2_000  # asks and tells waiting for the writer; more are refused
    streams: int = 64  # open live streams
    rate: float = 5_000.0  # requests a second from one key, or from one address if there are no keys
    burst: float = 10_000.0


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
