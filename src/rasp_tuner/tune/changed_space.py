"""A study whose knobs have changed: when it may go on, and which of its earlier runs still count.

A knob that is new ran at its default so far; a knob that is gone must have run at its default. A value that is no
longer legal, or breaks a constraint, does not count.
"""

from collections.abc import Mapping
from typing import Any

from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params
from rasp_tuner.tune.study import TuneStudy

SPACE = {"knobs", "constraints", "default"}  # fields of a definition that may change
USES = {"command", "env", "files"}  # those that change with the names of knobs


def may_go_on(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether runs of one definition say something about another one: only the space differs.

    >>> one = {"knobs": {"a": 1}, "constraints": [], "default": {"a": 3}, "command": ["x", "{a}"], "seed": 0}
    >>> may_go_on(one, {**one, "knobs": {"a": 2}}), may_go_on(one, {**one, "seed": 1})
    (True, False)
    """
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    names_changed = set(old["knobs"]) != set(new["knobs"])
    default_kept = all(new["default"].get(name, value) == value for name, value in old["default"].items())
    in_space = bool(changed & {"knobs", "constraints"})
    return in_space and default_kept and changed <= (SPACE | USES if names_changed else SPACE)


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
