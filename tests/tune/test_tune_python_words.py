"""What `tune()` says is in the words of Python: no flags of a command line that nobody typed."""

import pytest
from tune_running import rasp

from rasp_tuner.errors import InvalidSpace, JournalError, TuningStopped
from rasp_tuner.tune import tune

KNOBS = {"x": "int:0..20"}


def refused(error, function, knobs=KNOBS, **more):
    with pytest.raises(error) as reason:
        tune(function, knobs, **{"steps": 5, "final": 0, "quiet": True, **more})
    assert "--" not in str(reason.value)
    assert "command" not in str(reason.value)
    return str(reason.value)


def test_advice_on_noise_and_on_starting_over(tmp_path, capsys):
    values = iter([1.0, 9.0] * 50)
    for steps in (15, 16):
        tune(lambda x: {"cost": next(values) + 0 * x}, KNOBS, {"cost": "min"}, steps=steps, final=0, out=tmp_path)
    said = capsys.readouterr().err
    assert "take the median of more runs with repeats=3" in said
    assert "start over: fresh=True" in said
    assert "--" not in said


def test_a_function_that_always_fails(tmp_path):
    def work(x):
        raise ValueError(f"no {x}")

    said = refused(TuningStopped, work, default={"x": 3}, out=tmp_path)
    assert "first 3 runs failed: ValueError: no" in said
    assert "\nThe last call was: work(x=" in said
    assert "start over with fresh=True" in said


@pytest.mark.parametrize(
    ("metrics", "hint"),
    [
        ({"time": "min"}, "has no 'time', only 'cost', 'loss'; did you mean time_s, which is measured?"),
        ({"time_ms": "min"}, "has no 'time_ms', only 'cost', 'loss'; did you mean time_s, which is measured?"),
        ({"costs": "min"}, "the result has no 'costs', only 'cost', 'loss'.\n"),
        ({"memory": "min"}, "has no 'memory', only 'cost', 'loss'.\n"),  # of a function no memory is measured
    ],
)
def test_a_metric_that_is_not_there(metrics, hint, tmp_path):
    said = refused(TuningStopped, lambda x: {"cost": x, "loss": x}, metrics=metrics, default={"x": 3}, out=tmp_path)
    assert hint in said
    assert "\nThe call was: lambda(x=3)" in said


def test_a_time_in_other_units_is_hinted_at_in_a_shell_too(tmp_path):
    words = ["--knob", "x=int:0..20", "--metric", "time_ms:min", "--", "echo", '{"cost": {x}}']
    assert (
        "has no 'time_ms', only 'cost'; did you mean time_s, which is measured?"
        in rasp(*words, cwd=tmp_path, code=1).stderr
    )


def test_another_definition_and_an_open_journal(tmp_path):
    tune(lambda x: float(x), KNOBS, {"cost": "min"}, steps=3, final=0, out=tmp_path, quiet=True, name="a")
    said = refused(TuningStopped, lambda x: float(x), metrics={"cost": "max"}, out=tmp_path, name="a")
    assert "give this one another name=..., or start over with fresh=True" in said
    (tmp_path / "file").write_text("")
    assert "choose another folder with out=..." in refused(JournalError, lambda x: float(x), out=tmp_path / "file")


def test_a_study_without_knobs_and_inputs_that_are_one_pattern(tmp_path):
    assert "as in knobs={'threads': 'int:1..32:log'}" in refused(InvalidSpace, lambda: 1.0, {})
    assert "inputs='data/*'" in refused(InvalidSpace, lambda x: float(x), contexts={"size": "size:{input}"})
    (tmp_path / "a.txt").write_text("")
    result = tune(
        lambda x, input: float(x + len(input)), KNOBS, {"cost": "min"}, inputs=f"{tmp_path}/*.txt", steps=3, final=0,
        out=tmp_path / "s", quiet=True,
    )  # fmt: skip
    assert {run.input for run in result.runs} == {str(tmp_path / "a.txt")}
