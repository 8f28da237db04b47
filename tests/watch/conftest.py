"""Fixtures of the tests of `rasp watch`."""

import pytest
from watch_running import World


@pytest.fixture
def world(tmp_path, caplog):
    """A system, its Prometheus and a folder."""
    caplog.set_level("INFO", "rasp_tuner.watch")
    found = World(tmp_path)
    yield found
    found.prometheus.close()
