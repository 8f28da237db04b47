"""Old databases are taken along, after a backup; newer ones are left alone."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from serving import STUDY, ask, running, steps, tell, view, wait_for

from rasp_tuner.service.storage import migration
from rasp_tuner.service.storage.migration import SchemaError
from rasp_tuner.service.storage.postgres import DatabaseTaken
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.tables import SCHEMA_VERSION


def driven(url):
    url = sa.make_url(url)
    return sa.create_engine(url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url)


NEWER_THAN = {  # what each version does not have
    1: ["DROP INDEX events_key", "ALTER TABLE events DROP COLUMN key", "DROP TABLE audit"],
    2: ["ALTER TABLE studies DROP COLUMN owner", "ALTER TABLE studies DROP COLUMN epoch", "DROP TABLE servers"],
    3: ["ALTER TABLE events DROP COLUMN checksum"],
}


def make_older(url, version):
    """Turn the database into one of an earlier version."""
    engine = driven(url)
    with engine.begin() as connection:
        for newer in range(version, SCHEMA_VERSION):
            for statement in NEWER_THAN[newer]:
                connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"UPDATE rasp_schema SET version = {version}")  # noqa: S608
    engine.dispose()


@pytest.mark.parametrize("version", NEWER_THAN)
def test_an_older_database_is_migrated_after_a_backup(database, tmp_path, version):
    with running(database) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 4)
        ask(client)
        before = view(client)
    make_older(database, version)
    with running(database) as client:
        assert view(client) == before
        assert tell(client, "s4").json()["status"] == "learned"
        seen = {"context": {"qps": 1}, "params": {"pool": 3, "t": 1.0}, "metrics": {"p99_ms": 4.0}, "key": "k"}
        assert client.post("/v1/studies/web/observe", json=seen).json() == {"status": "learned"}
        assert client.get("/version").json()["schema"] == SCHEMA_VERSION
    if database.startswith("sqlite"):
        (backup,) = tmp_path.glob(f"rasp.db.v{version}-*.bak")
        assert backup.stat().st_mode & 0o077 == 0  # for this user only
        engine, table = sa.create_engine(f"sqlite:///{backup}"), "events"
    else:
        engine = driven(database)
        (schema,) = [
            name for name in sa.inspect(engine).get_schema_names() if name.startswith(f"rasp_backup_v{version}_")
        ]
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


@pytest.fixture
def older_server(empty_postgres):
    """A connection that holds what a server of an older version holds."""
    engine = driven(empty_postgres)
    with engine.connect() as connection:
        assert connection.exec_driver_sql(TAKE_ALONE).scalar()
        yield connection
        connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
    engine.dispose()


TAKE_ALONE = "SELECT pg_try_advisory_lock(7277832101)"


def test_servers_share_a_database_but_not_with_an_older_version(empty_postgres):
    first, second = Store(empty_postgres, exclusive=True), Store(empty_postgres, exclusive=True)
    engine = driven(empty_postgres)
    with engine.connect() as connection:
        assert not connection.exec_driver_sql(TAKE_ALONE).scalar()
        first.close()
        assert not connection.exec_driver_sql(TAKE_ALONE).scalar()
        second.close()
        wait_for(lambda: connection.exec_driver_sql(TAKE_ALONE).scalar(), "the lock")
        connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
    engine.dispose()


def test_nothing_is_migrated_under_a_running_server(empty_postgres, older_server):
    with pytest.raises(DatabaseTaken, match="server of an older version uses this database"):
        Store(empty_postgres, exclusive=True)
    Store(empty_postgres).close()  # `rasp keys` may come in
    make_older(empty_postgres, 2)
    for exclusive in (False, True):
        with pytest.raises(DatabaseTaken, match="must be migrated first"):
            Store(empty_postgres, exclusive=exclusive)
    older_server.exec_driver_sql("SELECT pg_advisory_unlock_all()")
    Store(empty_postgres, exclusive=True).close()


def test_servers_that_start_together_prepare_the_database_once(empty_postgres):
    Store(empty_postgres).close()
    make_older(empty_postgres, 2)
    with ThreadPoolExecutor(4) as pool:
        for store in list(pool.map(lambda _: Store(empty_postgres, exclusive=True), range(4))):
            store.close()
    engine = driven(empty_postgres)
    assert migration.version(engine) == SCHEMA_VERSION
    engine.dispose()
