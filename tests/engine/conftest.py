"""Both kernels, for tests that go through a family."""

import pytest

from rasp_tuner.engine.kernel import native


@pytest.fixture(params=["arrays", "compiled"])
def kernel(request, monkeypatch):
    """The kernel of every quadratic family that is made or restored."""
    if request.param == "arrays":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip(f"the native kernel is {native.why_not()}")
    return request.param
