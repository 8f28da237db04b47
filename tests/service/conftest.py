"""A service in a test: on SQLite and on PostgreSQL, through the application or through a process of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import sqlalchemy as sa
from serving import STUDY, Process, free_port, running, wait_for

from rasp_tuner.service.storage.store import sqlite_url


@pytest.fixture(scope="session")
def postgres():
    """The address of a real PostgreSQL server, or a skip that says why there is none."""
    if given := os.environ.get("RASP_TEST_POSTGRES"):
        yield given
        return
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs and not shutil.which("initdb"):
        pytest.skip("no PostgreSQL: set RASP_TEST_POSTGRES, or install Debian's package postgresql")
    folder = (programs[-1] if programs else Path(shutil.which("initdb")).resolve()).parent
    with tempfile.TemporaryDirectory(prefix="rasp-postgres-") as data:  # pytest's own folder is closed to other users
        yield from started(folder, Path(data))


def started(folder, data):
    """Start a server on an empty folder; its address, until the tests are over."""
    as_user = []
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("no PostgreSQL: running as root, and there is no user postgres to run it as")
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        os.chown(data, user.pw_uid, user.pw_gid)
    port = free_port()
    initdb = [*as_user, folder / "initdb", "-D", data / "db", "-U", "rasp", "-A", "trust", "-E", "UTF8", "--no-sync"]
    made = subprocess.run(initdb, capture_output=True, text=True, check=False, cwd=data)
    if made.returncode:
        pytest.skip(f"no PostgreSQL: initdb failed: {made.stderr.strip()[-200:]}")
    command = [*as_user, folder / "postgres", "-D", data / "db", "-p", str(port), "-k", data, "-h", "127.0.0.1"]
    with (data / "log").open("w") as log:
        server = subprocess.Popen([*command, "-F"], cwd=data, stdout=log, stderr=log)  # -F: no waiting for disks
    url = f"postgresql://rasp@127.0.0.1:{port}/postgres"
    try:
        wait_for(lambda: can_connect(url), "PostgreSQL")
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # fast: does not wait for clients to go
        server.wait(20)


def can_connect(url):
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.connect():
            return True
    except sa.exc.OperationalError:
        return False
    finally:
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
        return
    server = request.getfixturevalue("postgres")
    engine = sa.create_engine(sa.make_url(server).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        for schema in sa.inspect(connection).get_schema_names():
            if schema.startswith("rasp_backup") or schema == "public":
                connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    yield server


@pytest.fixture
def sqlite(tmp_path):
    return sqlite_url(tmp_path)


@pytest.fixture
def client(database):
    with running(database) as client:
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
    if server.process.poll() is None:
        server.kill()
    server.process.stderr.close()
