"""`rasp tune --paired`: the default runs beside every suggestion, on the same input."""

import itertools
import json
from pathlib import Path

import pytest
from tune_running import entries, rasp

from rasp_tuner import Tuner
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.tune import StopRules, build_study, run_study

COST = {"usual": 1.0, "slow": 3.0, "fast": 0.7}
FIELDS = {
    "name": "ways",
    "call": "m:f",
    "knobs": {"way": "cat:usual,slow,fast"},
    "default": {"way": "usual"},
    "metrics": {"cost": "min"},
    "paired": True,
}


class Machine:
    """A function that notes how it was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, way: str) -> dict[str, float]:
        self.called.append(way)
        return {"cost": 10.0 * COST[way]}


def tuned(folder: Path, steps: int, machine: Machine, **more: object):
    return run_study(build_study({**FIELDS, **more}), StopRules(steps, None, 0), folder / "ways", function=machine)


def test_pairs_are_run_alternately_and_told_with_their_control(tmp_path: Path) -> None:
    machine = Machine()
    result = tuned(tmp_path, 12, machine)
    pairs = [run for run in entries(tmp_path / "ways", "run") if "beside" in run]
    assert len(pairs) >= 8
    for run in pairs:
        ratio = run["metrics"]["cost"] / run["beside"]["cost"]
        assert ratio == pytest.approx(COST[run["params"]["way"]])
    after = machine.called[1:]
    firsts = [one == "usual" for one, other in itertools.pairwise(after) if "usual" in (one, other)]
    assert any(firsts)
    assert not all(firsts)
    assert result.situations[0].situation.params == {"way": "fast"}
    assert not [run for run in entries(tmp_path / "ways", "run")[1:] if run["control"]]  # none is needed besides


def test_the_end_says_what_was_saved_while_tuning(tmp_path: Path) -> None:
    result = tuned(tmp_path, 40, Machine())
    tuner = Tuner.load(tmp_path / "ways" / "tuner.rasp")
    assert result.savings == str(tuner.savings())
    assert f"while tuning: {result.savings}" in str(result)
    assert "measured against" in result.savings  # while it looks for the best it may well lose
    assert "Beside every suggestion the default runs" in (tmp_path / "ways" / "report.html").read_text()


def test_a_study_that_goes_on_has_learned_the_controls(tmp_path: Path) -> None:
    machine = Machine()
    tuned(tmp_path, 6, machine)
    before = Tuner.load(tmp_path / "ways" / "tuner.rasp").savings()
    tuned(tmp_path, 12, machine)
    after = Tuner.load(tmp_path / "ways" / "tuner.rasp").savings()
    assert after.steps > before.steps


def test_from_the_command_line(tmp_path: Path) -> None:
    words = ["--knob", "x=int:1..3", "--default", "x=2", "--name", "n", "--final", "0", "--steps", "6", "--paired"]
    done = rasp(*words, "--metric", "v:min=regex:([0-9]+)", "--shell", "--", "echo {x}", cwd=tmp_path, code=None)
    assert done.exit_code in (0, 3)
    runs = entries(tmp_path / "rasp-tune" / "n", "run")
    assert any(run.get("beside") == {"v": 2.0} for run in runs)
    assert json.loads((tmp_path / "rasp-tune" / "n" / "settings.json").read_text())["while_tuning"]


def test_a_default_that_fails_beside_it_leaves_the_run_without_a_control(tmp_path: Path) -> None:
    calls = itertools.count()

    def broken(way: str) -> dict[str, float]:
        if way == "usual" and next(calls) % 2:
            raise RuntimeError("no")
        return {"cost": COST[way]}

    tuned(tmp_path, 8, broken)
    runs = [run for run in entries(tmp_path / "ways", "run") if not run["control"]]
    assert any("beside" in run for run in runs)
    assert any("beside" not in run and run["params"] != {"way": "usual"} for run in runs)


def test_max_change_of_a_study(tmp_path: Path) -> None:
    fields = {"knobs": {"x": "int:1..60"}, "default": {"x": 30}, "paired": False, "max_change": "3 steps"}
    tuned(tmp_path, 15, lambda x: {"cost": 5.0 + x}, **fields)
    own = [run["params"]["x"] for run in entries(tmp_path / "ways", "run") if not run["control"]]
    assert all(abs(b - a) <= 3 for a, b in zip([30, *own], own, strict=False) if b != 30)
    assert min(own) < 27
    with pytest.raises(InvalidSpace, match="max_change"):
        build_study({**FIELDS, "max_change": "fast"})
    with pytest.raises(InvalidSpace, match="paired must be true or false"):
        build_study({**FIELDS, "paired": 1})
