"""Agents and domains of one's own, from Python and from the command line; and domains made harder by name."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rasp_lab.bench import agents, domains
from rasp_lab.bench.agents.base import ScalarAgent
from rasp_lab.bench.analysis.metrics import geometric_means, load
from rasp_lab.bench.domains.beyond import adversarial_offcentre
from rasp_lab.bench.domains.wrappers import Delayed, Outliers
from rasp_lab.bench.runner import run, suites
from rasp_lab.bench.runner.protocol import Cell, plan, play
from rasp_tuner import InvalidValue
from rasp_tuner.cli import app

MINE = """
from rasp_lab.bench.agents.base import ScalarAgent
from rasp_lab.bench.domains.beyond import adversarial_offcentre as Stream


class Corner(ScalarAgent):
    def __init__(self, task, seed, *, at=0.0):
        super().__init__(task, seed)
        self.at = at

    def suggest(self, context):
        return self.task.default * 0 + self.at

    def learn(self, run, loss):
        pass
"""


class Middle(ScalarAgent):
    def suggest(self, _context):
        return np.full(self.dim, 0.5)

    def learn(self, run, loss):
        pass


@pytest.fixture
def registries(monkeypatch):
    monkeypatch.setattr(agents, "AGENTS", dict(agents.AGENTS))
    monkeypatch.setattr(domains, "DOMAINS", dict(domains.DOMAINS))


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mine_here.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield "mine_here"
    sys.modules.pop("mine_here", None)


def regrets(path):
    return {(r.domain, r.agent): r.totals.tolist() for r in load(path)}


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_registered_here_runs_in_other_processes_too(tmp_path, jobs):
    agents.register("middle", Middle)
    domains.register("mine", adversarial_offcentre)
    cells = list(plan(["mine"], ["middle", "static"], 2, 5))
    found = regrets(run.run_plan(cells, tmp_path, jobs=jobs))
    assert found["mine", "middle"] == found["mine", "static"]


@pytest.mark.usefixtures("registries")
def test_the_example_in_the_docs_runs(capsys):
    docs = (Path(__file__).parents[3] / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")
    exec(docs.split("```python\n")[1].split("```")[0], {"__name__": "docs"})  # noqa: S102 - the documentation's own code
    static, slow, fast = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert slow < static < fast


@pytest.mark.usefixtures("registries")
def test_a_taken_name_is_refused():
    with pytest.raises(InvalidValue, match="exists already"):
        agents.register("static", Middle)
    for name in ("6_Smooth_Quadratic", "a+b"):
        with pytest.raises(InvalidValue, match="needs a new name without"):
            domains.register(name, adversarial_offcentre)


def test_the_command_imports_agents_and_domains_from_this_folder(tmp_path, module):
    names = f"static,{module}:Corner,{module}:Corner[at=0.5]"
    words = ("--domains", f"{module}:Stream", "--agents", names, "--seeds", "1", "--horizon", "4", "--out", "out")
    result = CliRunner().invoke(app, ["bench", *words, "--jobs", "2"])
    assert result.exit_code == 0, result.stderr
    found = regrets(tmp_path / "out" / "steps.csv")
    stream = f"{module}:Stream"
    assert found[stream, f"{module}:Corner[at=0.5]"] == found[stream, "static"]
    assert found[stream, f"{module}:Corner"] > found[stream, "static"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:Agent", "no module 'nowhere_at_all' can be imported"),
        ("rasp_tuner:Agent", "module 'rasp_tuner' has no 'Agent'"),
        ("two words:Agent", "your own as module:Factory"),
        ("cma-es[sigma=0.3]", r"agent 'cma-es' has no setting 'sigma'; it has \['composed'\]"),
        ("warm-cma-es[sigma=0.3]", r"agent 'warm-cma-es' has no setting 'sigma'; it has none"),
        ("gp-ucb[kapa=0.3]", r"agent 'gp-ucb' has no setting 'kapa'; it has \['kappa', 'composed'\]"),
    ],
)
def test_mistakes_in_a_name_are_found_before_anything_runs(name, message):
    with pytest.raises(InvalidValue, match=message):
        list(plan(["6_Smooth_Quadratic"], [name], 1, 10))


def test_settings_reach_the_agent():
    task = adversarial_offcentre().task()
    assert agents.create("gp-ucb[kappa=0.3]", task, 0).kappa == 0.3


def test_several_settings_survive_the_command_and_the_table(tmp_path):
    agent = "rasp-paper[top_k=1,kappa=0.5]"
    words = ("--suite", "beyond", "--agents", f"static,{agent}", "--seeds", "1", "--horizon", "3", "--jobs", "1")
    result = CliRunner().invoke(app, ["bench", *words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    assert ("H1_Recurring_Regimes", agent) in regrets(tmp_path / "steps.csv")


def test_several_suites_make_one_plan():
    both = suites.cells("beyond,streams", ["static"], 2)
    assert both == suites.cells("beyond", ["static"], 2) + suites.cells("streams", ["static"], 2)


def test_a_name_says_how_a_domain_is_made_harder():
    domain = domains.create("6_Smooth_Quadratic+outliers+delay=3")
    assert isinstance(domain, Delayed)
    assert isinstance(domain.inner, Outliers)
    assert domain.delay == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("A2_Adversarial_Offcentre+fog", "no way to make a domain harder is called 'fog'; there are"),
        ("A2_Adversarial_Offcentre+outliers=3", "outliers takes no value"),
        ("A2_Adversarial_Offcentre+delay=soon", "a number as in delay=5"),
        ("A2_Adversarial_Offcentre+noise=-1", "factor"),
        ("fog+outliers", "no domain 'fog'"),
    ],
)
def test_an_unknown_way_is_refused(name, message):
    with pytest.raises(InvalidValue, match=message):
        list(plan([name], ["static"], 1, 10))


def test_harder_domains_have_a_geometric_mean_of_their_own(tmp_path):
    cells = suites.cells("paper", ["static", "random"], 1, 10, harder="outliers")
    runs = load(run.run_plan(cells, tmp_path))
    assert {r.domain.partition("+")[2] for r in runs} == {"outliers"}
    assert geometric_means(runs, 10)["static"] == 1.0


def test_forecasts_are_paired_with_answers_that_come_late():
    rows = list(play(Cell("A2_Adversarial_Offcentre+delay=3", "rasp", 0, 12)))
    assert [row.step for row in rows] == list(range(12))
    assert [row.error is None for row in rows] == [False] * 9 + [True] * 3
    assert all(row.predicted is not None for row in rows[6:])  # the first forecasts need three answers
