"""Options of the command line: they take the place of what a study file says."""

from collections.abc import Mapping
from typing import Any

STUDY_TABLES = ("knobs", "default", "metrics", "contexts", "env", "files")


def merged(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with those of the command line on top; tables are joined name by name.

    >>> merged({"steps": 10, "default": {"a": 1, "b": 2}}, {"default": {"b": 3}})
    {'steps': 10, 'default': {'a': 1, 'b': 3}}
    """
    result = dict(fields)
    for name, value in given.items():
        if name in STUDY_TABLES and isinstance(result.get(name), Mapping):
            result[name] = {**result[name], **value}
        else:
            result[name] = value
    if "call" in given:
        for other in ("command", "shell"):
            result.pop(other, None)
    elif "command" in given:
        result.pop("call", None)
        if isinstance(result.get("shell"), str):
            result.pop("shell")
    return result
