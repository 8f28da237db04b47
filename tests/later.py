"""Packages that take seconds to be imported: every worker collects all tests, few run those that need them."""

from importlib import import_module
from typing import Any

import pytest


class Later:
    """A module that is imported when something of it is first used; a test that uses it skips where it is missing."""

    def __init__(self, name: str, missing: str | None = None) -> None:
        self._name, self._missing = name, missing

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks at every name of a test's module
            raise AttributeError(attribute)
        pytest.importorskip(self._name, reason=self._missing)
        return getattr(import_module(self._name), attribute)
