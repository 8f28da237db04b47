"""Locks of a PostgreSQL database, which end with the session that holds them.

Servers hold `SERVER_LOCK` together. Servers with schema version 1 or 2 hold it alone, and so does a migration: neither
runs beside another server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from rasp_tuner.errors import RaspError

SERVER_LOCK = 7_277_832_101
PREPARE_LOCK = 7_277_832_102  # held while tables are looked at, made or migrated: one program at a time


class DatabaseTaken(RaspError, RuntimeError):
    """A server that does not share the database uses it."""


def share_with_servers(engine: sa.Engine) -> None:
    """Let every connection of this engine hold the lock of servers; one that cannot raises DatabaseTaken."""

    @sa.event.listens_for(engine, "connect")
    def _lock(connection: Any, _: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_try_advisory_lock_shared({SERVER_LOCK})")
            acquired = cursor.fetchone()[0]
        connection.commit()
        if not acquired:
            connection.close()
            raise DatabaseTaken(
                "a server of an older version uses this database, or a migration is under way: "
                "stop that server, or take another --database"
            )


@contextmanager
def preparing(engine: sa.Engine) -> Iterator[sa.Connection | None]:
    """Wait until no other program prepares this database; the connection holds the lock. None for SQLite."""
    if engine.dialect.name != "postgresql":
        yield None
        return
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({PREPARE_LOCK})")
        yield connection


def check_not_served(holder: sa.Connection | None) -> None:
    """Raise DatabaseTaken while a server runs; none can start until the transaction of `holder` ends."""
    if holder is None:
        return  # SQLite: the server locks its folder
    if not holder.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({SERVER_LOCK})").scalar():
        raise DatabaseTaken("the database must be migrated first, and a server of an older version uses it: stop it")
