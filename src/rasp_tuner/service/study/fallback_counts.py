"""FallbackCounts: how many asks of a study its clients answered without this server, as they report; in memory only."""

import re
import threading

HEADER = b"rasp-fallbacks"  # of an ask or a tell: fallbacks/asks since the client's latest report
WINDOW_MIN = 60  # that are counted
_REPORT = re.compile(rb"(\d{1,6})/(\d{1,6})")


class FallbackCounts:
    """Sums over the last hour, by the minute. Thread-safe: requests add, the writer reads."""

    def __init__(self) -> None:
        self._minutes: dict[int, tuple[int, int]] = {}  # minute -> fallbacks, asks
        self._lock = threading.Lock()

    def add(self, report: bytes, now: float) -> None:
        """Add what a client reports; nonsense is ignored."""
        found = _REPORT.fullmatch(report)
        if found is None:
            return
        fallbacks, asks = int(found[1]), int(found[2])
        if fallbacks > asks:
            return
        minute = int(now // 60)
        with self._lock:
            before = self._minutes.get(minute, (0, 0))
            self._minutes[minute] = before[0] + fallbacks, before[1] + asks
            self._minutes = self._recent(now)

    def view(self, now: float) -> dict[str, int]:
        with self._lock:
            recent = self._recent(now).values()
        return {"without_server": sum(fallbacks for fallbacks, _ in recent), "asks": sum(asks for _, asks in recent)}

    def _recent(self, now: float) -> dict[int, tuple[int, int]]:
        last = int(now // 60)
        return {minute: counts for minute, counts in self._minutes.items() if last - WINDOW_MIN < minute <= last}
