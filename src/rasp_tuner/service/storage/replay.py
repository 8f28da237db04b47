"""Builds a study from what the database has of it: the newest sound snapshot, and the events after it."""

import logging
import time
from collections.abc import Callable

from rasp_tuner.errors import RaspError
from rasp_tuner.service.storage.store import Store, StoredStudy
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy

log = logging.getLogger("rasp_tuner.serve")


def load_study(store: Store, row: StoredStudy, check: Callable[[], object] = bool) -> tuple[LiveStudy, int, float]:
    """The study from its newest valid snapshot and the events after it; then the seq of that snapshot, and the CPU
    seconds that replaying the events took.

    `check` is called before each event, and may raise.
    """
    definition = StudyDefinition.from_stored(row.definition)
    live = used = None
    for _, data in store.snapshots(row.id):
        try:
            live, used = study_snapshot.restore(data, row.id, definition, row.created), data
            break
        except (ValueError, KeyError, TypeError, RaspError):
            continue  # damaged, or from another version: use an older snapshot, or the log alone
    live = live or LiveStudy(row.id, definition, row.created)
    snapshot_seq, diverged = live.seq, live.counts.diverged
    started = time.thread_time()
    for event in store.events_after(row.id, live.seq):
        check()
        live.apply(event)
    cpu_s = time.thread_time() - started if live.seq > snapshot_seq else 0.0
    if live.counts.diverged > diverged:
        before = study_snapshot.maker(used) if used else {}
        said = "study %r: replayed asks came out otherwise. Its snapshot was made with %s, this server is %s"
        log.warning(said, row.name, before or "an older version", study_snapshot.made_with())
    return live, snapshot_seq, cpu_s
