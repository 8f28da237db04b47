import numpy as np
import pytest

from rasp_tuner.bench import agents, memory
from rasp_tuner.bench.agents.random import RandomSearch
from rasp_tuner.bench.protocol import Cell


class Hoarder(RandomSearch):
    """Keeps ten KiB a step."""

    def learn(self, _run, _loss):
        self.kept = [*getattr(self, "kept", []), np.zeros(1280)]


def test_growth_is_counted_a_hundred_steps(monkeypatch):
    monkeypatch.setitem(agents.AGENTS, "hoarder", Hoarder)
    assert memory.growth(Cell("5_Switching_LQR", "hoarder", 0, 150)) == pytest.approx(1000, rel=0.05)
    assert memory.growth(Cell("5_Switching_LQR", "random", 0, 150)) < 20


def test_what_is_saved_is_what_is_loaded(tmp_path):
    assert memory.load(tmp_path) is None
    memory.save(tmp_path, "D", 100, {"a": 1.5})
    assert memory.load(tmp_path) == ("D", 100, {"a": 1.5})


def test_what_was_measured_is_not_measured_again(tmp_path):
    memory.save(tmp_path, "5_Switching_LQR", 60, {"random": -1.5})
    assert list(memory.measure(tmp_path, ["random", "static"], "5_Switching_LQR", 60)) == ["random", "static"]
    known = memory.load(tmp_path)[2]
    assert known["random"] == -1.5
    assert set(known) == {"random", "static"}
    list(memory.measure(tmp_path, ["random"], "5_Switching_LQR", 70))  # another horizon: nothing is known of it
    assert memory.load(tmp_path)[2]["random"] != -1.5
