"""A database of another version is refused and left alone; servers that start together make one once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from rasp_tuner.service.database_check import check_database
from rasp_tuner.service.storage import schema_version
from rasp_tuner.service.storage.schema_version import SchemaError
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.tables import SCHEMA_VERSION


def driven(url):
    url = sa.make_url(url)
    return sa.create_engine(url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url)


@pytest.mark.parametrize(("found", "mend"), [(99, "upgrade rasp-tuner"), (SCHEMA_VERSION - 1, "before 0.2.0")])
def test_another_version_is_refused_with_both_versions_and_untouched(database, found, mend):
    Store(database).close()
    engine = driven(database)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE rasp_schema SET version = {found}")  # noqa: S608
    with pytest.raises(SchemaError, match=rf"version {found}, this program has {SCHEMA_VERSION}: .*{mend}"):
        Store(database)
    assert [(check.name, check.good, mend in check.mend) for check in check_database(engine)] == [
        ("schema", False, True)
    ]
    with engine.connect() as connection:
        assert schema_version.version(connection) == found
    engine.dispose()


def test_servers_that_start_together_prepare_the_database_once(empty_postgres):
    with ThreadPoolExecutor(4) as pool:
        for store in list(pool.map(lambda _: Store(empty_postgres), range(4))):
            store.close()
    engine = driven(empty_postgres)
    with engine.connect() as connection:
        assert schema_version.version(connection) == SCHEMA_VERSION
    engine.dispose()
