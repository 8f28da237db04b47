"""Agents and domains of your own, named by where they are: module:Name."""

import re
from importlib import import_module
from typing import Any

from rasp_lab.extras import requirement_of
from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue, MissingExtra


def is_import_path(name: str) -> bool:
    """Whether the name says where to import from.

    >>> is_import_path("my_package.agents:Mine"), is_import_path("cma-es")
    (True, False)
    """
    return re.fullmatch(r"\w+(\.\w+)*:\w+", name) is not None


def import_named(path: str, what: str) -> Any:
    """The object at module:Name; `what` names its role in errors."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as reason:
        if reason.name is not None and f"{module}.".startswith(f"{reason.name}."):
            raise InvalidValue(f"{what} {show(path)}: no module {reason.name!r} can be imported") from reason
        install = requirement_of(reason.name or "")
        raise MissingExtra(
            f"{what} {show(path)} needs {reason.name}, which is not installed: pip install '{install}'"
        ) from reason
    except AttributeError as reason:
        raise InvalidValue(f"{what} {show(path)}: module {module!r} has no {name!r}") from reason
