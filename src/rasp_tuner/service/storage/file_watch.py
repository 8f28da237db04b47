"""FileWatch: notices that the files of a SQLite database were deleted or replaced while it is in use.

SQLite goes on with files that have lost their names: it takes every write, and all of them are gone when the process
ends. So the files are looked at before and after each write.
"""

import sqlite3
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

WAL, SHARED_MEMORY = "-wal", "-shm"
UNDER_SERVER = "under the running server"  # part of what a server says when its files are gone


class FilesGone(SQLAlchemyError):
    """A file of the database is not the one that was opened; nothing more can be stored."""


class FileWatch:
    """The files of one database, as they are now; `check` says whether they still are."""

    def __init__(self, database: Path) -> None:
        # Open as long as the watch: the last connection that closes would remove the log, and that is no loss.
        self._held = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        self._held.execute("SELECT count(*) FROM sqlite_master").fetchone()
        found = [file for end in ("", WAL, SHARED_MEMORY) if (file := Path(f"{database}{end}")).exists()]
        self._known = [(file, (file.stat().st_dev, file.stat().st_ino)) for file in found]  # what tells them apart

    def check(self) -> None:
        """Raise FilesGone if a file is gone, or another one has its name."""
        for file, known in self._known:
            try:
                found = file.stat()
                if (found.st_dev, found.st_ino) == known:
                    continue
                what = "was replaced by another file"
            except FileNotFoundError:
                what = "was deleted"
            raise FilesGone(
                f"{file} {what} {UNDER_SERVER}: nothing is recorded any more. Move the same file back, "
                "or stop the server, bring back a backup and start it again"
            )

    def close(self) -> None:
        self._held.close()
