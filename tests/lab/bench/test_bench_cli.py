import json
import shutil

import pytest
from typer.testing import CliRunner

from rasp_lab.bench import agents
from rasp_lab.bench.report import result_page, results
from rasp_lab.bench.runner import run, timing
from rasp_lab.bench.runner.protocol import Cell
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
    assert rasp("bench-report", str(tmp_path)).exit_code == 0
    assert (tmp_path / "report.html").is_file()


@pytest.mark.usefixtures("no_rows")
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


@pytest.fixture
def no_rows(tmp_path, monkeypatch):
    """As if the repository had no page yet."""
    monkeypatch.setattr(results, "PAGE", tmp_path / "nowhere" / "RESULTS.md")


@pytest.mark.slow
@pytest.mark.usefixtures("no_rows")
def test_results_run_ours_beside_the_peers_on_file_and_a_second_time_change_nothing(tmp_path, monkeypatch):
    names = ("static", "random", "rasp")
    domains = ("1_LLM_Inference", "W_Near")
    plan = [Cell(domain, name, 1, 20) for domain in domains for name in names]
    monkeypatch.setattr(agents, "AGENTS", {name: agents.AGENTS[name] for name in names})
    monkeypatch.setattr(results, "AGENTS", agents.AGENTS)
    monkeypatch.setattr(results, "plan", lambda _seeds: plan)
    monkeypatch.setattr(results, "OF_ENGINE", ("rasp",))
    monkeypatch.setattr(timing, "STEPS", 20)
    monkeypatch.setattr(timing.measure, "__defaults__", (20,))
    words = ("results", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path / "out"), "--markdown")
    target = str(tmp_path / "docs" / "RESULTS.md")
    result = rasp(*words, target, "--peers")
    assert result.exit_code == 0, result.stderr
    folder = tmp_path / "docs" / result_page.FOLDER
    page = (tmp_path / "docs" / "RESULTS.md").read_text()
    assert "## Missing" not in page
    assert "\nrandom,20," in (folder / "step-time-domain.csv").read_text()

    def files():
        return {file.name: file.read_bytes() for file in (tmp_path / "docs").rglob("*.*")}

    first = files()
    shutil.rmtree(tmp_path / "out" / "cells")  # what is on file is enough
    assert rasp(*words, target).exit_code == 0
    assert files() == first
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(origin, "engine_hash", lambda _root=None: "another")
    ran = []
    monkeypatch.setattr(run, "run_cell", lambda cell, own, usual=run.run_cell: (ran.append(cell), usual(cell, own))[1])
    assert rasp(*words, target).exit_code == 0
    assert {cell.agent for cell in ran} == {"rasp"}
    assert (folder / "ratios-100.csv").exists() == ("ratios-100.csv" in first)


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
        ("bench-report", str(tmp_path / "nowhere")),
    ):
        result = rasp(*words)
        assert result.exit_code == 1, words
        assert result.stderr.splitlines()[-1].startswith("rasp: ")
        assert "Traceback" not in result.stderr
