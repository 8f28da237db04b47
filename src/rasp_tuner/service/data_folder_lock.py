"""The files of the service: for this user only, and for one server at a time."""

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import sqlalchemy as sa

from rasp_tuner.errors import RaspError

DATABASE, LOCK = "rasp.db", "lock"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
LONGEST_LOCK = 1_000  # characters of a lock file that are read
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


class Lock:
    """A lock file that is held. Its lines: the process, where it serves, and the database that was made here."""

    def __init__(self, file: TextIO, path: Path) -> None:
        self._file = file
        self._made = _lines(path)[2]  # name of a database that a server has made here
        self.note("")

    def note(self, url: str, made: str | None = None) -> None:
        """Say where this process serves, and which database it has made here."""
        self._made = self._made if made is None else made
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n{url}\n{self._made}")
        self._file.flush()


@contextmanager
def folder_lock(data: Path) -> Iterator[Lock]:
    """Lock the folder, so that there is one writer; the system frees the lock however the process ends.

    The folder itself is locked, too: so a second server finds the first one even if all files were deleted.
    """
    what = f"{data}: stop it, or take another --data"
    with _folder_held(data, what), _locked(data / LOCK, what) as lock:
        yield lock


def server_on(data: Path) -> tuple[str, str]:
    """The process that has, or had, the folder's lock, and where it serves; empty where that is not known."""
    process, url, _ = _lines(data / LOCK)
    return process, url


def database_is_lost(file: Path) -> str | None:
    """Why a database must have been lost that is not there, or is empty; None if it is there, or never was."""
    if file.exists() and file.stat().st_size:
        return None
    log_file, lock = file.with_name(f"{file.name}-wal"), file.with_name(LOCK)
    if log_file.exists() and log_file.stat().st_size:
        return f"{file} is gone, but not its log {log_file.name}: bring it back, or a backup instead of both"
    if _lines(lock)[2] == file.name:
        return f"{file} is gone, though a server has used it: bring back a backup; to begin anew, remove {lock}"
    return None


def _lines(lock: Path) -> tuple[str, str, str]:
    """What a lock file says: see Lock."""
    try:
        words = lock.read_text(errors="replace")[:LONGEST_LOCK].split("\n")
    except OSError:
        words = []
    process, url, made, *_ = *words, "", "", ""
    return process.strip()[:20], url.strip(), made.strip()


@contextmanager
def database_lock(file: Path | None) -> Iterator[None]:
    """Lock a SQLite database that lies outside the folder of the service; the lock is a file beside it."""
    if file is None:
        yield
        return
    lock = file.parent / (LOCK if file.name == DATABASE else f"{file.name}.lock")
    with _locked(lock, f"{file}: stop it, or take another --database"):
        yield


@contextmanager
def _folder_held(folder: Path, what: str) -> Iterator[None]:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as reason:
        os.close(number)
        raise FolderTaken(f"another server (process {server_on(folder)[0] or 'unknown'}) uses {what}") from reason
    except OSError:
        log.debug("%s is on a file system that locks no folders; its lock file does", folder)
    try:
        yield
    finally:
        os.close(number)


@contextmanager
def _locked(path: Path, what: str) -> Iterator[Lock]:
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as reason:
        raise FolderTaken(f"cannot lock {path}: {reason.strerror}; it must be a file, and no link") from reason
    with os.fdopen(number, "r+", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as reason:
            owner = file.readline(20).strip() or "unknown"
            raise FolderTaken(f"another server (process {owner}) uses {what}") from reason
        yield Lock(file, path)
