"""The tables. `SCHEMA_VERSION` counts their changes; schema_version.py refuses other versions."""

import sqlalchemy as sa

SCHEMA_VERSION = 4

meta = sa.MetaData()

schema = sa.Table("rasp_schema", meta, sa.Column("version", sa.Integer, nullable=False))

studies = sa.Table(
    "studies",
    meta,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), unique=True),  # null once deleted: the name is free, rows are purged in steps
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("owner", sa.String(32)),  # id of a server; with several servers only, see leases.py
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),  # counts owners
    sqlite_autoincrement=True,  # ids are never reused, so no late row can join another study
)

servers = sa.Table(
    "servers",
    meta,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("url", sa.String(255), nullable=False),  # where other servers reach it
    sa.Column("until", sa.DateTime(timezone=True), nullable=False),  # its lease, by the clock of the database
)

events = sa.Table(
    "events",
    meta,
    sa.Column("study", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("ask", sa.BigInteger),
    sa.Column("key", sa.String(128)),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("checksum", sa.BigInteger),  # of the other values, see event_rows.py; a row without one is damaged
    sqlite_with_rowid=False,
)
sa.Index("events_ask", events.c.study, events.c.ask, sqlite_where=events.c.ask.is_not(None))
events_key = sa.Index(
    "events_key", events.c.study, events.c.key, unique=True, sqlite_where=events.c.key.is_not(None)
)  # schema_version.py sets the same condition for PostgreSQL: set here, its dialect would be loaded at every start

snapshots = sa.Table(
    "snapshots",
    meta,
    sa.Column("study", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),  # of its last event
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

keys = sa.Table(
    "keys",
    meta,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("sha256", sa.String(64), nullable=False),  # of the secret, which is not stored
    sa.Column("scope", sa.String(8), nullable=False),
    sa.Column("study", sa.String(64)),  # null: all
    sa.Column("label", sa.String(128), nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
)

audit = sa.Table(
    "audit",
    meta,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("actor", sa.String(64), nullable=False),  # id of a key, "local" without keys, "cli"
    sa.Column("action", sa.String(32), nullable=False),
    sa.Column("subject", sa.String(128), nullable=False),
)
