"""A policy as flags of flagd, so that unmodified daemons and SDKs decide by it: https://flagd.dev.

A flag is named after the study and holds all knobs; `study.knob` holds one. The targeting is the policy's tree, with
`fractional` in its leaves: flagd draws by the same hash of salt and targeting key, so that a key gets what `pick_of`
gives it, and all flags of one key agree. The variant says what ran: `3.1:0.05` is setting 1 of leaf 3, which a key gets
there with a probability of 5%; `3.0` ran without a key, so that nothing was drawn; `default`: the context is wrong.

Attributes that the policy does not know are read over. A time of day must be seconds, a weekday a name or its number. A
text in the place of a number is an error of flagd, under which the caller's own default runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.evaluate import DAY_S, DAYS, NO, WEIGHTS, YES
from rasp_tuner.policy.tree import Node, leaves_of

SCHEMA = "https://flagd.dev/schema/v0/flags.json"
TARGETING_KEY = "targetingKey"
DEFAULT = "default"
LARGEST = 1.7e308  # nearly the largest number: every finite one is at most this, a text is not

Logic = dict[str, Any]


def flagd_flags(policy: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The content of a file for flagd; `name` is that of the study."""
    for field in policy["context"]:
        if "." in field["name"]:
            raise InvalidValue(f"context {field['name']!r} has a dot in its name, which flagd takes for a path")
    kinds = {field["name"]: field["kind"] for field in policy["context"]}
    salt = (policy.get("explore") or {}).get("salt")
    variants = {DEFAULT: policy["default"], **dict(_variants(policy["tree"]))}
    right = [_is_right(field) for field in policy["context"]]
    targeting: Any = _logic(policy["tree"], kinds, salt)
    if right:
        targeting = {"if": [{"and": right}, targeting, None]}
    elif isinstance(targeting, str):
        targeting = {"if": [True, targeting]}  # targeting is an object
    values = {name: variants} | {
        f"{name}.{knob}": own
        for knob in policy["default"]
        if _one_type(own := {variant: params.get(knob) for variant, params in variants.items()})
    }
    return {
        "$schema": SCHEMA,
        "metadata": {"policy": str((policy.get("explore") or {}).get("version", "")), "study": name},
        "$evaluators": {name: targeting},
        "flags": {
            key: {"state": "ENABLED", "variants": own, "defaultVariant": DEFAULT, "targeting": {"$ref": name}}
            for key, own in values.items()
        },
    }


def _variants(tree: Node) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for leaf in leaves_of(tree):
        yield f"{leaf['leaf']}.0", leaf["params"]
        for i, one in enumerate(leaf.get("settings", ())):
            yield _drawn(leaf, i), one["params"]


def _drawn(leaf: Node, setting: int) -> str:
    return f"{leaf['leaf']}.{setting}:{leaf['settings'][setting]['weight'] / WEIGHTS:g}"


def _logic(node: Node, kinds: Mapping[str, str], salt: str | None) -> Any:
    if "params" not in node:
        parts = [_logic(node[branch], kinds, salt) for branch in ("then", "else")]
        return {"if": [_holds(node["if"], kinds[node["if"]["field"]]), *parts]}
    recommended = f"{node['leaf']}.0"
    if salt is None:
        return recommended
    bucket = {"cat": [f"{salt}/", {"var": TARGETING_KEY}]}
    shares = [[_drawn(node, i), one["weight"]] for i, one in enumerate(node["settings"])]
    return {"if": [{"var": TARGETING_KEY}, {"fractional": [bucket, *shares]}, recommended]}


def _holds(test: Mapping[str, Any], kind: str) -> Logic:
    """A test of the tree: at most a number, one of some texts, or missing."""
    value, passes = {"var": test["field"]}, list[Logic]()
    if test.get("missing"):
        passes.append(_is_missing(value))
    if "at_most" in test:
        below = {"<=": [value, test["at_most"]]}
        passes.append(below if passes else {"and": [{"!": [_is_missing(value)]}, below]})
    elif test.get("in"):
        passes.append({"in": [value, [way for text in test["in"] for way in _ways(text, kind)]]})
    return passes[0] if len(passes) == 1 else {"or": passes}


def _is_right(field: Mapping[str, Any]) -> Logic:
    """Whether the policy can read the value of a field."""
    kind, value = field["kind"], {"var": field["name"]}
    if kind == "number":
        is_number = {"<=": [value, LARGEST]}
        return {"or" if "missing" in field else "and": [_present(value, "missing" not in field), is_number]}
    if kind == "time of day":
        return {"or": [_is_missing(value), {"<=": [0, value, DAY_S]}]}
    if kind in ("flag", "weekday"):
        texts = ("true", "false") if kind == "flag" else DAYS
        return {"or": [_is_missing(value), {"in": [value, [way for text in texts for way in _ways(text, kind)]]}]}
    return {"!": [False]}


def _present(value: Logic, wanted: bool) -> Logic:
    return {"!": [_is_missing(value)]} if wanted else _is_missing(value)


def _is_missing(value: Logic) -> Logic:
    return {"===": [value, None]}


def _ways(text: str, kind: str) -> Sequence[Any]:
    """How a value that a test knows as this text may be given."""
    if kind == "flag":
        words = YES if text == "true" else NO
        cases = (str.lower, str.title, str.upper)
        return [text == "true", int(text == "true"), *dict.fromkeys(case(word) for word in words for case in cases)]
    if kind == "weekday":
        names = [text, text[:3]]
        return [*names, *(name.lower() for name in names), DAYS.index(text)]
    if text in ("true", "false"):
        return [text, text == "true"]
    whole = text.removeprefix("-")
    return [text, int(text)] if whole.isascii() and whole.isdigit() and str(int(text)) == text else [text]


def _one_type(values: Mapping[str, Any]) -> bool:
    """Whether a flag can hold these: all true or false, all numbers, or all texts."""
    kinds = {
        bool if isinstance(one, bool) else float if isinstance(one, int | float) else type(one)
        for one in values.values()
    }
    return len(kinds) == 1 and kinds <= {bool, float, str}
