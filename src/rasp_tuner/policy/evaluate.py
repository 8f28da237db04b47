"""The parameters that an exported policy gives in a context. This file needs nothing else: copy it where you need it.

    policy = load("policy.json")
    params = params_of(policy, {"qps": 420, "region": "eu"})

A policy that explores (docs/EDGE.md) has several settings in a leaf; whoever asks has a key, as the id of a user, and
the same key gets the same setting for as long as the policy stays:

    pick = pick_of(policy, {"qps": 420, "region": "eu"}, "user-17")
    run(pick.params)

A context that is wrong gets the default: a name that the policy does not know, a required number that is missing, a
value of another kind. docs/POLICY.md has the format. policy.mjs and policy.c in examples/policy give the same answers.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from numbers import Real
from typing import Any, NamedTuple

DAY_S = 86_400
KINDS = ("number", "flag", "category", "name", "time of day", "weekday")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
WEIGHTS = 10_000  # that the settings of a leaf have together: a weight of 500 is a probability of 5%
MOST_SETTINGS = 8  # in a leaf
LARGEST_WHOLE = 2**53  # up to which every whole number has digits that all languages agree on
MOMENT = re.compile(  # a date, a time of day or both; the zone is read over
    r"(?:([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ](?=.)|$))?"
    r"(?:([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


class WrongContext(ValueError):
    """A context that the policy cannot read."""


class Pick(NamedTuple):
    """What one key runs in one context."""

    params: dict[str, Any]
    leaf: int  # -1: the context is wrong, and the default runs
    setting: int  # its place in the leaf; 0: what is recommended there
    probability: float | None  # with which a key gets this setting here; None where nothing was drawn
    version: str | None = None  # of the policy; None of one that does not explore


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
    explore = policy.get("explore")
    if explore is not None and not (
        isinstance(explore, dict) and isinstance(explore.get("salt"), str) and isinstance(explore.get("version"), str)
    ):
        raise ValueError("explore must have a salt and a version, each a text")
    nodes = [("tree", policy.get("tree"))]
    while nodes:
        place, node = nodes.pop()
        if not isinstance(node, dict):
            raise ValueError(f"{place} must be a leaf or a test")  # noqa: TRY004  # of the file
        if "params" in node:
            if not isinstance(node["params"], dict) or type(node.get("leaf")) is not int:
                raise ValueError(f"{place} must have a number as leaf and parameters by name as params")
            if explore is not None:
                _check_settings(place, node.get("settings"))
            continue
        _check_test(f"{place}.if", node.get("if"), kinds)
        nodes += [(f"{place}.{branch}", node.get(branch)) for branch in ("else", "then")]
    return policy


def _check_settings(place: str, settings: Any) -> None:
    if not isinstance(settings, list) or not 1 <= len(settings) <= MOST_SETTINGS:
        raise ValueError(f"{place}.settings must be a list of 1 to {MOST_SETTINGS} settings")
    for i, one in enumerate(settings):
        if not isinstance(one, dict) or not isinstance(one.get("params"), dict) or type(one.get("weight")) is not int:
            raise ValueError(f"{place}.settings[{i}] must have params by name, and a whole number as weight")
    if min(one["weight"] for one in settings) < 0 or sum(one["weight"] for one in settings) != WEIGHTS:
        raise ValueError(f"{place}.settings must have weights of 0 or more that sum to {WEIGHTS}")


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


def pick_of(policy: Mapping[str, Any], context: Any = None, key: Any = None) -> Pick:
    """What this key runs in this context. Without a key, and if the policy does not explore: what is recommended."""
    leaf, version = leaf_of(policy, context), (policy.get("explore") or {}).get("version")
    if leaf is None:
        return Pick(dict(policy["default"]), -1, 0, None, version)
    name = _text(key) if isinstance(key, (str, Real)) else None
    if version is None or not isinstance(name, str):
        return Pick(dict(leaf["params"]), leaf["leaf"], 0, None, version)
    bucket, setting = bucket_of(policy["explore"]["salt"], name), 0
    while bucket >= leaf["settings"][setting]["weight"]:  # weights sum to WEIGHTS, so that one of them holds the bucket
        bucket -= leaf["settings"][setting]["weight"]
        setting += 1
    one = leaf["settings"][setting]
    return Pick(dict(one["params"]), leaf["leaf"], setting, one["weight"] / WEIGHTS, version)


def bucket_of(salt: str, key: str) -> int:
    """0 to 9,999, the same for a key wherever it is computed; as if drawn at random for each salt."""
    text = f"{salt}/{key}"
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half of a character, which other languages can have in a text
        data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return murmur3(data) * WEIGHTS >> 32


def murmur3(data: bytes) -> int:
    """MurmurHash3 of 32 bits with seed 0: small, known to spread well, and what flagd draws by."""
    h, whole = 0, len(data) & ~3
    for at in range(0, len(data), 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        h ^= (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF
        if at < whole:
            h = (h << 13 | h >> 19) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


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
