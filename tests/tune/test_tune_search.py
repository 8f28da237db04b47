"""`rasp tune` finds what is there, keeps what was learned, and claims nothing that the final pairs do not show."""

import math

import numpy as np
import pytest
from tune_running import AWK, OPTIONS, entries, rasp

from rasp_tuner import Bool, Categorical, Int
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.page.words import range_words
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.tune import tune
from rasp_tuner.tune.changed_space import own_folder
from rasp_tuner.tune.study import build_study

KNOBS = {"math": Bool(), "cpu": Bool(), "level": Int(1, 3)}
PLAIN = {"math": False, "cpu": False, "level": 2}


def compiled(noise, seed=0):
    """Each input has a flag of its own that helps, and slows the other one down; the level does nothing."""
    rng = np.random.default_rng(seed)

    def work(input, math, cpu, level):
        del level
        good, bad = (math, cpu) if input == "dot" else (cpu, math)
        return {"cost": 0.2 * (0.3 if good else 1.0) * (1.6 if bad else 1.0) * float(np.exp(noise * rng.normal()))}

    return work


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_every_input_gets_its_own_setting_and_idle_knobs_stay(noise, tmp_path):
    result = tune(
        compiled(noise), KNOBS, {"cost": "min"}, default=PLAIN, inputs=["dot", "sort"], steps=40, out=tmp_path / "s",
        quiet=True,
    )  # fmt: skip
    assert result.settings == {"dot": {**PLAIN, "math": True}, "sort": {**PLAIN, "cpu": True}}
    for found in result.situations:
        assert found.verdict.outcome == "better"
        assert found.verdict.effects["cost"].value == pytest.approx(0.3, rel=0.1)


def test_two_inputs_with_one_setting_have_an_interval_each(tmp_path):
    rng = np.random.default_rng(0)

    def work(input, fast):
        gain = 0.45 if input == "a" else 0.72
        return {"cost": (gain if fast else 1.0) * float(np.exp(0.01 * rng.normal()))}

    knobs = {"fast": Bool()}
    result = tune(
        work, knobs, {"cost": "min"}, default={"fast": False}, inputs=["a", "b"], steps=12, out=tmp_path / "s",
        quiet=True,
    )  # fmt: skip
    found = {one.situation.label: one.verdict.effects["cost"] for one in result.situations}
    assert found["a"].high < 0.5 < 0.68 < found["b"].low


def test_knobs_that_do_nothing_stay_at_their_defaults(tmp_path):
    rng = np.random.default_rng(4)

    def work(threads, codec):
        del threads, codec
        return {"cost": float(np.exp(0.05 * rng.normal()))}

    knobs, default = {"threads": Int(1, 8), "codec": Categorical(["a", "b", "c"])}, {"threads": 4, "codec": "a"}
    result = tune(work, knobs, {"cost": "min"}, default=default, steps=40, out=tmp_path / "s", quiet=True)
    assert result.verdict.outcome in ("default", "same")
    assert result.settings == {"all": default}


def test_what_ran_best_is_compared_again_even_after_a_stop(tmp_path):
    """The rounds of the play-off are in the journal: the same call runs nothing again."""
    calls = []

    def work(level, fast):
        calls.append(level)
        return {"cost": (1.0 + 0.1 * abs(level - 3)) * (0.9 if fast else 1.0)}

    def again():
        knobs = {"level": Int(1, 9), "fast": Bool()}
        default = {"level": 7, "fast": False}
        return tune(work, knobs, {"cost": "min"}, default=default, steps=25, out=tmp_path / "s", quiet=True)

    first, done = again(), len(calls)
    assert first.settings == {"all": {"level": 3, "fast": True}}
    assert entries(tmp_path / "s", "playoff")
    assert again().to_json() == first.to_json()
    assert len(calls) == done


def test_a_study_goes_on_with_a_wider_knob_and_a_new_one(tmp_path):
    program = "BEGIN { print 1 + (x - 7) * (x - 7) + y }"  # without y it is 0
    awk = ["awk", "-v", "x={x}", program]
    rasp(*OPTIONS, "--steps", 12, "--final", 0, "--", *awk, cwd=tmp_path, code=None)
    wider = ["--knob", "x=int:0..30", *OPTIONS[2:]]
    done = rasp(*wider, "--steps", 14, "--final", 0, "--", *awk, cwd=tmp_path, code=None)
    assert "note: x has other values now: earlier runs count where theirs is still one of them\n" in done.stderr
    new = [*wider, "--knob", "y=cat:0,5"]
    done = rasp(
        *new, "--steps", 24, "--final", 2, "--", "awk", "-v", "x={x}", "-v", "y={y}", program, cwd=tmp_path, code=None
    )
    assert "note: y is a new knob: earlier runs count as y=0 (nobody gave its default)\n" in done.stderr
    assert "x has other values" not in done.stderr
    found = entries(tmp_path / "rasp-tune" / "parabola", "run")
    assert [run["step"] for run in found] == list(range(24))
    assert "y" not in found[0]["params"]
    assert {run["params"]["y"] for run in found[14:]} == {"0", "5"}


def test_runs_that_do_not_fit_a_narrower_knob_are_left_out(tmp_path):
    rasp(*OPTIONS, "--steps", 12, "--final", 0, "--", *AWK, cwd=tmp_path, code=None)
    old = entries(tmp_path / "rasp-tune" / "parabola", "run")
    done = rasp(
        "--knob", "x=int:10..20", *OPTIONS[2:], "--steps", 13, "--final", 0, "--", *AWK, cwd=tmp_path, code=None
    )
    gone = sum(run["params"]["x"] < 10 for run in old)
    assert gone
    assert f"{gone} earlier runs do not count" in done.stderr


BEFORE = ["--a", "{a}", "--b", "1"]


@pytest.mark.parametrize(
    ("knob", "default", "words", "goes_on"),
    [
        ("f=cat:,--fast", "f=", [*BEFORE, "{f}"], True),
        ("f=cat:,--fast", "f=", ["--a", "{a}", "--b", "3", "{f}"], False),
        ("c=int:1..9", "c=5", ["-c", "{c}", *BEFORE], True),
        ("c=int:1..9", "c=5", [*BEFORE, "--slow", "-c", "{c}"], False),
        ("b=int:1..9", "b=1", ["--a", "{a}", "--b", "{b}"], True),  # what was fixed is a knob now
        ("b=int:1..9", "b=2", ["--a", "{a}", "--b", "{b}"], False),  # but it ran with 1
    ],
)
@pytest.mark.parametrize("shell", [False, True])
def test_a_command_that_changes_together_with_its_knobs_is_another_one(knob, default, words, goes_on, shell, tmp_path):
    one = ["--knob", "a=int:0..9", "--default", "a=3", "--steps", 4, "--final", 0]
    two = [*one, "--knob", knob, "--default", default]

    def command(*words):
        return ["--shell", "--", " ".join(["echo", *words])] if shell else ["--", "echo", *words]

    rasp(*one, *command(*BEFORE), cwd=tmp_path, code=None)
    done = rasp(*two, *command(*words), cwd=tmp_path, code=None)
    assert ("going on with" in done.stderr) == goes_on
    assert ("is about another command" in done.stderr) == (not goes_on)
    done = rasp(*one, "--knob", "z=int:1..2", "--steps", 5, *command(*BEFORE, "{z}"), cwd=tmp_path, code=None)
    assert done.exit_code == 3


def test_a_knob_that_is_dropped_may_leave_its_default_in_the_command(tmp_path):
    one = ["--knob", "a=int:0..9", "--default", "a=3", "--steps", 6, "--final", 0]
    rasp(*one, "--knob", "b=int:1..4", "--default", "b=2", "--", "echo", "{a}", "-b{b}", cwd=tmp_path, code=None)
    done = rasp(*one, "--steps", 7, "--", "echo", "{a}", "-b2", cwd=tmp_path, code=None)
    assert "note: b is no knob any more: earlier runs count where it was 2\n" in done.stderr
    done = rasp(*one, "--", "echo", "{a}", "-b3", cwd=tmp_path, code=None)
    assert "is about another command" in done.stderr


def test_an_environment_variable_that_changes_together_with_the_knobs(tmp_path):
    one = ["--knob", "a=int:0..9", "--default", "a=3", "--steps", 3, "--final", 0, "--name", "n", "--env", "A={a}"]
    two = ["--knob", "b=int:1..4", "--default", "b=2", "--env", "B={b}"]
    rasp(*one, "--env", "C=1", "--", "env", cwd=tmp_path, code=None)
    assert "going on" in rasp(*one, *two, "--env", "C=1", "--", "env", cwd=tmp_path, code=None).stderr
    for other in ("C=2", "C={d}"):  # it was 1 so far
        more = ["--knob", "d=int:1..2", "--default", "d=2", "--env", "D={d}", "--env", other]
        done = rasp(*one, *two, *more, "--", "env", cwd=tmp_path, code=1)
        assert "another definition:\n" in done.stderr


@pytest.mark.parametrize("change", [["--seed", "3"], ["--default", "x=14"], ["--repeats", "2"]])
def test_other_changes_are_refused_as_before(change, tmp_path):
    rasp(*OPTIONS, "--steps", 3, "--final", 0, "--", *AWK, cwd=tmp_path, code=None)
    options = [word for word in OPTIONS if change[0] != "--default" or word not in ("--default", "x=15")]
    done = rasp(*options, *change, "--steps", 4, "--final", 0, "--", *AWK, cwd=tmp_path, code=1)
    assert "another definition" in done.stderr


def test_a_study_that_was_refused_does_not_keep_its_name(tmp_path):
    one = ["--knob", "a=int:0..9", "--steps", 4, "--final", 0]
    for metric in ("cost:min", "loss:min"):
        rasp(*one, "--metric", metric, "--", "echo", "{a}", metric, cwd=tmp_path, code=1)
    done = rasp(*one, "--", "echo", "{a}", cwd=tmp_path, code=None)
    assert "is about another command" not in done.stderr
    assert [path.name for path in (tmp_path / "rasp-tune").iterdir()] == ["echo"]


def test_a_study_that_has_just_begun_keeps_its_name(tmp_path):
    first, second = (
        build_study({"knobs": {"a": "int:0..9"}, "command": ["echo", "{a}", word]}) for word in ("one", "two")
    )
    with Journal(tmp_path / "echo", first.to_json()):
        assert own_folder(second, tmp_path) == tmp_path / "echo-2"
    assert own_folder(second, tmp_path) == tmp_path / "echo"
    with Journal(tmp_path / "echo-2", second.to_json()):
        assert own_folder(second, tmp_path) == tmp_path / "echo-2"  # not in the free one: here it goes on


def test_extreme_noise_is_told_with_what_would_help(tmp_path):
    count = "echo >> runs; n=$(wc -l < runs); echo $((1 + 50 * (n * n % 7)))"  # whatever the setting
    noisy = ["sh", "-c", count, "{x}"]
    done = rasp(*OPTIONS, "--steps", 10, "--final", 0, "--", *noisy, cwd=tmp_path, code=None)
    assert "between runs of the same settings" in done.stderr
    assert "--repeats 3" in done.stderr


def test_extreme_noise_that_the_first_equal_runs_did_not_show_is_told_later_and_once(tmp_path):
    count = "echo >> runs; n=$(wc -l < runs); echo $((n < 13 ? 50 : 1 + 50 * (n * n % 7)))"
    done = rasp(*OPTIONS, "--steps", 30, "--final", 0, "--", "sh", "-c", count, "{x}", cwd=tmp_path, code=None)
    assert done.stderr.count("between runs of the same settings") == 1


def test_inputs_that_reach_nothing_are_refused():
    with pytest.raises(InvalidSpace, match=r"\{input\} is nowhere in the command"):
        build_study({"knobs": {"x": "int:0..9"}, "command": ["echo", "{x}"], "inputs": ["a", "b"]})


@pytest.mark.parametrize(("said", "meant"), [("time", "time_s"), ("cpu", "cpu_s"), ("memory", "memory_mb")])
def test_a_metric_that_we_measure_under_another_name(said, meant):
    study = {"knobs": {"x": "int:0..9"}, "command": ["echo", "{x}"]}
    with pytest.raises(InvalidSpace, match=f"did you mean {meant}"):
        build_study({**study, "metrics": {said: "min"}})
    assert build_study({**study, "metrics": {said: f"min=json:{said}"}}).metrics[said].kind == "json"


def test_an_empty_choice_is_no_word_for_a_shell(tmp_path):
    (tmp_path / "a").write_text("2\n1\n")
    done = rasp(
        "--knob", "flag=cat:,-r", "--steps", 3, "--final", 0, "--inputs", "a", "--shell", "--",
        "sort {flag} {input} > /dev/null", cwd=tmp_path, code=None,
    )  # fmt: skip
    assert done.exit_code == 3
    assert all(run["metrics"] for run in entries(tmp_path / "rasp-tune" / "sort", "run"))


def test_knobs_in_words():
    assert range_words(Bool()) == "false or true"
    assert range_words(Categorical(["low", "mid", "high"], ordered=True)) == "low, mid or high, in this order"
    assert range_words(Categorical(["", "--fast"])) == "(none) or --fast"
    assert math.isfinite(float(range_words(Int(1, 9)).split()[-1]))
