"""What a study says where something is not as usual: counts, limits, errors."""

from types import SimpleNamespace

import pytest
from tune_running import rasp

from rasp_tuner import Int
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.tune import tune
from rasp_tuner.tune.knob_shares import left_alone
from rasp_tuner.tune.study import build_study

COUNT = ["awk", "-v", "w={w}", 'BEGIN { e = w < 6 ? 6 - w : 0; print "{\\"errors\\": " e "}" }']
KNOB = ["--knob", "w=int:1..10", "--default", "w=3"]


def test_no_errors_are_better_than_few(tmp_path):
    result = tune(
        lambda w, b: {"errors": max(6 - w, 0 * b)}, {"w": Int(1, 10), "b": Int(0, 5)}, {"errors": "min"},
        default={"w": 3, "b": 2}, steps=25, out=tmp_path / "s", quiet=True, name="count",
    )  # fmt: skip
    [found] = result.situations
    assert found.use["w"] >= 6
    assert "lower by 3 (3 to 3)" in str(result)
    assert "difference from the default, 20 pairs (paired t interval on differences)" in str(result)
    assert f"w={found.use['w']}: the whole difference" in str(result)


def test_a_limit_that_no_run_keeps_is_said(tmp_path):
    options = ["--name", "count", *KNOB, "--limit", "errors<=-1", "--steps", 12]
    done = rasp(*options, "--", *COUNT, cwd=tmp_path, code=3)
    assert "count: no run kept the limit errors at most -1, the default neither: allow more" in done.stdout


def test_what_a_program_said_has_lines_of_its_own(tmp_path):
    said = rasp("--knob", "w=int:1..9", "--", "ls", "/none{w}", cwd=tmp_path, code=1).stderr
    assert "failed: exit code 2.\nThe last command was: ls /none" in said
    assert "\nIt said:\nls:" in said


def test_a_definition_that_differs_is_told_line_by_line(tmp_path):
    end = ["--steps", 3, "--final", 0, "--name", "count", "--metric", "errors:min", "--", *COUNT]
    rasp(*KNOB, *end, cwd=tmp_path, code=3)
    said = rasp(*KNOB[:3], "w=4", *end, cwd=tmp_path, code=1).stderr
    assert "another definition:\n  default.w: was 3, is 4\n" in said


def test_a_dry_run_shows_something_else_than_the_default(tmp_path):
    shown = rasp("--knob", "w=int:1..10", "--default", "w=8", "--dry-run", "--", "echo", "{w}", cwd=tmp_path).stdout
    assert "runs      echo 8\nsuch as   echo 3\n" in shown


@pytest.mark.parametrize(
    ("direction", "low", "high", "note"),
    [
        ("min", 1.2, 1.4, "the default is best, left alone"),
        ("min", 0.9, 1.7, "no gain was shown, left alone"),
        ("max", 0.6, 0.9, "the default is best, left alone"),
        ("max", 0.6, 1.1, "no gain was shown, left alone"),
    ],
)
def test_a_default_is_called_best_only_where_that_is_sure(direction, low, high, note):
    study = build_study(
        {"call": "m:f", "knobs": {"fast": "bool"}, "default": {"fast": False}, "metrics": {"cost": direction}}
    )

    def what_if(context, params):
        del context
        found = Expected((low * high) ** 0.5, low, high) if params["fast"] else Expected(1.0, 0.99, 1.01)
        return SimpleNamespace(given=SimpleNamespace(metrics={"cost": found}))

    session = SimpleNamespace(
        study=study, tuner=SimpleNamespace(what_if=what_if), given=lambda context: context, noise=lambda: 0.01
    )
    share = left_alone(session, SimpleNamespace(context={}), {"fast": False}, "fast")
    assert share.note == note
