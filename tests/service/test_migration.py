"""Old databases are taken along, after a backup; newer ones are left alone."""

import pytest
import sqlalchemy as sa
from serving import STUDY, ask, running, steps, tell, view

from rasp_tuner.service.storage.migration import SchemaError
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.tables import SCHEMA_VERSION


def driven(url):
    url = sa.make_url(url)
    return sa.create_engine(url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url)


def make_older(url):
    """Turn the database into one of version 1: no keys of observations, no audit log."""
    engine = driven(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX events_key")
        connection.exec_driver_sql("ALTER TABLE events DROP COLUMN key")
        connection.exec_driver_sql("DROP TABLE audit")
        connection.exec_driver_sql("UPDATE rasp_schema SET version = 1")
    engine.dispose()


def test_an_older_database_is_migrated_after_a_backup(database, tmp_path):
    with running(database) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 4)
        ask(client)
        before = view(client)
    make_older(database)
    with running(database) as client:
        assert view(client) == before
        assert tell(client, "s4").json()["status"] == "learned"
        seen = {"context": {"qps": 1}, "params": {"pool": 3, "t": 1.0}, "metrics": {"p99_ms": 4.0}, "key": "k"}
        assert client.post("/v1/studies/web/observe", json=seen).json() == {"status": "learned"}
        assert client.get("/version").json()["schema"] == SCHEMA_VERSION
    if database.startswith("sqlite"):
        (backup,) = tmp_path.glob("rasp.db.v1-*.bak")
        assert backup.stat().st_mode & 0o077 == 0  # for this user only
        engine, table = sa.create_engine(f"sqlite:///{backup}"), "events"
    else:
        engine = driven(database)
        (schema,) = [name for name in sa.inspect(engine).get_schema_names() if name.startswith("rasp_backup_v1_")]
        table = f"{schema}.events"
    with engine.connect() as connection:
        assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 9  # noqa: S608
    engine.dispose()


def test_a_newer_database_is_refused_with_both_versions_and_untouched(database):
    Store(database).close()
    engine = driven(database)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE rasp_schema SET version = 99")
    with pytest.raises(SchemaError, match=rf"version 99, this program knows up to {SCHEMA_VERSION}: upgrade"):
        Store(database)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT version FROM rasp_schema").scalar() == 99
    engine.dispose()
