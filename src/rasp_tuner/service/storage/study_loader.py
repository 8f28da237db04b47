"""StudyLoader: builds studies from snapshot and log in a thread of its own, those that somebody waits for first.

So the replay of a long log delays only requests to its own study.
"""

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rasp_tuner.errors import RaspError
from rasp_tuner.service.storage.store import Store, StoredStudy
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy

STOP, WANTED, AHEAD = 0, 1, 2  # what comes first

log = logging.getLogger("rasp_tuner.serve")


def load_study(store: Store, row: StoredStudy, check: Callable[[], object] = bool) -> LiveStudy:
    """The study from its newest valid snapshot and the events after it.

    `check` is called before each event, and may raise.
    """
    definition = StudyDefinition(**row.definition)
    live = used = None
    for _, data in store.snapshots(row.id):
        try:
            live, used = study_snapshot.restore(data, row.id, definition, row.created), data
            break
        except (ValueError, KeyError, TypeError, RaspError):
            continue  # damaged, or from another version: use an older snapshot, or the log alone
    live = live or LiveStudy(row.id, definition, row.created)
    live.saved.seq, diverged = live.seq, live.counts.diverged
    started = time.thread_time()
    for event in store.events_after(row.id, live.seq):
        check()
        live.apply(event)
    if live.seq > live.saved.seq:
        live.saved.replay_cpu_s = time.thread_time() - started
    if live.counts.diverged > diverged:
        before = study_snapshot.maker(used) if used else {}
        said = "study %r: replayed asks came out otherwise. Its snapshot was made with %s, this server is %s"
        log.warning(said, row.name, before or "an older version", study_snapshot.made_with())
    return live


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """What came of loading a study."""

    row: StoredStudy
    live: LiveStudy | None = None
    error: Exception | None = None


class LoadCancelled(Exception):
    """The server is stopping."""


class StudyLoader(threading.Thread):
    """`loaded` is called in this thread, once for each study that was asked for."""

    def __init__(self, store: Store, loaded: Callable[[LoadedStudy], None]) -> None:
        super().__init__(name="rasp-loader", daemon=True)
        self._store, self._loaded = store, loaded
        self._queue: queue.PriorityQueue[tuple[int, int, StoredStudy | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._ahead: set[int] = set()  # ids that wait to be loaded though nobody waits for them
        self._stopping = False
        self.current: tuple[str, float] | None = None  # the study under way, and since when (monotonic)

    def want(self, row: StoredStudy) -> None:
        """Load it next: somebody waits for it."""
        self._queue.put((WANTED, next(self._numbers), row))

    def load_ahead(self, rows: Iterable[StoredStudy]) -> None:
        """Load these when nobody waits for another."""
        for row in rows:
            if row.id not in self._ahead:
                self._ahead.add(row.id)
                self._queue.put((AHEAD, next(self._numbers), row))

    def stop(self) -> None:
        """End, also in the middle of a study."""
        self._stopping = True
        self._queue.put((STOP, next(self._numbers), None))
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while True:
            urgency, _, row = self._queue.get()
            if row is None:
                return
            if urgency == AHEAD and row.id not in self._ahead:
                self._loaded(LoadedStudy(row))  # somebody wanted it meanwhile
                continue
            self._ahead.discard(row.id)
            self.current = row.name, time.monotonic()
            try:
                self._loaded(LoadedStudy(row, load_study(self._store, row, self._check_going)))
            except LoadCancelled:
                return
            except Exception as error:  # noqa: BLE001 - the writer decides what it means
                self._loaded(LoadedStudy(row, error=error))
            finally:
                self.current = None

    def _check_going(self) -> None:
        if self._stopping:
            raise LoadCancelled
