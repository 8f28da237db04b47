"""Server-sent events: the latest step of a study after each commit, at most five a second."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.json_codec import dumps_text
from rasp_tuner.service.study.live_study import LiveStudy

MIN_INTERVAL_S = 0.2
HEARTBEAT_S = 15.0


class SseBroadcaster:
    """The newest row of every watched study. The writer publishes rows; streams on the event loop send them."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._watchers: dict[str, int] = {}
        self._rows: dict[str, tuple[int, dict[str, Any]]] = {}  # study -> (version, row)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def streams(self) -> int:
        return sum(self._watchers.values())

    def check_stream_limit(self) -> None:
        """Raise a 503 if the maximum number of streams is open."""
        if self.streams >= self._max_streams:
            raise HttpError(503, "overloaded", f"{self._max_streams} live streams are open already", retry_after=5)

    def publish(self, studies: Sequence[LiveStudy]) -> None:
        """Called by the writer after a commit."""
        for live in studies:
            name = live.definition.name
            if self._watchers.get(name):
                row = live_row(live)
                with self._lock:
                    self._rows[name] = self._rows.get(name, (0, {}))[0] + 1, row

    def close(self) -> None:
        """End all streams."""
        self._closed = True

    async def stream(self, name: str) -> AsyncIterator[bytes]:
        """Server-sent events of one study, until the client disconnects or the server stops."""
        self._watchers[name] = self._watchers.get(name, 0) + 1
        try:
            yield b": watching\n\n"
            seen, silent = self._rows.get(name, (0, {}))[0], 0.0
            while not self._closed:
                await asyncio.sleep(MIN_INTERVAL_S)
                with self._lock:
                    version, row = self._rows.get(name, (0, {}))
                if version != seen:
                    seen, silent = version, 0.0
                    yield f"event: step\ndata: {dumps_text(row)}\n\n".encode()
                    continue
                silent += MIN_INTERVAL_S
                if silent >= HEARTBEAT_S:
                    silent = 0.0
                    yield b": alive\n\n"
        finally:
            self._watchers[name] -= 1
            if not self._watchers[name]:
                del self._watchers[name]
                with self._lock:
                    self._rows.pop(name, None)


def live_row(live: LiveStudy) -> dict[str, Any]:
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
        "serves": live.serves,
        "switched": live.switched,
        "last_event_at": live.last_at,
    }
