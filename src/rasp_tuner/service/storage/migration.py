"""Upgrades an older database after a backup; refuses a newer one and names both versions."""

import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from rasp_tuner.errors import RaspError
from rasp_tuner.service.data_folder_lock import make_private_file
from rasp_tuner.service.storage.event_rows import checksum
from rasp_tuner.service.storage.postgres import check_not_served, preparing
from rasp_tuner.service.storage.tables import SCHEMA_VERSION, audit, events, events_key, meta, schema, servers

ROWS_PER_CHUNK = 2_000  # events that get a checksum at a time


class SchemaError(RaspError, RuntimeError):
    """The database was made by a version that this one cannot use."""


def prepare(engine: sa.Engine) -> None:
    """Make sure that the tables have this version: create or migrate them."""
    if engine.dialect.name == "postgresql":
        events_key.dialect_options["postgresql"]["where"] = events.c.key.is_not(None)
    with preparing(engine) as holder:
        found = version(engine)
        if found is None:
            with engine.begin() as connection:
                meta.create_all(connection)
                connection.execute(sa.insert(schema), {"version": SCHEMA_VERSION})
        elif found < SCHEMA_VERSION:
            check_not_served(holder)
            _backup(engine, found)
            with engine.begin() as connection:
                for step in range(found, SCHEMA_VERSION):
                    _STEPS[step](connection)
                connection.execute(sa.update(schema).values(version=SCHEMA_VERSION))
    check_version(engine)


def check_version(engine: sa.Engine) -> None:
    """Raise SchemaError if the tables are not of this version."""
    found = version(engine)
    if found != SCHEMA_VERSION:
        raise SchemaError(
            f"the database has schema version {found}, this program knows up to {SCHEMA_VERSION}: upgrade rasp-tuner"
        )


def version(engine: sa.Engine) -> int | None:
    """The schema version of the database; None for an empty one."""
    if not sa.inspect(engine).has_table(schema.name):
        return None
    with engine.connect() as connection:
        return int(connection.execute(sa.select(schema.c.version)).scalar_one())


def _backup(engine: sa.Engine, found: int) -> None:
    """Copy everything: into a file next to a SQLite database, into a schema of a PostgreSQL one."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    if engine.dialect.name == "sqlite":
        target = f"{engine.url.database}.v{found}-{stamp}.bak"
        make_private_file(Path(target))
        raw = engine.raw_connection()  # VACUUM INTO does not run inside a transaction
        try:
            raw.cursor().execute("VACUUM INTO ?", (target,))
        finally:
            raw.close()
        return
    folder = f"rasp_backup_v{found}_{stamp}".lower()
    with engine.begin() as connection:
        tables = sa.inspect(connection).get_table_names()
        connection.execute(sa.schema.CreateSchema(folder))
        quote = engine.dialect.identifier_preparer.quote
        for table in tables:
            connection.exec_driver_sql(f"CREATE TABLE {quote(folder)}.{quote(table)} AS TABLE {quote(table)}")


def _one_to_two(connection: sa.Connection) -> None:
    """Observations can have a key; admin actions are in an audit log."""
    connection.exec_driver_sql("ALTER TABLE events ADD COLUMN key VARCHAR(128)")
    events_key.create(connection)
    audit.create(connection)


def _two_to_three(connection: sa.Connection) -> None:
    """A study may belong to one of several servers."""
    connection.exec_driver_sql("ALTER TABLE studies ADD COLUMN owner VARCHAR(32)")
    connection.exec_driver_sql("ALTER TABLE studies ADD COLUMN epoch BIGINT DEFAULT 0 NOT NULL")
    servers.create(connection)


def _three_to_four(connection: sa.Connection) -> None:
    """Every event has a checksum."""
    connection.exec_driver_sql("ALTER TABLE events ADD COLUMN checksum BIGINT")
    own = [column for column in events.columns if column.name != "checksum"]
    place = sa.tuple_(events.c.study, events.c.seq)
    query = sa.select(*own).order_by(events.c.study, events.c.seq).limit(ROWS_PER_CHUNK)
    change = sa.update(events).where(events.c.study == sa.bindparam("of"), events.c.seq == sa.bindparam("at_seq"))
    rows = connection.execute(query).all()
    while rows:
        new = [{"of": row.study, "at_seq": row.seq, "sum": checksum(*row)} for row in rows]
        connection.execute(change.values(checksum=sa.bindparam("sum")), new)
        rows = connection.execute(query.where(place > (rows[-1].study, rows[-1].seq))).all()


_STEPS: dict[int, Callable[[sa.Connection], None]] = {1: _one_to_two, 2: _two_to_three, 3: _three_to_four}
