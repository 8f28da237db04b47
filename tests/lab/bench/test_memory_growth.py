import json

import numpy as np
import pytest

from rasp_lab.bench import agents
from rasp_lab.bench.agents.random import RandomSearch
from rasp_lab.bench.runner import memory_growth as memory
from rasp_lab.bench.runner.memory_growth import MemoryGrowth
from rasp_lab.bench.runner.protocol import Cell


class Hoarder(RandomSearch):
    """Keeps ten KiB a step, of the last `most` steps."""

    most = 10**6

    def learn(self, _run, _loss):
        self.kept = [*getattr(self, "kept", []), np.zeros(1280)][-self.most :]


class Bounded(Hoarder):
    most = 200


@pytest.fixture(autouse=True)
def hoarders(monkeypatch):
    monkeypatch.setitem(agents.AGENTS, "hoarder", Hoarder)
    monkeypatch.setitem(agents.AGENTS, "bounded", Bounded)


def grown(agent, steps, **budget):
    return memory.growth(Cell("5_Switching_LQR", agent, 0, steps), **budget)


@pytest.mark.slow
def test_growth_is_counted_a_hundred_steps():
    assert grown("hoarder", 150) == (50, 150, pytest.approx(1000, rel=0.05))
    assert grown("hoarder", 80) == (50, 80, pytest.approx(1000, rel=0.05))
    assert grown("random", 150).kib < 20
    assert grown("random", 1)[:2] == (1, 1)


@pytest.mark.slow
def test_growth_is_counted_at_the_end_when_windows_are_full():
    assert grown("bounded", 180).kib == pytest.approx(1000, rel=0.05)  # still filling
    assert grown("bounded", 320) == (200, 320, pytest.approx(0, abs=20))
    assert grown("hoarder", 320).kib == pytest.approx(1000, rel=0.05)


def test_a_slow_agent_stops_early_but_not_before_its_windows_are_full():
    assert grown("bounded", 400, budget_s=0.0) == (200, 300, pytest.approx(0, abs=20))


def test_what_is_saved_is_what_is_loaded(tmp_path):
    assert memory.load(tmp_path) is None
    memory.save(tmp_path, "D", 100, {"a": MemoryGrowth(0, 100, 1.5)})
    assert memory.load(tmp_path) == ("D", 100, {"a": (0, 100, 1.5)})
    (tmp_path / "memory.json").write_text(json.dumps({"domain": "D", "horizon": 100, "kib_per_100_steps": {"a": 1.5}}))
    assert memory.load(tmp_path) is None  # of an older version


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again(tmp_path):
    memory.save(tmp_path, "5_Switching_LQR", 60, {"random": MemoryGrowth(50, 60, -1.5)})
    assert list(memory.measure(tmp_path, ["random", "static"], "5_Switching_LQR", 60)) == ["random", "static"]
    known = memory.load(tmp_path)[2]
    assert known["random"].kib == -1.5
    assert set(known) == {"random", "static"}
    list(memory.measure(tmp_path, ["random"], "5_Switching_LQR", 70))  # another horizon: nothing is known of it
    assert memory.load(tmp_path)[2]["random"].kib != -1.5
