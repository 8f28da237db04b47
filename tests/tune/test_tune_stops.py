"""A suggestion that is clearly slower than the best is ended, and learned as at least that slow."""

from pathlib import Path

import pytest
from tune_running import alive, entries, rasp, wait_for

from rasp_tuner.errors import InvalidSpace
from rasp_tuner.tune.study import build_study

# the slow way starts a child that would run on for ten minutes, and writes its number down
WORK = "case {way} in fast) sleep 0.1;; usual) sleep 0.3;; slow) sleep 600 & echo $! >> pids; wait;; esac"
OPTIONS = ["--knob", "way=cat:usual,slow,fast", "--default", "way=usual", "--name", "ways", "--final", "0"]


def tuned(folder: Path, steps: int, *more: str) -> None:
    rasp(*OPTIONS, "--steps", steps, "--shell", *more, "--", WORK, cwd=folder, code=None)


def runs(folder: Path) -> list[dict]:
    return entries(folder / "rasp-tune" / "ways", "run")


def test_a_slow_setting_is_ended_soon_after_the_time_of_the_best(tmp_path: Path) -> None:
    tuned(tmp_path, 10)
    stopped = [run for run in runs(tmp_path) if run["stopped"]]
    assert stopped
    for run in stopped:
        assert run["params"] != {"way": "fast"}
        assert 0.1 < run["metrics"]["time_s"] < 60.0  # not the ten minutes that it would take
        assert run["failure"] == ""
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_for(lambda pid=pid: not alive(pid))
    page = (tmp_path / "rasp-tune" / "ways" / "report.html").read_text()
    assert page.count('<path class="stopped') == 2 * len(stopped)  # in the picture of runs, and in that of the knob
    assert "stopped early: at least" in page
    assert f"&ge; {stopped[0]['metrics']['time_s']:.6g}" in page.replace("≥", "&ge;")
    assert "learned as at least that slow" in page


def test_after_a_stop_the_default_does_the_work(tmp_path: Path) -> None:
    tuned(tmp_path, 10, "--redo")
    found = runs(tmp_path)
    after = [found[i + 1] for i, run in enumerate(found[:-1]) if run["stopped"]]
    assert after
    assert all(run["control"] and run["params"] == {"way": "usual"} for run in after)


def test_a_study_that_goes_on_has_learned_the_stops(tmp_path: Path) -> None:
    for steps in (5, 7, 10):
        tuned(tmp_path, steps)
    found = runs(tmp_path)
    assert [run["step"] for run in found] == list(range(10))
    assert any(run["stopped"] for run in found)
    assert sum(run["params"] == {"way": "slow"} for run in found) <= 3  # it is not thought good
    from rasp_tuner import Tuner

    tuner = Tuner.load(tmp_path / "rasp-tune" / "ways" / "tuner.rasp")
    assert [row["stopped"] for row in tuner.history()] == [run["stopped"] for run in found]


def test_progress_counts_the_stops(tmp_path: Path) -> None:
    done = rasp(*OPTIONS, "--steps", 8, "--shell", "--", WORK, cwd=tmp_path, code=None)
    assert "stopped early" in done.stderr


@pytest.mark.parametrize(
    "more",
    [
        {"repeats": 3},
        {"metrics": {"time_s": "min", "size": "min=size:out"}},
        {"metrics": {"cpu_s": "min"}},
        {"metrics": {"time_s": "min", "loss": "min<=3=regex:^[0-9.]+"}},
    ],
    ids=["repeats", "several", "cpu time", "a limit from the output"],
)
def test_where_a_part_of_a_run_does_not_say_enough_nothing_is_ended(more: dict) -> None:
    fields = {"command": ["sleep", "{x}"], "knobs": {"x": "int:1..3"}, "default": {"x": 1}}
    assert build_study(fields).can_stop
    assert not build_study({**fields, **more}).can_stop


def test_redo_is_true_or_false() -> None:
    fields = {"command": ["sleep", "{x}"], "knobs": {"x": "int:1..3"}, "redo": "yes"}
    with pytest.raises(InvalidSpace, match="redo"):
        build_study(fields)
    assert "redo" not in build_study({**fields, "redo": False}).to_json()  # an old journal still fits
