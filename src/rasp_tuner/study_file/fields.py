"""Fields of a study file, read and checked: tables, durations, defaults; and what differs between two definitions."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.contexts import Category, ContextKind, Flag, Name, Number
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Auto, Categorical, Knob, Params, Space
from rasp_tuner.study_file.knob_syntax import knob_of, parse_value

CONTEXT_WORDS = ("number", "log", "flag", "category", "name")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def read_study_file(path: Path) -> dict[str, Any]:
    """The fields in a study file; without a name in it, the study is named after the file."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidSpace(f"cannot read the study file {str(path)!r}: {reason}") from reason
    except tomllib.TOMLDecodeError as reason:
        raise InvalidSpace(f"{str(path)!r} is not TOML: {reason}") from reason
    return {"name": path.stem, **found}


def parse_knobs(fields: Mapping[str, Any], example: str) -> tuple[dict[str, Knob], Params]:
    """The knobs of a study and its default; where a knob has none, the middle of the range or the first choice."""
    knobs = {name: knob_of(name, spec) for name, spec in table(fields, "knobs").items()}
    if not knobs:
        raise InvalidSpace(f"a study needs at least one knob, as in {example}")
    given = table(fields, "default")
    if unknown := sorted(set(given) - set(knobs)):
        raise InvalidSpace(f"default names {unknown[0]!r}, which is no knob; there are {', '.join(knobs)}")
    full = {name: _default_of(name, knob, given.get(name)) for name, knob in knobs.items()}
    return knobs, {name: full[name] for name in Space(knobs).names_in(full)}  # knobs with a condition may not exist


def context_kind(word: str, usual: float | None) -> ContextKind:
    """The kind of context that one of CONTEXT_WORDS names; `usual` stands for a missing number."""
    if word in ("number", "log"):
        return Number(log=word == "log", missing=usual)
    return Flag() if word == "flag" else Category() if word == "category" else Name()


def table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a study file; empty if it is not there."""
    found = fields.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidSpace(f"{name} must be a table of names and values, got {show(found)}")
    return found


def check_fields(where: str, given: Iterable[object], known: Sequence[str]) -> None:
    """Refuse a field that is not known, and name the one that was probably meant.

    >>> check_fields("prometheus", ["timout"], ["url", "timeout"])
    Traceback (most recent call last):
    rasp_tuner.errors.InvalidSpace: prometheus has no field 'timout': did you mean 'timeout'? It takes url, timeout
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1, 0.7)
            then = f": did you mean {close[0]!r}? It" if close else "; it"
            raise InvalidSpace(f"{where} has no field {show(name)}{then} takes {', '.join(known)}")


def seconds(field: str, value: object) -> float | None:
    """A duration such as 90, "90s", "10m" or "1h30m", in seconds.

    >>> seconds("time", "1h30m")
    5400.0
    """
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    total = (
        sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if total <= 0:
        raise InvalidSpace(f"{field} must be a duration such as 90s, 10m or 1h30m, got {show(value)}")
    return float(total)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> list[str]:
    """What differs between two definitions, one line each.

    >>> differences({"knobs": {"level": 1}, "seed": 0}, {"knobs": {"level": 2}, "seed": 0})
    ['knobs.level: was 1, is 2']
    """
    lines = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{where}{name}.")
        elif before != after:
            lines.append(f"{where}{name}: was {show(before)}, is {show(after)}")
    return lines


def _default_of(name: str, knob: Knob, given: object) -> Any:
    if isinstance(given, str):
        return parse_value(name, knob, given)
    if given is not None:
        return knob.check(given)
    if isinstance(knob, Auto):
        return knob.word
    return knob.choices[0] if isinstance(knob, Categorical) else knob.from_unit(0.5)
