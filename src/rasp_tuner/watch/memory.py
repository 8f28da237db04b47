"""Memory: the tuner, the state and the journal of a study, moved together; found again after any end of the program.

kind         what happened
step         something ran and was measured; it was learned
asked        a suggestion whose step does not count: the tuner was asked, and not told
applying     parameters are being handed to the sinks
unknown      a sink failed, and so did putting back what was there: nobody knows what runs
rollback     back to the default, until somebody says --resume
resumed      somebody did
checkpoint   the state itself; what the tuner knows is in the file `snapshot` names
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rasp_tuner.errors import JournalError, SnapshotError, SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.space import Params
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.tuner import Tuner
from rasp_tuner.watch.study import WatchStudy

log = logging.getLogger("rasp_tuner.watch")

CHECKPOINT_EVERY = 500  # lines of the journal, so that it starts fast and does not grow for ever
MOST_UNANSWERED = 16  # suggestions without an answer; only the latest can get one
SETTINGS_COUNTED = 20


@dataclass
class WatchState:
    """What is known besides what the tuner has learned."""

    default: Params
    steps: int = 0
    in_place: Params | None = None  # None: not known
    in_place_mode: str = "live"  # in which it was put there
    good: Params = field(default_factory=dict)  # to go back to
    rolled_back: str = ""  # why, if it is
    spent_at: float = 0.0  # what the budget must have left; less once somebody has resumed
    broken_in_row: int = 0  # steps that broke a limit, one after the other
    settings: list[Params] = field(default_factory=list)  # different ones that ran, the first few

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Move on by one line of the journal."""
        kind = entry["kind"]
        if kind == "step":
            self._step(entry)
        elif kind == "applying":
            self.in_place, self.in_place_mode = entry["params"], entry["mode"]
        elif kind == "unknown":
            self.in_place = None
        elif kind == "rollback":
            self.rolled_back, self.good, self.broken_in_row = entry["reason"], dict(self.default), 0
        elif kind == "resumed":
            self.rolled_back, self.broken_in_row, self.spent_at = "", 0, entry["spent_at"]

    def _step(self, entry: Mapping[str, Any]) -> None:
        self.steps += 1
        ran = entry["ran"] or entry["params"]
        if ran not in self.settings and len(self.settings) < SETTINGS_COUNTED:
            self.settings.append(ran)
        if entry["role"] == "suggestion":
            self.broken_in_row = self.broken_in_row + 1 if entry["broken"] else 0
        if entry["good"]:
            self.good = ran  # which may not be what was handed over


class WatchMemory:
    """All that a study has learned. What is in the journal is never lost."""

    def __init__(self, study: WatchStudy, journal: Journal) -> None:
        self.study, self.journal = study, journal
        entries = journal.entries[1:]
        checkpoint = entries[0] if entries and entries[0]["kind"] == "checkpoint" else None
        if checkpoint is not None:
            self.tuner, self.state = self._load(checkpoint), WatchState(**checkpoint["state"])
        else:  # before anything happened the default runs
            default = dict(study.default)
            self.tuner, self.state = _new_tuner(study), WatchState(default, in_place=default, good=default)
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
            self.journal.restart([{"kind": "checkpoint", "snapshot": path.name, "state": asdict(self.state)}])
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
