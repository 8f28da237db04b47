"""The files of the service: for this user only, and for one server at a time."""

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from rasp_tuner.errors import RaspError

DATABASE = "rasp.db"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
RIGHTS_OF_OTHERS = 0o077  # rights of everybody but the owner

log = logging.getLogger("rasp_tuner.serve")


class FolderTaken(RaspError, RuntimeError):
    """Another server uses the files, or they cannot be locked; the message says what to change."""


def make_folder(folder: Path) -> None:
    """Make the folder, for this user only, if it is not there."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def sqlite_file(url: sa.URL) -> Path | None:
    """The file of a SQLite database; None if it is another one, or in memory."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database)).resolve()


def make_private_file(file: Path) -> None:
    """Make an empty file, for this user only, if there is none; SQLite gives its other files the same rights."""
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def open_to_others(*files: Path) -> list[Path]:
    """Those of the files that other users of this machine may use."""
    return [file for file in files if file.exists() and stat.S_IMODE(file.stat().st_mode) & RIGHTS_OF_OTHERS]


def warn_if_open(folder: Path, database: Path | None) -> None:
    """Log which files others may use. Rights of what is there are not changed: a backup may rely on them."""
    found = open_to_others(folder, *([database] if database else []))
    if found:
        names = " ".join(map(str, found))
        log.warning("other users of this machine may use %s; if they should not: chmod go-rwx %s", names, names)


@contextmanager
def folder_lock(data: Path) -> Iterator[None]:
    """Lock the folder, so that there is one writer; the system frees the lock however the process ends."""
    with _locked(data / "lock", f"{data}: stop it, or take another --data"):
        yield


@contextmanager
def database_lock(file: Path | None) -> Iterator[None]:
    """Lock a SQLite database that lies outside the folder of the service; the lock is a file beside it."""
    if file is None:
        yield
        return
    lock = file.parent / ("lock" if file.name == DATABASE else f"{file.name}.lock")
    with _locked(lock, f"{file}: stop it, or take another --database"):
        yield


@contextmanager
def _locked(path: Path, what: str) -> Iterator[None]:
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as reason:
        raise FolderTaken(f"cannot lock {path}: {reason.strerror}; it must be a file, and no link") from reason
    with os.fdopen(number, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as reason:
            owner = file.read(20).strip() or "unknown"
            raise FolderTaken(f"another server (process {owner}) uses {what}") from reason
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
