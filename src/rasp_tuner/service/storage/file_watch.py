"""FileWatch: notices that the files of a SQLite database were deleted or replaced while it is in use.

SQLite goes on with files that have lost their names: it takes every write, and all of them are gone when the process
ends. So the files are looked at before and after each write.
"""

import sqlite3
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

WAL, SHARED_MEMORY = "-wal", "-shm"


class FilesGone(SQLAlchemyError):
    """A file of the database is not the one that was opened; nothing more can be stored."""


class FileWatch:
    """The files of one database, as they are now; `check` says whether they still are."""

    def __init__(self, database: Path) -> None:
        # Open as long as the watch: the last connection that closes would remove the log, and that is no loss.
        self._held = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        self._held.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self._files = [Path(f"{database}{end}") for end in ("", WAL, SHARED_MEMORY)]
        self._known = [_identity(file) for file in self._files]

    def check(self) -> None:
        """Raise FilesGone if a file is gone, or another one has its name."""
        for file, known in zip(self._files, self._known, strict=True):
            if known is not None and (found := _identity(file)) != known:
                what = "was deleted" if found is None else "was replaced by another file"
                raise FilesGone(
                    f"{file} {what} under the running server: nothing is recorded any more. Move the same file back, "
                    "or stop the server, bring back a backup and start it again"
                )

    def close(self) -> None:
        self._held.close()


def _identity(file: Path) -> tuple[int, int] | None:
    """What tells a file from others of the same name; None if there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
