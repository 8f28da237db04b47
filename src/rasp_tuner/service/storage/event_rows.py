"""Events as rows of the database, each with a checksum: a row that was changed is noticed, and not served."""

import hashlib
import json
import logging
from typing import Any, cast

from rasp_tuner.service.json_codec import dumps_text
from rasp_tuner.service.service_errors import ServerFailed
from rasp_tuner.service.study.events import Event, Kind

log = logging.getLogger("rasp_tuner.serve")


class DamagedEvent(ServerFailed):
    """A row is missing, or does not have the checksum that it was stored with."""

    def __init__(self, study: int, seq: int) -> None:
        what = f"event {seq} of this study is damaged or missing in the database"
        super().__init__(f"{what}: bring back a backup; `rasp doctor` lists all", code="damaged")
        log.error("event %d of the study with the number %d is missing, or its checksum is wrong", seq, study)


def event_row(study: int, event: Event) -> tuple[Any, ...]:
    """The values of the columns, in the order of the table."""
    own = study, event.seq, event.kind, event.at, event.ask, event.key, dumps_text(event.body)
    return *own, checksum(*own)


def event_of(row: Any) -> Event:
    """The event of a row; raises DamagedEvent if its checksum is wrong."""
    if not is_sound(row):
        raise DamagedEvent(row.study, row.seq)
    return Event(row.seq, cast(Kind, row.kind), row.at, json.loads(row.body), row.ask, row.key)


def is_sound(row: Any) -> bool:
    """Whether a row has the checksum of its values."""
    own = row.study, row.seq, row.kind, row.at, row.ask, row.key, row.body
    try:
        return bool(checksum(*own) == row.checksum)
    except (TypeError, ValueError):  # SQLite gives back any type that stands in a damaged row
        return False


def checksum(study: int, seq: int, kind: str, at: float, ask: int | None, key: str | None, body: str) -> int:
    """Of the values of a row, as a number that databases hold. No signature: who can write there can make it anew."""
    moment = float(at) + 0.0  # SQLite does not keep the sign of a zero
    text = f"{study}\0{seq}\0{kind}\0{moment!r}\0{ask}\0{key!r}\0{body}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
