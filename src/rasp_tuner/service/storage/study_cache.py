"""StudyCache: which studies there are, and those of them that are in memory.

At most a certain number stay in memory. Of one that was put away a summary is left (study_summary.py), and whoever
needs it has it loaded again from snapshot and log. It may be put away between two commits only: then its log is whole.
"""

import logging
import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable

from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.service import service_errors
from rasp_tuner.service.service_errors import Moved
from rasp_tuner.service.storage.event_rows import DamagedEvent
from rasp_tuner.service.storage.leases import Leases
from rasp_tuner.service.storage.store import Store, StoredStudy, is_damage
from rasp_tuner.service.storage.study_loader import load_study
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.study_summary import SORTS, Sort, StudySummary

RETRY_LOAD_S = 1.0  # after a load that the database failed
USE_WITHIN_S = 5.0  # that a study stays at least for whoever had it loaded

log = logging.getLogger("rasp_tuner.serve")


class StudyCache:
    """Studies by name, in memory; each was loaded from snapshot and log."""

    def __init__(self, store: Store, most: int, leases: Leases | None = None) -> None:
        """`most`: how many may stay in memory. With `leases`, only the studies that this server owns."""
        self._store, self.leases, self._most = store, leases, most
        self.rows = self._read_rows()
        self.live: dict[str, LiveStudy] = {}
        self.away: dict[str, StudySummary] = {}  # of those that were put away
        self.orders: dict[Sort, list[tuple[float, str]]] = {sort: [] for sort in SORTS}  # the same, sorted
        self.loads = 0  # so far
        self._used: OrderedDict[str, None] = OrderedDict()  # names of the live ones, the longest unused first
        self._awaited: dict[str, float] = {}  # that jobs wait for, until when they keep their place (monotonic)
        self._stale: dict[str, LiveStudy] = {}  # changed by a failed commit; readable while the database is not
        self._problems: dict[int, dict[str, str]] = {}  # study -> what is wrong with it, kept when it is loaded again
        self._unreadable: dict[str, float] = {}  # studies the database failed to give, until when none tries again
        self.damaged: dict[str, str] = {}  # studies whose logs cannot be replayed, and why; a restart tries again

    def must_be_loaded(self, name: str) -> bool:
        """Whether there is such a study, not in memory, and it is worth trying now."""
        known = name in self.live or name in self.damaged or self._failed_lately(name)
        return not known and self.row(name) is not None

    def row(self, name: str) -> StoredStudy | None:
        """Its row, also of a study that this server has just taken."""
        if self.leases is not None and (taken := self.leases.taken.pop(name, None)) is not None:
            self._set_row(taken)
        return self.rows.get(name)

    def study(self, name: str, writes: bool) -> LiveStudy:
        """The study, loaded now if nobody has done it before; raises NotFound if there is none."""
        live = self.live.get(name)
        if live is not None:
            self._used.move_to_end(name)
            self._awaited.pop(name, None)
            return live
        row = self.row(name)
        if row is None:
            raise service_errors.unknown_study(name) if self.leases is None else Moved(name)
        if name in self.damaged:
            raise service_errors.damaged_study(name)
        if not self._failed_lately(name):
            try:
                self.adopt(row, load_study(self._store, row))
            except Exception as error:  # noqa: BLE001 - hurts only this study; it is logged
                self.note_failed_load(name, error)
            return self.study(name, writes)
        if writes or name not in self._stale:
            raise service_errors.storage_failed()
        return self._stale[name]

    def _failed_lately(self, name: str) -> bool:
        return time.monotonic() < self._unreadable.get(name, 0.0)

    def adopt(self, row: StoredStudy, live: LiveStudy) -> None:
        """Take in a study that was loaded; if nobody waits for it, it is the first to be put away."""
        live.saved.loaded_seq = live.seq
        self._stale.pop(row.name, None)
        self._unreadable.pop(row.name, None)
        self._drop_summary(row.name)
        self.put(self.rows.get(row.name, row), live)
        self.loads += 1
        if row.name in self._awaited:
            self._awaited[row.name] = time.monotonic() + USE_WITHIN_S
        else:
            self._used.move_to_end(row.name, last=False)

    def await_load(self, name: str) -> None:
        """Take note that somebody waits for the study: once loaded it stays until it was used."""
        self._awaited[name] = float("inf")

    def is_wanted(self, row: StoredStudy) -> bool:
        """Whether to take in the study, now that it is loaded: somebody waits for it, or it was never looked at."""
        name = row.name
        seen = name in self.away and name not in self._awaited
        return self.must_be_loaded(name) and self.rows[name].id == row.id and not seen

    def unseen(self) -> list[StoredStudy]:
        """Studies of which nothing is known but that they are there."""
        names = [name for name in list(self.rows) if name not in self.away and self.must_be_loaded(name)]
        return [self.rows[name] for name in names]

    def spare(self) -> list[LiveStudy]:
        """The longest unused studies, as many as there are too many in memory; one with a problem may load slowly."""
        excess, found = len(self.live) - self._most, list[LiveStudy]()
        for name in self._used if excess > 0 else ():
            live, until = self.live[name], self._awaited.get(name, 0.0)
            if not live.problems and until < time.monotonic():
                found.append(live)
                if len(found) == excess:
                    break
        return found

    def put_away(self, live: LiveStudy, now: float) -> None:
        """Let a study go that has no uncommitted changes; a summary of it stays."""
        name = live.definition.name
        self.away[name] = summary = StudySummary(live, now)
        for sort, place in summary.places.items():
            insort(self.orders[sort], (place, name))
        self._leave_memory(name)

    def _drop_summary(self, name: str) -> None:
        summary = self.away.pop(name, None)
        for sort, place in summary.places.items() if summary is not None else ():
            order = self.orders[sort]
            del order[bisect_left(order, (place, name))]

    def _leave_memory(self, name: str) -> LiveStudy | None:
        self._used.pop(name, None)
        self._awaited.pop(name, None)
        return self.live.pop(name, None)

    def note_failed_load(self, name: str, error: Exception) -> None:
        """Take note that a study cannot be loaded: for now if the database failed, else until the next start."""
        if isinstance(error, SQLAlchemyError) and not is_damage(error):
            log.error("study %r could not be loaded, the database failed: %s", name, error)
            self._unreadable[name] = time.monotonic() + RETRY_LOAD_S
        else:
            self._drop_summary(name)
            if is_damage(error) or isinstance(error, DamagedEvent):
                log.error("study %r cannot be built from its log: %s; `rasp doctor` lists what is damaged", name, error)
                self.damaged[name] = "its log is damaged in the database: bring back a backup; `rasp doctor` says more"
                return
            log.error("study %r cannot be built from its log", name, exc_info=error)
            self.damaged[name] = f"its log cannot be replayed ({type(error).__name__}): the server's log says why"

    def put(self, row: StoredStudy, live: LiveStudy) -> None:
        live.problems = self._problems.setdefault(row.id, live.problems)
        self.rows[row.name], self.live[row.name] = row, live
        self._used[row.name] = None

    def remove(self, name: str) -> None:
        row = self.rows.pop(name, None)
        self._leave_memory(name)
        self._drop_summary(name)
        self._stale.pop(name, None)
        self._unreadable.pop(name, None)
        self.damaged.pop(name, None)
        if row is not None:
            self._problems.pop(row.id, None)

    def discard(self, studies: Iterable[LiveStudy]) -> None:
        """Drop studies whose changes were not committed, and reread the list of names."""
        for live in studies:
            if self._leave_memory(live.definition.name) is not None:
                self._stale[live.definition.name] = live
        try:
            self.refresh()
        except SQLAlchemyError:
            return  # keep the known names until the database can be read

    def refresh(self) -> None:
        """Read again which studies there are, or are ours; drops those that are not."""
        found = self._read_rows()
        for name in [name for name in (*self.rows, *self.live) if name not in found]:
            self.remove(name)
        for row in found.values():
            self._set_row(row)

    def _set_row(self, row: StoredStudy) -> None:
        known = self.rows.get(row.name)
        if known is not None and (known.id, known.epoch) != (row.id, row.epoch):
            self.remove(row.name)  # it was replaced, or another server had it meanwhile
        self.rows[row.name] = row

    def _read_rows(self) -> dict[str, StoredStudy]:
        owner = None if self.leases is None else self.leases.id
        return {row.name: row for row in self._store.studies(owner)}
