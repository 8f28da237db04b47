"""A service in a test: on SQLite and on PostgreSQL, through the application or through a process of its own."""

import os
import shutil

import pytest
import sqlalchemy as sa
from browsing import FLAGS
from serving import STUDY, Process, running

from rasp_lab.reliability.postgres_server import NoPostgres, postgres_server
from rasp_tuner.service.storage.store import sqlite_url


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, or a skip that says why there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    program = os.environ.get("RASP_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium: set RASP_TEST_CHROMIUM, or install Debian's package chromium")
    flags = [*FLAGS, "--no-sandbox"] if os.getuid() == 0 else FLAGS  # as root it refuses its sandbox
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=program, args=flags)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def postgres():
    """The address of a real PostgreSQL server, or a skip that says why there is none."""
    if given := os.environ.get("RASP_TEST_POSTGRES"):
        yield given
        return
    try:
        with postgres_server() as server:
            yield server.url
    except NoPostgres as reason:
        pytest.skip(f"no PostgreSQL: {reason}; or set RASP_TEST_POSTGRES")


@pytest.fixture(scope="session")
def own_postgres_database(postgres):
    """A function that makes an empty database of this name, and returns its address."""
    engine = sa.create_engine(sa.make_url(postgres).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")

    def make(name):
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS rasp_{name} WITH (FORCE)")
            connection.exec_driver_sql(f"CREATE DATABASE rasp_{name}")
        return sa.make_url(postgres).set(database=f"rasp_{name}").render_as_string(hide_password=False)

    yield make
    engine.dispose()


@pytest.fixture
def empty_postgres(postgres):
    """The address of an empty database of PostgreSQL."""
    engine = sa.create_engine(sa.make_url(postgres).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return postgres


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request, tmp_path):
    """The address of an empty database of each kind."""
    return sqlite_url(tmp_path) if request.param == "sqlite" else request.getfixturevalue("empty_postgres")


@pytest.fixture
def sqlite(tmp_path):
    return sqlite_url(tmp_path)


@pytest.fixture
def client(sqlite):
    """A client of a service on SQLite: tests of what depends on the database take `database`."""
    with running(sqlite) as client:
        yield client


@pytest.fixture
def web(client):
    """A client of a service with one study, "web"."""
    assert client.post("/v1/studies", json=STUDY).status_code == 201
    return client


@pytest.fixture
def process(tmp_path):
    server = Process(tmp_path / "data")
    yield server
    server.close()
