"""Texts of files and servers reach a terminal without their escape sequences, by one function."""

import ast
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rasp_lab
import rasp_tuner
from rasp_tuner import Categorical, Metric, Tuner
from rasp_tuner.base.terminal_log import PrintableFormatter
from rasp_tuner.cli import app
from rasp_tuner.cli.common import complain, echo

CLEAR, TITLE, TURNED = "\x1b[2J", "\x1b]0;owned\x07", "\u202e"
CODEC = f"lz4{CLEAR}\nforged line"
SPACE = {f"codec{TITLE}": Categorical([CODEC, "zstd"]), "b": Categorical([f"x{TURNED}\x9b31m", "y"])}

OTHERS = ("print", "typer.echo", "typer.secho", "click.echo", "logging.basicConfig")


@pytest.fixture
def saved(tmp_path):
    default = {name: knob.choices[0] for name, knob in SPACE.items()}
    tuner = Tuner(SPACE, {f"ms{CLEAR}": Metric("min")}, ["qps"], default)
    for step in range(12):
        asked = tuner.ask({"qps": 1.0})
        if step == 3:
            tuner.tell_failed(asked.id, f"crashed{TITLE}\nforged line")
        else:
            tuner.tell(asked.id, {f"ms{CLEAR}": 1.0 + step})
    tuner.save(tmp_path / "run.rasp")
    return tmp_path / "run.rasp"


def escapes(text):
    return sorted({c for c in text if not c.isprintable()} - {"\n"})


@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["export"]])
def test_a_file_cannot_command_the_terminal(saved, words, tmp_path):
    command, *flags = words
    extra = [str(tmp_path / "policy.json")] if command == "export" else []
    shown = CliRunner().invoke(app, [command, str(saved), *extra, *flags])
    assert shown.exit_code == 0, shown.output
    assert escapes(shown.output) == []
    if words == ["show"]:
        assert "lz4\\x1b[2J forged line" in shown.output
        assert not any(line.strip().startswith("forged") for line in shown.output.splitlines())


def test_tables_in_a_session_of_python_are_as_safe(saved):
    tuner = Tuner.load(saved)
    for text in (str(tuner.history()), repr(tuner), str(tuner.situations()), tuner.explain(tuner.ask({"qps": 1.0}).id)):
        assert escapes(str(text)) == []


def test_log_lines_are_escaped():
    record = logging.LogRecord("x", logging.INFO, "", 1, "left in place: %s", (CODEC,), None)
    assert PrintableFormatter("%(message)s").format(record) == "left in place: lz4\\x1b[2J\nforged line"


def test_errors_and_lines_are_escaped(capsys):
    complain(ValueError(f"no file {CLEAR}\nforged"))
    echo(f"one{TITLE}\ntwo")
    said = capsys.readouterr()
    assert said.err == "rasp: no file \\x1b[2J forged\n"
    assert said.out == "one\\x1b]0;owned\\x07\ntwo\n"


@pytest.mark.parametrize("package", [rasp_tuner, rasp_lab])
def test_no_command_prints_by_another_function(package):
    cli = Path(package.__file__).parent / "cli"
    found = [
        f"{file.name}:{node.lineno}"
        for file in cli.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in OTHERS
    ]
    assert len(found) == (1 if package is rasp_tuner else 0), found
