"""Desk and Shelf: what the writer works with. The shelf holds studies in memory, the desk the work of one commit."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.errors import RaspError
from rasp_tuner.service import http_errors as problems
from rasp_tuner.service.http_errors import Problem
from rasp_tuner.service.storage.store import Store, StudyRow
from rasp_tuner.service.study import study_snapshot as still
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy, Log

log = logging.getLogger("rasp_tuner.service")


class StoredLog:
    """The log of one study on disk."""

    def __init__(self, store: Store, study: int) -> None:
        self._store, self._study = store, study

    def of_ask(self, number: int) -> list[Event]:
        return self._store.of_ask(self._study, number)

    def of_key(self, key: str) -> Event | None:
        return self._store.of_key(self._study, key)


class Shelf:
    """Studies by name; built from snapshot and log when first wanted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = {row.name: row for row in store.studies()}
        self.live: dict[str, LiveStudy] = {}
        self._stale: dict[
            str, LiveStudy
        ] = {}  # touched by a commit that failed; good enough to read while disks are not
        self._bases: dict[int, int] = {}  # study -> seq of the snapshot it was built from
        self._replayed: dict[int, float] = {}  # study -> processor seconds that took
        self.damaged: set[str] = set()  # studies whose logs cannot be replayed; a restart tries again

    def study(self, name: str, writes: bool) -> LiveStudy:
        """The study, or a 404."""
        live = self.live.get(name)
        if live is not None:
            return live
        row = self.rows.get(name)
        if row is None:
            raise problems.unknown_study(name)
        if name in self.damaged:
            raise problems.damaged(name)
        started = time.thread_time()
        try:
            live, self._bases[row.id] = build(self._store, row)
        except (ValueError, KeyError, TypeError, RaspError) as reason:
            log.exception("study %r cannot be built from its log", name)
            self.damaged.add(name)
            raise problems.damaged(name) from reason
        except SQLAlchemyError:
            if writes or name not in self._stale:
                raise
            return self._stale[name]
        self._replayed[row.id] = time.thread_time() - started
        self._stale.pop(name, None)
        self.live[name] = live
        return live

    def base(self, live: LiveStudy) -> int:
        """The seq of the snapshot it was built from; 0 for none."""
        return self._bases.get(live.id, 0)

    def replayed(self, live: LiveStudy) -> float:
        """Processor seconds that it took to build it; 0 for one that is new."""
        return self._replayed.get(live.id, 0.0)

    def put(self, row: StudyRow, live: LiveStudy) -> None:
        self.rows[row.name], self.live[row.name] = row, live

    def remove(self, name: str) -> None:
        self.rows.pop(name, None)
        self.live.pop(name, None)
        self._stale.pop(name, None)
        self.damaged.discard(name)

    def forget(self, studies: Iterable[LiveStudy]) -> None:
        """Let go of studies whose changes were not committed, and of names that were."""
        for live in studies:
            if self.live.pop(live.definition.name, None) is not None:
                self._stale[live.definition.name] = live
        try:
            self.rows = {row.name: row for row in self._store.studies()}
        except SQLAlchemyError:
            return  # the names known so far will do until the database can be read
        for name in [name for name in self.live if name not in self.rows]:
            self.remove(name)

    def warm(self, seconds: float) -> None:
        """Build studies nobody has asked for yet, latest first, for so long."""
        until = time.monotonic() + seconds
        for name in self.rows:
            if name not in self.live and name not in self.damaged:
                if time.monotonic() >= until:
                    return
                with suppress(Problem):  # damaged: the others are served all the same
                    self.study(name, writes=True)


class Undone(Exception):
    """A job failed half-way, so nothing of its commit was kept."""


class Desk:
    """The changes of one commit."""

    def __init__(self, store: Store, shelf: Shelf, now: float) -> None:
        self.store, self.shelf, self.now = store, shelf, now
        self.touched: dict[str, LiveStudy] = {}
        self.broken = False  # something failed half-way: do not commit
        self.removed = False
        self.spent = 0.0  # processor seconds that the changes took
        self._entries: list[tuple[int, Event]] = []
        self._handed: dict[str, LiveStudy] = {}
        self._stack = ExitStack()
        self._connection: sa.Connection | None = None

    def study(self, name: str, writes: bool = False) -> LiveStudy:
        """The study, to read from or to write to, or a 404."""
        live = self.shelf.study(name, writes)
        if writes:
            self._handed[name] = live
        return live

    def log(self, live: LiveStudy) -> Log:
        return StoredLog(self.store, live.id)

    def emit(self, live: LiveStudy, event: Event) -> None:
        """Have the event committed; `live` has changed by it."""
        self.touched[live.definition.name] = live
        self._entries.append((live.id, event))

    def connection(self) -> sa.Connection:
        """The transaction that `finish` commits."""
        if self._connection is None:
            self._connection = self._stack.enter_context(self.store.writing())
        return self._connection

    @property
    def wrote(self) -> bool:
        return self._connection is not None

    def record(self, actor: str, action: str, subject: str) -> None:
        self.store.record(self.connection(), actor, action, subject)

    def keep(self, id: int, seq: int, data: bytes) -> None:
        """Store a snapshot, unless its study is gone."""
        if any(row.id == id for row in self.shelf.rows.values()):
            self.store.add_snapshot(self.connection(), id, seq, data)

    def add(self, definition: StudyDefinition) -> LiveStudy:
        """A new study."""
        return self.adopt(LiveStudy(0, definition, self.now))

    def adopt(self, live: LiveStudy) -> LiveStudy:
        """A study made elsewhere: it gets its place now; its events are for the caller to emit."""
        name, definition = live.definition.name, live.definition.to_wire()
        live.created = self.now
        live.id = self.store.add_study(self.connection(), name, definition, self.now)
        self.shelf.put(StudyRow(live.id, name, definition, self.now), live)
        self.touched[name] = self._handed[name] = live
        return live

    def unsaved(self, live: LiveStudy) -> list[Event]:
        """Events of the study that this commit will write."""
        return [event for id, event in self._entries if id == live.id]

    def replace(self, new: LiveStudy, events: Iterable[Event]) -> None:
        """Put a study with another log in the place of the old one, whose rows, late ones too, are for the purge."""
        name, definition = new.definition.name, new.definition.to_wire()
        self.remove(name)
        new.id = self.store.add_study(self.connection(), name, definition, new.created)
        self.shelf.put(StudyRow(new.id, name, definition, new.created), new)
        self.touched[name] = self._handed[name] = new
        self._entries += [(new.id, event) for event in events]

    def shares(self) -> list[tuple[LiveStudy, float]]:
        """Each study that was touched, with its share of the events of this commit."""
        counts = Counter(id for id, _ in self._entries)
        return [(live, counts[live.id] / max(len(self._entries), 1)) for live in self.touched.values()]

    def drop_backups(self) -> list[str]:
        return self.store.drop_backups(self.connection())

    def remove(self, name: str) -> None:
        """Delete a study, or a 404; a damaged one too."""
        row = self.shelf.rows.get(name)
        if row is None:
            raise problems.unknown_study(name)
        if name in self.shelf.live:
            self._handed[name] = self.shelf.live[name]
        self.store.remove_study(self.connection(), row.id)
        self.shelf.remove(name)
        self.removed = True

    def finish(self) -> None:
        """Commit everything, or undo everything and raise."""
        with self._stack:
            if self.broken:
                raise Undone
            if self._entries:
                self.store.append(self.connection(), self._entries)

    def undo(self) -> None:
        """Forget every study that may have changed; they are built again from what is on disk."""
        self.shelf.forget(self._handed.values())


def build(store: Store, row: StudyRow) -> tuple[LiveStudy, int]:
    """The study as its log tells it: the newest sound snapshot, whose seq comes second, and the events after it."""
    definition = StudyDefinition(**row.definition)
    live = None
    for _, data in store.snapshots(row.id):
        try:
            live = still.restore(data, row.id, definition, row.created)
            break
        except (ValueError, KeyError, TypeError, RaspError):
            continue  # damaged, or written by another version: an older one will do, or the log alone
    live = live or LiveStudy(row.id, definition, row.created)
    base = live.seq
    for event in store.tail(row.id, live.seq):
        live.apply(event)
    return live, base
