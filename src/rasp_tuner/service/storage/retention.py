"""Sweeper: erases records that have outlived their study's `ttl_s`. Replays beside the writer, one study at a time."""

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service.storage.erasure import Cancelled, Remainder, Where
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.transaction import Desk
from rasp_tuner.service.study.live_study import LiveStudy

LOOK_S = 1.0  # between looks at the ages of studies
FAILED_S = 30.0  # until the next look after one that came to nothing

log = logging.getLogger("rasp_tuner.service")


class Sweeper:
    """`put` hands the last step of a sweep to the writer. `look` belongs to the writer's thread."""

    def __init__(self, store: Store, put: Callable[[Callable[[Desk], None]], None]) -> None:
        self._store, self._put = store, put
        self._pool = ThreadPoolExecutor(1, "rasp-sweeper")
        self._look_at = 0.0
        self._rest: Remainder | None = None  # what is being swept

    def look(self, studies: Iterable[LiveStudy]) -> None:
        """Begin a sweep if one is due and none is under way."""
        if self._rest is not None or time.monotonic() < self._look_at:
            return
        self._look_at, now = time.monotonic() + LOOK_S, time.time()
        for live in studies:
            if live.outlived(now) and live.definition.ttl_s is not None:
                self._rest = Remainder(self._store, live, Where(before=now - live.definition.ttl_s))
                self._pool.submit(self._beside, self._rest, self._rest.derive)
                return

    def stop(self) -> None:
        if self._rest is not None:
            self._rest.cancelled = True
        self._pool.shutdown()

    def _beside(self, rest: Remainder, replay: Callable[[], int]) -> None:
        """Replay in the sweeper's thread; then go to the desk, if there is something to erase."""
        erased = 0
        try:
            erased = replay()
        except Cancelled:
            pass
        except SQLAlchemyError as error:
            log.error("the log of a study could not be read to erase old records: %s", error)
        except Exception:
            log.exception("a study could not be replayed without its old records: they are still there")
        if erased:
            self._put(lambda desk: self._finish(rest, desk))
        else:
            self._look_at, self._rest = time.monotonic() + FAILED_S, None

    def _finish(self, rest: Remainder, desk: Desk) -> None:
        try:
            done = rest.finish(desk)
        except BaseException:
            self._rest = None
            raise
        if not done:
            self._pool.submit(self._beside, rest, rest.catch_up)
            return
        self._rest = None
        desk.drop_backups()
        desk.record("server", "records outlived", f"{rest.name}: {rest.records}")
