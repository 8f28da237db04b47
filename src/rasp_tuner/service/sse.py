"""Live rows: what a watching page gets after each commit, at most five a second of each study."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.json_codec import text
from rasp_tuner.service.study.live_study import LiveStudy

PERIOD_S = 0.2
HEARTBEAT_S = 15.0


class Hub:
    """The newest row of every watched study. The writer puts rows in, streams on the event loop take them out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._watchers: dict[str, int] = {}
        self._rows: dict[str, tuple[int, dict[str, Any]]] = {}  # study -> (version, row)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def streams(self) -> int:
        return sum(self._watchers.values())

    def check_room(self) -> None:
        """Raise a 503 if as many pages watch as may."""
        if self.streams >= self._most:
            raise Problem(503, "overloaded", f"{self._most} pages watch already", retry_after=5)

    def publish(self, studies: Sequence[LiveStudy]) -> None:
        """Called by the writer after a commit."""
        for live in studies:
            name = live.definition.name
            if self._watchers.get(name):
                row = row_of(live)
                with self._lock:
                    self._rows[name] = self._rows.get(name, (0, {}))[0] + 1, row

    def close(self) -> None:
        """End all streams."""
        self._closed = True

    async def stream(self, name: str) -> AsyncIterator[bytes]:
        """Server-sent events of one study, until the reader goes or the server stops."""
        self._watchers[name] = self._watchers.get(name, 0) + 1
        try:
            yield b": watching\n\n"
            seen, silent = self._rows.get(name, (0, {}))[0], 0.0
            while not self._closed:
                await asyncio.sleep(PERIOD_S)
                with self._lock:
                    version, row = self._rows.get(name, (0, {}))
                if version != seen:
                    seen, silent = version, 0.0
                    yield f"event: step\ndata: {text(row)}\n\n".encode()
                    continue
                silent += PERIOD_S
                if silent >= HEARTBEAT_S:
                    silent = 0.0
                    yield b": alive\n\n"
        finally:
            self._watchers[name] -= 1
            if not self._watchers[name]:
                del self._watchers[name]
                with self._lock:
                    self._rows.pop(name, None)


def row_of(live: LiveStudy) -> dict[str, Any]:
    """A compact row: the latest step and the counts."""
    counts = live.counts
    return {
        **live.history.latest,
        "seq": live.seq,
        "asks": counts.asks,
        "tells": counts.tells,
        "failures": counts.failures,
        "observations": counts.observations,
        "pending": len(live.pending),
        "frozen": live.tuner.frozen,
        "last_event_at": live.last_at,
    }
