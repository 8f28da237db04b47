"""Knobs, metrics, contexts, placeholders and durations as words: what is taken, and what a wrong one is told."""

import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Auto, Bool, Categorical, Float, Int, Metric, Optional, PowerOfTwo
from rasp_tuner.contexts import Category, Name, Number, TimeOfDay, Weekday
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.study_file.fields import seconds
from rasp_tuner.study_file.knob_syntax import knob_of, parse_value
from rasp_tuner.study_file.template import fill, fill_words
from rasp_tuner.tune.command import Command
from rasp_tuner.tune.context_sources import ContextReading, context_of, for_tuner, kind_for, split_context
from rasp_tuner.tune.metric_sources import Reading, metric_of, split_metric, with_limits
from rasp_tuner.tune.study import TuneStudy, build_study, merged


@pytest.mark.parametrize(
    ("words", "knob"),
    [
        ("int:1..32", Int(1, 32)),
        ("int:-4..4:step=2", Int(-4, 4, step=2)),
        ("int:1..1024:log", Int(1, 1024, log=True)),
        ("float:0.5..1.5", Float(0.5, 1.5)),
        ("float:1e-3..1:log", Float(1e-3, 1.0, log=True)),
        ("float:0..1:step=0.25", Float(0.0, 1.0, step=0.25)),
        ("cat:lz4,zstd", Categorical(["lz4", "zstd"])),
        ("cat:,--fast", Categorical(["", "--fast"])),
        ("int:0..256:log", Int(0, 256, log=True)),
        ("float:0..1:digits=5", Float(0.0, 1.0, digits=5)),
        ("ordered:low,mid,high", Categorical(["low", "mid", "high"], ordered=True)),
        ("bool", Bool()),
        ("pow2:512..65536", PowerOfTwo(512, 65536)),
        ("auto:int:1..32:log", Auto(Int(1, 32, log=True))),
        ("optional:float:0.1..10", Optional(Float(0.1, 10.0))),
        ({"type": "float", "low": 0, "high": 1}, Float(0.0, 1.0)),
        ({"type": "auto", "word": -1, "knob": {"type": "int", "low": 1, "high": 4}}, Auto(Int(1, 4), word=-1)),
        ({"type": "int", "low": 1, "high": 4}, Int(1, 4)),
        (Int(1, 4), Int(1, 4)),
    ],
)
def test_a_knob_in_words(words, knob):
    assert knob_of("k", words) == knob


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("int:1-32", "1..32"),
        ("integer:1..32", "int, float, cat"),
        ("int:a..b", "'a' must be a whole number without a unit"),
        ("int:1..9ms", "'9ms' must be a whole number without a unit"),
        ("float:0..5%", "'5%' must be a number without a unit"),
        ("int:8..2", "low < high"),
        ("int:1..8:logarithmic", "logarithmic"),
        ("cat:only", "at least two"),
        ("bool:yes", "takes nothing more"),
        ("pow2:3..8", "power of two"),
        ("auto:cat:a,b", "Auto takes a Float, Int or PowerOfTwo"),
        ("auto:1..4", "Auto takes a Float, Int or PowerOfTwo"),
        (3, "must look like"),
    ],
)
def test_a_wrong_knob_is_told_what_is_right(words, said):
    with pytest.raises(InvalidSpace, match=said):
        knob_of("k", words)


@given(st.integers(-1000, 1000), st.integers(1, 1000), st.data())
def test_every_legal_value_is_read_from_its_own_text(low, width, data):
    knob = Int(low, low + width)
    value = data.draw(st.integers(low, low + width))
    assert parse_value("k", knob, str(value)) == value
    choices = Categorical([low + 5000, "text", True, 0.5])
    for choice in choices.choices:
        read = parse_value("k", choices, str(choice))
        assert (read, type(read)) == (choice, type(choice))


def test_a_value_outside_is_refused_with_the_knob():
    with pytest.raises(InvalidValue, match=r"'9' is no value of knob 'k': value must lie in \[1, 8\]"):
        parse_value("k", Int(1, 8), "9")


@settings(max_examples=40)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_a_value_reaches_a_program_as_it_is_with_and_without_a_shell(text):
    for command in (Command.parse(["printf", "%s", "a{x}b"]), Command(("printf %s a{x}b",), True)):
        done = subprocess.run(command.filled({"x": text}), capture_output=True, check=True)
        assert done.stdout == f"a{text}b".encode()


def test_only_names_in_braces_are_placeholders():
    assert fill("awk '{print $1}' {} {{x}} {x} {y}", {"x": 1}) == "awk '{print $1}' {} {x} 1 {y}"
    assert fill_words(["p", "{flag}", "", "-{n}"], {"flag": "", "n": 3}) == ["p", "", "-3"]


def reading(**changes):
    usual = {
        "wall_s": 1.5, "cpu_s": 0.0, "memory_mb": 7.0, "exit_code": 2, "output": "a 1 MB/s\nb 2.5 MB/s\n", "values": {},
        "document": lambda: {"p": [{"q": 3}], "bad": "x", "none": None, "yes": True},
        "output_of": lambda text: f"{len(text)}\n",
    }  # fmt: skip
    return Reading(**{**usual, **changes})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("time_s:min", 1.5),
        ("cpu_s", 1e-6),  # not zero, which has no logarithm
        ("memory_mb", 7.0),
        ("exit_code", 2.0),
        ("speed:max=regex:([0-9.]+) MB/s", 2.5),  # the last match
        ("q:min=json:p.0.q", 3.0),
        ("n:min=command:echo 12", 7.0),
    ],
)
def test_a_metric_is_found(text, value):
    assert metric_of(*split_metric(text)).read(reading()) == value


@pytest.mark.parametrize(
    ("text", "fields", "kind"),
    [
        ("p99:min<=200", {"max": 200.0}, "json"),
        ("size:min<=1.05 default=size:x", {"at_most": "1.05 default"}, "size"),
        ("size:min<=1.05default=size:x", {"at_most": "1.05 default"}, "size"),
        ("fps:max >= 30 = regex:([0-9]+)=", {"min": 30.0}, "regex"),
        ("fps:max>=0.9 default", {"at_least": "0.9 default"}, "json"),
        ("time_s<=2", None, ""),
    ],
)
def test_a_limit_stands_after_the_goal(text, fields, kind):
    if fields is None:
        with pytest.raises(InvalidSpace, match="must look like"):
            metric_of(*split_metric(text))
        return
    source = metric_of(*split_metric(text))
    assert source.kind == kind
    assert {name: getattr(source.metric, name) for name in fields} == fields
    assert source.metric.weight == 0.0


def test_a_limit_may_be_given_apart():
    metrics = {"fps": "max=regex:([0-9]+)", "size": "min=size:x"}
    found = with_limits(metrics, ["fps >= 30", "size<=1.05 default", "p99<=5"])
    assert found == {"fps": "max>=30=regex:([0-9]+)", "size": "min<=1.05 default=size:x", "p99": "min<=5"}
    assert all(metric_of(name, spec).metric.limit is not None for name, spec in found.items())
    assert with_limits({}, ["memory_mb<=500"]) == {"time_s": "min", "memory_mb": "min<=500"}


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("size", "--limit must look like"),
        ("size=5", "--limit must look like"),
        ("fps<=60", "'fps' is to be high"),
        ("p99<=5", "has a limit or a table of its own"),
        ("loss<=5", "has a limit or a table of its own"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(limit, said):
    with pytest.raises(InvalidSpace, match=said):
        with_limits({"fps": "max", "p99": "min<=4", "loss": {"goal": "min"}}, [limit])


def test_a_limit_that_is_no_number_is_named():
    with pytest.raises(InvalidSpace, match=r"limit of metric 'size' must be a number.*1.05 default.*got '5%'"):
        metric_of("size", "min<=5%=size:x")


def test_metrics_from_files(tmp_path):
    (tmp_path / "n").write_text(" 42 \n")
    at = reading(values={"scratch": str(tmp_path)})
    assert metric_of("n", "min=file:{scratch}/n").read(at) == 42.0
    assert metric_of("n", "min=size:{scratch}/n").read(at) == 5.0
    with pytest.raises(InvalidValue, match="No such file"):
        metric_of("n", "min=size:{scratch}/none").read(at)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed:max=regex:([0-9]+) GB/s", "matches nothing in the output"),
        ("q:min=json:p.5", "has no '5'"),
        ("q:min=json:bad", "'x' is not a number"),
        ("q:min=json:none", "None is not a number"),
        ("q:min=json:yes", "it is true, which is not a number: print 1 or 0"),
        ("missing", "has no 'missing'"),
    ],
)
def test_a_metric_that_is_not_there_is_an_error(text, said):
    with pytest.raises(InvalidValue, match=said):
        metric_of(*split_metric(text)).read(reading())
    with pytest.raises(InvalidValue, match="it is false, which is not a number"):
        metric_of("q", "min").read(reading(document=lambda: False))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time_s:least", "'min' or 'max'"),
        ("x:min=regexp:a", "must come from one of"),
        ("x:min=regex:(", "regular expression"),
        ("x:min=regex", "must look like"),
        (":min", "must look like"),
    ],
)
def test_a_wrong_metric_is_told_what_is_right(text, said):
    with pytest.raises(InvalidSpace, match=said):
        metric_of(*split_metric(text))


def test_contexts_and_their_kinds(tmp_path, monkeypatch):
    monkeypatch.setenv("REGION", "eu west")
    (tmp_path / "load").write_text("0.75\n")
    at = ContextReading({"input": str(tmp_path / "load")}, lambda _: "12\n")
    cases = {
        "n=nproc": (12.0, Number(missing=12.0)),
        "load=file:{input}": (0.75, Number(missing=0.75)),
        "size=size:{input}": (5.0, Number(log=True)),
        "region=env:REGION": ("eu west", Category()),
        "shard:category=nproc": (12.0, Category()),
        "user:name=env:REGION": ("eu west", Name()),
    }
    for text, (value, kind) in cases.items():
        source = context_of(*split_context(text))
        assert source.read(at) == value
        assert kind_for(source, value) == kind
    now = time.localtime()
    hour = context_of("hour", "time:hour")
    assert hour.read(at) == pytest.approx(now.tm_hour + now.tm_min / 60, abs=0.1) or now.tm_hour == 0
    assert kind_for(hour, 3.0) == TimeOfDay()
    assert kind_for(context_of("day", "time:weekday"), 3.0) == Weekday()


def test_a_context_that_changes_its_nature_is_missing_or_a_text():
    kinds = {"n": Number(missing=1.0), "c": Category(), "t": TimeOfDay()}
    assert for_tuner({"n": "busy", "c": 3.0, "t": 12.5}, kinds) == {"n": None, "c": "3", "t": 45_000.0}
    assert for_tuner({}, {}) is None


@pytest.mark.parametrize("text", ["hour=time:minute", "noequals", "a b=time:hour", "x="])
def test_a_wrong_context_is_told_what_is_right(text):
    with pytest.raises(InvalidSpace, match=r"must (look like|be one of)"):
        context_of(*split_context(text))


@pytest.mark.parametrize(("text", "value"), [(90, 90.0), ("90", 90.0), ("1.5m", 90.0), ("1h1s", 3601.0), (None, None)])
def test_durations(text, value):
    assert seconds("time", text) == value


@pytest.mark.parametrize("text", ["", "soon", "-3", 0, "0s", True, float("inf")])
def test_wrong_durations(text):
    with pytest.raises(InvalidSpace, match="such as 90s, 10m or 1h30m"):
        seconds("time", text)


STUDY = {"knobs": {"x": "int:0..20"}, "command": ["echo", "{x}"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"knobs": {}}, "at least one knob"),
        ({"knobs": {"input": "int:1..2"}}, "has a meaning of its own"),
        ({"knobs": {"a b": "int:1..2"}}, "must be a word"),
        ({"knobs": {"x": "int:0..20", "y": "int:0..2"}}, "knob 'y' is used nowhere"),
        ({"default": {"y": 1}}, "'y', which is no knob"),
        ({"default": {"x": 99}}, "must lie in"),
        ({"command": ["echo", "{x}", "{z}"]}, r"placeholder \{z\}, but there is no such knob"),
        ({"command": ["echo", "{x}", "{input}"]}, "--inputs 'data/"),
        ({"command": ["no-such-program", "{x}"]}, "was not found"),
        ({"command": ["echo {x} | wc"]}, "add --shell"),
        ({"command": None}, "say what to tune"),
        ({"call": "m:f"}, "say what to tune"),
        ({"files": {"out": "no-such-template"}}, "cannot be read"),
        ({"inputs": "none/*.xyz", "command": ["echo", "{x}", "{input}"]}, "no file matches"),
        ({"tmeout": 3}, "no field 'tmeout'"),
        ({"repeats": 0}, "repeats must be"),
        ({"name": "../up"}, "name must be"),
    ],
)
def test_a_wrong_study_is_told_what_is_right(changes, said):
    with pytest.raises((InvalidSpace, InvalidValue), match=said):
        build_study({**STUDY, **changes}).find_inputs()


def test_a_study_takes_its_name_from_the_program_and_its_situations_from_the_inputs():
    study = build_study({**STUDY, "command": ["echo", "-{x}", "{input}"], "inputs": ["a", "b"]})
    assert isinstance(study, TuneStudy)
    assert (study.name, study.default, study.assumed) == ("echo", {"x": 10}, ("x",))
    assert study.find_inputs() == ["a", "b"]
    assert list(study.contexts) == ["input"]
    assert study.contexts["input"].read(ContextReading({"input": "a"}, str)) == "a"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["echo", "-{x}"], "echo"),
        (["python3.11", "jobs/nightly.py", "{x}"], "nightly"),
        (["/usr/bin/python3", "-m", "job", "{x}"], "python3"),
        (["sh", "-c", "sleep {x}"], "sh"),
    ],
)
def test_a_script_has_the_name_of_its_file_and_not_of_what_runs_it(command, name):
    assert build_study({**STUDY, "command": command}).name == name


def test_the_command_line_overrides_the_file():
    file = {"command": ["a"], "knobs": {"x": 1, "y": 2}, "steps": 5}
    assert merged(file, {"knobs": {"y": 3}, "steps": 9}) == {"command": ["a"], "knobs": {"x": 1, "y": 3}, "steps": 9}
    assert merged(file, {"call": "m:f"}) == {"call": "m:f", "knobs": {"x": 1, "y": 2}, "steps": 5}
    assert merged({"shell": "a | b"}, {"command": ["c"]}) == {"command": ["c"]}


@pytest.mark.parametrize(
    ("text", "weight", "limit", "kind"),
    [
        ("memory_mb:min*0.5", 0.5, None, "memory"),
        ("size:min*0.5=size:out", 0.5, None, "size"),
        ("size:min * 2 <= 1.05 default=size:out", 2.0, "1.05 default", "size"),
        ("fps:max*1e-1=regex:([0-9.]+) fps", 0.1, None, "regex"),
    ],
)
def test_a_weight_stands_after_the_goal(text, weight, limit, kind):
    found = metric_of(*split_metric(text))
    assert (found.metric.weight, found.metric.at_most, found.kind) == (weight, limit, kind)
    assert f"weight {weight:g}" in str(found)


def test_a_limit_given_apart_leaves_the_weight():
    assert with_limits({"size": "min*0.5=size:out"}, ["size<=9"]) == {"size": "min*0.5<=9=size:out"}


@pytest.mark.parametrize("text", ["memory_mb:min*half", "memory_mb:min*5%"])
def test_a_weight_that_is_no_number_is_named(text):
    with pytest.raises(InvalidSpace, match=r"the weight of metric 'memory_mb' must be a number without a unit"):
        metric_of(*split_metric(text))


def test_a_metric_of_a_tuner_is_one_of_a_study():
    assert metric_of("time_s", Metric()).metric == metric_of("time_s", "min").metric
    assert (
        metric_of("size", Metric("min", at_most="1.05 default")).metric == metric_of("size", "min<=1.05 default").metric
    )
