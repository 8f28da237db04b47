"""Store: the tables behind SQLAlchemy Core, on SQLite or PostgreSQL. It knows rows, not tuners.

Writing goes through one connection (`writing`), which belongs to the writer thread. Reading opens its own.
"""

import functools
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from rasp_tuner.errors import InvalidValue, RaspError
from rasp_tuner.service.json_codec import text
from rasp_tuner.service.storage import migration
from rasp_tuner.service.storage import secure_delete as scrub
from rasp_tuner.service.storage.tables import audit, events, keys, snapshots, studies
from rasp_tuner.service.study.events import Event, Kind

BUSY_MS = 10_000  # how long SQLite waits for another process, such as `rasp keys`
WAL_PAGES = 4_000  # between checkpoints
KEPT = 2  # snapshots of a study
ONE_WRITER = 7_277_832_101  # the advisory lock a server holds in PostgreSQL
CHUNK = 2_000  # events read, or deleted, at a time


@dataclass(frozen=True, slots=True)
class StudyRow:
    id: int
    name: str
    definition: dict[str, Any]
    created: float


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: str
    sha256: str
    scope: str
    study: str | None
    label: str
    created: float
    revoked: float | None


class DatabaseTaken(RaspError, RuntimeError):
    """Another server writes to the database."""


class Store:
    """Rows in, rows out; raises SQLAlchemyError where the database fails."""

    def __init__(self, url: str, *, alone: bool = False) -> None:
        """`alone`: refuse to share a PostgreSQL database with another server; a SQLite one has the folder's lock."""
        self.url = sa.make_url(url)
        self._readers = _engine(self.url, writes=False, alone=False)
        self._writer = _engine(self.url, writes=True, alone=alone)
        try:
            migration.prepare(self._writer)
            scrub.keep_no_statistics(self._writer)
        except BaseException:
            self.close()
            raise

    @classmethod
    def in_folder(cls, folder: Path) -> "Store":
        return cls(sqlite_url(folder))

    def close(self) -> None:
        self._readers.dispose()
        self._writer.dispose()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that is on disk when the block ends, or undone if it raises."""
        with self._writer.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._readers.begin() as connection:
            yield connection

    # studies

    def add_study(self, connection: sa.Connection, name: str, definition: dict[str, Any], created: float) -> int:
        row = {"name": name, "definition": text(definition), "created": created}
        return int(connection.execute(sa.insert(studies).returning(studies.c.id), row).scalar_one())

    def studies(self) -> list[StudyRow]:
        """Those not deleted, newest first."""
        query = sa.select(studies).where(studies.c.name.is_not(None)).order_by(studies.c.id.desc())
        with self.reading() as connection:
            return [
                StudyRow(row.id, row.name, json.loads(row.definition), row.created) for row in connection.execute(query)
            ]

    def remove_study(self, connection: sa.Connection, study: int) -> None:
        """Give its name free; `purge` takes its rows."""
        connection.execute(sa.update(studies).where(studies.c.id == study).values(name=None))

    def gone(self) -> list[int]:
        """Deleted studies of which there may be traces: `purge`, `scrub` and `bury` take them away, in this order."""
        with self.reading() as connection:
            return list(connection.execute(sa.select(studies.c.id).where(studies.c.name.is_(None))).scalars())

    def purge(self, connection: sa.Connection, study: int) -> bool:
        """Delete some rows of a deleted study; whether there may be more."""
        connection.execute(sa.delete(snapshots).where(snapshots.c.study == study))
        first = connection.execute(sa.select(sa.func.min(events.c.seq)).where(events.c.study == study)).scalar()
        if first is not None:
            connection.execute(sa.delete(events).where(events.c.study == study, events.c.seq < first + CHUNK))
        return first is not None

    def scrub(self) -> None:
        """Write the tables anew, so that no file of the database holds bytes of deleted rows; outside a transaction."""
        scrub.database(self._writer)

    def bury(self, gone: Sequence[int]) -> None:
        """Let go of deleted studies whose rows are gone, in files too."""
        with self.writing() as connection:
            connection.execute(sa.delete(studies).where(studies.c.id.in_(gone)))
        scrub.write_ahead_log(self._writer)

    def drop_backups(self, connection: sa.Connection) -> list[str]:
        """Remove the copies that migrations made, which hold what was erased since; their names."""
        return scrub.backups(connection)

    # events

    def append(self, connection: sa.Connection, entries: Sequence[tuple[int, Event]]) -> None:
        """Add (study, event) pairs; a sequence number that is there already raises."""
        if entries:
            rows = [_row(study, event) for study, event in entries]
            connection.exec_driver_sql(_append(connection.dialect.name), rows)

    def tail(self, study: int, after: int, limit: int | None = None) -> Iterator[Event]:
        """Events with seq > after, in order; read in chunks, each its own short transaction."""
        left = limit
        while left is None or left > 0:
            query = (
                sa.select(events)
                .where(events.c.study == study, events.c.seq > after)
                .order_by(events.c.seq)
                .limit(CHUNK if left is None else min(CHUNK, left))
            )
            with self.reading() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                yield _event(row)
            if len(rows) < CHUNK:
                return
            after = rows[-1].seq
            left = None if left is None else left - len(rows)

    def of_ask(self, study: int, number: int) -> list[Event]:
        """The ask and, if there is one, its answer."""
        query = sa.select(events).where(events.c.study == study, events.c.ask == number).order_by(events.c.seq)
        with self.reading() as connection:
            return [_event(row) for row in connection.execute(query)]

    def of_key(self, study: int, key: str) -> Event | None:
        """The observation under this key."""
        query = sa.select(events).where(events.c.study == study, events.c.key == key)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _event(row)

    def last_seq(self, study: int) -> int:
        query = sa.select(sa.func.max(events.c.seq)).where(events.c.study == study)
        with self.reading() as connection:
            return connection.execute(query).scalar() or 0

    # snapshots

    def add_snapshot(self, connection: sa.Connection, study: int, seq: int, data: bytes) -> None:
        """Keep it, and the one before it; the log is the truth, so older ones have no use."""
        connection.execute(sa.delete(snapshots).where(snapshots.c.study == study, snapshots.c.seq == seq))
        digest = hashlib.sha256(data).hexdigest()
        connection.execute(sa.insert(snapshots), {"study": study, "seq": seq, "sha256": digest, "data": data})
        kept = sa.select(snapshots.c.seq).where(snapshots.c.study == study).order_by(snapshots.c.seq.desc())
        seqs = connection.execute(kept).scalars().all()
        if len(seqs) > KEPT:
            connection.execute(sa.delete(snapshots).where(snapshots.c.study == study, snapshots.c.seq < seqs[KEPT - 1]))

    def snapshots(self, study: int) -> Iterator[tuple[int, bytes]]:
        """(seq, data) of those whose checksum holds, newest first."""
        query = sa.select(snapshots).where(snapshots.c.study == study).order_by(snapshots.c.seq.desc())
        with self.reading() as connection:
            rows = connection.execute(query).all()
        for row in rows:
            if hashlib.sha256(row.data).hexdigest() == row.sha256:
                yield row.seq, row.data

    # keys and audit

    def list_keys(self) -> list[KeyRow]:
        with self.reading() as connection:
            return [KeyRow(*row) for row in connection.execute(sa.select(keys).order_by(keys.c.created))]

    def add_key(self, row: KeyRow) -> None:
        with self.writing() as connection:
            connection.execute(sa.insert(keys), vars_of(row))
            self.record(connection, "cli", "key created", f"{row.id} {row.scope} {row.study or 'all studies'}")

    def revoke_key(self, id: str) -> bool:
        """Whether there was such a key that still counted."""
        query = sa.update(keys).where(keys.c.id == id, keys.c.revoked.is_(None)).values(revoked=time.time())
        with self.writing() as connection:
            found = connection.execute(query).rowcount > 0
            if found:
                self.record(connection, "cli", "key revoked", id)
        return found

    def record(self, connection: sa.Connection, actor: str, action: str, subject: str) -> None:
        """Add a line to the audit log."""
        row = {"at": time.time(), "actor": actor, "action": action, "subject": subject}
        connection.execute(sa.insert(audit), row)

    def audit(self, limit: int) -> list[dict[str, Any]]:
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
        with self.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def probe(self) -> None:
        """Write and take back a few bytes: raises while the database cannot be written."""
        with self.writing() as connection:
            self.record(connection, "server", "storage is back", "")


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{(folder / 'rasp.db').resolve()}"


def vars_of(row: KeyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in KeyRow.__slots__}


@functools.cache
def _append(dialect: str) -> str:
    """The statement that adds events, in the driver's own words: every commit has one, so the way there counts."""
    places = ", ".join("?" if dialect == "sqlite" else "%s" for _ in events.columns)
    return f"INSERT INTO events ({', '.join(column.name for column in events.columns)}) VALUES ({places})"  # noqa: S608


def _row(study: int, event: Event) -> tuple[Any, ...]:
    return study, event.seq, event.kind, event.at, event.ask, event.key, text(event.body)


def _event(row: Any) -> Event:
    return Event(row.seq, cast(Kind, row.kind), row.at, json.loads(row.body), row.ask, row.key)


def _engine(url: sa.URL, *, writes: bool, alone: bool) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        return _postgres(url, writes=writes, alone=alone)
    if url.get_backend_name() != "sqlite":
        raise InvalidValue(f"the database must be postgresql://... or sqlite:///..., got {url.drivername}")
    engine = sa.create_engine(
        url,
        pool_size=1 if writes else 4,
        max_overflow=0 if writes else 16,
        hide_parameters=True,  # errors are logged: values of users are not for that
    )

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not guessed by the driver
        for pragma in (
            f"busy_timeout={BUSY_MS}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "secure_delete=ON",  # deleted rows are overwritten
            f"wal_autocheckpoint={WAL_PAGES}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(url: sa.URL, *, writes: bool, alone: bool) -> sa.Engine:
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=1 if writes else 4,
        max_overflow=0 if writes else 16,
        hide_parameters=True,
        pool_pre_ping=True,  # a server that was restarted costs a new connection, not a failed commit
        connect_args={"options": "-c synchronous_commit=on", "connect_timeout": 5},
    )
    if alone:

        @sa.event.listens_for(engine, "connect")
        def _lock(connection: Any, _: Any) -> None:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT pg_try_advisory_lock({ONE_WRITER})")
                alone = cursor.fetchone()[0]
            connection.commit()
            if not alone:
                connection.close()
                raise DatabaseTaken("another server uses this database: stop it, or take another --database")

    return engine
