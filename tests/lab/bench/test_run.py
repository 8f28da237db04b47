import csv
import os
import signal
import subprocess
import sys
import time

import pytest

from rasp_lab.bench.runner import run
from rasp_lab.bench.runner.protocol import Cell, plan

CELLS = list(plan(["5_Switching_LQR", "A1_Adversarial_Context"], ["static", "random", "cma-es", "rasp"], 2, 30))


def losses(path):
    """Every column but the times."""
    with path.open() as file:
        return [(r["domain"], r["agent"], r["seed"], r["step"], r["loss"], r["regret"]) for r in csv.DictReader(file)]


@pytest.mark.slow
def test_two_runs_and_two_processes_give_the_same_losses(tmp_path):
    one = losses(run.run_plan(CELLS, tmp_path / "one"))
    assert len(one) == len(CELLS) * 30
    assert losses(run.run_plan(CELLS, tmp_path / "again")) == one
    assert losses(run.run_plan(CELLS, tmp_path / "two", jobs=2)) == one


def test_finished_cells_are_not_run_again(tmp_path):
    half = CELLS[: len(CELLS) // 2]
    run.run_plan(half, tmp_path)
    marks = {file: file.stat().st_mtime_ns for file in (tmp_path / "cells").iterdir()}
    ran = []
    run.run_plan(CELLS, tmp_path, finished=ran.append)
    assert ran == CELLS[len(half) :]
    assert {file: file.stat().st_mtime_ns for file in marks} == marks


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-20],  # in the middle of a line
        lambda data: data[:-1],  # the last number may be cut
        lambda data: b"\n".join(data.split(b"\n")[:-3]) + b"\n",
        lambda data: data + data.split(b"\n")[-2] + b"\n",
        lambda data: data.replace(b",1,", b",2,"),  # another seed's
        lambda _data: b"",
        lambda _data: b"\xff\xfe",
        lambda _data: b"junk\n",
    ],
)
def test_a_damaged_cell_is_run_again(tmp_path, damage):
    cell = Cell("5_Switching_LQR", "random", 1, 30)
    whole = losses(run.run_plan([cell], tmp_path))
    file = tmp_path / "cells" / f"{cell.key}.csv"
    file.write_bytes(damage(file.read_bytes()))
    ran = []
    assert losses(run.run_plan([cell], tmp_path, finished=ran.append)) == whole
    assert ran == [cell]


def test_a_run_that_was_killed_is_completed_by_the_next(tmp_path):
    cells = list(plan(["1_LLM_Inference"], ["random", "static"], 4, 30))
    code = (
        "import os, signal; from pathlib import Path; from rasp_lab.bench.runner import protocol, run\n"
        "ran = []\n"
        "def finished(cell):\n"
        "    ran.append(cell)\n"
        "    if len(ran) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cells = list(protocol.plan(['1_LLM_Inference'], ['random', 'static'], 4, 30))\n"
        f"run.run_plan(cells, Path({str(tmp_path)!r}), finished=finished)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -signal.SIGKILL
    assert sum(run.is_finished(cell, tmp_path) for cell in cells) == 3
    ran = []
    steps = run.run_plan(cells, tmp_path, finished=ran.append)
    assert ran == cells[3:]
    assert losses(steps) == losses(run.run_plan(cells, tmp_path / "fresh"))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_says_that_it_can_go_on_and_leaves_no_process(tmp_path, how):
    words = ["--agents", "random", "--domains", "1_LLM_Inference", "--seeds", "500", "--horizon", "300", "--jobs", "2"]
    command = [sys.executable, "-m", "rasp_tuner", "bench", *words, "--out", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob("cells/*.csv")):
        time.sleep(0.05)
    process.send_signal(how)
    said = process.communicate(timeout=60)[1]
    assert "finished runs are kept" in said
    assert process.returncode == 130
    while time.monotonic() < deadline and _group_lives(process.pid):
        time.sleep(0.05)
    assert not _group_lives(process.pid)


def _group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("broken", ["missing/", "cells"])
def test_an_unwritable_folder_is_an_os_error(tmp_path, broken):
    (tmp_path / broken.rstrip("/")).write_text("")
    with pytest.raises(OSError, match=r"exists|directory"):
        run.run_plan(CELLS[:1], tmp_path if broken == "cells" else tmp_path / "missing")
