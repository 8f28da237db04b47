"""UnitOfWork: the changes of one commit, on the studies in memory."""

import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from rasp_tuner.service.json_codec import dumps_text
from rasp_tuner.service.service_errors import Moved, unknown_study
from rasp_tuner.service.storage.store import Store, StoredStudy, is_outage
from rasp_tuner.service.storage.study_cache import StudyCache
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy

MORE: Final = object()  # what a job returns to go on in another piece

log = logging.getLogger("rasp_tuner.serve")


class TransactionLost(Exception):
    """The transaction has ended early: nothing of it can be committed."""


class JobChanges:
    """What one job of a commit has touched."""

    def __init__(self, first_entry: int) -> None:
        self.studies: dict[str, LiveStudy] = {}  # that it may have changed
        self.first_entry = first_entry  # of the commit's events, the first that is its own
        self.savepoint: sa.NestedTransaction | None = None  # once it has written to the database itself


class UnitOfWork:
    """The changes of one commit, job by job: one that fails is undone, the others are committed."""

    def __init__(self, store: Store, cache: StudyCache, now: float, piece_ends: Callable[[], bool] = bool) -> None:
        """`piece_ends` says whether a long job should let others run."""
        self.store, self.cache, self.now, self.piece_ends = store, cache, now, piece_ends
        self.changed: dict[str, LiveStudy] = {}
        self.broken: dict[str, LiveStudy] = {}  # half-changed by a job that failed: to be loaded again
        self.deletes_study = False
        self.wrote = False  # to the database
        self.cpu_s = 0.0  # CPU seconds that the changes took
        self._entries: list[tuple[int, Event]] = []
        self._writable: dict[str, LiveStudy] = {}
        self._job: JobChanges | None = None
        self._stack = ExitStack()
        self._connection: sa.Connection | None = None
        self._lost = False
        self.moved: set[int] = set()  # studies that were to be changed, and that another server has
        self._epochs: dict[int, int] = {}  # of studies with events
        self._handed_over: list[tuple[StoredStudy, str | None]] = []  # with their new owners

    def begin_job(self) -> JobChanges:
        """What one job changes from now on, until the next or the commit; `undo_job` takes it back."""
        self._job = JobChanges(len(self._entries))
        return self._job

    def undo_job(self, job: JobChanges) -> None:
        """Take back what a job did that failed half-way. Studies it touched must be loaded again."""
        del self._entries[job.first_entry :]
        self.broken |= job.studies
        try:
            if job.savepoint is not None:
                job.savepoint.rollback()
        except SQLAlchemyError as error:
            log.error("a request could not be undone by itself: %s", error)
            self._lost = True

    def study(self, name: str, writes: bool = False) -> LiveStudy:
        """The study, to read or to write; raises NotFound if there is none."""
        live = self.cache.study(name, writes)
        if writes:
            self._touch(live)
        return live

    def _touch(self, live: LiveStudy) -> None:
        name = live.definition.name
        self._writable[name] = live
        if self._job is not None:
            self._job.studies[name] = live

    def add_event(self, live: LiveStudy, event: Event) -> None:
        """Add an event to the commit; `live` has already applied it."""
        name = live.definition.name
        self.changed[name] = live
        self._epochs[live.id] = self.cache.rows[name].epoch
        self._entries.append((live.id, event))

    def connection(self) -> sa.Connection:
        """The transaction that `commit` commits."""
        if self._connection is None:
            self._connection, self.wrote = self._stack.enter_context(self.store.writing()), True
        if self._job is not None and self._job.savepoint is None:
            self._job.savepoint = self._connection.begin_nested()
        return self._connection

    def audit(self, actor: str, action: str, subject: str) -> None:
        self.store.add_audit_line(self.connection(), actor, action, subject)

    def add_snapshot(self, live: LiveStudy, seq: int, data: bytes) -> None:
        """Store a snapshot, unless its study was deleted or is another server's."""
        row = self.cache.rows.get(live.definition.name)
        if row is not None and row.id == live.id and self._is_ours(row):
            self.store.add_snapshot(self.connection(), live.id, seq, data)

    def _is_ours(self, row: StoredStudy) -> bool:
        """Whether no other server has the study; then none takes it before the commit."""
        leases = self.cache.leases
        lost = set() if leases is None else leases.lost(self.connection(), {row.id: row.epoch})
        self.moved |= lost
        return not lost

    def hand_over(self, name: str, target: str | None) -> None:
        """Give a study to another server with this commit, or to whoever needs it first (None)."""
        row = self.cache.rows[name]
        if not self._is_ours(row):
            return
        if name in self.cache.live:
            self._touch(self.cache.live[name])
        self._handed_over.append((row, target))
        self.cache.remove(name)

    def create_study(self, definition: StudyDefinition) -> LiveStudy:
        return self.adopt_study(LiveStudy(0, definition, self.now), ())

    def adopt_study(self, live: LiveStudy, events: Iterable[Event]) -> LiveStudy:
        """Add a study made elsewhere, with the events it has applied, and give it an id."""
        live.created = self.now
        self._add_study(live, events)
        return live

    def uncommitted_events(self, live: LiveStudy) -> list[Event]:
        """Events of the study that this commit will write."""
        return [event for id, event in self._entries if id == live.id]

    def replace_study(self, new: LiveStudy, events: Iterable[Event]) -> None:
        """Replace a study by one with another log. All rows of the old one are purged later."""
        self.delete_study(new.definition.name)
        self._add_study(new, events)

    def _add_study(self, live: LiveStudy, events: Iterable[Event]) -> None:
        """Its row and its events are written at once, so that the job fails as a whole if they cannot be."""
        name, definition = live.definition.name, live.definition.to_wire()
        owner = None if self.cache.leases is None else self.cache.leases.id
        try:
            live.id = self.store.add_study(self.connection(), name, definition, live.created, owner)
        except IntegrityError as error:  # another server has made it at this moment
            raise Moved(name) from error
        self._touch(live)
        self.cache.put(StoredStudy(live.id, name, dumps_text(definition), live.created), live)
        self.changed[name] = live
        self.store.append(self.connection(), [(live.id, event) for event in events])

    def event_shares(self) -> Iterator[tuple[LiveStudy, float]]:
        """Each changed study, with its share of this commit's events."""
        counts = Counter(map(operator.itemgetter(0), self._entries))
        for live in self.changed.values():
            yield live, counts[live.id] / max(len(self._entries), 1)

    def delete_study(self, name: str) -> None:
        """Delete a study, also a damaged one; raises NotFound if there is none."""
        row = self.cache.row(name)
        if row is None:
            raise unknown_study(name)
        if not self._is_ours(row):
            raise Moved(name)
        if name in self.cache.live:
            self._touch(self.cache.live[name])
        self.store.remove_study(self.connection(), row.id)
        self.cache.remove(name)
        self.deletes_study = True

    def commit(self) -> set[int]:
        """Write everything; returns the studies whose events the database refused. Raises if nothing was written."""
        self._job = None
        with self._stack:
            if self._lost:
                raise TransactionLost("the transaction ended early")
            refused = self._append()
            for row, target in self._handed_over:
                if self.cache.leases is not None:
                    self.cache.leases.hand_over(self.connection(), row.id, row.epoch, target)
        if refused:
            self.broken |= {name: live for name, live in self._writable.items() if live.id in refused}
        for name in self.broken:
            self.changed.pop(name, None)
        if self.broken or self.moved:
            self.cache.discard(self.broken.values())
        return refused

    def _append(self) -> set[int]:
        """Write the events; if the database refuses them together, study by study. Those of studies lost are left."""
        if self.cache.leases is not None and self._entries:
            self.moved |= self.cache.leases.lost(self.connection(), self._epochs)
        entries = [entry for entry in self._entries if entry[0] not in self.moved] if self.moved else self._entries
        if not entries or (self._appended(entries) if self.wrote else self._appended_alone(entries)):
            return self.moved
        by_study: dict[int, list[tuple[int, Event]]] = {}
        for entry in entries:
            by_study.setdefault(entry[0], []).append(entry)
        return self.moved | {id for id, entries in by_study.items() if not self._appended(entries)}

    def _appended_alone(self, entries: list[tuple[int, Event]]) -> bool:
        """The same in a transaction with nothing else in it, which needs no savepoint."""
        try:
            self.store.append_alone(entries)
        except Exception as error:
            if is_outage(error):
                raise
            return False
        self.wrote = True
        return True

    def _appended(self, entries: list[tuple[int, Event]]) -> bool:
        """Whether the database took these events; raises if it takes none at all."""
        connection = self.connection()
        try:
            with connection.begin_nested():
                self.store.append(connection, entries)
        except Exception as error:
            if is_outage(error):
                raise
            studies = sorted({id for id, _ in entries})
            log.error("the database refuses events of the studies %s: %s", studies, type(error).__name__)
            return False
        return True

    def roll_back(self) -> None:
        """Drop every study that may have changed; they are loaded again from disk."""
        self.cache.discard(self._writable.values())
