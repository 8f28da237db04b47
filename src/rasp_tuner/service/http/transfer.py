"""Export and import of a study: its event log as lines of JSON, with a header and a checksum.

{"format": "rasp-study", "version": 1, "definition": {...}, "created": ..., "events": n}
{"seq": 1, "kind": "ask", "at": ..., "body": {...}, "ask": 0}
...
{"count": n, "sha256": of all bytes before this line}
"""

import hashlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rasp_tuner.errors import RaspError
from rasp_tuner.service.http.event_schemas import checked_event
from rasp_tuner.service.http.schemas import parse_study
from rasp_tuner.service.json_codec import dumps, loads
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service_errors import InvalidRequest, ServiceError
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.study.definition import StudyDefinition, check_name
from rasp_tuner.service.study.event_time import MAX_WAIT_S
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy

FORMAT, FORMAT_VERSION = "rasp-study", 1
LINES_PER_CHUNK = 200
MAX_AHEAD_S = 86_400.0  # that the clock of the exporting server may be ahead of ours


def export_lines(store: Store, live_id: int, definition: dict[str, Any], created: float, last: int) -> Iterator[bytes]:
    """The lines of a study up to event `last`, read from the database step by step."""
    digest, count = hashlib.sha256(), 0
    header = {"format": FORMAT, "version": FORMAT_VERSION, "definition": definition, "created": created, "events": last}
    lines = itertools.chain([dumps(header) + b"\n"], (_line(event) for event in store.events_after(live_id, 0, last)))
    while chunk := list(itertools.islice(lines, LINES_PER_CHUNK)):
        part = b"".join(chunk)
        digest.update(part)
        count += len(chunk)
        yield part
    yield dumps({"count": count - 1, "sha256": digest.hexdigest()}) + b"\n"


@dataclass(frozen=True, slots=True)
class StudyImport:
    """A study that was read and replayed, but is not stored yet."""

    live: LiveStudy
    events: list[Event]


def read_import(body: bytes, name: str | None, limits: Limits) -> StudyImport:
    """The study of an export, rebuilt by replay; an InvalidRequest says what is wrong."""
    header, events = _read(body)
    wanted = parse_study(header.get("definition"), limits)
    definition = StudyDefinition.from_wire(wanted.model_dump(exclude_unset=True))
    if name is not None:
        definition = replace(definition, name=check_name(name))
    live = LiveStudy(0, definition, 0.0)
    unanswered: set[int] = set()
    keys: set[str] = set()
    latest = 0.0
    if events and events[-1].at > time.time() + MAX_AHEAD_S:
        raise _wrong_event(len(events), "it comes after tomorrow")
    for event in events:
        if 0.0 < latest - event.at <= MAX_WAIT_S:
            raise _wrong_event(event.seq, "it comes before the one it follows")
        if event.key is not None and (event.key in keys or event.kind not in ("observe", "sums")):
            raise _wrong_event(event.seq, f"the key {event.key!r} comes twice, or is not of an observation")
        if event.kind in ("tell", "failed"):
            number = -1 if event.ask is None else event.ask
            if number not in unanswered:
                raise _wrong_event(event.seq, "it answers what was not asked, or was answered before")
            unanswered.remove(number)
        latest = event.at
        try:
            live.apply(event)
        except (RaspError, ValueError, KeyError, TypeError) as reason:
            raise _wrong_event(event.seq, f"it cannot be replayed: {str(reason)[:200]}") from reason
        if event.kind == "ask" and event.ask is not None:
            unanswered.add(event.ask)
        if event.key is not None:
            keys.add(event.key)
    return StudyImport(live, events)


def _line(event: Event) -> bytes:
    row = {"seq": event.seq, "kind": event.kind, "at": event.at, "body": event.body}
    extra = {name: value for name, value in (("ask", event.ask), ("key", event.key)) if value is not None}
    return dumps(row | extra) + b"\n"


def _read(body: bytes) -> tuple[dict[str, Any], list[Event]]:
    """Header and events; checks format, version, count and checksum."""
    whole = body.rstrip(b"\n")
    start = whole.rfind(b"\n") + 1
    if start == 0:
        raise InvalidRequest("not an export: it needs a header, events and a last line with the checksum")
    end, lines = loads(whole[start:]), whole[: start - 1].split(b"\n")
    header = loads(lines[0])
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidRequest(f"not an export: the first line must say format {FORMAT!r}")
    if header.get("version") != FORMAT_VERSION:
        raise InvalidRequest(
            f"the export has version {str(header.get('version'))[:20]}, this server reads version {FORMAT_VERSION}"
        )
    if not isinstance(end, dict) or end.get("sha256") != hashlib.sha256(body[:start]).hexdigest():
        raise InvalidRequest("the export is damaged: its checksum does not match")
    if not end.get("count") == header.get("events") == len(lines) - 1:
        raise InvalidRequest("the export is not whole: the number of its events does not match")
    return header, [_event(line, i) for i, line in enumerate(lines[1:], 1)]


def _event(line: bytes, seq: int) -> Event:
    """The event of a line; what a request would be refused for is refused here too."""
    try:
        event = checked_event(loads(line))
    except ServiceError as error:
        raise _wrong_event(seq, error.message) from None
    if event.seq != seq:
        raise _wrong_event(seq, f"its seq is {event.seq}")
    if event.key is not None and "\0" in event.key:
        raise _wrong_event(seq, "key holds a NUL")
    return Event(event.seq, event.kind, event.at, event.body, event.ask, event.key)


def _wrong_event(seq: int, said: str) -> InvalidRequest:
    return InvalidRequest(f"line {seq + 1}, event {seq}: {said}"[:500])
