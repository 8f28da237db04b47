"""Doctor: checks packages, folder, disk and database before serving. It writes one file and removes it again."""

import importlib.metadata
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from rasp_tuner import __version__
from rasp_tuner.errors import RaspError
from rasp_tuner.service.data_folder_lock import DATABASE, FolderTaken, folder_lock, open_to_others
from rasp_tuner.service.storage import migration
from rasp_tuner.service.storage.store import sqlite_url
from rasp_tuner.service.storage.tables import SCHEMA_VERSION, events, keys, snapshots, studies
from rasp_tuner.service.study.study_snapshot import made_with, maker

MIN_FREE_BYTES = 500_000_000  # below that the disk may be full before anyone notices
SLOW_FSYNC_MS = 50.0
MAX_SNAPSHOTS_READ = 20
ALIVE = "SELECT url FROM servers WHERE until > clock_timestamp() ORDER BY url"
REQUIRED_PACKAGES = {
    "uvicorn": "serve",
    "pydantic": "serve",
    "sqlalchemy": "serve",
    "prometheus_client": "serve",
    "httpx": "client",
}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check; `rasp doctor --json` prints the fields."""

    name: str
    good: bool
    said: str
    mend: str = ""


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
    if database is not None or (data / DATABASE).exists():
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
    try:
        with folder_lock(data):
            return HealthCheck("server", True, "none runs on this folder")
    except FolderTaken:
        return HealthCheck("server", True, "one runs on this folder")


def _database(url: str) -> Iterator[HealthCheck]:
    engine = sa.create_engine(sa.make_url(url).set(drivername=_driver(url)))
    try:
        yield from _tables(engine)
    except (SQLAlchemyError, RaspError) as error:
        yield HealthCheck("database", False, str(error).split("\n")[0], "check the address, or bring back a backup")
    finally:
        engine.dispose()


def _tables(engine: sa.Engine) -> Iterator[HealthCheck]:
    found = migration.version(engine)
    if found is None:
        yield HealthCheck("schema", False, "the database holds no tables of this service", "rasp serve makes them")
        return
    mends: dict[bool, Callable[[], str]] = {
        True: lambda: "upgrade rasp-tuner",
        False: lambda: "the next `rasp serve` migrates it, after a backup",
    }
    mend = "" if found == SCHEMA_VERSION else mends[found > SCHEMA_VERSION]()
    yield HealthCheck("schema", found <= SCHEMA_VERSION, f"version {found}, this program has {SCHEMA_VERSION}", mend)
    shared = engine.dialect.name == "postgresql"
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            said = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
            yield HealthCheck("integrity", said == "ok", said, "" if said == "ok" else "bring back a backup")
        count = {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
            for table in (studies, events, keys)
        }
        makers = Counter(_maker(data) for data in _newest_snapshots(connection))
    if makers:
        said = ", ".join(f"{number} by {words}" for words, number in makers.most_common(3))
        same = set(makers) == {_words(made_with())}
        mend = (
            "" if same else f"this is {_words(made_with())}: replayed asks may differ; rasp_diverged_total counts them"
        )
        yield HealthCheck("snapshots", True, said, mend)
        alive = connection.execute(sa.text(ALIVE)).scalars().all() if found >= 3 and shared else ()
    if shared:
        yield HealthCheck("servers", True, ", ".join(alive) or "none runs on this database")
    yield HealthCheck("content", True, ", ".join(f"{number} {name}" for name, number in count.items()))


def _newest_snapshots(connection: sa.Connection) -> Iterator[bytes]:
    """The newest snapshot of some studies."""
    newest = sa.select(snapshots.c.study, sa.func.max(snapshots.c.seq)).group_by(snapshots.c.study)
    for study, seq in connection.execute(newest.limit(MAX_SNAPSHOTS_READ)).all():
        where = (snapshots.c.study == study) & (snapshots.c.seq == seq)
        yield connection.execute(sa.select(snapshots.c.data).where(where)).scalar_one()


def _maker(data: bytes) -> str:
    try:
        return _words(maker(data))
    except (ValueError, RaspError):
        return "nobody: it is damaged"


def _words(made: Mapping[str, str]) -> str:
    if not made:
        return "an older version"
    return f"rasp-tuner {made['version']} ({made['kernel']}, NumPy {made['numpy']}, {made['machine']})"


def _driver(url: str) -> str:
    return "postgresql+psycopg" if url.startswith("postgresql") else "sqlite"
