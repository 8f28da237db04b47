"""Makes the tables of an empty database; refuses one of another version, and names both."""

import sqlalchemy as sa

from rasp_tuner.errors import RaspError
from rasp_tuner.service.storage.tables import SCHEMA_VERSION, events, events_key, meta, schema

PREPARE_LOCK = 7_277_832_102  # of PostgreSQL, held while tables are looked at or made: one program at a time


class SchemaError(RaspError, RuntimeError):
    """The database was made by a version that this one cannot use."""


def prepare(engine: sa.Engine) -> None:
    """Make sure that the tables have this version; raises SchemaError if they have another."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            events_key.dialect_options["postgresql"]["where"] = events.c.key.is_not(None)
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({PREPARE_LOCK})")
        found = version(connection)
        if found is None:
            meta.create_all(connection)
            connection.execute(sa.insert(schema), {"version": SCHEMA_VERSION})
        elif found != SCHEMA_VERSION:
            said = f"the database has schema version {found}, this program has {SCHEMA_VERSION}"
            raise SchemaError(f"{said}: {mend_of(found)}")


def version(connection: sa.Connection) -> int | None:
    """The schema version of the database; None for an empty one."""
    if not sa.inspect(connection).has_table(schema.name):
        return None
    return int(connection.execute(sa.select(schema.c.version)).scalar_one())


def mend_of(found: int) -> str:
    """What to do about a database of another version."""
    if found > SCHEMA_VERSION:
        return "upgrade rasp-tuner"
    return "it is of a program before 0.2.0, the first release; take another folder or database"
