"""The writer: the only thread that changes studies. It runs waiting jobs for some milliseconds, commits, then answers.

No job is answered before its commit. A job that fails is undone alone. If the commit fails, all its writing jobs get an
error, and the studies they changed are loaded again from snapshot and log. Jobs that only read are still answered.

The queue is fair: studies and callers share the CPU time (fair_queue.py), and long jobs run in pieces. A study that is
not in memory is loaded by another thread; only its own jobs wait for it.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.base.threads import one_thread
from rasp_tuner.errors import RaspError
from rasp_tuner.service import service_errors
from rasp_tuner.service.service_errors import Moved, ServerFailed, Unavailable
from rasp_tuner.service.storage.fair_queue import FairQueue
from rasp_tuner.service.storage.file_watch import FilesGone
from rasp_tuner.service.storage.leases import Leases
from rasp_tuner.service.storage.snapshot_task import SnapshotTask
from rasp_tuner.service.storage.store import Store, is_outage, outage_in_words
from rasp_tuner.service.storage.study_cache import StudyCache
from rasp_tuner.service.storage.study_loader import LoadedStudy, StudyLoader
from rasp_tuner.service.storage.transaction import MORE, JobChanges, UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy

SERVER = "server"  # the caller of jobs that the server gives itself
MAX_JOBS_PER_COMMIT = 512
COMMIT_EVERY_CPU_S = 0.02  # of running jobs, or twice as long as the latest commit took, if that is more
MAX_COMMIT_EVERY_S = 0.1  # whatever the CPU time
PIECE_S = 0.005  # that a long job runs before others may
IDLE_WAIT_S = 0.2  # for a job; then idle work is done
CHECK_FILES_S = 0.25  # between looks at the files of the database while nothing is written
PURGE_UNDER_LOAD_S = 0.25  # between purge steps while jobs keep coming
RETRY_PURGE_S = 2.0  # after a purge that failed
PRELOAD_S = 1.0  # of loading studies before the server answers
SNAPSHOTS_PER_COMMIT = 16  # at the end

log = logging.getLogger("rasp_tuner.serve")


@dataclass(slots=True)
class WriterJob:
    """One request to the writer; `run` returns the answer or MORE, or raises."""

    run: Callable[[UnitOfWork], Any]
    writes: bool
    future: "asyncio.Future[Any] | None" = None
    study: str | None = None  # that it is about
    caller: str = SERVER  # whose share of the CPU time it takes


class Writer(threading.Thread):
    """Started once, stopped once; `put` may be called from the event loop's thread."""

    def __init__(
        self,
        store: Store,
        published: Callable[[Sequence[LiveStudy]], None],
        committed: Callable[[float], None],
        studies_in_memory: int,
        leases: Leases | None = None,
    ) -> None:
        super().__init__(name="rasp-writer", daemon=True)
        self.store, self.cache, self._leases = store, StudyCache(store, studies_in_memory, leases), leases
        self.rows_changed = False  # other studies are ours than we know: read the list again
        self.failing: str | None = None  # why the latest commit failed, if no test write has succeeded since
        self.ready = threading.Event()
        self._published, self.committed = published, committed
        self._inbox: queue.SimpleQueue[WriterJob | None] = queue.SimpleQueue()
        self._waiting: FairQueue[WriterJob] = FairQueue()
        self._commit_s = 0.0  # that the latest commit took
        self.committed_at = 0.0  # monotonic, of the latest write that succeeded
        self._loader = StudyLoader(store, lambda loaded: self.put(WriterJob(lambda _: self._adopt(loaded), False)))
        self._not_loaded_yet = {row.id for row in self.cache.rows.values()}  # of those that were there at the start
        self.snapshots = SnapshotTask(self.cache, lambda run: self.put(WriterJob(run, writes=True)))
        self.stopped_whole = True  # every study has a snapshot of its last state
        self.purging = True  # rows of deleted studies may be left in tables or files
        self._purge_at = 0.0
        self._stopping = False
        self._probe_at = 0.0  # monotonic, not before
        self._check_files_at = 0.0  # monotonic
        self._commit_at = self._piece_ends = 0.0  # monotonic
        self._commit_at_cpu = 0.0  # this thread's time

    def put(self, job: WriterJob) -> None:
        self._inbox.put(job)

    def stop(self) -> None:
        """Finish the waiting jobs, write snapshots, and end."""
        self._inbox.put(None)
        self.join()
        self._loader.stop()
        self.snapshots.stop()

    @property
    def loading(self) -> str | None:
        """The study whose first load keeps the server from being ready, if there is one."""
        current = self._loader.current if self._not_loaded_yet else None
        return current[0] if current and time.monotonic() - current[1] > PRELOAD_S else None

    @property
    def not_loaded_yet(self) -> int:
        """How many studies that were there at the start have not been tried yet."""
        return len(self._not_loaded_yet)

    def run(self) -> None:
        try:
            with one_thread():  # for all jobs: to change BLAS's count at every call of a tuner takes 20 microseconds
                self._run()
        except Exception:
            log.critical("the writer stopped; start the server again, the log is whole", exc_info=True)
            self.stopped_whole = False
            self.ready.set()  # so that the server starts, and /readyz says what is wrong
            with contextlib.suppress(queue.Empty):
                while job := self._inbox.get_nowait():
                    self._waiting.add(job, job.caller, job.study)
            self._refuse_waiting()
            raise

    def _run(self) -> None:
        self.probe()
        self._loader.start()
        self._loader.load_ahead(self.cache.rows.values())
        until = time.monotonic() + PRELOAD_S
        while self._not_loaded_yet and (left := until - time.monotonic()) > 0.0:
            self._receive(left)
            self._round()
        self.ready.set()
        while not self._stopping:
            if self.rows_changed:
                self._refresh_rows()
            self._check_files()
            purge_now = self.purging and time.monotonic() >= self._purge_at
            if not self._receive(0.0 if purge_now else IDLE_WAIT_S) and not self._waiting:
                self._idle()
                continue
            self._round()
            if self.purging and time.monotonic() >= self._purge_at + PURGE_UNDER_LOAD_S:
                self._purge()
        self._end()

    def _end(self) -> None:
        """Finish the waiting jobs and store a snapshot of every study."""
        self._loader.stop()
        self.snapshots.stop()
        self._receive(0.0)
        while self._waiting:
            self._round()
        self._refuse_waiting()
        unsaved = self.snapshots.unsaved()
        for first in range(0, len(unsaved), SNAPSHOTS_PER_COMMIT):
            for live in unsaved[first : first + SNAPSHOTS_PER_COMMIT]:
                if (run := self.snapshots.final(live)) is not None:
                    self._waiting.add(WriterJob(run, writes=True), SERVER, None)
            while self._waiting:
                self._round()
        self.stopped_whole = not (self.failing or any(live.problems for live in unsaved))

    def _receive(self, wait_s: float) -> bool:
        """Move new jobs to their lanes; whether there were any. Waits for one only if no other job waits."""
        received = False
        with contextlib.suppress(queue.Empty):
            job = self._inbox.get(timeout=wait_s) if wait_s and not self._waiting else self._inbox.get_nowait()
            while True:
                received = True
                if job is None:
                    self._stopping = True
                else:
                    self._waiting.add(job, job.caller, job.study)
                job = self._inbox.get_nowait()
        return received

    def _round(self) -> None:
        """Run waiting jobs until it is time to commit, commit, answer."""
        if self.failing and any(job.writes for job in self._waiting.heads()):
            self.probe()
        work = UnitOfWork(self.store, self.cache, time.time(), self._piece_is_over)
        self._commit_at = time.monotonic() + MAX_COMMIT_EVERY_S
        used = time.thread_time()
        self._commit_at_cpu = used + min(max(COMMIT_EVERY_CPU_S, 2.0 * self._commit_s), MAX_COMMIT_EVERY_S)
        done: list[tuple[WriterJob, JobChanges, Any]] = []
        while not work.broken and len(done) < MAX_JOBS_PER_COMMIT and (job := self._next_job()) is not None:
            if self._wait_for_study(job):
                continue
            self._piece_ends = time.monotonic() + PIECE_S
            done.append((job, *self._run_job(job, work)))
            before, used = used, time.thread_time()
            self._waiting.charge(used - before)
            if job.writes:
                work.cpu_s += used - before
            if used >= self._commit_at_cpu or time.monotonic() >= self._commit_at:
                break
        self._finish(work, done)

    def _next_job(self) -> WriterJob | None:
        """The next job; what has come in meanwhile joins the commit."""
        if not self._waiting:
            self._receive(0.0)
        return self._waiting.take()

    def _piece_is_over(self) -> bool:
        """Whether a long job should end its piece: other jobs wait, or it is time to commit."""
        others = bool(self._waiting) or not self._inbox.empty()
        until = min(self._piece_ends, self._commit_at) if others else self._commit_at
        return time.monotonic() >= until or time.thread_time() >= self._commit_at_cpu

    def _finish(self, work: UnitOfWork, done: Sequence[tuple[WriterJob, JobChanges, Any]]) -> None:
        """Commit and answer; jobs that are not finished wait for their next piece."""
        refused, answers = self._commit(work), []
        for job, changes, outcome in done:
            if job.writes and not isinstance(outcome, RaspError):
                if refused is None:
                    outcome = service_errors.storage_failed()
                elif hit := [name for name, live in changes.studies.items() if live.id in refused]:
                    gone = any(changes.studies[name].id in work.moved for name in hit)
                    outcome = Moved(hit[0]) if gone else service_errors.internal_error()
            if outcome is MORE and not self._stopping:
                self._waiting.add(job, job.caller, job.study)
            elif job.future is not None:
                answers.append((job.future, service_errors.stopping() if outcome is MORE else outcome))
        answer(answers)
        if refused is not None:
            self.purging |= work.deletes_study
            self._published(list(work.changed.values()))
            for live, share in work.event_shares():
                self.snapshots.count(live, share * work.cpu_s + self._chart(live))
            self.snapshots.put_away_unused(work.now)

    def _run_job(self, job: WriterJob, work: UnitOfWork) -> tuple[JobChanges, Any]:
        """What a job has changed, and its answer; if it fails, its changes are undone."""
        changes = work.begin_job()
        try:
            if job.writes and self.failing:
                raise service_errors.storage_failed()
            answer = job.run(work)
            if changes.savepoint is not None:
                changes.savepoint.commit()
            return changes, answer
        except RaspError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - hurts only this job; it is logged
            answer = self._failed_job(job, error)
        if isinstance(answer, ServerFailed | Unavailable) or changes.savepoint is not None:
            work.undo_job(changes)
        return changes, answer

    def _chart(self, live: LiveStudy) -> float:
        """Bring the charts of a study up to date; the CPU time that it took."""
        started = time.thread_time()
        try:
            live.chart()
        except Exception:
            log.exception("the charts of study %r failed; it is built again from its log", live.definition.name)
            self.cache.discard([live])
        return time.thread_time() - started

    def _failed_job(self, job: WriterJob, error: Exception) -> RaspError:
        if is_outage(error):
            log.error("the database failed: %s", error)
            if job.writes:
                self.failing = outage_in_words(error)
            return service_errors.storage_failed()
        log.error("a request failed; the studies it touched are built again from their logs", exc_info=error)
        return service_errors.internal_error()

    # studies that are not in memory

    def _wait_for_study(self, job: WriterJob) -> bool:
        """Whether a job that was taken must wait until its study is loaded; it is back in the queue then."""
        name = job.study
        if name is None or (job.writes and self.failing) or not self.cache.must_be_loaded(name):
            return False
        self.cache.await_load(name)
        self._waiting.hold(name)
        self._waiting.charge(0.0, job)
        self._loader.want(self.cache.rows[name])
        return True

    def _adopt(self, loaded: LoadedStudy) -> None:
        """Take in a study from the loader, and let its jobs run."""
        row, live, name = loaded.row, loaded.live, loaded.row.name
        self._not_loaded_yet.discard(row.id)
        wanted = self.cache.is_wanted(row)
        error = loaded.error
        try:
            if wanted and live is not None:
                for event in self.store.events_after(row.id, live.seq):  # written since it was read
                    live.apply(event)
                self.cache.adopt(row, live)
        except Exception as late:  # noqa: BLE001 - hurts only this study; it is logged below
            error = late
        if wanted and error is not None:
            self.cache.note_failed_load(name, error)
        if live is not None or error is not None:
            self._waiting.release(name)

    def _refresh_rows(self) -> None:
        """Take in studies that became ours, drop those that are not."""
        self.rows_changed = False
        try:
            self.cache.refresh()
        except SQLAlchemyError as error:
            log.error("the list of studies could not be read: %s", error)
        else:
            self._loader.load_ahead(self.cache.unseen())

    def _refuse_waiting(self) -> None:
        answer([(job.future, service_errors.stopping()) for job in self._waiting.drain() if job.future])

    # the database

    def _commit(self, work: UnitOfWork) -> set[int] | None:
        """The studies whose changes the database refused; None if nothing was committed: all is undone then."""
        started = time.perf_counter()
        try:
            refused = work.commit()
        except Exception as error:
            log.error("commit failed, nothing was acknowledged: %s", error, exc_info=not is_outage(error))
            self.failing = outage_in_words(error)
            work.roll_back()
            return None
        if work.wrote:
            self._commit_s, self.committed_at = time.perf_counter() - started, time.monotonic()
            self.committed(self._commit_s)
        return refused

    def probe(self) -> None:
        """Test whether the database can be written."""
        started = time.monotonic()
        if started < self._probe_at:
            return
        try:
            self.store.probe()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing can be written
            if self.failing != (why := outage_in_words(error)):  # said once, though it is tested again and again
                log.warning("the database cannot be written: %s", error)
            self.failing = why
            # a test that hangs until a timeout must not take all of the writer's time
            self._probe_at = 2.0 * time.monotonic() - started
        else:
            if self.failing:
                log.warning("the database can be written again")
            self.committed_at = time.monotonic()
            self.failing = None

    def _check_files(self) -> None:
        """Notice files of the database that were deleted or replaced, also while nobody writes, and a full disk."""
        if self.failing or time.monotonic() < self._check_files_at:
            return
        self._check_files_at = time.monotonic() + CHECK_FILES_S
        try:
            self.store.check_files()
            self.store.make_room()
        except FilesGone as error:
            log.error("%s", error)
            self.failing = outage_in_words(error)
        except (SQLAlchemyError, OSError) as error:  # a reader is in the way, or the disk is full: tried again
            log.debug("the write-ahead log could not be emptied: %s", error)

    def _idle(self) -> None:
        """Idle work: test a failed disk, purge deleted studies."""
        if self.failing:
            self.probe()
        elif self.purging and time.monotonic() >= self._purge_at:
            self._purge()

    def _purge(self) -> None:
        """Delete some rows of deleted studies; once none are left, clean the files."""
        self._purge_at = time.monotonic()
        try:
            gone = (self._leases or self.store).deleted_studies()
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


def answer(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
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
