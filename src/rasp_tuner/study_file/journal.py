"""The journal: one JSON line for everything that was measured, on disk before it counts.

The first line is the definition of the study. The `kind` of any other says what it is: of `rasp tune` a run, one of
the play-off ("playoff") or of the final comparison ("final"); of `rasp watch` see watch/memory.py. A
last line without its end was being written when the program was killed: it was never acknowledged, and it is dropped.
"""

import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rasp_tuner.errors import JournalError, TuningStopped
from rasp_tuner.study_file.caller import SHELL, StudyCaller
from rasp_tuner.study_file.fields import differences

log = logging.getLogger("rasp_tuner.journal")

FILE = "journal.jsonl"
OLD_FILE = "journal.old.jsonl"
VERSION = 1
MEASURED_KINDS = ("run", "playoff", "final", "step", "checkpoint")  # kinds of lines that hold or stand for measurements


class Journal:
    """An open journal; only one process at a time can have it."""

    def __init__(
        self,
        folder: Path,
        definition: Mapping[str, Any],
        fresh: bool = False,
        caller: StudyCaller = SHELL,
        may_go_on: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None,
    ) -> None:
        """Create the journal, or open it if it is of the same definition; `fresh` sets an old one aside.

        `may_go_on` says of an old and a new definition whether the journal may go on with the new one.
        """
        self._may_go_on = may_go_on
        self._caller = caller
        self.path = folder / FILE
        self.dropped = 0  # bytes of a torn last line
        self.changed_from: Mapping[str, Any] | None = None  # the definition so far, where it goes on with another one
        if fresh:
            self._set_aside()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as reason:
            raise JournalError(
                f"cannot open {str(self.path)!r}: {reason}; choose another folder with {caller.option('out')}"
            ) from reason
        try:
            self._lock(self._file)
            self.entries = self._read()
            if not self.entries:
                self._size = 0
                self.append({"kind": "study", "version": VERSION, "definition": dict(definition)})
                _sync_folder(folder)
            self._check(definition)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["kind"] == kind]

    def of_kind_now(self, kind: str) -> list[dict[str, Any]]:
        """The same, since the definition last changed."""
        last = max(i for i, entry in enumerate(self.entries) if entry["kind"] == "study")
        return [entry for entry in self.entries[last:] if entry["kind"] == kind]

    def append(self, entry: dict[str, Any]) -> None:
        """Write a line and wait until it is on disk; if that fails, the journal is as before."""
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        if os.fstat(self._file).st_nlink == 0:  # what is written to it now ends with the program
            raise JournalError(f"{str(self.path)!r} was deleted while it was in use: {self._caller.again} starts over")
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            os.fsync(self._file)
        except OSError as reason:
            os.ftruncate(self._file, self._size)  # needs no space
            advice = {errno.ENOSPC: "Free some space", errno.EDQUOT: "Free some space", errno.EFBIG: "Raise the limit"}
            raise JournalError(
                f"cannot write to {str(self.path)!r}: {reason.strerror}. Nothing acknowledged is lost:"
                f" {sum(entry['kind'] in MEASURED_KINDS for entry in self.entries)} runs are in it."
                f" {advice.get(reason.errno or 0, 'Remove the cause')}, then {self._caller.again} goes on"
            ) from reason
        self._size += len(line)
        self.entries.append(entry)

    def restart(self, entries: Sequence[dict[str, Any]]) -> None:
        """Begin the file anew, with the study's line and these; what was in it is kept as journal.old.jsonl.

        After a crash the file is either the old one or the new one, whole.
        """
        kept = [self.entries[0], *entries]
        data = b"".join(json.dumps(entry, allow_nan=False).encode() + b"\n" for entry in kept)
        new, old = self.path.with_name("journal.new.jsonl"), self.path.with_name(OLD_FILE)
        try:
            file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.write(file, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file)
                old.unlink(missing_ok=True)
                old.hardlink_to(self.path)
                new.replace(self.path)
            except BaseException:
                os.close(file)
                raise
            _sync_folder(self.path.parent)
        except OSError as reason:
            raise JournalError(f"cannot begin {str(self.path)!r} anew: {reason}; it is as it was") from reason
        os.close(self._file)
        self._file, self._size, self.entries = file, len(data), kept

    @property
    def _start_over(self) -> str:
        return f"start over with {self._caller.option('fresh', True)}"

    def _set_aside(self) -> None:
        """Rename an old journal that nobody is at work on; nothing measured is thrown away."""
        try:
            file = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return
        except OSError as reason:
            raise JournalError(f"cannot set {str(self.path)!r} aside: {reason}") from reason
        try:
            self._lock(file)
            number = 1
            while (aside := self.path.with_name(f"journal.{number}.jsonl")).exists():
                number += 1
            self.path.rename(aside)
        except OSError as reason:
            raise JournalError(f"cannot set {str(self.path)!r} aside: {reason}") from reason
        finally:
            os.close(file)

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_ino != self.path.stat().st_ino:
                raise BlockingIOError("it was begun anew meanwhile")
        except OSError as reason:
            raise TuningStopped(
                f"another {self._caller.program} is at work on {str(self.path)!r}:"
                f" wait for it, or give this one another {self._caller.renamed_by}"
            ) from reason

    def _read(self) -> list[dict[str, Any]]:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        entries: list[dict[str, Any]] = []
        for i, line in enumerate(lines):
            try:
                entry = json.loads(line)
                entry["kind"]
            except (ValueError, TypeError, KeyError) as reason:
                if i < len(lines) - 1:
                    raise JournalError(
                        f"line {i + 1} of {str(self.path)!r} is damaged: repair it, or {self._start_over}"
                    ) from reason
                whole = whole[: -len(line) - 1]
            else:
                entries.append(entry)
        self._size = len(whole)
        self.dropped = len(data) - len(whole)
        if self.dropped:
            log.warning("the last line of %s was torn: %d bytes dropped", self.path, self.dropped)
            os.ftruncate(self._file, self._size)
        return entries

    def _check(self, definition: Mapping[str, Any]) -> None:
        head = self.entries[0]
        if head["kind"] != "study" or head.get("version", 0) > VERSION:
            raise JournalError(f"{str(self.path)!r} is no journal that this version can read: {self._start_over}")
        now, latest = json.loads(json.dumps(definition)), self.of_kind("study")[-1]["definition"]
        changed = differences(latest, now)
        measured = any(map(_is_measurement, self.entries))
        if changed and measured and self._may_go_on is not None and self._may_go_on(latest, now):
            self.append({"kind": "study", "version": VERSION, "definition": now})
            self.changed_from = latest
            return
        if changed and measured:
            raise TuningStopped(
                f"the study in {str(self.path.parent)!r} was started with another definition:\n  "
                + "\n  ".join(changed)
                + f"\nGo on with the old definition, give this one another {self._caller.renamed_by},"
                f" or {self._start_over}"
            )
        if changed:  # nothing was measured yet: a first try that failed
            os.ftruncate(self._file, 0)
            self._size = 0
            self.entries.clear()
            self.append({"kind": "study", "version": VERSION, "definition": dict(definition)})


def entries_in(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a folder's journal, up to the first that cannot be read; none where there is no journal."""
    try:
        lines = (folder / FILE).read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        try:
            entry = json.loads(line)
            entry["kind"]
        except (ValueError, TypeError, KeyError):
            return
        yield entry


def is_claimed(folder: Path) -> bool:
    """Whether a journal in a folder holds measurements, or somebody is at work on it."""
    try:
        with (folder / FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return any(_is_measurement(json.loads(line)) for line in file)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, AttributeError):
        return True  # it is locked, or damaged: the journal itself says what is wrong


def _is_measurement(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("metrics") or entry["kind"] == "checkpoint")


def _sync_folder(folder: Path) -> None:
    """The file itself must survive a crash, not only what is in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
