import json

import pytest
from typer.testing import CliRunner

from rasp_lab.bench import agents
from rasp_lab.bench.report import result_page, results
from rasp_lab.bench.runner import run
from rasp_lab.pages import origin
from rasp_tuner.cli import app


def rasp(*words):
    return CliRunner().invoke(app, list(words))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_bench_then_report(tmp_path):
    options = ("--agents", "static,random", "--seeds", "2", "--horizon", "20", "--jobs", "1")
    words = ("bench", *options, "--out", str(tmp_path))
    result = rasp(*words)
    assert result.exit_code == 0, result.stderr
    assert "Regret relative to the static default, T = 20" in result.stdout
    assert (
        (tmp_path / "steps.csv")
        .read_text()
        .startswith("domain,agent,horizon,seed,step,regime,loss,regret,ask_ms,tell_ms")
    )
    assert json.loads((tmp_path / "summary.json").read_text())["T20"]["geometric_mean"]["static"] == 1.0
    assert json.loads(rasp(*words, "--json").stdout) == json.loads((tmp_path / "summary.json").read_text())
    assert rasp("report", str(tmp_path)).exit_code == 0
    assert (tmp_path / "report.html").is_file()


@pytest.mark.usefixtures("undrawn")
def test_results_from_what_is_finished(tmp_path):
    plan = [cell for cell in results.plan(1) if cell.agent == "static" and cell.horizon == 100]
    run.run_plan(plan, tmp_path / "out")
    words = ("results", "--seeds", "1", "--out", str(tmp_path / "out"), "--page-only")
    result = rasp(*words, "--markdown", str(tmp_path / "page.md"))
    assert result.exit_code == 0, result.stderr
    assert f"Markdown: {tmp_path / 'page.md'}" in result.stdout
    assert "- T = 1,000, `static`: all 12 runs" in (tmp_path / "page.md").read_text()
    assert rasp(*words).exit_code == 0
    assert (tmp_path / "out" / "RESULTS.md").read_text() == (tmp_path / "page.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_results_runs_the_plan_and_measures_step_times_and_memory(tmp_path, monkeypatch):
    domains = ("1_LLM_Inference", "H1_Recurring_Regimes")
    plan = [cell for cell in results.plan(1) if cell.domain in domains and cell.agent == "static"]
    monkeypatch.setattr(agents, "AGENTS", {"static": agents.AGENTS["static"]})
    monkeypatch.setattr(results, "AGENTS", agents.AGENTS)
    monkeypatch.setattr(results, "plan", lambda _seeds: plan)
    result = rasp("results", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "RESULTS.md").read_text()
    assert "## Missing" not in page
    folder = tmp_path / result_page.FOLDER
    assert "\nstatic,1100,1200," in (folder / "memory.csv").read_text()
    assert "\nstatic,500," in (folder / "step-time-domain.csv").read_text()
    with pytest.MonkeyPatch.context() as patch:  # the same page again, from its tables alone
        patch.setattr(origin, "head", lambda _page: page.split("\n\n")[1])
        assert rasp("results", "--out", str(tmp_path), "--tables-only").exit_code == 0
    assert (tmp_path / "RESULTS.md").read_text() == page
    assert json.loads((tmp_path / "timing.json").read_text())["steps"] == 500


def test_settings_of_an_agent_are_shown_as_they_are(tmp_path):
    agent = "rasp-paper[top_k=1]"
    words = ("bench", "--suite", "beyond", "--agents", agent, "--seeds", "1", "--horizon", "3", "--jobs", "1")
    said = rasp(*words, "--out", str(tmp_path)).stdout
    assert agent in said
    assert "add static to --agents" in said


def test_agents_are_listed():
    names = rasp("bench", "--agents", "list").stdout.split()
    assert {"static", "random", "cma-es", "gp-ucb", "rasp", "rasp-paper", "ra-gd"} <= set(names)


def test_mistakes_are_said_in_one_line(tmp_path):
    for words in (
        ("bench", "--suite", "nope", "--out", str(tmp_path)),
        ("bench", "--agents", "nobody", "--out", str(tmp_path)),
        ("bench", "--engine", "abacus", "--out", str(tmp_path)),
        ("bench", "--jobs", "0", "--out", str(tmp_path)),
        ("report", str(tmp_path / "nowhere")),
        ("results", "--page-only", "--out", str(tmp_path / "nowhere")),
    ):
        result = rasp(*words)
        assert result.exit_code == 1, words
        assert result.stderr.splitlines()[-1].startswith("rasp: ")
        assert "Traceback" not in result.stderr
