"""Memory: the tuner, the state and the journal of a study, moved together; found again after any end of the program."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rasp_tuner.errors import JournalError, SnapshotError, SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.tuner import Tuner
from rasp_tuner.watch.state import WatchState
from rasp_tuner.watch.study import WatchStudy

log = logging.getLogger("rasp_tuner.watch")

CHECKPOINT_EVERY = 500  # lines of the journal, so that it starts fast and does not grow for ever
MOST_UNANSWERED = 16  # suggestions without an answer; only the latest can get one


class WatchMemory:
    """All that a study has learned. What is in the journal is never lost."""

    def __init__(self, study: WatchStudy, journal: Journal) -> None:
        self.study, self.journal = study, journal
        entries = journal.entries[1:]
        checkpoint = entries[0] if entries and entries[0]["kind"] == "checkpoint" else None
        if checkpoint is not None:
            self.tuner, self.state = self._load(checkpoint), WatchState.from_json(checkpoint["state"])
        else:
            self.tuner, self.state = _new_tuner(study), WatchState.at_start(study.default)
        self._since = 0
        for entry in entries[checkpoint is not None :]:
            self.learn(entry)
            self._move(entry)

    @property
    def folder(self) -> Path:
        return self.journal.path.parent

    def learn(self, entry: Mapping[str, Any], id: str | None = None) -> None:
        """Tell the tuner what a step has shown; InvalidValue, and nothing learned, if it cannot be so."""
        if entry["kind"] not in ("step", "asked"):
            return
        context = entry["context"] or None
        if entry["kind"] == "asked":
            self.tuner.ask(context, holdout=entry["holdout"])
            return
        ran = entry["ran"] or entry["params"]
        if entry["role"] == "observed":
            self.tuner.observe(context, ran, entry["metrics"])
            return
        id = self.tuner.ask(context, holdout=entry["holdout"]).id if id is None else id
        stopped = entry.get("stopped") is not None
        self.tuner.tell(id, entry["metrics"], ran, stopped=stopped, control=entry["control"])

    def write(self, entry: Mapping[str, Any]) -> None:
        """Put a line on disk, then count it."""
        line = json.loads(json.dumps(entry))  # a replayed line is what was written, not what was meant
        self.journal.append(line)
        self._move(line)
        if self._since >= CHECKPOINT_EVERY and entry["kind"] == "step":
            self.checkpoint()

    def _move(self, entry: Mapping[str, Any]) -> None:
        self.state.apply(entry)
        self._since += 1
        if entry["kind"] == "rollback":
            self.tuner.freeze(default=True)
        elif entry["kind"] == "resumed":
            self.tuner.unfreeze()

    def checkpoint(self) -> None:
        """Begin the journal anew, from a snapshot of the tuner."""
        path = self.folder / f"tuner-{self.state.steps}.rasp"
        try:
            self.tuner.save(path)
            self.journal.restart([{"kind": "checkpoint", "snapshot": path.name, "state": self.state.to_json()}])
        except (SnapshotFileError, JournalError) as reason:
            log.warning("no checkpoint could be made; the journal goes on as it is: %s", reason)
        else:
            for old in (*self.folder.glob("tuner-*.rasp"), *self.folder.glob(".*.tmp")):  # those of a killed program
                if old != path:
                    old.unlink(missing_ok=True)
        self._since = 0

    def _load(self, checkpoint: Mapping[str, Any]) -> Tuner:
        path = self.folder / str(checkpoint["snapshot"])
        try:
            return Tuner.from_bytes(snapshot.read(path))
        except (SnapshotError, SnapshotFileError) as reason:
            raise JournalError(
                f"the journal goes on from {str(path)!r}, which cannot be read: {reason}. Put the file back, or start"
                " over with --fresh"
            ) from reason


def _new_tuner(study: WatchStudy) -> Tuner:
    return Tuner(
        study.knobs,
        {name: source.metric for name, source in study.metrics.items()},
        {name: source.kind for name, source in study.contexts.items()} or None,
        study.default,
        seed=study.seed,
        budget=study.budget,
        constraints=study.constraints,
        max_pending=MOST_UNANSWERED,
        max_change=study.max_change,
    )
