"""Stills: a LiveStudy as bytes and back. Copied fast in the writer's thread, packed later in another.

They are not compressed, which took a third to two thirds of the time of packing and saved less than half of the bytes;
those of older versions were, and are read.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from rasp_tuner.core import snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import RECENT, Counts, LiveStudy, Record
from rasp_tuner.tuner import Tuner

_LENGTH = struct.Struct("<Q")
_MARK = b"still 2\n"
_NAMES = tuple(field.name for field in fields(Record))


def capture(live: LiveStudy) -> Callable[[], bytes]:
    """The study at this moment; call it, in any thread, to have the bytes."""
    tuner = live.tuner.capture(explained=RECENT)
    header = {
        "definition": live.definition.to_wire(),
        "seq": live.seq,
        "last_at": live.last_at,
        "first_at": live.first_at,
        "handed": live.handed,
        "floor": live.floor,
        "counts": asdict(live.counts),
        "history": live.history.to_json(),
    }
    pending, recent, arrays = list(live.pending.values()), list(live.recent.values()), live.history.state()

    def pack() -> bytes:
        lists = {"pending": [_fields(record) for record in pending], "recent": [_fields(record) for record in recent]}
        study = snapshot.encode({**header, **lists}, arrays)
        return b"".join((_MARK, _LENGTH.pack(len(study)), study, tuner()))

    return pack


def restore(data: bytes, id: int, definition: StudyDefinition, created: float) -> LiveStudy:
    """The study that was captured; ValueError or a RaspError if the bytes are not one of this definition."""
    try:
        plain = data[len(_MARK) :] if data.startswith(_MARK) else zlib.decompress(data)
        (length,) = _LENGTH.unpack_from(plain)
    except (zlib.error, struct.error) as reason:
        raise ValueError(f"not a study's still: {reason}") from reason
    header, arrays = snapshot.decode(plain[_LENGTH.size : _LENGTH.size + length])
    if StudyDefinition(**header["definition"]) != definition:
        raise ValueError("the still belongs to another definition")
    live = LiveStudy(id, definition, created, Tuner.from_bytes(plain[_LENGTH.size + length :]))
    live.seq, live.last_at, live.counts = header["seq"], header["last_at"], Counts(**header["counts"])
    live.first_at, live.floor = header.get("first_at"), header.get("floor", 0)
    live.handed = header.get("handed", live.counts.asks)
    live.history.restore(header["history"], arrays)
    live.recent = _records(header["recent"])
    live.pending = _records(header["pending"])
    return live


def _fields(record: Record) -> dict[str, Any]:
    """As `asdict`, which would copy every number."""
    return {name: getattr(record, name) for name in _NAMES}


def _records(rows: list[Mapping[str, Any]]) -> dict[int, Record]:
    return {row["number"]: Record(**row) for row in rows}
