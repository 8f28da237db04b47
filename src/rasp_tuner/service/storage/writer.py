"""The writer: the one thread that touches studies. Takes all that waits, does it, commits once, then answers.

Nobody is answered before the commit. If it fails nobody is acknowledged, and the studies that were touched are
forgotten and built again from snapshot and log. Jobs that only read are answered all the same.
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
from rasp_tuner.service import http_errors as problems
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.storage.retention import Sweeper
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import Desk, Shelf, Undone
from rasp_tuner.service.study import study_snapshot as still
from rasp_tuner.service.study.live_study import LiveStudy

EVERY = 1_000  # events of a study between snapshots, at most
REPLAY_S = 0.3  # processor time that a replay since the latest snapshot may take, at most
AT_ONCE = 512  # jobs done under one commit
IDLE_S = 0.2
BUSY_S = 0.25  # after which erasing goes on though there is always something else to do
AGAIN_S = 2.0  # until erasing is tried again after it failed
WARM_S = 1.0  # for which studies are built before the server is ready

log = logging.getLogger("rasp_tuner.service")


@dataclass(slots=True)
class Job:
    """Something to do at the desk; `run` returns the answer or raises a Problem."""

    run: Callable[[Desk], Any]
    writes: bool
    future: "asyncio.Future[Any] | None" = None


class Writer(threading.Thread):
    """Started once, stopped once; `put` may be called from the event loop's thread."""

    def __init__(
        self, store: Store, published: Callable[[Sequence[LiveStudy]], None], committed: Callable[[float], None]
    ) -> None:
        super().__init__(name="rasp-writer", daemon=True)
        self.store, self.shelf = store, Shelf(store)
        self.failing = False  # the latest commit failed, and no probe has worked since
        self.ready = threading.Event()
        self._published, self._committed = published, committed
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._packer = ThreadPoolExecutor(1, "rasp-packer")
        self._saved: dict[int, int] = {}  # study -> seq of its latest snapshot, or of the one being packed
        self._spent: dict[int, float] = {}  # study -> processor seconds that the events since then took
        self.purging = True  # rows of deleted studies may be left, in tables or in files
        self._purge_at = 0.0
        self._sweeper = Sweeper(store, lambda run: self.put(Job(run, writes=True)))

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish what waits, write snapshots, and end."""
        self._jobs.put(None)
        self._sweeper.stop()
        self.join()
        self._packer.shutdown()

    def run(self) -> None:
        try:
            self._run()
        except Exception:
            log.critical("the writer stopped; start the server again, the log is whole", exc_info=True)
            self.ready.set()  # so that the server starts, and /readyz says what is wrong
            with contextlib.suppress(queue.Empty):
                while job := self._jobs.get_nowait():
                    _answer([(job.future, problems.storage())] if job.future else [])
            raise

    def _run(self) -> None:
        self.shelf.warm(WARM_S)
        self.ready.set()
        going = True
        while going:
            try:
                pressed = self.purging and time.monotonic() >= self._purge_at
                jobs: list[Job | None] = [self._jobs.get(timeout=0.0 if pressed else IDLE_S)]
            except queue.Empty:
                self._idle()
                continue
            try:
                while len(jobs) < AT_ONCE:
                    jobs.append(self._jobs.get_nowait())
            except queue.Empty:
                pass
            going = None not in jobs
            self._work([job for job in jobs if job is not None])
            if self.purging and time.monotonic() >= self._purge_at + BUSY_S:
                self._purge()
            self._sweeper.look(self.shelf.live.values())
        self._work([self._snapshot(live) for live in self.shelf.live.values() if self._due(live, 1)])

    def _work(self, jobs: Sequence[Job]) -> None:
        """Do the jobs, commit, answer."""
        if self.failing and any(job.writes for job in jobs):
            self._probe()
        desk = Desk(self.store, self.shelf, time.time())
        outcomes = [problems.storage() if job.writes and self.failing else self._do(job, desk) for job in jobs]
        committed = self._commit(desk)
        if not committed:
            outcomes = [
                problems.storage() if job.writes and not isinstance(outcome, Problem) else outcome
                for job, outcome in zip(jobs, outcomes, strict=True)
            ]
        self.purging |= committed and desk.removed
        _answer([(job.future, outcome) for job, outcome in zip(jobs, outcomes, strict=True) if job.future])
        if committed and desk.touched:
            self._published(list(desk.touched.values()))
            for live, share in desk.shares():
                self._spent[live.id] = self._spent.get(live.id, self.shelf.replayed(live)) + share * desk.spent
                if self._due(live, EVERY) or self._spent[live.id] > REPLAY_S:
                    self._pack(live)

    def _do(self, job: Job, desk: Desk) -> Any:
        started = time.thread_time()
        try:
            answer = job.run(desk)
            if job.writes:
                desk.spent += time.thread_time() - started
            return answer
        except Problem as problem:
            return problem
        except RaspError as error:
            return problems.of(error)
        except SQLAlchemyError as error:
            log.error("the database failed: %s", error)
            desk.broken |= job.writes
            return problems.storage()
        except Exception:
            log.exception("a request failed; the studies it touched are built again from their logs")
            desk.broken |= job.writes
            return problems.internal()

    def _commit(self, desk: Desk) -> bool:
        """Whether everything the desk did is on disk; if not, it is undone."""
        started = time.perf_counter()
        try:
            desk.finish()
        except Undone:
            desk.undo()
        except SQLAlchemyError as error:
            log.error("commit failed, nothing was acknowledged: %s", error)
            self.failing = True
            desk.undo()
        except Exception:
            log.exception("commit failed, nothing was acknowledged")
            desk.undo()
        else:
            if desk.wrote:
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
        """What can wait: the probe of a failed disk, rows of deleted studies, studies nobody has asked for yet."""
        if self.failing:
            self._probe()
        elif self.purging and time.monotonic() >= self._purge_at:
            self._purge()
        else:
            self.shelf.warm(IDLE_S)
            self._sweeper.look(self.shelf.live.values())

    def _purge(self) -> None:
        """Some rows of deleted studies; once there are none, their traces in files."""
        self._purge_at = time.monotonic()
        try:
            gone = self.store.gone()
            for study in gone:
                with self.store.writing() as connection:
                    if self.store.purge(connection, study):
                        return
            if gone:
                self.store.scrub()
                self.store.bury(gone)
            self.purging = False
        except SQLAlchemyError as error:
            log.error("what was deleted could not be erased yet: %s", error)
            self._purge_at += AGAIN_S

    def _due(self, live: LiveStudy, events: int) -> bool:
        return live.seq - self._saved.setdefault(live.id, self.shelf.base(live)) >= events

    def _pack(self, live: LiveStudy) -> None:
        """Copy the study now; pack it elsewhere; store it with a later commit."""
        self._saved[live.id], self._spent[live.id] = live.seq, 0.0
        id, seq, pack = live.id, live.seq, still.capture(live)
        self._packer.submit(lambda: self.put(_keep(id, seq, pack())))

    def _snapshot(self, live: LiveStudy) -> Job:
        self._saved[live.id] = live.seq
        return _keep(live.id, live.seq, still.capture(live)())


def _keep(id: int, seq: int, data: bytes) -> Job:
    def run(desk: Desk) -> None:
        desk.keep(id, seq, data)

    return Job(run, writes=True)


def _answer(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    """Hand all answers to their event loop in one go."""
    if outcomes:
        outcomes[0][0].get_loop().call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # the caller went away; what was committed stays
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
