"""What other commands do with the folder of a study, and small slips on the command line."""

import subprocess
import sys

import pytest
from tune_running import rasp
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.tune import tune


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study of two inputs."""
    place = tmp_path_factory.mktemp("study")
    tune(
        lambda x, input: 1.0 + (x if input == "small" else 9 - x), {"x": "int:0..9"}, {"cost": "min"}, default={"x": 5},
        inputs=["small", "large"], steps=30, final=0, out=place, quiet=True,
    )  # fmt: skip
    return place


def shown(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    return done.output


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize("file", ["", "journal.jsonl", "tuner.rasp"])
def test_a_study_is_shown_by_its_folder_with_the_names_of_its_inputs(command, file, folder):
    said = shown(command, folder / file if file else folder)
    assert "small" in said
    assert "large" in said
    assert "#" not in said.replace("#1", "")


def test_texts_of_a_journal_that_is_of_another_study_are_left_out(folder, tmp_path):
    for name in ("tuner.rasp", "journal.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes().replace(b'"kinds": {"input"', b'"kinds": {"other"'))
    assert "#" in shown("show", tmp_path)
    (tmp_path / "journal.jsonl").write_text("garbage\n")
    assert "#" in shown("show", tmp_path)


@pytest.mark.parametrize(("said", "meant"), [("--runs", "--steps"), ("--trials=40", "--steps"), ("--param", "--knob")])
def test_a_word_of_other_tools_is_answered_with_ours(said, meant, tmp_path):
    done = rasp("--knob", "x=int:0..9", said, "40", "--", "echo", "{x}", cwd=tmp_path, code=2)
    assert meant in done.stderr
    assert "--dry-run" not in done.stderr


def test_a_reader_that_leaves_is_no_error(folder):
    """As `rasp doctor | head -1`."""
    command = [sys.executable, "-m", "rasp_tuner", "doctor", *[str(folder / "journal.jsonl")] * 300]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"BAD")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
