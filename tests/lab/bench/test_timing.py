import time
from types import SimpleNamespace

import pytest

from rasp_lab.bench import agents
from rasp_lab.bench.agents.random import RandomSearch
from rasp_lab.bench.runner import timing
from rasp_lab.bench.runner.protocol import Cell

DOMAIN = "5_Switching_LQR"


class Sleeper(RandomSearch):
    """Needs two milliseconds a step."""

    def learn(self, _run, _loss):
        time.sleep(2e-3)


@pytest.fixture(autouse=True)
def sleeper(monkeypatch):
    monkeypatch.setitem(agents.AGENTS, "sleeper", Sleeper)


def cells(*names, steps=20):
    return [Cell(DOMAIN, name, 0, steps) for name in names]


def test_agents_take_turns():
    turns = [(agent, len(took)) for agent, took in timing.in_turns(cells("static", "random", steps=7), turn=3)]
    assert turns == [("static", 3), ("random", 3), ("static", 3), ("random", 3), ("static", 1), ("random", 1)]


def test_an_agent_that_has_spent_its_seconds_stops_and_the_others_go_on(monkeypatch):
    steps_ms = {"static": 0.5, "sleeper": 1000.0}  # made up: a busy machine would slow either

    def play(cell):
        return iter([SimpleNamespace(ask_ms=steps_ms[cell.agent], tell_ms=1.0)] * cell.horizon)

    monkeypatch.setattr(timing, "play", play)
    took = {"static": [], "sleeper": []}
    for agent, fresh in timing.in_turns(cells("static", "sleeper", steps=40), turn=5, budget_s=6.0):
        took[agent] += fresh
    assert took == {"static": [1.5] * 40, "sleeper": [1001.0] * 10}


def test_what_is_measured_is_kept_with_the_steps_it_took(tmp_path):
    went = list(timing.measure(tmp_path, {DOMAIN: ["static", "sleeper"]}, 20))
    assert sum(steps for _, steps in went) == 40
    times = timing.load(tmp_path)[DOMAIN]
    assert [t.steps for t in times.values()] == [20, 20]
    assert 0.0 < times["sleeper"].median_ms <= times["sleeper"].p99_ms < 2.0  # processor time: who sleeps takes none


def test_a_domain_is_timed_in_one_sitting_and_once(tmp_path):
    old = timing.StepTimes(20, -1.0, -1.0, -1.0)
    timing.save(tmp_path, 20, {DOMAIN: {"static": old}, "D": {"x": old}})
    assert sum(steps for _, steps in timing.measure(tmp_path, {DOMAIN: ["static"]}, 20)) == 20
    assert timing.load(tmp_path)[DOMAIN]["static"] == old
    list(timing.measure(tmp_path, {DOMAIN: ["static", "random"]}, 20))  # one is missing: all are timed side by side
    assert timing.load(tmp_path)[DOMAIN]["static"] != old
    assert timing.load(tmp_path)["D"] == {"x": old}
    list(timing.measure(tmp_path, {DOMAIN: ["static"]}, 10))  # other steps: nothing is known of them
    assert [t.steps for t in timing.load(tmp_path)[DOMAIN].values()] == [10]


def test_nothing_is_known_of_a_new_folder(tmp_path):
    assert timing.load(tmp_path) == {}


def test_the_plan_has_every_agent_and_a_stream_for_those_of_the_claim():
    wanted = timing.plan(["static", "rasp", "gp-ucb"])
    assert list(wanted.values()) == [["static", "rasp", "gp-ucb"], ["rasp", "gp-ucb"]]
