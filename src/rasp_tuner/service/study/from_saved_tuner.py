"""A study that begins with a saved tuner: the first event of its log holds the snapshot.

What the tuner had learned counts as the study's own. Of its suggestions, those whose reasons the snapshot holds are
listed and charted, without contexts, which a snapshot holds only as models see them. So suggestions that waited for an
answer cannot be answered here: they count as expired.
"""

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rasp_tuner.errors import InvalidValue, UnknownSuggestion
from rasp_tuner.files import snapshot
from rasp_tuner.service.study.definition import MAX_PENDING_LIMIT, StudyDefinition
from rasp_tuner.service.study.events import Event, ask_id
from rasp_tuner.space import Params
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation

TUNER_OPTIONS = ("guard", "switching_cost", "screen", "budget")  # of a tuner, which a definition has as well
COMPARED_PARTS = (
    "space",
    "constraints",
    "metrics",
    "context",
    "default",
    "preset",
)  # in snapshots of equal definitions


def opened_event(tuner: bytes, at: float) -> Event:
    """The first event of a study that begins with this snapshot."""
    return Event(1, "opened", at, {"tuner": base64.b64encode(tuner).decode()})


def definition_of(tuner: Tuner, name: str) -> StudyDefinition:
    """The study whose tuners are like this one; an InvalidValue if a study cannot be."""
    header = _header(tuner)
    constants = header["preset"]["constants"]
    wire = {part: header[part] for part in COMPARED_PARTS[:-1]} | {
        key: constants[key] for key in TUNER_OPTIONS if key in constants
    }
    preset, size = header["preset"]["name"], header["ledger"]["size"]
    wire |= {"name": name, "preset": preset, "seed": header["seed"], "max_pending": size}
    wire |= {"holdout": header.get("holdout"), "max_change": header.get("max_change")}
    definition = StudyDefinition.from_wire({"budget": None, **wire})
    made = _header(definition.tuner())
    for part in COMPARED_PARTS:
        if made[part] != header[part]:
            raise InvalidValue(f"the tuner has another {part} than a study can have, such as constants of its own")
    return definition


def tuner_of(event: Event, own: StudyDefinition) -> Tuner:
    """The tuner that the first event of a study's log holds."""
    tuner = Tuner.from_bytes(base64.b64decode(event.body["tuner"], validate=True))
    if replace(definition_of(tuner, own.name), lease_s=own.lease_s, ttl_s=own.ttl_s) != own:
        raise ValueError(f"event {event.seq}: the saved tuner is of another definition")
    return tuner


def explained(tuner: Tuner) -> Iterator[tuple[int, Params, Explanation]]:
    """Suggestions whose reasons the tuner still holds: number, parameters and reasons."""
    for number in range(max(tuner.asked - MAX_PENDING_LIMIT, 0), tuner.asked):
        try:
            why = tuner.explain(ask_id(number), visits=False)
        except UnknownSuggestion:
            continue
        if why.params is not None:
            yield number, why.params, why


def _header(tuner: Tuner) -> dict[str, Any]:
    header, _ = snapshot.decode(tuner.capture(explained=0)())
    return header
