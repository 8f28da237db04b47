"""What the writer works with: StudyCache holds the studies in memory, UnitOfWork the changes of one commit."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner.errors import RaspError
from rasp_tuner.service import http_errors
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.storage.store import Store, StudyRow
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event, EventLog
from rasp_tuner.service.study.live_study import LiveStudy

log = logging.getLogger("rasp_tuner.serve")  # its name since version 0.1


class StoredEventLog:
    """The event log of one study in the database."""

    def __init__(self, store: Store, study: int) -> None:
        self._store, self._study = store, study

    def events_of_ask(self, number: int) -> list[Event]:
        return self._store.events_of_ask(self._study, number)

    def observation_by_key(self, key: str) -> Event | None:
        return self._store.observation_by_key(self._study, key)


class StudyCache:
    """Studies by name, in memory. A study is loaded from snapshot and log when it is first needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = {row.name: row for row in store.studies()}
        self.live: dict[str, LiveStudy] = {}
        self._stale: dict[str, LiveStudy] = {}  # changed by a failed commit; readable while the database is not
        self._snapshot_seqs: dict[int, int] = {}  # study -> seq of the snapshot it was loaded from
        self._replay_cpu_s: dict[int, float] = {}  # study -> CPU seconds that loading took
        self.damaged: set[str] = set()  # studies whose logs cannot be replayed; a restart tries again

    def study(self, name: str, writes: bool) -> LiveStudy:
        """The study; raises a 404 if there is none."""
        live = self.live.get(name)
        if live is not None:
            return live
        row = self.rows.get(name)
        if row is None:
            raise http_errors.unknown_study(name)
        if name in self.damaged:
            raise http_errors.damaged_study(name)
        started = time.thread_time()
        try:
            live, self._snapshot_seqs[row.id] = load_study(self._store, row)
        except (ValueError, KeyError, TypeError, RaspError) as reason:
            log.exception("study %r cannot be built from its log", name)
            self.damaged.add(name)
            raise http_errors.damaged_study(name) from reason
        except SQLAlchemyError:
            if writes or name not in self._stale:
                raise
            return self._stale[name]
        self._replay_cpu_s[row.id] = time.thread_time() - started
        self._stale.pop(name, None)
        self.live[name] = live
        return live

    def snapshot_seq(self, live: LiveStudy) -> int:
        """The seq of the snapshot it was loaded from; 0 for none."""
        return self._snapshot_seqs.get(live.id, 0)

    def replay_cpu_s(self, live: LiveStudy) -> float:
        """CPU seconds that loading it took; 0 for a new study."""
        return self._replay_cpu_s.get(live.id, 0.0)

    def put(self, row: StudyRow, live: LiveStudy) -> None:
        self.rows[row.name], self.live[row.name] = row, live

    def remove(self, name: str) -> None:
        self.rows.pop(name, None)
        self.live.pop(name, None)
        self._stale.pop(name, None)
        self.damaged.discard(name)

    def discard(self, studies: Iterable[LiveStudy]) -> None:
        """Drop studies whose changes were not committed, and reread the list of names."""
        for live in studies:
            if self.live.pop(live.definition.name, None) is not None:
                self._stale[live.definition.name] = live
        try:
            self.rows = {row.name: row for row in self._store.studies()}
        except SQLAlchemyError:
            return  # keep the known names until the database can be read
        for name in [name for name in self.live if name not in self.rows]:
            self.remove(name)

    def preload(self, seconds: float) -> None:
        """Load studies that were not needed yet, newest first, for at most so long."""
        until = time.monotonic() + seconds
        for name in self.rows:
            if name not in self.live and name not in self.damaged:
                if time.monotonic() >= until:
                    return
                with suppress(HttpError):  # damaged: the other studies are served
                    self.study(name, writes=True)


class RolledBack(Exception):
    """A job failed half-way, so its commit was not made."""


class UnitOfWork:
    """The changes of one commit."""

    def __init__(self, store: Store, cache: StudyCache, now: float) -> None:
        self.store, self.cache, self.now = store, cache, now
        self.changed: dict[str, LiveStudy] = {}
        self.failed = False  # a job failed half-way: do not commit
        self.deletes_study = False
        self.cpu_s = 0.0  # CPU seconds that the changes took
        self._entries: list[tuple[int, Event]] = []
        self._writable: dict[str, LiveStudy] = {}
        self._stack = ExitStack()
        self._connection: sa.Connection | None = None

    def study(self, name: str, writes: bool = False) -> LiveStudy:
        """The study, to read or to write; raises a 404 if there is none."""
        live = self.cache.study(name, writes)
        if writes:
            self._writable[name] = live
        return live

    def event_log(self, live: LiveStudy) -> EventLog:
        return StoredEventLog(self.store, live.id)

    def add_event(self, live: LiveStudy, event: Event) -> None:
        """Add an event to the commit; `live` has already applied it."""
        self.changed[live.definition.name] = live
        self._entries.append((live.id, event))

    def connection(self) -> sa.Connection:
        """The transaction that `commit` commits."""
        if self._connection is None:
            self._connection = self._stack.enter_context(self.store.writing())
        return self._connection

    @property
    def wrote(self) -> bool:
        return self._connection is not None

    def audit(self, actor: str, action: str, subject: str) -> None:
        self.store.add_audit_line(self.connection(), actor, action, subject)

    def add_snapshot(self, id: int, seq: int, data: bytes) -> None:
        """Store a snapshot, unless its study was deleted."""
        if any(row.id == id for row in self.cache.rows.values()):
            self.store.add_snapshot(self.connection(), id, seq, data)

    def create_study(self, definition: StudyDefinition) -> LiveStudy:
        return self.adopt_study(LiveStudy(0, definition, self.now))

    def adopt_study(self, live: LiveStudy) -> LiveStudy:
        """Add a study made elsewhere and give it an id; the caller adds its events."""
        name, definition = live.definition.name, live.definition.to_wire()
        live.created = self.now
        live.id = self.store.add_study(self.connection(), name, definition, self.now)
        self.cache.put(StudyRow(live.id, name, definition, self.now), live)
        self.changed[name] = self._writable[name] = live
        return live

    def uncommitted_events(self, live: LiveStudy) -> list[Event]:
        """Events of the study that this commit will write."""
        return [event for id, event in self._entries if id == live.id]

    def replace_study(self, new: LiveStudy, events: Iterable[Event]) -> None:
        """Replace a study by one with another log. All rows of the old one are purged later."""
        name, definition = new.definition.name, new.definition.to_wire()
        self.delete_study(name)
        new.id = self.store.add_study(self.connection(), name, definition, new.created)
        self.cache.put(StudyRow(new.id, name, definition, new.created), new)
        self.changed[name] = self._writable[name] = new
        self._entries += [(new.id, event) for event in events]

    def event_shares(self) -> list[tuple[LiveStudy, float]]:
        """Each changed study, with its share of this commit's events."""
        counts = Counter(id for id, _ in self._entries)
        return [(live, counts[live.id] / max(len(self._entries), 1)) for live in self.changed.values()]

    def remove_backups(self) -> list[str]:
        return self.store.remove_backups(self.connection())

    def delete_study(self, name: str) -> None:
        """Delete a study, also a damaged one; raises a 404 if there is none."""
        row = self.cache.rows.get(name)
        if row is None:
            raise http_errors.unknown_study(name)
        if name in self.cache.live:
            self._writable[name] = self.cache.live[name]
        self.store.remove_study(self.connection(), row.id)
        self.cache.remove(name)
        self.deletes_study = True

    def commit(self) -> None:
        """Commit everything, or undo everything and raise."""
        with self._stack:
            if self.failed:
                raise RolledBack
            if self._entries:
                self.store.append(self.connection(), self._entries)

    def roll_back(self) -> None:
        """Drop every study that may have changed; they are loaded again from disk."""
        self.cache.discard(self._writable.values())


def load_study(store: Store, row: StudyRow) -> tuple[LiveStudy, int]:
    """The study from its newest valid snapshot and the events after it; the seq of that snapshot comes second."""
    definition = StudyDefinition.from_stored(row.definition)
    live = None
    for _, data in store.snapshots(row.id):
        try:
            live = study_snapshot.restore(data, row.id, definition, row.created)
            break
        except (ValueError, KeyError, TypeError, RaspError):
            continue  # damaged, or from another version: use an older snapshot, or the log alone
    live = live or LiveStudy(row.id, definition, row.created)
    snapshot_seq = live.seq
    for event in store.events_after(row.id, live.seq):
        live.apply(event)
    return live, snapshot_seq
