"""A policy as a table in C, for examples/policy/policy.c: a header with constants only."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.tree import Node, leaves_of

KINDS = {
    "number": "NUMBER",
    "flag": "FLAG",
    "category": "TEXT",
    "name": "TEXT",
    "time of day": "TIME",
    "weekday": "WEEKDAY",
}


def c_table(policy: Mapping[str, Any], name: str = "policy") -> str:
    """The text of a header that defines `static const policy_table NAME`."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InvalidValue(f"name must be a name in C, got {show(name)}")
    fields, knobs = policy["context"], list(policy["knobs"])
    lists: list[str] = []
    nodes: list[str] = []
    places = {field["name"]: i for i, field in enumerate(fields)}

    def add(node: Node) -> int:
        at = len(nodes)
        nodes.append("")
        if "params" in node:
            nodes[at] = f"{{{node['leaf']}, 0, 0, 0, 0.0, 0, 0, 0}}"
            return at
        test = node["if"]
        texts = f"{name}_table_in_{len(lists)}"
        if "at_most" not in test:
            lists.append(f"static const char *const {texts}[] = {{{_joined([*map(_text, test.get('in', ())), '0'])}}};")
        numbers = "1, " + _number(test["at_most"]) + ", 0" if "at_most" in test else f"0, 0.0, {texts}"
        missing = int(test.get("missing", False))
        nodes[at] = f"{{-1, {places[test['field']]}, {missing}, {numbers}, {add(node['then'])}, {add(node['else'])}}}"
        return at

    add(policy["tree"])
    leaves = list(leaves_of(policy["tree"]))
    rows = [*(leaf["params"] for leaf in leaves), policy["default"]]
    explore, own = "0, 0, 0, 0, 0", list[str]()
    if policy.get("explore") is not None:
        settings = [leaf["settings"] for leaf in leaves]
        every = [one for some in settings for one in some]
        starts = [sum(map(len, settings[:i])) for i in range(len(settings) + 1)]
        names = [f"{name}_table_{part}" for part in ("settings_at", "weights", "settings")]
        own = [
            _array("int", names[0], map(str, starts)),
            _array("int", names[1], (str(one["weight"]) for one in every)),
            _array("policy_value", names[2], (_value(one["params"], knob) for one in every for knob in knobs)),
        ]
        explore = _joined([*(_text(policy["explore"][key]) for key in ("version", "salt")), *names])
    return "\n".join(
        [
            "/* A policy of RASP-Tuner (docs/POLICY.md); include policy.h first. */",
            *lists,
            _array("policy_field", f"{name}_table_fields", [*map(_field, fields)] or ["{0, POLICY_OF_NUMBER, 0}"]),
            _array("char *const", f"{name}_table_knobs", map(_text, knobs)),
            _array("policy_node", f"{name}_table_nodes", nodes),
            _array("policy_value", f"{name}_table_params", (_value(row, knob) for row in rows for knob in knobs)),
            *own,
            f"static const policy_table {name} = {{{len(fields)}, {len(knobs)}, {len(leaves)}, {name}_table_fields,"
            f" {name}_table_knobs, {name}_table_nodes, {name}_table_params, {explore}}};",
            "",
        ]
    )


def _array(kind: str, name: str, items: Iterable[str]) -> str:
    return f"static const {kind} {name}[] = {{\n    " + ",\n    ".join(items) + "};"


def _joined(items: Iterable[str]) -> str:
    return ", ".join(items)


def _field(field: Mapping[str, Any]) -> str:
    required = int(field["kind"] == "number" and "missing" not in field)
    return f"{{{_text(field['name'])}, POLICY_OF_{KINDS[field['kind']]}, {required}}}"


def _value(params: Mapping[str, Any], knob: str) -> str:
    if knob not in params:
        return "{POLICY_ABSENT, 0.0, 0}"
    value = params[knob]
    if value is None:
        return "{POLICY_NULL, 0.0, 0}"
    if isinstance(value, str):
        return f"{{POLICY_TEXT, 0.0, {_text(value)}}}"
    return f"{{POLICY_{'BOOL' if isinstance(value, bool) else 'NUMBER'}, {_number(value)}, 0}}"


def _number(value: float) -> str:
    if float(value) != value:
        raise InvalidValue(f"a number in C is a double, which cannot hold {show(value)}")
    return repr(float(value))


def _text(text: str) -> str:
    """A text in UTF-8 as a constant; all but plain characters in octal, which unlike \\x ends after three digits.

    >>> print(_text('a"é'))
    "a\\042\\303\\251"
    """
    if "\0" in text:
        raise InvalidValue(f"a text in C cannot hold a character 0, got {show(text)}")
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:;/()[] #"
    raw = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(byte) if chr(byte) in plain else f"\\{byte:03o}" for byte in raw) + '"'
