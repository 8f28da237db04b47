from collections.abc import Mapping

import numpy as np
import pytest

from rasp_lab.bench import agents
from rasp_lab.bench.domains.base import ExperimentDomain, InvalidConfiguration
from rasp_lab.bench.runner.protocol import COLUMNS, Cell, plan, play
from rasp_tuner import Float, InvalidValue, Metric
from rasp_tuner.space import Space


class Line(ExperimentDomain[int]):
    """x should be 0.2; above 0.9 it cannot run."""

    name = "line"
    space = Space({"x": Float(0.0, 2.0)})
    metrics: Mapping[str, Metric] = {"m": Metric("max")}
    context_dim = 1
    delay = 0

    def build_sequence(self, horizon, seed):
        return [seed + step for step in range(horizon)]

    def context_fn(self, omega):
        return np.array([float(omega)])

    def metric_fn(self, theta, omega, rng):
        if theta[0] > 1.8:
            raise InvalidConfiguration
        return {"m": -self.true_loss(theta, omega) + rng.normal()}

    def true_loss(self, theta, omega):
        return (theta[0] - 0.4) ** 2 + omega

    def minimum(self, omega):
        return float(omega)


class Scripted:
    """Plays fixed points and writes down everything it hears."""

    def __init__(self, points):
        self.points, self.heard, self.count = points, [], 0

    def ask(self, context):
        self.count += 1
        self.heard.append(("ask", float(context[0])))
        return str(self.count - 1), np.array([self.points[self.count - 1]])

    def tell(self, id, metrics):
        self.heard.append(("tell", id, metrics["m"]))

    def tell_failed(self, id):
        self.heard.append(("failed", id))


@pytest.fixture
def scripted(monkeypatch):
    made = []

    def enter(points):
        monkeypatch.setitem(agents.AGENTS, "scripted", lambda _task, _seed: made.append(Scripted(points)) or made[-1])
        return made

    return enter


def test_regret_is_counted_in_natural_units_against_the_minimum(scripted):
    scripted([0.2, 0.5])
    rows = list(play(Cell("line", "scripted", 3, 2), Line()))
    assert [row.regret for row in rows] == pytest.approx([0.0, 0.36])
    assert [row.loss for row in rows] == pytest.approx([3.0, 4.36])
    assert [row.step for row in rows] == [0, 1]


def test_noise_depends_on_seed_and_step_alone(scripted):
    made = scripted([0.2] * 5)
    list(play(Cell("line", "scripted", 1, 5), Line()))
    list(play(Cell("line", "scripted", 1, 3), Line()))
    list(play(Cell("line", "scripted", 2, 3), Line()))
    first, again, other = ([heard[2] for heard in agent.heard if heard[0] == "tell"] for agent in made)
    assert first[:3] == again
    assert not np.allclose(np.array(first[:3]) - np.array(other), 1.0)  # the true losses differ by one, the noise too


def test_settings_that_cannot_run_are_told_as_failures(scripted):
    made = scripted([0.2, 1.0, 0.2])
    list(play(Cell("line", "scripted", 0, 3), Line()))
    assert [heard[0] for heard in made[0].heard] == ["ask", "tell", "ask", "failed", "ask", "tell"]


def test_delayed_feedback_comes_later_and_in_order(scripted):
    made = scripted([0.2] * 4)
    domain = Line()
    domain.delay = 2
    list(play(Cell("line", "scripted", 0, 4), domain))
    assert [heard[:2] if heard[0] == "tell" else heard[0] for heard in made[0].heard] == [
        "ask", "ask", "ask", ("tell", "0"), "ask", ("tell", "1"),
    ]  # fmt: skip


def test_rows_become_csv_that_reads_back_exactly(scripted):
    scripted([1 / 3])
    (row,) = play(Cell("line", "scripted", 0, 1), Line())
    values = dict(zip(COLUMNS, row.csv().split(","), strict=True))
    assert float(values["loss"]) == row.loss
    assert values["predicted"] == ""


def test_unknown_names_are_refused_before_anything_runs():
    with pytest.raises(InvalidValue, match="no agent 'tpee'"):
        list(plan(["1_LLM_Inference"], ["tpee"], 1, 10))
    with pytest.raises(InvalidValue, match="no domain 'nowhere'"):
        list(plan(["nowhere"], ["static"], 1, 10))
