"""Study snapshots: a LiveStudy to bytes and back. Copied quickly in the writer's thread, encoded later in another.

They are not compressed: that took a third to two thirds of the encoding time and saved less than half of the bytes.
"""

import functools
import platform
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from rasp_tuner import __version__
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.files import snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import RECENT_SUGGESTIONS, Counts, LiveStudy
from rasp_tuner.service.study.suggestion_record import SuggestionRecord
from rasp_tuner.tuner import Tuner

_HEADER_LENGTH = struct.Struct("<Q")
_MAGIC = b"still 2\n"  # part of the file format: never change it


def capture(live: LiveStudy) -> Callable[[], bytes]:
    """Copy the study now; call the result, in any thread, to get the bytes."""
    tuner = live.tuner.capture(explained=RECENT_SUGGESTIONS)
    header = {
        "definition": live.definition.to_wire(),
        "seq": live.seq,
        "last_at": live.last_at,
        "handed": live.next_ask,
        "floor": live.erased_below,
        "counts": asdict(live.counts),
        "switched": live.switched,
        "leases_from": live.flags.valid_from,
        "history": live.history.to_json(),
        "approvals": None if live.approvals is None else live.approvals.to_json(),
        "made_with": made_with(),
    }
    pending, recent, arrays = list(live.pending.values()), list(live.recent.values()), live.history.state()

    def encode() -> bytes:
        lists = {
            "pending": [record._asdict() for record in pending],
            "recent": [record._asdict() for record in recent],
        }
        study = snapshot.encode({**header, **lists}, arrays)
        return b"".join((_MAGIC, _HEADER_LENGTH.pack(len(study)), study, tuner()))

    return encode


@functools.cache
def made_with() -> dict[str, str]:
    """What a replay must share to come out the same, bit for bit: the library, its kernel, NumPy and the machine."""
    kernel = "compiled" if native.available() else "arrays"
    return {"version": __version__, "kernel": kernel, "numpy": np.__version__, "machine": platform.machine()}


def restore(data: bytes, id: int, definition: StudyDefinition, created: float) -> LiveStudy:
    """The captured study; ValueError or a RaspError if the bytes are damaged or have another definition."""
    header, arrays, tuner = _decode(data)
    if StudyDefinition(**header["definition"]) != definition:
        raise ValueError("the snapshot belongs to another definition")
    live = LiveStudy(id, definition, created, Tuner.from_bytes(tuner))
    live.seq, live.last_at, live.counts = header["seq"], header["last_at"], Counts(**header["counts"])
    live.erased_below = header["floor"]
    live.switched, live.flags.valid_from = header["switched"], header["leases_from"]
    if live.approvals is not None:
        live.approvals.restore(header["approvals"])
    live.next_ask = header["handed"]
    live.history.restore(header["history"], arrays)
    live.recent = _records_by_number(header["recent"])
    live.pending = _records_by_number(header["pending"])
    known = live.recent | live.pending
    for number in sorted(known):
        live.flags.add(known[number])
    return live


def maker(data: bytes) -> dict[str, str]:
    """What a snapshot was made with; empty if it does not say."""
    found: dict[str, str] = _decode(data)[0].get("made_with", {})
    return found


def _decode(data: bytes) -> tuple[dict[str, Any], dict[str, Array], bytes]:
    """The header and the arrays of the study, and the bytes of its tuner."""
    if not data.startswith(_MAGIC):
        raise ValueError("not a study snapshot: it begins with other bytes")
    plain = data[len(_MAGIC) :]
    try:
        (length,) = _HEADER_LENGTH.unpack_from(plain)
    except struct.error as reason:
        raise ValueError(f"not a study snapshot: {reason}") from reason
    end = _HEADER_LENGTH.size + length
    return *snapshot.decode(plain[_HEADER_LENGTH.size : end]), plain[end:]


def _records_by_number(rows: list[Mapping[str, Any]]) -> dict[int, SuggestionRecord]:
    return {row["number"]: SuggestionRecord(**row) for row in rows}
