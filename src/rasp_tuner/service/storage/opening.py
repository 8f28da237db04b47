"""Puts a saved tuner into the database as a study, before the server runs."""

import time

from rasp_tuner.errors import InvalidValue
from rasp_tuner.files import snapshot
from rasp_tuner.service.http_errors import HttpError
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import check_name
from rasp_tuner.service.study.from_saved_tuner import definition_of, opened_event
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.tuner import Tuner


def open_tuner(store: Store, data: bytes, name: str) -> None:
    """Add the study `name` that begins with this snapshot; if it is there already, it goes on from where it was."""
    if snapshot.decode(data)[0].get("shield") is not None:
        raise InvalidValue("a tuner with a shield cannot be opened: a study has no place for its key")
    try:
        definition = definition_of(Tuner.from_bytes(data), check_name(name))
    except HttpError as reason:
        raise InvalidValue(f"the tuner cannot be a study: {reason}") from reason
    now = time.time()
    event = opened_event(data, now)
    for row in store.studies():
        if row.name == name:
            if any(first.body == event.body for first in store.events_after(row.id, 0, 2)):
                return
            raise InvalidValue(f"there is a study {name!r} already, which began in another way: take another --name")
    live = LiveStudy(0, definition, now)
    live.apply(event)
    with store.writing() as connection:
        id = store.add_study(connection, name, definition.to_wire(), now)
        store.append(connection, [(id, event)])
        store.add_snapshot(connection, id, live.seq, study_snapshot.capture(live)())
        store.add_audit_line(connection, "cli", "tuner opened", name)
