import csv
import subprocess
import sys
import time

import pytest

from rasp_tuner.bench import run
from rasp_tuner.bench.protocol import plan

CELLS = list(plan(["5_Switching_LQR", "A1_Adversarial_Context"], ["static", "random", "cma-es"], 2, 30))


def losses(path):
    """Every column but the times."""
    with path.open() as file:
        return [(r["domain"], r["agent"], r["seed"], r["step"], r["loss"], r["regret"]) for r in csv.DictReader(file)]


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


def test_a_run_that_was_killed_is_completed_by_the_next(tmp_path):
    code = (
        "from pathlib import Path; from rasp_tuner.bench import run; from rasp_tuner.bench.protocol import plan;"
        "cells = list(plan(['1_LLM_Inference'], ['random', 'static'], 40, 300));"
        f"run.run_plan(cells, Path({str(tmp_path)!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    folder = tmp_path / "cells"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not folder.is_dir() or len(list(folder.glob("*.csv"))) < 3):
        time.sleep(0.02)
    process.kill()  # SIGKILL
    process.wait()
    cells = list(plan(["1_LLM_Inference"], ["random", "static"], 40, 300))
    before = sum(run.is_finished(cell, tmp_path) for cell in cells)
    assert 3 <= before < len(cells)
    ran = []
    steps = run.run_plan(cells, tmp_path, finished=ran.append)
    assert len(ran) == len(cells) - before
    assert losses(steps) == losses(run.run_plan(cells, tmp_path / "fresh"))


@pytest.mark.parametrize("broken", ["missing/", "cells"])
def test_an_unwritable_folder_is_an_os_error(tmp_path, broken):
    (tmp_path / broken.rstrip("/")).write_text("")
    with pytest.raises(OSError, match=r"exists|directory"):
        run.run_plan(CELLS[:1], tmp_path if broken == "cells" else tmp_path / "missing")
