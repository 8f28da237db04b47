"""Scrub: make what was deleted absent from the files of a database, not only from its tables.

SQLite: the file is written anew (VACUUM), then the write-ahead log is copied into it and cut to nothing. PostgreSQL:
the tables are written anew, and statistics, which would quote values, are not kept of columns that hold any. Its own
write-ahead log and archives of that keep what was erased until they are recycled: no client can help that.
"""

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

TABLES = ("events", "snapshots", "studies")
VALUES = (("events", "body"), ("events", "key"), ("snapshots", "data"))
BACKUP = r"rasp_backup_v\d+_.*"


def keep_no_statistics(engine: sa.Engine) -> None:
    """Have PostgreSQL copy no values into its catalogue, where `database` could not reach them."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            for table, column in VALUES:
                connection.exec_driver_sql(f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0")


def database(engine: sa.Engine) -> None:
    """Write tables and log anew; raises OperationalError if something is in the way: try again later."""
    if engine.dialect.name == "sqlite":
        _plainly(engine, ["VACUUM"])
        write_ahead_log(engine)
    else:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in TABLES:
                connection.exec_driver_sql(f"VACUUM (FULL) {table}")


def write_ahead_log(engine: sa.Engine) -> None:
    """Cut SQLite's log to nothing."""
    if engine.dialect.name == "sqlite":
        busy, *_ = _plainly(engine, ["PRAGMA wal_checkpoint(TRUNCATE)"])
        if busy:
            raise OperationalError("wal_checkpoint", {}, RuntimeError("a reader is in the way"))


def backups(connection: sa.Connection) -> list[str]:
    """Remove the copies that migrations made; their names."""
    if connection.dialect.name == "sqlite":
        file = Path(connection.engine.url.database or "")
        found = sorted(file.parent.glob(f"{file.name}.v*-*.bak"))
        for copy in found:
            copy.unlink()
        return [copy.name for copy in found]
    schemas = [name for name in sa.inspect(connection).get_schema_names() if re.fullmatch(BACKUP, name)]
    for schema in schemas:
        connection.execute(sa.schema.DropSchema(schema, cascade=True))
    return schemas


def _plainly(engine: sa.Engine, statements: Sequence[str]) -> tuple[int, ...]:
    """The first row of the last statement, none of them in a transaction."""
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        for statement in statements:
            cursor.execute(statement)
        row = cursor.fetchone()
        cursor.close()
    except sqlite3.Error as reason:
        raise OperationalError(statements[-1], {}, reason) from reason
    finally:
        raw.close()
    return row or (0,)
