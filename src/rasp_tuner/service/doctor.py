"""Doctor: checks packages, folder, disk and database before serving. It writes one file and removes it again."""

import contextlib
import http.client
import importlib.metadata
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from rasp_tuner import __version__
from rasp_tuner.errors import RaspError
from rasp_tuner.service.data_folder_lock import (
    DATABASE,
    FolderTaken,
    database_is_lost,
    folder_lock,
    open_to_others,
    server_on,
)
from rasp_tuner.service.database_check import HealthCheck, check_database
from rasp_tuner.service.storage.store import sqlite_url

MIN_FREE_BYTES = 500_000_000  # below that the disk may be full before anyone notices
SLOW_FSYNC_MS = 50.0
ANSWER_S = 3.0  # how long a running server may take to say that it is ready
REQUIRED_PACKAGES = {
    "uvicorn": "serve",
    "pydantic": "serve",
    "sqlalchemy": "serve",
    "prometheus_client": "serve",
    "httptools": "client",
}


def examine(data: Path, database: str | None) -> Iterator[HealthCheck]:
    """The results, one after the other."""
    yield HealthCheck("version", True, f"rasp-tuner {__version__}, Python {sys.version.split()[0]}")
    yield _extras(database)
    folder = _folder(data)
    yield folder
    if folder.good:
        yield _disk(data)
        yield _sync(data)
        yield _server(data)
    lost = database_is_lost(data / DATABASE) if database is None else None
    if lost is not None:
        yield HealthCheck("database", False, lost)
    elif database is not None or (data / DATABASE).exists():
        yield from _database(database or sqlite_url(data))
    else:
        yield HealthCheck("database", True, "none yet; the first `rasp serve` makes one")


def _extras(database: str | None) -> HealthCheck:
    needed = REQUIRED_PACKAGES | ({"psycopg": "postgres"} if database is not None else {})
    missing = [name for name in needed if not _installed(name)]
    if missing:
        extras = ",".join(sorted({needed[name] for name in missing}))
        return HealthCheck("extras", False, f"missing: {', '.join(missing)}", f"pip install 'rasp-tuner[{extras}]'")
    return HealthCheck("extras", True, "all there")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _folder(data: Path) -> HealthCheck:
    if not data.is_dir():
        return HealthCheck("folder", False, f"{data} is not there", f"rasp serve --data {data} makes it")
    if not os.access(data, os.W_OK | os.X_OK):
        return HealthCheck("folder", False, f"{data} cannot be written", "give this user the right to write there")
    found = open_to_others(data, data / DATABASE)
    said = f"{data} can be written{'; other users of this machine may use it' if found else ''}"
    return HealthCheck("folder", True, said, f"chmod go-rwx {' '.join(map(str, found))}" if found else "")


def _disk(data: Path) -> HealthCheck:
    free = shutil.disk_usage(data).free
    said = f"{free / 1e9:.1f} GB free"
    return HealthCheck(
        "disk", free >= MIN_FREE_BYTES, said, "" if free >= MIN_FREE_BYTES else "make room, or move the folder"
    )


def _sync(data: Path) -> HealthCheck:
    """How long a small write takes to reach the disk: every commit waits for that."""
    path, took = data / f".doctor-{os.getpid()}", []
    try:
        with path.open("wb") as file:
            for _ in range(5):
                started = time.perf_counter()
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
                took.append(1e3 * (time.perf_counter() - started))
    except OSError as error:
        return HealthCheck("fsync", False, str(error), "the disk refuses writes: check it")
    finally:
        path.unlink(missing_ok=True)
    middle = sorted(took)[2]
    mend = "" if middle < SLOW_FSYNC_MS else "tells will be slow here: use a faster disk"
    return HealthCheck("fsync", middle < SLOW_FSYNC_MS, f"{middle:.1f} ms", mend)


def _server(data: Path) -> HealthCheck:
    """Whether a server runs on the folder, and what it says of itself."""
    try:
        with folder_lock(data):
            return HealthCheck("server", True, "none runs on this folder")
    except FolderTaken:
        pass
    process, url = server_on(data)
    if not process:
        mend = "its files were deleted while it runs: stop it, and bring back a backup"
        return HealthCheck("server", False, "one runs on this folder, but its lock file is gone", mend)
    said = f"one runs on this folder (process {process}{f', {url}' if url else ''})"
    reason = _why_not_ready(url) if url else None
    return HealthCheck("server", reason is None, said if reason is None else f"{said}, and is not ready: {reason}")


def _why_not_ready(url: str) -> str | None:
    """What a server says at /readyz; None if it is ready."""
    try:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            said = json.loads(connection.getresponse().read())
        return None if said.get("ready") else str(said.get("reason"))
    except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
        return f"it does not answer ({error})"


def _database(url: str) -> Iterator[HealthCheck]:
    engine = sa.create_engine(sa.make_url(url).set(drivername=_driver(url)))
    try:
        yield from check_database(engine)
    except (SQLAlchemyError, RaspError) as error:
        said = str(error.orig if isinstance(error, DBAPIError) else error).split("\n")[0]
        yield HealthCheck("database", False, said, "check the address, or bring back a backup")
    finally:
        engine.dispose()


def _driver(url: str) -> str:
    return "postgresql+psycopg" if url.startswith("postgresql") else "sqlite"
