"""Secure delete: removes deleted values from the files of a database, not only from its tables.

SQLite: the file is rewritten (VACUUM), then the write-ahead log is copied into it and truncated. PostgreSQL: the tables
are rewritten, and columns with user values have no statistics, because those would contain values. PostgreSQL's
write-ahead log and its archives keep erased values until they are recycled; a client cannot change that.
"""

import sqlite3

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

ERASED_TABLES = ("events", "snapshots", "studies")
VALUE_COLUMNS = (("events", "body"), ("events", "key"), ("snapshots", "data"))


def disable_statistics(engine: sa.Engine) -> None:
    """Stop PostgreSQL from copying values into its catalogue, which `rewrite_database` cannot clean."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            for table, column in VALUE_COLUMNS:
                connection.exec_driver_sql(f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0")


def rewrite_database(engine: sa.Engine) -> None:
    """Rewrite tables and log; raises OperationalError if another connection blocks it: try again later."""
    if engine.dialect.name == "sqlite":
        _outside_transaction(engine, "VACUUM")
        truncate_wal(engine)
    else:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in ERASED_TABLES:
                connection.exec_driver_sql(f"VACUUM (FULL) {table}")


def truncate_wal(engine: sa.Engine) -> None:
    """Truncate SQLite's write-ahead log."""
    if engine.dialect.name == "sqlite":
        busy, *_ = _outside_transaction(engine, "PRAGMA wal_checkpoint(TRUNCATE)")
        if busy:
            raise OperationalError("wal_checkpoint", {}, RuntimeError("a reader is in the way"))


def _outside_transaction(engine: sa.Engine, statement: str) -> tuple[int, ...]:
    """Run a statement outside a transaction; returns its first row."""
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute(statement)
        row = cursor.fetchone()
        cursor.close()
    except sqlite3.Error as reason:
        raise OperationalError(statement, {}, reason) from reason
    finally:
        raw.close()
    return row or (0,)
