"""A study whose knobs have changed: when it may go on, and which of its earlier runs still count.

A knob that is new ran at its default so far; a knob that is gone must have run at its default. A value that is no
longer legal, or breaks a constraint, does not count.
"""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params
from rasp_tuner.study_file.journal import FILE as JOURNAL_FILE
from rasp_tuner.tune.study import TuneStudy

SPACE = {"knobs", "constraints", "default"}  # fields of a definition that may change
USES = {"command", "env", "files"}  # those that change with the names of knobs


def may_go_on(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether runs of one definition say something about another one: only the space differs.

    >>> one = {"knobs": {"a": 1}, "constraints": [], "default": {"a": 3}, "command": ["x", "{a}"], "seed": 0}
    >>> may_go_on(one, {**one, "knobs": {"a": 2}}), may_go_on(one, {**one, "seed": 1})
    (True, False)
    >>> may_go_on(one, {**one, "knobs": {"b": 1}, "command": ["x", "{b}"]})  # other knobs: another study
    False
    """
    if not (set(old["knobs"]) <= set(new["knobs"]) or set(new["knobs"]) <= set(old["knobs"])):
        return False
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    names_changed = set(old["knobs"]) != set(new["knobs"])
    default_kept = all(new["default"].get(name, value) == value for name, value in old["default"].items())
    in_space = bool(changed & {"knobs", "constraints"})
    return in_space and default_kept and changed <= (SPACE | USES if names_changed else SPACE)


def own_folder(study: TuneStudy, parent: Path) -> Path:
    """Where a study lives that nobody gave a name: NAME, or NAME-2 where NAME holds one of another command."""
    for number in count(1):
        place = parent / (study.name if number == 1 else f"{study.name}-{number}")
        held = _definition_in(place)
        if held is None or study.named:
            return place
        new = json.loads(json.dumps(study.to_json()))
        same_work = all(held.get(name) == new.get(name) for name in ("command", "call", "shell"))
        if same_work or may_go_on(held, new):
            return place
    raise AssertionError("count() does not end")


def _definition_in(place: Path) -> dict[str, Any] | None:
    """The latest definition in a folder's journal; None where there is none that can be read."""
    found = None
    try:
        for line in (place / JOURNAL_FILE).read_text().splitlines():
            if (entry := json.loads(line)).get("kind") == "study":
                found = entry["definition"]
    except (OSError, ValueError, KeyError, AttributeError):
        return found  # none, or a torn line: the journal itself says what is wrong
    return found


def as_run_now(params: Params, before: Mapping[str, Any], study: TuneStudy) -> Params | None:
    """What a run under an earlier definition was, in terms of this one; None where it does not count."""
    gone = [name for name in params if name not in study.knobs]
    if any(params[name] != before["default"].get(name) for name in gone):
        return None
    kept = {name: value for name, value in params.items() if name in study.knobs}
    try:
        ran, _ = study.space.what_ran(study.default, kept)
        study.space.check_constraints(ran)
    except InvalidValue:
        return None
    return ran
