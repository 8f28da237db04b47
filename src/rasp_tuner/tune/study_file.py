"""Study files: TOML with the fields of a study; what is given on the command line takes their place."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rasp_tuner.errors import InvalidSpace

TABLES = ("knobs", "default", "metrics", "contexts", "env", "files")


def read_study_file(path: Path) -> dict[str, Any]:
    """The fields in a study file; without a name in it, the study is named after the file."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as reason:
        raise InvalidSpace(f"cannot read the study file {str(path)!r}: {reason}") from reason
    except tomllib.TOMLDecodeError as reason:
        raise InvalidSpace(f"{str(path)!r} is not TOML: {reason}") from reason
    return {"name": path.stem, **found}


def merged(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with those of the command line on top; tables are joined name by name.

    >>> merged({"steps": 10, "default": {"a": 1, "b": 2}}, {"default": {"b": 3}})
    {'steps': 10, 'default': {'a': 1, 'b': 3}}
    """
    result = dict(fields)
    for name, value in given.items():
        if name in TABLES and isinstance(result.get(name), Mapping):
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
