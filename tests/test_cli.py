import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import rasp_tuner
from rasp_lab.bench import agents
from rasp_tuner.cli import app


def rasp(*words):
    return CliRunner().invoke(app, list(words))


def every_command(command, words=()):
    """All commands, subcommands and groups, as the words that call them."""
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*words, name))


COMMANDS = list(every_command(get_command(app)))


@pytest.mark.parametrize("words", ["version", "--version"])
def test_version(words):
    assert rasp(words).stdout.strip() == rasp_tuner.__version__


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_demo_prints_a_table_a_verdict_and_the_path_of_the_report(tmp_path, monkeypatch):
    from rasp_lab.real import gzip_demo

    monkeypatch.setattr(gzip_demo, "STEPS", 6)
    monkeypatch.setattr(gzip_demo, "PAIRS", 2)
    result = rasp("demo", "--seeds", "1", "--out", str(tmp_path / "a[/b]"))
    assert result.exit_code == 0, result.stderr
    simulated, real = result.stdout.split("\n\n")[-2:]
    assert re.search(r"gzip: (faster by [\d.]+%|no difference|worse)", real)
    *table, verdict, page = simulated.splitlines()
    assert page == f"{tmp_path}/a[/b]/demo/report.html"
    assert Path(page).read_text().startswith("<!doctype html>")
    assert re.match(r"T = 100: rasp (beats|LOSES to|ties with) never changing anything \(", verdict)
    assert "random search" in verdict
    assert "CMA-ES" in verdict
    mean = next(line for line in table if "geo-mean" in line)
    shown = dict(zip(re.findall(r"[\w-]+", table[2])[1:], re.findall(r"[\d.]+", mean), strict=True))
    assert set(shown) == {"static", "random", "cma-es", "rasp"}
    assert float(shown["rasp"]) == pytest.approx(float(re.search(r"\(([\d.]+) times", verdict)[1]), abs=0.006)


@pytest.mark.usefixtures("undrawn")
def test_demo_json_is_all_that_is_printed(tmp_path, monkeypatch):
    from rasp_lab.bench.report import demo
    from rasp_lab.real import gzip_demo

    monkeypatch.setattr(gzip_demo, "STEPS", 3)
    monkeypatch.setattr(gzip_demo, "PAIRS", 1)
    monkeypatch.setattr(demo, "AGENTS", ("static", "random"))
    few = [cell for cell in demo.cells(1) if cell.domain in ("1_LLM_Inference", "A1_Adversarial_Context")]
    monkeypatch.setattr(demo, "cells", lambda _seeds: few)
    result = rasp("demo", "--seeds", "1", "--out", str(tmp_path), "--json")
    data = json.loads(result.stdout)
    assert data["ratios"]["static"]["1_LLM_Inference"] == 1.0
    assert data["ratios"]["random"]["A1_Adversarial_Context"] is None  # no regret to relate to
    assert data["verdict"] == ""
    assert Path(data["report"]).is_file()
    assert data["gzip"]


def test_a_missing_extra_is_said_in_one_line_before_anything_runs(tmp_path):
    lines = ["demo", "bench", "results", "bench-report out"]
    code = f"""import sys
sys.modules["scipy"] = None
from rasp_tuner.cli import app
for line in {lines}:
    sys.argv = ["rasp", *line.split()]
    try:
        app()
    except SystemExit as end:
        print(end.code)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    said = "rasp: this command needs scipy, which is not installed: pip install 'rasp-lab'\n"
    assert (result.stdout, result.stderr) == ("1\n" * len(lines), said * len(lines))
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_cannot_be_made_is_said_in_one_line_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    result = rasp("demo", "--out", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert result.stderr.startswith("rasp: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_path_with_brackets_is_no_markup(tmp_path):
    result = rasp("bench-report", str(tmp_path / "a[/b]"))
    assert result.exit_code == 1
    assert result.stderr.startswith("rasp: ")
    assert "a[/b]" in result.stderr


@pytest.mark.parametrize("words", [("demo", "--seeds", "0"), ("demo", "--seeds", "none"), ("dmo",)])
def test_wrong_words_exit_with_two_and_a_hint(words):
    result = rasp(*words)
    assert result.exit_code == 2
    assert "Try" in result.stderr


def test_all_commands_are_found():
    assert {(), ("demo",), ("study",), ("study", "forget"), ("keys", "audit"), ("version",)} <= set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_flags_take_no_value(words):
    text = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    assert re.search(rf"Example: {' '.join(('rasp', *words))}\b", text)
    assert "--no-" not in text
    for line in text.splitlines():
        if re.search("--(json|yes|memory|page-only|version) ", line):
            assert "<bool>" not in line


@pytest.mark.parametrize(
    ("agent", "package"),
    [("botorch", "torch"), ("tpe", "optuna"), ("vw-cats", "vowpalwabbit"), ("cma-es", "cmaes")],
)
def test_a_missing_peer_is_named_with_its_extra(agent, package, monkeypatch):
    module, _, _ = agents.AGENTS[agent].partition(":")
    monkeypatch.delitem(sys.modules, f"{agents.__name__}.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    install = "rasp-lab" if agent == "cma-es" else r"rasp-lab\[peers\]"
    with pytest.raises(rasp_tuner.MissingExtra, match=rf"needs {package}, .* pip install '{install}'"):
        agents.resolve(agent)
