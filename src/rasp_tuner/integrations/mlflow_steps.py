"""Steps of a tuner as what MLflow keeps: numbers by name and step, and texts that are written once."""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from rasp_tuner.errors import RaspError
from rasp_tuner.files import snapshot
from rasp_tuner.records.step_record import MOST_STEPS
from rasp_tuner.tuner import Tuner

log = logging.getLogger("rasp_tuner")
GROUPS = ("knob", "context", "forecast", "situation", "budget", "run")
NUMBER_TAG = "numbers."  # before the names of tags that say what numbers stand for
MOST_TEXTS, LONGEST_LABEL = 50, 80  # texts of one name that get numbers; a tag holds them
LONGEST_NAME, LONGEST_TEXT, LONGEST_TAG = 250, 500, 5000  # that every store of MLflow takes
FORECAST_NAMES = {"expected": "expected", "expected_default": "default", "deviation": "deviation", "better": "better"}
Step = tuple[int, dict[str, Any]]  # its number, and values by name


class TextNumbers:
    """Numbers for texts, in the order in which they were first seen: MLflow's metrics are numbers."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        """`tags` are of a run that goes on."""
        known = {name.removeprefix(NUMBER_TAG): text for name, text in tags.items() if name.startswith(NUMBER_TAG)}
        self._known: dict[str, dict[str, int]] = {name: _read_tag(name, text) for name, text in known.items()}

    def numbers(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The values that are numbers, or for which one stands."""
        found = {name: self._number(name, value) for name, value in values.items()}
        return {name: number for name, number in found.items() if number is not None}

    def tags(self) -> dict[str, str]:
        """What the numbers stand for, as in {"numbers.context/region": '{"eu": 0, "us": 1}'}."""
        return {f"{NUMBER_TAG}{name}": _tag(own) for name, own in self._known.items()}

    def _number(self, name: str, value: Any) -> float | None:
        if value is None or isinstance(value, int | float):
            return None if value is None else float(value)
        own, text = self._known.setdefault(name, {}), str(value)[:LONGEST_LABEL]
        if text not in own and len(own) < MOST_TEXTS and len(_tag({**own, text: len(own)})) <= LONGEST_TAG:
            own[text] = len(own)
        return own.get(text)


def new_steps(tuner: Tuner, after: int, texts: Mapping[str, Iterable[str]] | None) -> list[Step]:
    """The steps from number `after` on that are on record, each with its values by the names of MLflow's metrics."""
    fresh = min(tuner.learned - after, MOST_STEPS)
    rows = tuner.history(texts, fresh) if fresh > 0 else []
    steps = [(row["step"], _values(tuner, row)) for row in rows if row["step"] >= after]
    if steps:
        steps[-1][1].update(_budget(tuner))
    return steps


def definition(tuner: Tuner) -> dict[str, str]:
    """What is tuned, as params of a run."""
    header, _ = snapshot.decode(tuner.capture(0)())
    found = {f"knob.{name}": knob for name, knob in header["space"].items()}
    found |= {f"default.{name}": value for name, value in header["default"].items()}
    found |= {f"metric.{name}": metric for name, metric in header["metrics"].items()}
    found |= {"context": header["context"], "preset": header["preset"]["name"], "seed": header["seed"]}
    return {clean(name): _text(value) for name, value in found.items()}


def clean(name: str) -> str:
    """The name with what MLflow does not take replaced.

    >>> clean("cache size (GB)")
    'cache size _GB_'
    """
    parts = re.sub(r"[^\w\-. :/]", "_", name).split("/")
    taken = "/".join(part.strip(". ") for part in parts if part.strip(". ")) or "_"  # MLflow reads names as paths
    if len(taken) <= LONGEST_NAME:
        return taken
    told_apart = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{taken[: LONGEST_NAME - 9]}-{told_apart}"


def _values(tuner: Tuner, row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (row["metrics"] or {}).items():
        found[f"metric/{name}" if name.partition("/")[0] in GROUPS else name] = value
    found |= {f"knob/{name}": value for name, value in row["params"].items()}
    context = row["context"] or {}
    named = context.items() if isinstance(context, Mapping) else enumerate(context)
    found |= {f"context/{name}": value for name, value in named}
    found |= {f"forecast/{ours}": row[name] for name, ours in FORECAST_NAMES.items()}
    found |= {"run/failed": row["failed"], "run/default": row["default"], "run/chosen_by": row["chosen_by"]}
    with suppress(RaspError):  # reasons of the latest thousand suggestions are kept
        why = tuner.reasons(row["id"]).explanation() if row["id"] is not None else None
        if why is not None and why.slots and why.in_context:
            found |= {"situation/index": why.slots[0], "situation/novelty": why.novelty}
    return {clean(name): value for name, value in found.items() if value is not None}


def _budget(tuner: Tuner) -> dict[str, float]:
    """What was spent and earned so far; nothing without a budget."""
    budget = tuner.budget()
    return {} if budget is None else {f"budget/{name}": getattr(budget, name) for name in ("spent", "earned", "left")}


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:LONGEST_TEXT]


def _tag(numbers: Mapping[str, int]) -> str:
    return json.dumps(numbers, ensure_ascii=False)


def _read_tag(name: str, text: str) -> dict[str, int]:
    """What the numbers of a run stood for so far; nothing if somebody has changed or cut the tag."""
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict) and all(type(number) is int for number in found.values()):
            return found
    log.warning("the tag %s%s of the run cannot be read: texts get new numbers from now on", NUMBER_TAG, name)
    return {}
