"""SnapshotTask: decides when a study gets a snapshot, and has it encoded in another thread.

A study whose snapshot cannot be made keeps its log, so nothing is lost, but every start replays more of it. That is
logged, counted and shown as the study's problem; other studies are not affected.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rasp_tuner.service.storage.study_cache import StudyCache
from rasp_tuner.service.storage.transaction import UnitOfWork
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.live_study import LiveStudy

SNAPSHOT_EVERY_EVENTS = 2_000  # events of a study between snapshots, at most
REPLAY_CPU_S = 0.3  # CPU time that replaying the events since the latest snapshot may take, or longer by:
REPLAY_FACTOR = 10  # times what the latest snapshot took, so that they take a tenth of the time at most
CHEAP_REPLAY_CPU_S = 0.01  # less than saving a study takes: it is put away without a snapshot
PROBLEM, NO_SUMMARY = "snapshot", "summary"  # keys in LiveStudy.problems

log = logging.getLogger("rasp_tuner.serve")

StoreSnapshot = Callable[[UnitOfWork], None]


class SnapshotTask:
    """`submit` hands a step to the writer. All else is called in the writer's thread."""

    def __init__(self, cache: StudyCache, submit: Callable[[StoreSnapshot], None]) -> None:
        self._cache, self._submit = cache, submit
        self._encoder = ThreadPoolExecutor(1, "rasp-snapshots")

    def count(self, live: LiveStudy, cpu_s: float) -> None:
        """Take note of committed events that took so much CPU time; starts a snapshot if one is due."""
        saved = live.saved
        saved.replay_cpu_s += cpu_s
        most = max(REPLAY_CPU_S, REPLAY_FACTOR * saved.cost_cpu_s)
        if live.seq - saved.seq >= SNAPSHOT_EVERY_EVENTS or saved.replay_cpu_s > most:
            self._start(live)

    def put_away_unused(self, now: float) -> None:
        """Put away the longest unused studies if there are too many; those that took long since are saved before.

        Called after a commit. Those that were only read are not saved: a start that reads all of them writes nothing.
        """
        for live in self._cache.spare():
            changed = live.seq > max(live.saved.seq, live.saved.loaded_seq)
            if changed and live.saved.replay_cpu_s > CHEAP_REPLAY_CPU_S:
                self._start(live)
            if not live.problems:
                try:
                    self._cache.put_away(live, now)
                except Exception as error:
                    log.exception("study %r cannot be put away: it stays in memory", live.definition.name)
                    live.problems[NO_SUMMARY] = f"it cannot be shown ({type(error).__name__})"

    def unsaved(self) -> list[LiveStudy]:
        """Studies with events since their latest snapshot."""
        return [live for live in self._cache.live.values() if live.seq > live.saved.seq]

    def final(self, live: LiveStudy) -> StoreSnapshot | None:
        """The step that stores a snapshot of this moment; None if there can be none."""
        live.saved.seq = live.seq
        try:
            return _store(live, live.seq, study_snapshot.capture(live)())
        except Exception as error:  # noqa: BLE001 - the others go on; it is logged
            _note_failure(live, error)
            return None

    def stop(self) -> None:
        self._encoder.shutdown()

    def _start(self, live: LiveStudy) -> None:
        """Copy the study now, encode it in another thread, store it with a later commit."""
        live.saved.seq, live.saved.replay_cpu_s = live.seq, 0.0
        seq, began = live.seq, time.thread_time()
        try:
            encode = study_snapshot.capture(live)
        except Exception as error:  # noqa: BLE001 - the others go on; it is logged
            _note_failure(live, error)
            return

        copied = time.thread_time() - began

        def run() -> None:
            began = time.thread_time()
            try:
                step = _store(live, seq, encode())
                live.saved.cost_cpu_s = copied + time.thread_time() - began
            except Exception as error:  # noqa: BLE001 - the others go on; the writer logs it
                failure = error
                self._submit(lambda _: _note_failure(live, failure))
            else:
                self._submit(step)

        self._encoder.submit(run)


def _store(live: LiveStudy, seq: int, data: bytes) -> StoreSnapshot:
    def run(work: UnitOfWork) -> None:
        try:
            work.add_snapshot(live, seq, data)
        except Exception as error:
            _note_failure(live, error)
            raise
        live.problems.pop(PROBLEM, None)

    return run


def _note_failure(live: LiveStudy, error: Exception) -> None:
    log.error(
        "study %r has no new snapshot: the next start replays its log from the latest one",
        live.definition.name,
        exc_info=error,
    )
    live.problems[PROBLEM] = f"its state cannot be saved ({type(error).__name__}): a restart will be slow"
