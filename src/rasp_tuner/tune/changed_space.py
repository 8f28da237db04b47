"""A study whose knobs have changed: when it may go on, and which of its earlier runs still count.

A knob that is new ran at its default so far; a knob that is gone must have run at its default. A value that is no
longer legal, or breaks a constraint, does not count. Of the command only what those knobs fill in may change.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from rasp_tuner.errors import InvalidValue
from rasp_tuner.page.words import settings_words
from rasp_tuner.space import Params
from rasp_tuner.study_file import template
from rasp_tuner.study_file.journal import entries_in, is_claimed
from rasp_tuner.tune.study import TuneStudy

SPACE = {"knobs", "constraints", "default"}  # fields of a definition that may change
USES = {"command", "env", "files"}  # those that change with the names of knobs
_PART = re.compile(r"[^\s,;:]+")  # of a command


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
    if not (in_space and default_kept and changed <= (SPACE | USES if names_changed else SPACE)):
        return False
    return _same_uses(old, new)


def _same_uses(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a command and its environment are as they were, but for what knobs that are new or gone fill in."""
    gone, added = (
        {name: one["default"].get(name, "") for name in one["knobs"] if name not in other["knobs"]}
        for one, other in ((old, new), (new, old))
    )
    pairs = [(old.get("command") or [], new.get("command") or [])]
    before, after = old.get("env") or {}, new.get("env") or {}
    pairs += [([before.get(name, "")], [after.get(name, "")]) for name in {**before, **after}]
    return all(_same_words(was, now, gone, added) for was, now in pairs)


def _same_words(old: Sequence[str], new: Sequence[str], gone: Params, added: Params) -> bool:
    """Whether two commands do the same with these knobs at their defaults, or differ by words that hold these knobs.

    >>> _same_words(["sort", "-n", "{x}"], ["sort", "-n", "--k", "{k}", "{x}"], {}, {"k": 1})
    True
    >>> _same_words(["sort", "-n", "{x}"], ["sort", "-r", "--k", "{k}", "{x}"], {}, {"k": 1})
    False
    """
    before, after = _filled(old, gone), _filled(new, added)
    steps = difflib.SequenceMatcher(None, [text for _, text in before], [text for _, text in after], autojunk=False)
    for kind, a, b, c, d in steps.get_opcodes():
        dropped = kind == "delete" and _all_use([part for part, _ in before[a:b]], gone)
        put_in = kind == "insert" and _all_use([part for part, _ in after[c:d]], added)
        if kind != "equal" and not (dropped or put_in):
            return False
    return True


def _filled(words: Sequence[str], values: Params) -> list[tuple[str, str]]:
    """Parts of a command, each with its text at these values; an empty text is no part."""
    parts = [part for word in words for part in _PART.findall(word)]
    return [(part, text) for part in parts if (text := template.fill(part, values))]


def _all_use(parts: Sequence[str], knobs: Params) -> bool:
    """Whether each of these parts holds one of the knobs, or stands before one that does, as -c before {c}."""
    uses = [_uses(part, knobs) for part in parts]
    return all(own or after for own, after in zip(uses, [*uses[1:], False], strict=True))


def _uses(text: str, knobs: Params) -> bool:
    return any(name in knobs for name in template.placeholders(text))


def change_notes(old: Mapping[str, Any], study: TuneStudy) -> list[str]:
    """What changes of the knobs mean for the runs so far, a line for each knob."""
    notes, before = [], old["knobs"]
    now = json.loads(json.dumps(study.to_json()))["knobs"]
    for name in study.knobs:
        if name in before and before[name] != now[name]:
            notes.append(f"{name} has other values now: earlier runs count where theirs is still one of them")
        elif name not in before and name in study.default:
            ran = settings_words({name: study.default[name]})
            nobody = " (nobody gave its default)" if name in study.assumed else ""
            notes.append(f"{name} is a new knob: earlier runs count as {ran}{nobody}")
    gone = [name for name in before if name not in study.knobs]
    notes += [
        f"{name} is no knob any more: earlier runs count where it was {old['default'].get(name)}" for name in gone
    ]
    return notes


def own_folder(study: TuneStudy, parent: Path) -> Path:
    """Where a study lives that nobody gave a name: NAME, or NAME-2 where NAME holds runs of another command."""
    if study.named:
        return parent / study.name
    free, new = None, json.loads(json.dumps(study.to_json()))
    for number in count(1):
        place = parent / (study.name if number == 1 else f"{study.name}-{number}")
        definitions = [entry["definition"] for entry in entries_in(place) if entry["kind"] == "study"]
        if not definitions:
            return free or place
        held = definitions[-1]
        same_work = all(held.get(name) == new.get(name) for name in ("command", "call", "shell"))
        if same_work or may_go_on(held, new):
            return place
        if free is None and not is_claimed(place):
            free = place
    raise AssertionError("count() does not end")


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
