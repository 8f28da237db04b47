"""Shared settings and builders of the test suite. RASP_TEST_EXAMPLES=1000 looks longer for counterexamples."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=int(os.environ.get("RASP_TEST_EXAMPLES", "60"))
)
settings.load_profile("suite")

# Tests start many servers and commands: without stored bytecode each compiles all of our files first.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

np.seterr(all="raise", under="ignore")  # an overflow or an invalid operation inside the library is a failure


@pytest.fixture(scope="module", autouse=True)
def modules_are_no_garbage():
    """Every collection would look at all that PyTorch, Ray and others have imported, which takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are built but not rendered, which takes seconds a page: for tests that read its words."""
    figure = pytest.importorskip("matplotlib.figure")

    def save(_figure, file, **_):
        (file.write if hasattr(file, "write") else Path(file).write_bytes)(b"picture")

    monkeypatch.setattr(figure.Figure, "savefig", save)
