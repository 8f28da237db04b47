"""`rasp tune` on real programs: inputs, contexts, files, timeouts, failures, functions. Speed is not asserted."""

import functools
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from tune_running import AWK, OPTIONS, alive, entries, rasp, wait_for

from rasp_tuner import Categorical, Int, Tuner
from rasp_tuner.errors import InvalidSpace, TuningStopped
from rasp_tuner.tune import StopRules, build_study, run_study, tune
from rasp_tuner.tune.measure import function_name

PARABOLA = {"name": "p", "knobs": {"x": "int:0..20"}, "default": {"x": 15}, "metrics": {"loss": "min=regex:^[0-9.]+"}}


def study(**changes):
    return build_study({**PARABOLA, "command": AWK, **changes})


def run(folder, steps, final=0, **changes):
    return run_study(study(**changes), StopRules(steps, None, final), folder)


def test_from_nothing_to_a_verdict(tmp_path):
    done = rasp(*OPTIONS, "--steps", 18, "--final", 4, "--", *AWK, cwd=tmp_path)
    assert re.match(r"parabola: lower by 98.5% \(98.5 to 98.5%\)\n", done.stdout)
    assert "use: x=7" in done.stdout
    place = tmp_path / "rasp-tune" / "parabola"
    assert f"report: {place.relative_to(tmp_path)}/report.html" in done.stdout
    found = json.loads((place / "settings.json").read_text())
    assert (found["outcome"], found["runs"], found["pairs"]) == ("better", 18, 4)
    assert Tuner.load(place / "tuner.rasp").recommend() == {"x": 7}
    final = entries(place, "final")
    assert {tuple(entry["order"]) for entry in final} <= {("default", "recommended"), ("recommended", "default")}
    assert all((entry["default"], entry["recommended"]) == ({"loss": 65.0}, {"loss": 1.0}) for entry in final)


def test_where_the_default_is_best_it_is_kept_with_exit_status_three(tmp_path):
    words = ["--knob", "x=int:0..20", "--default", "x=7", "--metric", "loss:min=regex:^[0-9.]+", "--steps", 15]
    done = rasp(*words, "--json", "--", *AWK, cwd=tmp_path, code=3)
    found = json.loads(done.stdout)
    assert found["outcome"] == "default"
    assert found["situations"][0]["use"] == {"x": 7}
    assert done.stderr == ""  # with --json, nothing but JSON


def test_inputs_are_situations_of_their_own(tmp_path):
    for name, best in (("low", 3), ("high", 17)):
        (tmp_path / name).write_text(f"{best}\n")
    command = ["awk", "-v", "x={x}", "{ print 1 + (x - $1) * (x - $1) }", "{input}"]
    result = run(
        tmp_path / "s", 40, 2, command=command, inputs=[str(tmp_path / "low"), str(tmp_path / "high")], default={}
    )
    assert {tuple(r.situation.inputs): r.use for r in result.situations} == {
        (str(tmp_path / "low"),): {"x": 3},
        (str(tmp_path / "high"),): {"x": 17},
    }
    assert result.verdict.outcome == "better"
    runs = entries(tmp_path / "s", "run")
    assert runs[0]["control"]
    assert runs[0]["params"] == {"x": 10}
    suggested = [entry["input"] for entry in runs if not entry["control"]]
    assert all(a != b for a, b in pairwise(suggested))  # in turn
    assert len({entry["input"] for entry in entries(tmp_path / "s", "final")}) == 2


@pytest.mark.parametrize("inputs", [2, 3, 4])
def test_runs_of_the_default_are_spread_over_the_inputs(inputs, tmp_path):
    """What is told as times the default's should not rest on one run of it."""
    names = [f"in{i}" for i in range(inputs)]
    result = tune(
        lambda x, input: float(x + len(input)), {"x": Int(0, 20)}, {"cost": "min"}, inputs=names, steps=60, final=0,
        out=tmp_path, quiet=True,
    )  # fmt: skip
    usual = [sum(run.is_control and run.input == name for run in result.runs) for name in names]
    assert max(usual) - min(usual) <= 1
    assert sum(usual) >= 7


def test_contexts_decide_between_settings(tmp_path):
    """A file that changes between runs: the tuner is told of it and learns a setting for each state."""
    (tmp_path / "state").write_text("night")
    program = tmp_path / "program.sh"
    program.write_text(
        'if [ "$(cat "$2")" = night ]; then best=2 next=day; else best=18 next=night; fi\n'
        'printf %s $next > "$2"\n'
        'echo "{\\"loss\\": $((1 + ($1 - best) * ($1 - best)))}"\n'
    )
    result = run(
        tmp_path / "s",
        44,
        command=["sh", str(program), "{x}", str(tmp_path / "state")],
        metrics={"loss": "min"},
        contexts={"state": f"file:{tmp_path / 'state'}"},
        default={"x": 10},
    )
    assert {r.situation.label: r.use for r in result.situations} == {"state night": {"x": 2}, "state day": {"x": 18}}


def test_settings_reach_the_program_by_environment_file_and_shell(tmp_path):
    (tmp_path / "conf.template").write_text('{{"not": "touched"}} {unknown} x={x}\n')
    done = rasp(
        "--knob", "x=int:0..20", "--knob", "mode=cat:fast,'odd one'", "--default", "x=3", "--default", "mode='odd one'",
        "--env", "MODE={mode}", "--file", "conf.template:conf", "--metric", "n:min=regex:x=([0-9]+)", "--steps", 1,
        "--final", 0, "--shell", "--", "cat conf && echo \"$MODE\" > mode && test {mode} = \"$MODE\"",
        cwd=tmp_path, code=3,
    )  # fmt: skip
    assert "use: x=3" in done.stdout
    assert (tmp_path / "conf").read_text() == '{{"not": "touched"}} {unknown} x=3\n'
    assert (tmp_path / "mode").read_text() == "'odd one'\n"


def test_a_study_file_with_options_on_top(tmp_path):
    (tmp_path / "tiny.toml").write_text(
        'command = ["awk", "-v", "x={x}", "BEGIN { print 1 + (x - 7)^2 }"]\nsteps = 500\n'
        '[knobs]\nx = { type = "int", low = 0, high = 20 }\n[default]\nx = 15\n'
        '[metrics.loss]\ngoal = "min"\nfrom = "regex:^[0-9.]+"\nscale = "log"\n'
    )
    rasp("tiny.toml", "--steps", 12, "--final", 0, cwd=tmp_path, code=3)
    assert len(entries(tmp_path / "rasp-tune" / "tiny", "run")) == 12
    rasp("missing.toml", cwd=tmp_path, code=1)


def test_hangs_crashes_and_errors_are_failed_runs_and_not_the_end(tmp_path):
    """Above 12 it hangs, with a child that hangs too; at 0 to 2 it crashes; the best of the rest is 12."""
    script = (
        "if [ {x} -gt 12 ]; then sleep 60 & wait; elif [ {x} -lt 3 ]; then kill -SEGV $$; else echo $((13 - {x})); fi"
    )
    result = run(tmp_path / "s", 25, command=["sh", "-c", script], default={"x": 5}, timeout=0.3)
    reasons = {entry["failure"] for entry in entries(tmp_path / "s", "run")} - {""}
    assert any("timed out after 0.3 s" in reason for reason in reasons)
    assert all("timed out" in reason or "SIGSEGV" in reason for reason in reasons)
    assert 9 <= result.situations[0].use["x"] <= 12
    assert 'class="failed"' in result.report.read_text()


def test_without_a_timeout_a_hang_ends_after_many_times_the_defaults_time(tmp_path, monkeypatch):
    monkeypatch.setattr("rasp_tuner.tune.loop.AUTO_TIMEOUT", (2.0, 0.2))
    script = "if [ {x} -gt 12 ]; then sleep 60; else echo $((13 - {x})); fi"
    run(tmp_path / "s", 12, command=["sh", "-c", script], default={"x": 5})
    assert any("timed out" in entry["failure"] for entry in entries(tmp_path / "s", "run"))


def test_a_command_that_always_fails_stops_early_with_its_own_words(tmp_path):
    with pytest.raises(TuningStopped, match=r"(?s)first 3 runs failed: exit code 4.*Sorry, [0-9].*--fresh"):
        run(tmp_path / "s", 50, command=["sh", "-c", "echo Sorry, {x} >&2; exit 4"])
    assert len(entries(tmp_path / "s", "run")) == 2


def test_a_metric_that_is_not_in_the_output_stops_at_once_and_shows_the_output(tmp_path):
    with pytest.raises(TuningStopped, match=r"(?s)metric 'loss' was not found.*printf 'no numbers 15'.*no numbers 15"):
        run(tmp_path / "s", 50, command=["printf", "no numbers {x}"])


def test_a_metric_that_is_missing_later_is_a_failed_run(tmp_path):
    run(tmp_path / "s", 12, command=["sh", "-c", "test {x} -gt 14 && echo {x} || echo nothing"])
    assert any("was not found" in entry["failure"] for entry in entries(tmp_path / "s", "run"))


def test_an_exit_code_that_is_a_metric_is_no_failure(tmp_path):
    result = run(tmp_path / "s", 20, command=["sh", "-c", "exit {x}"], metrics={"exit_code": "min"})
    assert result.situations[0].use == {"x": 0}


def test_warm_up_runs_are_dropped_and_the_median_of_the_repeats_counts(tmp_path):
    """A program that counts its calls: 1 to 5 in the first step, of which 1 and 2 are dropped; 4 is the median."""
    count = tmp_path / "count"
    script = f"echo {{x}} >> {count}; wc -l < {count}"
    run(tmp_path / "s", 2, command=["sh", "-c", script], warmup=2, repeats=3)
    assert [entry["metrics"]["loss"] for entry in entries(tmp_path / "s", "run")] == [4.0, 9.0]


def test_every_run_has_a_scratch_folder_of_its_own(tmp_path):
    note = tmp_path / "note"
    script = f"ls {{scratch}} | wc -l; touch {{scratch}}/file; echo {{scratch}} >> {note}; test -n {{x}}"
    run(tmp_path / "s", 3, command=["sh", "-c", script])
    assert [entry["metrics"]["loss"] for entry in entries(tmp_path / "s", "run")] == [0.0] * 3
    folders = note.read_text().split()
    assert len(set(folders)) == 3
    assert not any(tmp_path.joinpath(folder).exists() for folder in folders)


def test_time_ends_a_study(tmp_path):
    result = run_study(study(command=["sh", "-c", "sleep 0.05; echo {x}"]), StopRules(None, 0.5, 0), tmp_path / "s")
    assert 1 <= len(result.runs) <= 10


def test_a_dry_run_says_what_would_happen_and_does_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("")
    done = rasp(
        "--knob", "x=int:0..20", "--inputs", "*.txt", "--warmup", 1, "--repeats", 3, "--timeout", "10s", "--steps", 50,
        "--dry-run", "--", "touch", "made-{x}", "{input}", cwd=tmp_path,
    )  # fmt: skip
    for line in (
        "default   x=10  (no --default was given for x)",
        "runs      touch made-10 a.txt",
        "such as   touch made-16 a.txt",
        "metric    time_s: wall time, as low as possible",
        "inputs    a.txt, in turn",
        "each step 4 runs, the first 1 of them dropped",
        "timeout   10s;",
        "up to about 424 runs",
    ):
        assert line in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--knob", "x", "--", "echo"], "--knob must look like NAME=VALUE"),
        (["--knob", "x=int:1..2", "--", "echo", "{y}"], "placeholder {y}"),
        (["--knob", "x=int:1..2", "--", "no-such-program", "{x}"], "'no-such-program' was not found"),
        (["--knob", "x=int:1..2", "--context", "nope", "--", "echo", "{x}"], "a context must look like"),
        (["--knob", "x=int:1..2", "--context", "c=env:NOT_SET", "--", "echo", "{x}"], "NOT_SET is not set"),
        (["--knob", "x=int:1..2", "--knob", "x=int:1..9", "--", "echo", "{x}"], "--knob x is given twice"),
        (["--knob", "x=int:1..2", "--default", "x=1", "--default", "x=2", "--", "echo", "{x}"], "--default x is given"),
        (["--knob", "x=int:1..2", "--metric", "time_s:min", "--metric", "time_s:max", "--", "echo"], "--metric time_s"),
        (["--knob", "x=int:1..2", "--context", "h=time:hour", "--context", "h=env:H", "--", "echo"], "--context h is"),
        (["--knob", "x=int:1..2", "--file", "a:c", "--file", "b:c", "--", "echo", "{x}"], "--file c is given twice"),
        (["--knob", "x=int:1..2"], "say what to tune"),
        (["--knob", "x=int:1..2", "--call", "nowhere:f"], "cannot load 'nowhere:f'"),
    ],
)
def test_mistakes_are_told_in_words(words, said, tmp_path):
    done = rasp(*words, cwd=tmp_path, code=1)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_python_function(tmp_path):
    seen = []

    def work(threads, codec, input):
        seen.append((threads, codec, input))
        if threads == 16:
            raise MemoryError("too many")
        return {"cost": (threads - 4) ** 2 + 1 + (5 if codec == "slow" else 0)}

    knobs = {"threads": Int(1, 16), "codec": Categorical(["slow", "fast"])}
    result = tune(work, knobs, {"cost": "min"}, inputs=["a"], steps=30, final=3, out=tmp_path / "s", quiet=True)
    assert result.settings == {"all": {"threads": 4, "codec": "fast"}}
    assert result.exit_code == 0
    assert {input for _, _, input in seen} == {"a"}
    calls = len(seen)
    again = tune(work, knobs, {"cost": "min"}, inputs=["a"], steps=30, final=3, out=tmp_path / "s", quiet=True)
    assert (again.settings, len(seen)) == (result.settings, calls)  # nothing is run twice


def test_studies_of_two_lambdas_in_one_folder_are_two_and_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    first, second = (lambda x: seen.append("first") or x + 1.0), (lambda x: seen.append("second") or x + 2.0)
    other = lambda x: x + 3.0  # noqa: E731

    def place(function, **more):
        return tune(function, {"x": Int(0, 3)}, {"cost": "min"}, steps=4, final=0, quiet=True, **more).folder

    line = first.__code__.co_firstlineno
    name, after = (f"test_tune_command-line-{at}" for at in (line, line + 1))
    found = [place(function) for function in (first, second, other)]
    assert found == [Path("rasp-tune") / one for one in (name, f"{name}-2", after)]
    assert set(seen) == {"first", "second"}
    calls = len(seen)
    assert place(second) == found[1]
    assert len(seen) == calls  # it went on with what was measured
    assert place(first, name="mine") == Path("rasp-tune/mine")


def test_functions_without_a_name_of_their_own_have_one():
    class Work:
        def __call__(self, x):
            return float(x)

    def cost(x, scale):
        return scale * x

    names = [function_name(function).name for function in (Work(), functools.partial(cost, scale=2.0), cost, Work)]
    assert names == ["Work", "cost", "cost", "Work"]


def test_a_knob_may_exist_only_with_a_value_of_another(tmp_path):
    """Without its condition its argument is left out, and to a function it is None."""
    knobs = {
        "mode": "cat:wal,delete",
        "sync": {"type": "categorical", "choices": ["--off", "--full"], "when": {"mode": "wal"}},
    }
    script = "test $# = $([ $1 = wal ] && echo 2 || echo 1) && echo $(( 7 - 3 * ($# - 1) ))"
    command = ["sh", "-c", script, "sh", "{mode}", "{sync}"]
    result = run(tmp_path / "s", 12, 2, command=command, knobs=knobs, default={"mode": "delete"})
    runs = entries(tmp_path / "s", "run")
    assert {entry["failure"] for entry in runs} == {""}
    assert {tuple(entry["params"]) for entry in runs} == {("mode",), ("mode", "sync")}
    assert result.situations[0].use["mode"] == "wal"
    assert result.report.exists()

    def work(mode, sync):
        assert (sync is None) == (mode == "delete")
        return 7.0 - 3.0 * (mode == "wal")

    called = tune(
        work, knobs, {"loss": "min"}, default={"mode": "delete"}, steps=12, final=2, out=tmp_path / "f", quiet=True
    )
    assert called.situations[0].use["mode"] == "wal"


def test_a_function_from_the_command_line_that_returns_a_number(tmp_path):
    (tmp_path / "job.py").write_text("def work(x, **rest):\n    assert not rest\n    return (x - 7) ** 2 + 1\n")
    words = ["--call", "job:work", "--knob", "x=int:0..20", "--default", "x=15", "--metric", "loss", "--steps", 25]
    assert "use: x=7" in rasp(*words, "--final", 3, cwd=tmp_path).stdout


def test_contexts_of_a_function_may_be_functions(tmp_path):
    state = {"busy": False}

    def work(x):
        best, state["busy"] = (16 if state["busy"] else 2), not state["busy"]
        return float((x - best) ** 2 + 1)

    result = tune(
        work, {"x": Int(0, 20)}, {"loss": "min"}, contexts={"load": lambda: 0.9 if state["busy"] else 0.1}, steps=60,
        default={"x": 9}, final=0, out=tmp_path / "s", quiet=True,
    )  # fmt: skip
    assert result.settings == {"load 0.1": {"x": 2}, "load 0.9": {"x": 16}}


@pytest.mark.parametrize(
    ("function", "more", "said"),
    [
        (lambda y: y, {}, "takes no argument 'x'"),
        (lambda x, y: x + y, {}, "needs the argument 'y'"),
        (lambda x: x, {"metrics": {"memory_mb": "min"}}, "not memory"),
    ],
)
def test_a_function_that_does_not_fit_is_refused_before_it_runs(function, more, said, tmp_path):
    with pytest.raises(InvalidSpace, match=said):
        tune(function, {"x": Int(0, 3)}, **more, out=tmp_path / "s", name="f")


def test_processes_that_a_run_leaves_behind_are_ended_and_it_is_said_once(tmp_path):
    note = tmp_path / "pids"
    command = ["sh", "-c", f"sleep 600 & echo $! >> {note}; echo {{x}}"]
    done = rasp(*OPTIONS, "--steps", 3, "--final", 0, "--", *command, cwd=tmp_path, code=None)
    assert done.stderr.count("1 process that it started still ran; what a run starts is ended with it") == 1
    pids = [int(line) for line in note.read_text().split()]
    assert len(pids) == 3
    wait_for(lambda: not any(map(alive, pids)))
