"""Doctor: checks packages, folder, disk, the running server and the database.

It writes one file and removes it again. SQLite's files are only read: what is damaged stays as it was found.
"""

import contextlib
import http.client
import importlib.metadata
import json
import os
import re
import shutil
import sqlite3
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
    LOCK,
    FolderTaken,
    database_is_lost,
    folder_lock,
    open_to_others,
    server_on,
    sqlite_file,
)
from rasp_tuner.service.database_check import DAMAGED, HealthCheck, check_database
from rasp_tuner.service.storage.file_watch import UNDER_SERVER, WAL
from rasp_tuner.service.storage.store import CHECKPOINT_EVERY_PAGES, is_damage

DATA = Path("rasp-data")  # the folder of a server, unless another is named
MIN_FREE_BYTES = 500_000_000  # below that the disk may be full before anyone notices
MIN_FREE_FILES = 100
MOST_LOG_BYTES = 20 * 4_096 * CHECKPOINT_EVERY_PAGES  # of SQLite's write-ahead log, beyond which somebody holds it
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
    server = _server(data) if folder.good and data.is_dir() else None
    if server is not None:
        yield _disk(data)
        yield _log(data)
        yield _sync(data)
        yield server
    file = data / DATABASE if database is None else None
    if file is not None and server is not None and not server.good and UNDER_SERVER in server.said:
        yield HealthCheck("database", False, "not looked at: its files are not those that the server writes")
    elif file is not None and (lost := database_is_lost(file)) is not None:
        yield HealthCheck("database", False, lost)
    elif file is None or file.exists():
        yield from _database(database, file)
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
        if servers := _started_on(data):
            return _moved(data, servers)
        usual = data == DATA  # who never started a server needs none
        return HealthCheck("folder", usual, f"{data} is not there", f"rasp serve --data {data} makes it")
    if not os.access(data, os.W_OK | os.X_OK):
        return HealthCheck("folder", False, f"{data} cannot be written", "give this user the right to write there")
    closed = [str(file) for file in data.glob(f"{DATABASE}*") if not os.access(file, os.R_OK | os.W_OK)]
    if closed:
        mend = "give this user the right to read and write them, or run as the user of the server"
        return HealthCheck("folder", False, f"{', '.join(closed)}: this user may not write", mend)
    found = open_to_others(data, data / DATABASE)
    said = f"{data} can be written{'; other users of this machine may use it' if found else ''}"
    return HealthCheck("folder", True, said, f"chmod go-rwx {' '.join(map(str, found))}" if found else "")


def _moved(data: Path, servers: list[int]) -> HealthCheck:
    numbers = " ".join(map(str, servers))
    said = f"a server was started on {data} and still runs (process {numbers}), but this is no longer its folder"
    return HealthCheck("folder", False, said, f"move the folder back, or stop that server: kill {numbers}")


def _started_on(data: Path) -> list[int]:
    """Processes of `rasp serve` that were started on a folder of this name; none where there is no /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = os.fsdecode((place / "cmdline").read_bytes()).split("\0")
            given = re.search(r"\0--data[=\0]([^\0]+)", "\0".join(words))
            is_server = "serve" in words and any(Path(word).name in ("rasp", "rasp_tuner") for word in words)
            if is_server and given and Path(place / "cwd").readlink() / given[1] == data.absolute():
                found.append(int(place.name))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return sorted(found)


def _disk(data: Path) -> HealthCheck:
    free, rest = shutil.disk_usage(data).free, os.statvfs(data)
    takes = sum(file.stat().st_size for file in data.glob(f"{DATABASE}*"))
    said = f"{free / 1e9:.1f} GB free, the database takes {takes / 1e6:.1f} MB"
    if rest.f_files and rest.f_favail < MIN_FREE_FILES:
        said = f"the disk has room for {rest.f_favail} more files only: writes may fail soon"
        return HealthCheck("disk", False, said, "delete files, or move the folder")
    if free < max(MIN_FREE_BYTES, takes):
        said += ": asks and tells are refused once it is full, and deleted data needs as much room to be erased"
        return HealthCheck("disk", False, said, "make room, or move the folder")
    return HealthCheck("disk", True, said)


def _log(data: Path) -> HealthCheck:
    """Whether SQLite's write-ahead log is emptied now and then."""
    file = data / f"{DATABASE}{WAL}"
    takes = file.stat().st_size if file.exists() else 0
    if takes <= MOST_LOG_BYTES:
        return HealthCheck("log", True, f"{takes / 1e6:.1f} MB are not in {DATABASE} yet")
    said = (
        f"{file.name} has grown to {takes / 1e6:.0f} MB: another program reads {DATABASE} all the time, so it grows on"
    )
    return HealthCheck("log", False, said, f"end that program (`fuser {data / DATABASE}` names it)")


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
            servers = _started_on(data)
            return _moved(data, servers) if servers else HealthCheck("server", True, "none runs on this folder")
    except FolderTaken as error:
        taken = str(error)
    process, url = server_on(data)
    if not process and (data / LOCK).exists():
        return HealthCheck("server", False, taken, f"remove {data / LOCK}: no server starts as it is")
    if not process:
        known = f" (process {' '.join(map(str, found))})" if (found := _started_on(data)) else ""
        said = f"one runs on this folder{known}, and its files were deleted {UNDER_SERVER}: what it takes is lost"
        return HealthCheck("server", False, said, "stop it, bring back a backup and start it again")
    said = f"one runs on this folder (process {process}{f', {url}' if url else ''})"
    reason = _why_not_ready(url) if url else None
    if reason is not None:
        mend = "" if UNDER_SERVER in reason else f"see what it logs; if it hangs: kill {process}, and start it again"
        return HealthCheck("server", False, f"{said}, and takes no tells: {reason}", mend)
    return HealthCheck("server", True, said)


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


def _database(url: str | None, file: Path | None) -> Iterator[HealthCheck]:
    """The checks of a database: `file` is that of the folder, `url` another."""
    where = sa.make_url(url or "sqlite://")
    if file is None:
        file = sqlite_file(where)
    if file is not None:
        engine = sa.create_engine("sqlite://", creator=lambda: _read_only(file), poolclass=sa.NullPool)
    else:
        engine = sa.create_engine(where.set(drivername="postgresql+psycopg"))
    try:
        yield from check_database(engine)
    except (SQLAlchemyError, RaspError) as error:
        said = str(error.orig if isinstance(error, DBAPIError) else error).split("\n")[0]
        if is_damage(error):
            yield HealthCheck("database", False, f"{file} is damaged ({said}), no server can use it", DAMAGED)
        else:
            mend = "check the address" if file is None else f"check that {file} is a file of `rasp serve`"
            yield HealthCheck("database", False, said, f"{mend}, or bring back a backup")
    finally:
        engine.dispose()


def _read_only(file: Path) -> sqlite3.Connection:
    """A connection that changes no file; without a log nobody else writes, and SQLite need not make one."""
    log = file.with_name(f"{file.name}{WAL}")
    how = "mode=ro" if log.exists() else "immutable=1"
    return sqlite3.connect(f"{file.resolve().as_uri()}?{how}", uri=True, check_same_thread=False)
