"""The parameters that an exported policy gives in a context. This file needs nothing else: copy it where you need it.

    policy = load("policy.json")
    params = params_of(policy, {"qps": 420, "region": "eu"})

A context that is wrong gets the default: a name that the policy does not know, a required number that is missing, a
value of another kind. docs/POLICY.md has the format. policy.mjs and policy.c in examples/policy give the same answers.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from numbers import Real
from typing import Any

DAY_S = 86_400
KINDS = ("number", "flag", "category", "name", "time of day", "weekday")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
LARGEST_WHOLE = 2**53  # up to which every whole number has digits that all languages agree on
MOMENT = re.compile(  # a date, a time of day or both; the zone is read over
    r"(?:([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ](?=.)|$))?"
    r"(?:([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


class WrongContext(ValueError):
    """A context that the policy cannot read."""


Value = float | str | None  # of a field, as tests compare it; None: missing


def load(path: Any) -> dict[str, Any]:
    """The policy in a file; a ValueError if it is none that this evaluator understands."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - takes whatever `open` takes
        try:
            return check(json.load(file))
        except (ValueError, RecursionError) as reason:
            raise ValueError(f"{path}: {reason}") from None


def check(policy: Any) -> dict[str, Any]:
    """The policy, if every context will get an answer from it; else a ValueError that says where it is wrong."""
    if not isinstance(policy, dict) or (policy.get("format"), policy.get("version")) != ("rasp-policy", 1):
        raise ValueError("must be a rasp-policy of version 1")
    fields, default = policy.get("context"), policy.get("default")
    if not isinstance(fields, list) or not all(
        isinstance(field, dict) and isinstance(field.get("name"), str) and field.get("kind") in KINDS
        for field in fields
    ):
        raise ValueError(f"context must be a list of fields, each with a name and a kind of {', '.join(KINDS)}")
    kinds = {field["name"]: field["kind"] for field in fields}
    if len(kinds) != len(fields):
        raise ValueError("context must have every name once")
    if not isinstance(default, dict):
        raise ValueError("default must hold parameters by name")  # noqa: TRY004  # of the file
    nodes = [("tree", policy.get("tree"))]
    while nodes:
        place, node = nodes.pop()
        if not isinstance(node, dict):
            raise ValueError(f"{place} must be a leaf or a test")  # noqa: TRY004  # of the file
        if "params" in node:
            if not isinstance(node["params"], dict) or type(node.get("leaf")) is not int:
                raise ValueError(f"{place} must have a number as leaf and parameters by name as params")
            continue
        _check_test(f"{place}.if", node.get("if"), kinds)
        nodes += [(f"{place}.{branch}", node.get(branch)) for branch in ("else", "then")]
    return policy


def _check_test(place: str, test: Any, kinds: Mapping[str, str]) -> None:
    if not isinstance(test, dict) or not isinstance(test.get("field"), str) or test["field"] not in kinds:
        raise ValueError(f"{place} must be a test of one of the fields {', '.join(kinds)}")
    most, texts = test.get("at_most", 0), test.get("in", [])
    if isinstance(most, bool) or not isinstance(most, (int, float)) or not abs(most) < math.inf:
        raise ValueError(f"{place}.at_most must be a finite number")
    if "at_most" in test and kinds[test["field"]] not in ("number", "time of day"):
        raise ValueError(f"{place}.at_most is for numbers and times of day, and {test['field']} is neither")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{place}.in must be a list of texts")
    if not isinstance(test.get("missing", False), bool):
        raise ValueError(f"{place}.missing must be true or false")  # noqa: TRY004  # of the file


def params_of(policy: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """The parameters to run in this context; the default if the context is wrong."""
    leaf = leaf_of(policy, context)
    return dict(policy["default"] if leaf is None else leaf["params"])


def leaf_of(policy: Mapping[str, Any], context: Any = None) -> dict[str, Any] | None:
    """The leaf of the tree that this context leads to; None if the context is wrong."""
    try:
        values = read_context(policy["context"], context)
    except (ValueError, OverflowError):
        return None
    return walk(policy["tree"], values)


def walk(node: dict[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """The leaf below this node that values lead to, which were read before."""
    while "params" not in node:
        node = node["then" if holds(node["if"], values[node["if"]["field"]]) else "else"]
    return node


def holds(test: Mapping[str, Any], value: Value) -> bool:
    """Whether a value passes a test: at most a number, in a list of texts, or missing."""
    if value is None:
        return bool(test.get("missing", False))
    if "at_most" in test:
        return bool(value <= test["at_most"])
    return value in test.get("in", ())


def read_context(fields: Sequence[Mapping[str, Any]], context: Any) -> dict[str, Value]:
    """The values of a context by name, given by name or in the order of the fields; else a WrongContext."""
    names = [field["name"] for field in fields]
    if context is None and not fields:
        context = {}
    if hasattr(context, "tolist"):
        context = context.tolist()
    if isinstance(context, Mapping):
        if not set(context) <= set(names):
            raise WrongContext("unknown names")
        context = [context.get(name) for name in names]
    if not isinstance(context, (list, tuple)) or len(context) != len(names):
        raise WrongContext("a context has a value for each field, by name or in order")
    return {name: read(field, value) for name, field, value in zip(names, fields, context, strict=True)}


def read(field: Mapping[str, Any], value: Any) -> Value:
    """A value of a field as tests compare it: a number (a time: seconds), a text, or None if missing."""
    kind = field["kind"]
    if hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if kind in ("time of day", "weekday") and hasattr(value, "isoformat"):
        value = value.isoformat()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        if kind == "number" and "missing" not in field:
            raise WrongContext("a required number is missing")
        return None
    if not isinstance(value, (str, Real)):
        raise WrongContext("neither a text nor a number nor true or false")
    if kind == "number":
        return _number(value)
    if kind == "time of day":
        return _seconds(value)
    if kind == "weekday":
        return _day(value)
    text = _text(value)
    if kind == "flag":
        word = text.lower() if isinstance(text, str) else ""
        if word not in YES + NO:
            raise WrongContext("not a flag")
        return "true" if word in YES else "false"
    return text


def _number(value: Any) -> float:
    if isinstance(value, str | bool) or not math.isfinite(float(value)):
        raise WrongContext("not a finite number")
    return float(value)


def _text(value: Any) -> str | float:
    """Whole numbers and booleans count as their text; any other number is a text that no test names."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    whole = abs(value) <= LARGEST_WHOLE and value == int(value)
    return str(int(value)) if whole else math.inf


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        found = MOMENT.fullmatch(value)
        if not value or found is None:
            raise WrongContext("not a time")
        if found[1]:
            date.fromisoformat(found[1])
        hour, minute, second = (int(part or 0) for part in found.group(2, 3, 4))
        if hour > 23 or minute > 59 or second > 59:
            raise WrongContext("not a time")
        return float(hour * 3600 + minute * 60 + second)
    if isinstance(value, bool) or not 0 <= value <= DAY_S:
        raise WrongContext("not a time")
    return float(value)


def _day(value: Any) -> str:
    if isinstance(value, str):
        for day in DAYS:
            if len(value) >= 3 and day.lower().startswith(value.lower()):
                return day
        _seconds(value)  # the whole text must be a moment
        found = MOMENT.fullmatch(value)
        if found is None or not found[1]:
            raise WrongContext("not a day")
        return DAYS[date.fromisoformat(found[1]).weekday()]
    if isinstance(value, bool) or value not in range(len(DAYS)):
        raise WrongContext("not a day")
    return DAYS[int(value)]
