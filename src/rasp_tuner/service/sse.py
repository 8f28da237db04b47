"""Server-sent events: the latest step of a study after each commit, at most five a second."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from rasp_tuner.service.json_codec import dumps_text
from rasp_tuner.service.service_errors import TooMany, Unavailable
from rasp_tuner.service.study.live_study import LiveStudy

MIN_INTERVAL_S = 0.2
HEARTBEAT_S = 15.0


class SseBroadcaster:
    """The newest row of every watched study. The writer publishes rows; streams on the event loop send them."""

    def __init__(self, max_streams: int, max_streams_of_one: int) -> None:
        self._max_streams, self._max_streams_of_one = max_streams, max_streams_of_one
        self._watchers: Counter[str] = Counter()  # by study
        self._callers: Counter[str] = Counter()  # the same streams, by key or address
        self._rows: dict[str, tuple[int, dict[str, Any]]] = {}  # study -> (version, row)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def streams(self) -> int:
        return self._watchers.total()

    def check_stream_limit(self, caller: str) -> None:
        """Raise Unavailable if the maximum number of streams is open, TooMany if it is for this key or address."""
        if self.streams >= self._max_streams:
            raise Unavailable(f"{self._max_streams} live streams are open already", "overloaded", 5)
        if self._callers[caller] >= self._max_streams_of_one:
            message = f"{self._max_streams_of_one} live streams of this key or address are open already"
            raise TooMany(message, retry_after=5)

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

    async def stream(
        self, name: str, latest: dict[str, Any], caller: str, is_allowed: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events of one study, until the client disconnects, may not read any more, or the server stops.

        `latest` is the row that comes first: where the study stands.
        """
        self._watchers[name] += 1
        self._callers[caller] += 1
        try:
            yield b": watching\n\n" + _step(latest)
            seen, silent = self._rows.get(name, (0, {}))[0], 0.0
            while not self._closed and is_allowed():
                await asyncio.sleep(MIN_INTERVAL_S)
                with self._lock:
                    version, row = self._rows.get(name, (0, {}))
                if version != seen:
                    seen, silent = version, 0.0
                    yield _step(row)
                    continue
                silent += MIN_INTERVAL_S
                if silent >= HEARTBEAT_S:
                    silent = 0.0
                    yield b": alive\n\n"
        finally:
            _subtract(self._callers, caller)
            if not _subtract(self._watchers, name):
                with self._lock:
                    self._rows.pop(name, None)


def _step(row: dict[str, Any]) -> bytes:
    return f"event: step\ndata: {dumps_text(row)}\n\n".encode()


def _subtract(counter: Counter[str], name: str) -> int:
    """One less; a name without any is dropped, so that the counter stays small."""
    counter[name] -= 1
    return counter[name] or counter.pop(name)


def live_row(live: LiveStudy) -> dict[str, Any]:
    """A compact row: the latest step and the counts."""
    counts = live.counts
    return {
        **live.history.latest,
        "returned": live.history.visits.latest(),
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
