import json
import re

import pytest
from typer.testing import CliRunner

import rasp_tuner
from rasp_tuner.cli import app


def rasp(*words):
    return CliRunner().invoke(app, list(words))


def test_version():
    assert rasp("version").stdout.strip() == rasp_tuner.__version__


def test_demo_prints_a_table_a_verdict_and_writes_the_plot(tmp_path):
    result = rasp("demo", "--steps", "60", "--seeds", "2", "--out", str(tmp_path / "new"))
    assert result.exit_code == 0
    for agent in ("never change anything", "random search", "RASP-Tuner, preset paper"):
        assert agent in result.stdout
    assert "The paper's stack" in result.stdout
    picture = tmp_path / "new" / "demo_regret.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_json_is_all_that_is_printed_and_adds_up(tmp_path):
    result = rasp("demo", "--steps", "50", "--seeds", "1", "--out", str(tmp_path), "--json")
    data = json.loads(result.stdout)
    ratios = {row["agent"]: row["ratio"] for row in data["rows"]}
    assert ratios["never change anything"] == 1.0
    assert ratios["random search"] > 1.0
    said = float(re.search(r"([0-9.]+) times its regret", data["verdict"]).group(1))
    assert said == pytest.approx(ratios["RASP-Tuner, preset paper"], abs=0.051)
    assert ("LOSES" in data["verdict"]) == (ratios["RASP-Tuner, preset paper"] > 1.0)


def test_an_output_folder_that_cannot_be_made_is_said_in_one_line_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    result = rasp("demo", "--out", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert result.stderr.startswith("rasp: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_odd_folder_names_are_printed_as_they_are(tmp_path):
    result = rasp("demo", "--steps", "50", "--seeds", "1", "--out", str(tmp_path / "a[/b]"))
    assert f"Plot: {tmp_path}/a[/b]/demo_regret.png" in result.stdout


@pytest.mark.parametrize("words", [("demo", "--steps", "0"), ("demo", "--seeds", "none"), ("dmo",)])
def test_wrong_words_exit_with_two_and_a_hint(words):
    result = rasp(*words)
    assert result.exit_code == 2
    assert "Try" in result.stderr


def test_every_command_shows_an_example():
    for command in app.registered_commands:
        assert f"Example: rasp {command.name}" in rasp(command.name, "--help").stdout
