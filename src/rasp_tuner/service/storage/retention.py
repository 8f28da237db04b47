"""RetentionTask: erases records older than their study's `ttl_s`. Replays next to the writer, one study at a time."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service.storage.erasure import ErasureQuery, Replay, ReplayCancelled
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.study_cache import StudyCache
from rasp_tuner.service.storage.transaction import UnitOfWork

CHECK_EVERY_S = 1.0  # between checks of the studies' ages
RETRY_AFTER_FAILURE_S = 30.0  # until the next check after a replay that failed or erased nothing

log = logging.getLogger("rasp_tuner.serve")


class RetentionTask:
    """`submit` hands the last step to the writer, with the name of its study.

    `start_if_due` is called in the writer's thread only.
    """

    def __init__(self, store: Store, submit: Callable[[Callable[[UnitOfWork], None], str], None]) -> None:
        self._store, self._submit = store, submit
        self._pool = ThreadPoolExecutor(1, "rasp-retention")
        self._next_check_at = 0.0
        self._replay: Replay | None = None  # the one under way

    def start_if_due(self, cache: StudyCache) -> None:
        """Start a replay if a study has expired records and no replay is under way; one that was put away is loaded."""
        if self._replay is not None or time.monotonic() < self._next_check_at:
            return
        self._next_check_at, now = time.monotonic() + CHECK_EVERY_S, time.time()
        for live in cache.live.values():
            if live.has_expired_records(now) and live.definition.ttl_s is not None:
                self._replay = Replay(self._store, live, ErasureQuery(before=now - live.definition.ttl_s))
                self._pool.submit(self._run, self._replay, self._replay.run)
                return
        for name, summary in cache.away.items():
            if summary.ttl_s is not None and summary.has_expired_records(now):
                self._submit(lambda _: None, name)  # loads it: the next check finds it in memory
                return

    def stop(self) -> None:
        if self._replay is not None:
            self._replay.cancelled = True
        self._pool.shutdown()

    def _run(self, replay: Replay, step: Callable[[], int]) -> None:
        """Replay in this task's thread; if there is something to erase, hand the rest to the writer."""
        erased = 0
        try:
            erased = step()
        except ReplayCancelled:
            pass
        except SQLAlchemyError as error:
            log.error("the log of a study could not be read to erase old records: %s", error)
        except Exception:
            log.exception("a study could not be replayed without its old records: they are still there")
        if erased:
            self._submit(lambda work: self._finish(replay, work), replay.name)
        else:
            self._next_check_at, self._replay = time.monotonic() + RETRY_AFTER_FAILURE_S, None

    def _finish(self, replay: Replay, work: UnitOfWork) -> None:
        try:
            done = replay.finish(work)
        except BaseException:
            self._replay = None
            raise
        if not done:
            self._pool.submit(self._run, replay, replay.catch_up)
            return
        self._replay = None
        work.audit("server", "records outlived", f"{replay.name}: {replay.erased}")
