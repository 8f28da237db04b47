"""Export and import of a study: its event log as lines of JSON, with a header and a checksum.

{"format": "rasp-study", "version": 1, "definition": {...}, "created": ..., "events": n}
{"seq": 1, "kind": "ask", "at": ..., "body": {...}, "ask": 0}
...
{"count": n, "sha256": of all bytes before this line}
"""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rasp_tuner.errors import RaspError
from rasp_tuner.service.http.schemas import parse_study
from rasp_tuner.service.http_errors import invalid
from rasp_tuner.service.json_codec import dumps, loads
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.study.definition import StudyDefinition, as_stored, check_name
from rasp_tuner.service.study.events import KINDS, Event
from rasp_tuner.service.study.live_study import LiveStudy

FORMAT, FORMAT_VERSION = "rasp-study", 1
LINES_PER_CHUNK = 200


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
    """The study of an export, rebuilt by replay; a 422 says what is wrong."""
    header, events = _read(body)
    wanted = parse_study(header.get("definition"), limits)
    definition = StudyDefinition.from_wire(as_stored(wanted.model_dump(exclude_unset=True)))
    if name is not None:
        definition = replace(definition, name=check_name(name))
    live = LiveStudy(0, definition, 0.0)
    unanswered: set[int] = set()
    latest = float("-inf")
    for event in events:
        if event.at < latest:
            raise invalid(f"event {event.seq} comes before the one it follows")
        if event.kind in ("tell", "failed"):
            number = -1 if event.ask is None else event.ask
            if number not in unanswered:
                raise invalid(f"event {event.seq} answers what was not asked, or was answered before")
            unanswered.remove(number)
        latest = event.at
        try:
            live.apply(event)
        except (RaspError, ValueError, KeyError, TypeError) as reason:
            raise invalid(f"event {event.seq} cannot be replayed: {str(reason)[:200]}") from reason
        if event.kind == "ask" and event.ask is not None:
            unanswered.add(event.ask)
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
        raise invalid("not an export: it needs a header, events and a last line with the checksum")
    end, lines = loads(whole[start:]), whole[: start - 1].split(b"\n")
    header = loads(lines[0])
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise invalid(f"not an export: the first line must say format {FORMAT!r}")
    if header.get("version") != FORMAT_VERSION:
        raise invalid(
            f"the export has version {str(header.get('version'))[:20]}, this server reads version {FORMAT_VERSION}"
        )
    if not isinstance(end, dict) or end.get("sha256") != hashlib.sha256(body[:start]).hexdigest():
        raise invalid("the export is damaged: its checksum does not match")
    if not end.get("count") == header.get("events") == len(lines) - 1:
        raise invalid("the export is not whole: the number of its events does not match")
    return header, [_event(loads(line), i) for i, line in enumerate(lines[1:], 1)]


def _event(row: Any, seq: int) -> Event:
    try:
        event = Event(**row)
    except TypeError as reason:
        raise invalid(f"event {seq} has other fields than an event") from reason
    whole = isinstance(event.ask, int) and not isinstance(event.ask, bool) and 0 <= event.ask < 2**62
    sound = (
        event.seq == seq
        and event.kind in KINDS
        and isinstance(event.at, float | int)
        and not isinstance(event.at, bool)
        and isinstance(event.body, dict)
        and (event.ask is None or whole)
        and (event.key is None or (isinstance(event.key, str) and 0 < len(event.key) <= 128 and "\0" not in event.key))
    )
    if not sound:
        raise invalid(f"event {seq} is not one")
    return event
