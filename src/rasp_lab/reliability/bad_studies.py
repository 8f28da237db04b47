"""Exports of studies, good and changed, as `POST /v1/studies/import` takes them."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from rasp_tuner.service.http.http_errors import status_of
from rasp_tuner.service.http.transfer import FORMAT, FORMAT_VERSION, read_import
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service_errors import ServiceError
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy

EXPORT = "export"
STEPS = 40
DEFINITION = {
    "name": "web",
    "space": {
        "pool": {"type": "int", "low": 1, "high": 64, "log": True},
        "t": {"type": "float", "low": 0.1, "high": 10},
        "codec": {"type": "categorical", "choices": ["lz4", "zstd", None]},
    },
    "metrics": {"p99_ms": {"direction": "min"}},
    "context": ["qps"],
    "default": {"pool": 8, "t": 1.0, "codec": "lz4"},
}
Change = Callable[[Any, np.random.Generator], tuple[Any, str]]


class NoLog:
    """A log in which nothing is found."""

    def events_of_ask(self, _: int, __: int) -> list[Event]:
        return []

    def observation_by_key(self, _: int, __: str) -> Event | None:
        return None


def made_study() -> tuple[LiveStudy, list[Event]]:
    """A study after some steps, with its log; the same every time."""
    live, rng, log = LiveStudy(0, StudyDefinition.from_wire(DEFINITION), 0.0), np.random.default_rng(0), list[Event]()
    for step in range(STEPS):
        at = float(step)
        asked = live.ask({"qps": float(rng.integers(3))}, at)
        log.append(asked)
        if step % 9 == 8:
            continue  # it waits
        metrics = None if step % 7 == 6 else {"p99_ms": 20.0 + 5.0 * rng.random()}
        log.append(_told(live, f"s{asked.ask}", metrics, at))
    seen = live.observe({"qps": 1.0}, live.definition.default, {"p99_ms": 21.0}, "k", float(STEPS), NoLog())
    return live, [*log, *([seen] if seen is not None else [])]


def _told(live: LiveStudy, id: str, metrics: dict[str, float] | None, at: float) -> Event:
    outcome = live.tell(id, at, NoLog(), metrics, "" if metrics else "crashed")
    if not isinstance(outcome, Event):
        raise TypeError("a new answer must be an event")
    return outcome


def export_bytes() -> bytes:
    """A good export."""
    live, log = made_study()
    header = {"format": FORMAT, "version": FORMAT_VERSION, "definition": live.definition.to_wire(), "created": 0.0}
    lines = [
        {"seq": event.seq, "kind": event.kind, "at": event.at, "body": event.body}
        | {name: value for name, value in (("ask", event.ask), ("key", event.key)) if value is not None}
        for event in log
    ]
    return _signed({**header, "events": len(lines)}, lines)


def _signed(header: Any, lines: list[Any]) -> bytes:
    """An export with its checksum made anew."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *lines))
    end = {"sha256": hashlib.sha256(body).hexdigest(), "count": len(lines)}
    return body + json.dumps(end).encode() + b"\n"


def changed_export(data: bytes, rng: np.random.Generator, change: Change) -> tuple[bytes, str]:
    """Its header or some of its lines changed, dropped, doubled or in another order."""
    header, *lines = [json.loads(line) for line in data.splitlines()[:-1]]
    way, i, words = rng.random(), int(rng.integers(len(lines))), ""
    if way < 0.3:
        header, words = change(header, rng)
    elif way < 0.8:
        lines[i], words = change(lines[i], rng)
        words = f"line {i}: {words}"
    elif way < 0.85:
        del lines[i]
        words = f"line {i} dropped"
    elif way < 0.9:
        lines.insert(i, lines[int(rng.integers(len(lines)))])
        words = f"line {i} twice"
    elif way < 0.95:
        j = int(rng.integers(len(lines)))
        lines[i], lines[j] = lines[j], lines[i]
        words = f"lines {i} and {j} swapped"
    else:
        return data[: int(rng.integers(len(data)))], "cut short"
    if isinstance(header, dict) and way >= 0.3 and rng.random() < 0.8:
        header["events"] = len(lines)
    return _signed(header, lines), words


def loaded_export(data: bytes) -> LiveStudy | None:
    """The study; None if it is refused with a 4xx."""
    try:
        return read_import(data, None, Limits()).live
    except ServiceError as error:
        if status_of(error) >= 500:
            raise
        return None


def use_study(live: LiveStudy) -> None:
    """Ask, tell, view, save and restore."""
    rng, at = np.random.default_rng(1), live.last_at + 1.0
    schema = live.definition.context
    names = list(schema) if isinstance(schema, dict | list) else []
    for step in range(4):
        context: Any = dict.fromkeys(names, 1.0) if names else ([1.0] * schema if isinstance(schema, int) else None)
        asked = live.ask(context, at + step)
        metrics = {name: 1.0 + rng.random() for name in live.definition.metrics}
        _told(live, f"s{asked.ask}", metrics, at + step)
    live.view(at + 9.0)
    study_snapshot.restore(study_snapshot.capture(live)(), live.id, live.definition, live.created)
