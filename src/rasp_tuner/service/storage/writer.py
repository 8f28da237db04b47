"""The writer: the only thread that changes studies. It runs all waiting jobs, commits once, then answers them.

No job is answered before the commit. If the commit fails, all writing jobs get an error, and the studies they changed
are loaded again from snapshot and log. Jobs that only read are still answered.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.errors import RaspError
from rasp_tuner.service import http_errors
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.storage.retention import RetentionTask
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import RolledBack, StudyCache, UnitOfWork
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.tuner import think_ahead

SNAPSHOT_EVERY_EVENTS = 1_000  # events of a study between snapshots, at most
MAX_REPLAY_CPU_S = 0.3  # CPU time that replaying the events since the latest snapshot may take, at most
MAX_JOBS_PER_COMMIT = 512
IDLE_WAIT_S = 0.2  # for a job; then idle work is done
PURGE_UNDER_LOAD_S = 0.25  # between purge steps while jobs keep coming
RETRY_PURGE_S = 2.0  # after a purge that failed
PRELOAD_S = 1.0  # of loading studies before the server is ready

log = logging.getLogger("rasp_tuner.serve")  # its name since version 0.1


@dataclass(slots=True)
class WriterJob:
    """One request to the writer; `run` returns the answer or raises an HttpError."""

    run: Callable[[UnitOfWork], Any]
    writes: bool
    future: "asyncio.Future[Any] | None" = None
    study: str | None = None  # that an ask or an answer is about
    asks: Sequence[Any] = ()  # contexts it will ask for


class Writer(threading.Thread):
    """Started once, stopped once; `put` may be called from the event loop's thread."""

    def __init__(
        self, store: Store, published: Callable[[Sequence[LiveStudy]], None], committed: Callable[[float], None]
    ) -> None:
        super().__init__(name="rasp-writer", daemon=True)
        self.store, self.cache = store, StudyCache(store)
        self.failing = False  # the latest commit failed, and no test write has succeeded since
        self.ready = threading.Event()
        self._published, self._committed = published, committed
        self._jobs: queue.SimpleQueue[WriterJob | None] = queue.SimpleQueue()
        self._encoder = ThreadPoolExecutor(1, "rasp-snapshots")
        self._snapshot_seq: dict[int, int] = {}  # study -> seq of its latest snapshot, also one being encoded
        self._replay_cpu_s: dict[int, float] = {}  # study -> CPU seconds that the events since then took
        self.purging = True  # rows of deleted studies may be left in tables or files
        self._purge_at = 0.0
        self._retention = RetentionTask(store, lambda run: self.put(WriterJob(run, writes=True)))

    def put(self, job: WriterJob) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish the waiting jobs, write snapshots, and end."""
        self._jobs.put(None)
        self._retention.stop()
        self.join()
        self._encoder.shutdown()

    def run(self) -> None:
        try:
            self._run()
        except Exception:
            log.critical("the writer stopped; start the server again, the log is whole", exc_info=True)
            self.ready.set()  # so that the server starts, and /readyz says what is wrong
            with contextlib.suppress(queue.Empty):
                while job := self._jobs.get_nowait():
                    _answer([(job.future, http_errors.storage_failed())] if job.future else [])
            raise

    def _run(self) -> None:
        self.cache.preload(PRELOAD_S)
        self.ready.set()
        going = True
        while going:
            try:
                purge_now = self.purging and time.monotonic() >= self._purge_at
                jobs: list[WriterJob | None] = [self._jobs.get(timeout=0.0 if purge_now else IDLE_WAIT_S)]
            except queue.Empty:
                self._idle()
                continue
            try:
                while len(jobs) < MAX_JOBS_PER_COMMIT:
                    jobs.append(self._jobs.get_nowait())
            except queue.Empty:
                pass
            going = None not in jobs
            self._process([job for job in jobs if job is not None])
            if self.purging and time.monotonic() >= self._purge_at + PURGE_UNDER_LOAD_S:
                self._purge()
            self._retention.start_if_due(self.cache.live.values())
        self._process([self._final_snapshot(live) for live in self.cache.live.values() if self._snapshot_due(live, 1)])

    def _process(self, jobs: Sequence[WriterJob]) -> None:
        """Run the jobs, commit, answer."""
        if self.failing and any(job.writes for job in jobs):
            self._probe()
        work = UnitOfWork(self.store, self.cache, time.time())
        self._think_ahead(jobs, work)
        outcomes = [
            http_errors.storage_failed() if job.writes and self.failing else self._run_job(job, work) for job in jobs
        ]
        committed = self._commit(work)
        if not committed:
            outcomes = [
                http_errors.storage_failed() if job.writes and not isinstance(outcome, HttpError) else outcome
                for job, outcome in zip(jobs, outcomes, strict=True)
            ]
        self.purging |= committed and work.deletes_study
        _answer([(job.future, outcome) for job, outcome in zip(jobs, outcomes, strict=True) if job.future])
        if committed and work.changed:
            self._published(list(work.changed.values()))
            for live, share in work.event_shares():
                self._replay_cpu_s[live.id] = (
                    self._replay_cpu_s.get(live.id, self.cache.replay_cpu_s(live)) + share * work.cpu_s
                )
                if self._snapshot_due(live, SNAPSHOT_EVERY_EVENTS) or self._replay_cpu_s[live.id] > MAX_REPLAY_CPU_S:
                    self._start_snapshot(live)

    def _think_ahead(self, jobs: Sequence[WriterJob], work: UnitOfWork) -> None:
        """Compute at once what the asks of different studies need; a study that is told something first is left out."""
        first: dict[str, WriterJob] = {}
        for job in jobs:
            if job.study is not None:
                first.setdefault(job.study, job)
        live, started = self.cache.live, time.thread_time()
        asks = [(live[name].tuner, job.asks[0]) for name, job in first.items() if job.asks and name in live]
        try:
            if len(asks) > 1:
                think_ahead(asks)
        except Exception:
            log.exception("asks could not be computed together: one by one")
        work.cpu_s += time.thread_time() - started

    def _run_job(self, job: WriterJob, work: UnitOfWork) -> Any:
        started = time.thread_time()
        try:
            answer = job.run(work)
            if job.writes:
                work.cpu_s += time.thread_time() - started
            return answer
        except HttpError as error:
            return error
        except RaspError as error:
            return http_errors.from_library_error(error)
        except SQLAlchemyError as error:
            log.error("the database failed: %s", error)
            work.failed |= job.writes
            return http_errors.storage_failed()
        except Exception:
            log.exception("a request failed; the studies it touched are built again from their logs")
            work.failed |= job.writes
            return http_errors.internal_error()

    def _commit(self, work: UnitOfWork) -> bool:
        """Whether all changes are on disk; if not, they are undone."""
        started = time.perf_counter()
        try:
            work.commit()
        except RolledBack:
            work.roll_back()
        except SQLAlchemyError as error:
            log.error("commit failed, nothing was acknowledged: %s", error)
            self.failing = True
            work.roll_back()
        except Exception:
            log.exception("commit failed, nothing was acknowledged")
            work.roll_back()
        else:
            if work.wrote:
                self._committed(time.perf_counter() - started)
            return True
        return False

    def _probe(self) -> None:
        try:
            self.store.probe()
        except SQLAlchemyError as error:
            log.warning("the database still cannot be written: %s", error)
        else:
            log.warning("the database can be written again")
            self.failing = False

    def _idle(self) -> None:
        """Idle work: test a failed disk, purge deleted studies, load studies, erase expired records."""
        if self.failing:
            self._probe()
        elif self.purging and time.monotonic() >= self._purge_at:
            self._purge()
        else:
            self.cache.preload(IDLE_WAIT_S)
            self._retention.start_if_due(self.cache.live.values())

    def _purge(self) -> None:
        """Delete some rows of deleted studies; once none are left, clean the files."""
        self._purge_at = time.monotonic()
        try:
            gone = self.store.deleted_studies()
            for study in gone:
                with self.store.writing() as connection:
                    if self.store.purge_rows(connection, study):
                        return
            if gone:
                self.store.rewrite_files()
                self.store.drop_purged_studies(gone)
            self.purging = False
        except SQLAlchemyError as error:
            log.error("what was deleted could not be erased yet: %s", error)
            self._purge_at += RETRY_PURGE_S

    def _snapshot_due(self, live: LiveStudy, events: int) -> bool:
        return live.seq - self._snapshot_seq.setdefault(live.id, self.cache.snapshot_seq(live)) >= events

    def _start_snapshot(self, live: LiveStudy) -> None:
        """Copy the study now, encode it in another thread, store it with a later commit."""
        self._snapshot_seq[live.id], self._replay_cpu_s[live.id] = live.seq, 0.0
        id, seq, encode = live.id, live.seq, study_snapshot.capture(live)
        self._encoder.submit(lambda: self.put(_snapshot_job(id, seq, encode())))

    def _final_snapshot(self, live: LiveStudy) -> WriterJob:
        self._snapshot_seq[live.id] = live.seq
        return _snapshot_job(live.id, live.seq, study_snapshot.capture(live)())


def _snapshot_job(id: int, seq: int, data: bytes) -> WriterJob:
    def run(work: UnitOfWork) -> None:
        work.add_snapshot(id, seq, data)

    return WriterJob(run, writes=True)


def _answer(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    """Send all answers to the event loop in one call."""
    if outcomes:
        outcomes[0][0].get_loop().call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # the caller has gone; the commit stays
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
