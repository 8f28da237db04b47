"""Store: the tables, through SQLAlchemy Core, on SQLite or PostgreSQL. It knows rows, not tuners.

All writes go through one connection (`writing`), which belongs to the writer thread. Reads open their own.
"""

import functools
import hashlib
import json
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from rasp_tuner.errors import InvalidValue, RaspError
from rasp_tuner.service.data_folder_lock import DATABASE, database_is_lost, make_private_file, sqlite_file
from rasp_tuner.service.json_codec import dumps_text
from rasp_tuner.service.storage import schema_version, secure_delete
from rasp_tuner.service.storage.event_rows import DamagedEvent, event_of, event_row
from rasp_tuner.service.storage.file_watch import FilesGone, FileWatch
from rasp_tuner.service.storage.postgres import postgres_engine
from rasp_tuner.service.storage.tables import audit, events, keys, snapshots, studies
from rasp_tuner.service.study.events import Event

SQLITE_BUSY_TIMEOUT_MS = 10_000  # how long SQLite waits for another process, such as `rasp keys`
CHECKPOINT_EVERY_PAGES = 1_000  # of SQLite's write-ahead log: 4 MB, which small disks have, too
LEAST_LOG_BYTES = 1_000_000  # of that log, below which it is left alone when the disk is nearly full
SNAPSHOTS_KEPT = 2  # for each study
SERVER_LEASE_S = (
    10.0  # of one of several servers; server and PostgreSQL give each other up if one is silent for so long
)
BEGIN_WRITING = "BEGIN IMMEDIATE"
PROBE_BYTES = 4_096  # of a test write
NO_STUDY = 0  # ids begin at 1
PRIMARY_CODE = 0xFF  # of an error code of SQLite; the rest says more about it
MOST_SUMS_READ = 2_000  # events
ROWS_PER_CHUNK = 2_000  # events read or deleted at a time


class DatabaseUnusable(RaspError, RuntimeError):
    """The database cannot be opened or read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class StoredStudy:
    id: int
    name: str
    definition_json: str  # not read before it is needed: there may be thousands of rows
    created: float
    epoch: int = 0  # see leases.py

    @property
    def definition(self) -> dict[str, Any]:
        definition: dict[str, Any] = json.loads(self.definition_json)
        return definition


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: str
    sha256: str
    scope: str
    study: str | None
    label: str
    created: float
    revoked: float | None


class Store:
    """Rows in, rows out; raises SQLAlchemyError where the database fails."""

    def __init__(self, url: str, *, lease_s: float = SERVER_LEASE_S) -> None:
        self.url = sa.make_url(url)
        self.is_shared = self.url.get_backend_name() == "postgresql"  # several servers may use it
        self._watch: FileWatch | None = None
        self._file = file = sqlite_file(self.url)
        if file is not None:
            if (lost := database_is_lost(file)) is not None:
                raise DatabaseUnusable(lost)
            make_private_file(file)
        self._lease_s = lease_s
        self._readers = _engine(self.url, writes=False, lease_s=lease_s)
        self._writer = _engine(self.url, writes=True, lease_s=lease_s)
        try:
            with plain_errors(self.url), self._slow_work() as engine:
                schema_version.prepare(engine)
                secure_delete.disable_statistics(engine)
            if file is not None:
                self._watch = FileWatch(file)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._readers.dispose()
        self._writer.dispose()
        if self._watch is not None:
            self._watch.close()

    def check_files(self) -> None:
        """Raise FilesGone if files of a SQLite database were deleted or replaced since it was opened."""
        if self._watch is not None:
            self._watch.check()

    def make_room(self) -> None:
        """Empty SQLite's write-ahead log if it is larger than what the disk has left; called by the writer."""
        if self._file is None:
            return
        log_bytes = Path(f"{self._file}-wal").stat().st_size
        if log_bytes >= LEAST_LOG_BYTES and shutil.disk_usage(self._file.parent).free < log_bytes:
            secure_delete.truncate_wal(self._writer)

    @contextmanager
    def _slow_work(self) -> Iterator[sa.Engine]:
        """For statements that may take long. PostgreSQL: the writer's only connection may hold a lock they need."""
        if not self.is_shared:
            yield self._writer
            return
        engine = postgres_engine(self.url, self._lease_s, connections=4, more=0, slow_work=True)
        try:
            yield engine
        finally:
            engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction, committed to disk when the block ends, rolled back if it raises."""
        self.check_files()
        with self._writer.begin() as connection:
            yield connection
        self.check_files()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        self.check_files()  # a new connection would open another file
        with self._readers.begin() as connection:
            yield connection

    # studies

    def add_study(
        self,
        connection: sa.Connection,
        name: str,
        definition: dict[str, Any],
        created: float,
        owner: str | None = None,
    ) -> int:
        row = {"name": name, "definition": dumps_text(definition), "created": created, "owner": owner}
        return int(connection.execute(sa.insert(studies).returning(studies.c.id), row).scalar_one())

    def studies(self, owner: str | None = None) -> list[StoredStudy]:
        """Studies that are not deleted, newest first; with `owner` only those of that server."""
        query = sa.select(studies).where(studies.c.name.is_not(None)).order_by(studies.c.id.desc())
        if owner is not None:
            query = query.where(studies.c.owner == owner)
        with self.reading() as connection:
            return [study_row(row) for row in connection.execute(query)]

    def remove_study(self, connection: sa.Connection, study: int) -> None:
        """Free its name; `purge_rows` deletes its rows later."""
        connection.execute(sa.update(studies).where(studies.c.id == study).values(name=None))

    def deleted_studies(self) -> list[int]:
        """Deleted studies to purge: by `purge_rows`, `rewrite_files` and `drop_purged_studies`, in this order."""
        with self.reading() as connection:
            return list(connection.execute(sa.select(studies.c.id).where(studies.c.name.is_(None))).scalars())

    def purge_rows(self, connection: sa.Connection, study: int) -> bool:
        """Delete some rows of a deleted study; True if there may be more."""
        connection.execute(sa.delete(snapshots).where(snapshots.c.study == study))
        first = connection.execute(sa.select(sa.func.min(events.c.seq)).where(events.c.study == study)).scalar()
        if first is not None:
            connection.execute(sa.delete(events).where(events.c.study == study, events.c.seq < first + ROWS_PER_CHUNK))
        return first is not None

    def rewrite_files(self) -> None:
        """Rewrite the database, so that no file holds bytes of deleted rows; not inside a transaction."""
        with self._slow_work() as engine:
            secure_delete.rewrite_database(engine)

    def drop_purged_studies(self, purged: Sequence[int]) -> None:
        """Delete the entries of studies whose rows are gone from tables and files."""
        with self.writing() as connection:
            connection.execute(sa.delete(studies).where(studies.c.id.in_(purged)))
        secure_delete.truncate_wal(self._writer)

    # events

    def append(self, connection: sa.Connection, entries: Sequence[tuple[int, Event]]) -> None:
        """Add (study, event) pairs; raises if a sequence number exists already."""
        if entries:
            rows = [event_row(study, event) for study, event in entries]
            connection.exec_driver_sql(_insert_events_sql(connection.dialect.name), rows)

    def append_alone(self, entries: Sequence[tuple[int, Event]]) -> None:
        """The same in a transaction of its own.

        On SQLite most commits are this; without SQLAlchemy's layers it takes a third of the CPU time.
        """
        if self.is_shared:
            with self.writing() as connection:
                self.append(connection, entries)
            return
        self.check_files()
        rows, sql = [event_row(study, event) for study, event in entries], _insert_events_sql("sqlite")
        driver = self._writer.raw_connection()
        try:
            cursor = driver.cursor()
            cursor.execute(BEGIN_WRITING)
            cursor.executemany(sql, rows)
            driver.commit()
        except sqlite3.Error as error:
            driver.rollback()
            raise DBAPIError.instance(sql, None, error, sqlite3.Error, hide_parameters=True) from error
        finally:
            driver.close()  # gives it back
        self.check_files()

    def events_after(self, study: int, after: int, limit: int | None = None) -> Iterator[Event]:
        """Events with seq > after, in order; read in chunks, each in its own short transaction.

        Raises DamagedEvent at the first that is missing or was changed.
        """
        left = limit
        while left is None or left > 0:
            query = (
                sa.select(events)
                .where(events.c.study == study, events.c.seq > after)
                .order_by(events.c.seq)
                .limit(ROWS_PER_CHUNK if left is None else min(ROWS_PER_CHUNK, left))
            )
            with self.reading() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                if row.seq != after + 1:
                    raise DamagedEvent(study, after + 1)
                yield event_of(row)
                after = row.seq
            if len(rows) < ROWS_PER_CHUNK:
                return
            left = None if left is None else left - len(rows)

    def events_of_ask(self, study: int, number: int) -> list[Event]:
        """The ask and, if there is one, its answer."""
        hint = "" if self.is_shared else "INDEXED BY events_ask"  # else SQLite reads the whole study
        query = f"SELECT * FROM events {hint} WHERE study = :study AND ask = :ask ORDER BY seq"  # noqa: S608
        with self.reading() as connection:
            return [event_of(row) for row in connection.execute(sa.text(query), {"study": study, "ask": number})]

    def observation_by_key(self, study: int, key: str) -> Event | None:
        """The observation with this key."""
        query = sa.select(events).where(events.c.study == study, events.c.key == key)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else event_of(row)

    def latest_sums(self, study: int, after: int) -> list[Event]:
        """Sums of runs that were told after an event, the latest first."""
        own = events.c.study == study, events.c.seq > after, events.c.kind == "sums"
        query = sa.select(events).where(*own).order_by(events.c.seq.desc()).limit(MOST_SUMS_READ)
        with self.reading() as connection:
            return [event_of(row) for row in connection.execute(query)]

    # snapshots

    def add_snapshot(self, connection: sa.Connection, study: int, seq: int, data: bytes) -> None:
        """Store it and delete older ones, except the previous one; the log can rebuild everything."""
        connection.execute(sa.delete(snapshots).where(snapshots.c.study == study, snapshots.c.seq == seq))
        digest = hashlib.sha256(data).hexdigest()
        connection.execute(sa.insert(snapshots), {"study": study, "seq": seq, "sha256": digest, "data": data})
        kept = sa.select(snapshots.c.seq).where(snapshots.c.study == study).order_by(snapshots.c.seq.desc())
        seqs = connection.execute(kept).scalars().all()
        if len(seqs) > SNAPSHOTS_KEPT:
            connection.execute(
                sa.delete(snapshots).where(snapshots.c.study == study, snapshots.c.seq < seqs[SNAPSHOTS_KEPT - 1])
            )

    def snapshots(self, study: int) -> Iterator[tuple[int, bytes]]:
        """(seq, data) of snapshots with a correct checksum, newest first."""
        query = sa.select(snapshots).where(snapshots.c.study == study).order_by(snapshots.c.seq.desc()).limit(1)
        older = query
        while True:
            with self.reading() as connection:
                row = connection.execute(older).one_or_none()
            if row is None:
                return
            if hashlib.sha256(row.data).hexdigest() == row.sha256:
                yield row.seq, row.data
            older = query.where(snapshots.c.seq < row.seq)

    # keys and audit

    def list_keys(self) -> list[KeyRow]:
        with self.reading() as connection:
            return [KeyRow(*row) for row in connection.execute(sa.select(keys).order_by(keys.c.created))]

    def count_keys(self) -> tuple[int, int]:
        """How many there are, and how many of them are revoked."""
        query = sa.select(sa.func.count(), sa.func.count(keys.c.revoked)).select_from(keys)
        with self.reading() as connection:
            made, revoked = connection.execute(query).one()
        return made, revoked

    def add_key(self, row: KeyRow) -> None:
        with self.writing() as connection:
            connection.execute(sa.insert(keys), _key_columns(row))
            self.add_audit_line(connection, "cli", "key created", f"{row.id} {row.scope} {row.study or 'all studies'}")

    def revoke_key(self, id: str) -> bool:
        """Whether there was an active key with this id."""
        query = sa.update(keys).where(keys.c.id == id, keys.c.revoked.is_(None)).values(revoked=time.time())
        with self.writing() as connection:
            found = connection.execute(query).rowcount > 0
            if found:
                self.add_audit_line(connection, "cli", "key revoked", id)
        return found

    def add_audit_line(self, connection: sa.Connection, actor: str, action: str, subject: str) -> None:
        """Add a line to the audit log."""
        row = {"at": time.time(), "actor": actor, "action": action, "subject": subject}
        connection.execute(sa.insert(audit), row)

    def audit(self, limit: int) -> list[dict[str, Any]]:
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
        with self.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def probe(self) -> None:
        """Write as much as a tell does, and take it back: raises while the database cannot be written."""
        mine = {"study": NO_STUDY, "seq": secrets.randbelow(2**62)}  # several servers may test at the same time
        row = mine | {"kind": "probe", "at": 0.0, "ask": 0, "body": "x" * PROBE_BYTES}
        with self.writing() as connection:
            connection.execute(sa.insert(events), row)
            connection.execute(sa.delete(events).where(events.c.study == NO_STUDY, events.c.seq == mine["seq"]))


def is_outage(error: Exception) -> bool:
    """Whether the database failed, rather than refused what it was given."""
    refused = sa.exc.DataError | sa.exc.IntegrityError | sa.exc.ProgrammingError | sa.exc.NotSupportedError
    return isinstance(error, SQLAlchemyError) and not isinstance(error, refused)


def outage_in_words(error: Exception) -> str:
    """What /readyz says of a write that failed."""
    return str(error) if isinstance(error, FilesGone) else "the database cannot be written"


def is_damage(error: Exception) -> bool:
    """Whether a file of SQLite is damaged, rather than busy or out of reach: trying again would not help."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    return code is not None and code & PRIMARY_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def plain_errors(url: sa.URL) -> Iterator[None]:
    """Errors of the database become a DatabaseUnusable that says what to do."""
    try:
        yield
    except DBAPIError as error:
        said = str(error.orig).splitlines()[0]
        if is_damage(error):
            said = f"{url.database} is damaged ({said}): bring back a backup"
        raise DatabaseUnusable(f"could not use the database: {said}") from error


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{(folder / DATABASE).resolve()}"


def _key_columns(row: KeyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in KeyRow.__slots__}


@functools.cache
def _insert_events_sql(dialect: str) -> str:
    """The INSERT in the driver's own syntax: every commit runs it, so it skips SQLAlchemy's compiler."""
    places = ", ".join("?" if dialect == "sqlite" else "%s" for _ in events.columns)
    return f"INSERT INTO events ({', '.join(column.name for column in events.columns)}) VALUES ({places})"  # noqa: S608


def study_row(row: Any) -> StoredStudy:
    return StoredStudy(row.id, row.name, row.definition, row.created, row.epoch)


def _engine(url: sa.URL, *, writes: bool, lease_s: float) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        return postgres_engine(url, lease_s, connections=1 if writes else 4, more=0 if writes else 16)
    if url.get_backend_name() != "sqlite":
        raise InvalidValue(f"the database must be postgresql://... or sqlite:///..., got {url.drivername}")
    engine = sa.create_engine(
        url,
        pool_size=1 if writes else 4,
        max_overflow=0 if writes else 16,
        hide_parameters=True,  # errors are logged, and must not show user values
    )

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, not in the driver
        for pragma in (
            f"busy_timeout={SQLITE_BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "secure_delete=ON",  # deleted rows are overwritten
            f"wal_autocheckpoint={CHECKPOINT_EVERY_PAGES}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(BEGIN_WRITING if writes else "BEGIN")

    return engine
