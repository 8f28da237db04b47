"""The command `rasp watch`: --check, exit codes, and studies that make no sense."""

import json

import pytest
from watch_running import rasp, vector, write_study

from rasp_tuner.errors import InvalidSpace
from rasp_tuner.watch import build_study, read_study


def test_check_asks_every_query_once_and_shows_what_would_be_written(world):
    write_study(world)
    done = rasp("study.toml", "--check", cwd=world.folder)
    assert "context   load: 1\n" in done.stdout
    assert "metric    loss: 65\n" in done.stdout
    assert 'sink      settings writes settings.json:\n          {\n           "x": 15' in done.stdout
    assert done.stdout.endswith("ready\n")
    assert not (world.folder / "settings.json").exists()
    assert not world.out.exists()
    queries = ["load", "max(timestamp(load))", "loss", "max(timestamp(loss))"]
    assert sorted(world.prometheus.asked) == sorted(queries)


def test_check_names_all_that_is_wrong(world):
    write_study(
        world,
        missing="wait",
        metrics={"loss": {"query": "avg(rate(loss[5m]))"}, "p99": "p99"},
        sinks={"settings": {"file": "nowhere/settings.json"}, "reload": {"command": "no-such-program {x}"}},
    )
    world.prometheus.answers["load"] = vector(1, 2)
    done = rasp("study.toml", "--check", cwd=world.folder, code=1)
    assert "PROBLEM   context 'load': the query `load` gives 2 series" in done.stdout
    assert "PROBLEM   metric 'p99': the query `p99` gives no series" in done.stdout
    assert "PROBLEM   sink 'settings': there is no folder" in done.stdout
    assert "PROBLEM   sink 'reload': the program 'no-such-program' was not found" in done.stdout
    assert "note      metric 'loss' looks back over [5m], longer than settle and window" in done.stdout
    assert done.stdout.endswith("5 problems\n")
    assert world.prometheus.asked.count("p99") == 1  # a check does not wait


def test_check_says_that_prometheus_is_not_there(world):
    write_study(world)
    done = rasp("study.toml", "--check", "--prometheus", "http://127.0.0.1:1", cwd=world.folder, code=1)
    assert "no answer from Prometheus at http://127.0.0.1:1" in done.stdout


def test_exit_codes(world):
    write_study(world)
    rasp("study.toml", "--steps", "1", cwd=world.folder)
    assert (world.folder / "rasp-watch" / "parabola" / "journal.jsonl").exists()
    world.prometheus.answers["loss"] = vector()
    rasp("study.toml", "--steps", "1", cwd=world.folder, code=1)
    done = rasp("study.toml", "--mode", "loud", cwd=world.folder, code=1)
    assert done.stderr == "rasp: mode must be one of shadow, canary, live, got 'loud'\n"
    done = rasp("nowhere.toml", cwd=world.folder, code=1)
    assert "cannot read the study file 'nowhere.toml'" in done.stderr


def test_a_rollback_is_told_by_the_exit_code(world):
    world.prometheus.answers["p99"] = 250.0
    metrics = {"loss": {"query": "loss"}, "p99": {"query": "p99", "max": 200}}
    write_study(world, metrics=metrics, violations=1, holdout=0)
    rasp("study.toml", "--steps", 2, cwd=world.folder, code=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "has no field 'colour'; it takes name, mode"),
        ({"windw": "1m"}, "has no field 'windw': did you mean 'window'[?] It takes name"),
        ({"prometheus": {"share": 0.5}}, "prometheus has no field 'share', the study has: put its line above"),
        ({"sinks": {"a": {"file": "a.json", "budget": 1}}}, r"sinks\.a has no field 'budget', the study has: put its"),
        ({"sinks": {"a": {"file": "a.json", "fromat": "env"}}}, "has no field 'fromat': did you mean 'format'"),
        ({"knobs": {}}, "needs at least one knob"),
        ({"knobs": {"x": "int:0..20", "y": "int:0..9"}}, "default lacks y: say what runs today"),
        ({"knobs": 5}, "knobs must be a table"),
        ({"default": {"x": 99}}, "99"),
        ({"default": {"x": 15, "z": 1}}, "default names 'z', which is no knob"),
        ({"metrics": {}}, "needs a metric"),
        ({"metrics": {"m": 5}}, r"metrics\.m must be a query or a table"),
        ({"metrics": {"m": {"query": ""}}}, r"metrics\.m\.query must be a PromQL query"),
        ({"metrics": {"m": {"query": 5}}}, r"metrics\.m\.query must be a PromQL query"),
        ({"metrics": {"m": {"query": "a[{windw}]"}}}, r"has the placeholder \{windw\}; a query has only"),
        ({"metrics": {"m": {"query": "a", "gaol": "min"}}}, r"metrics\.m has no field 'gaol': did you mean 'goal'\?"),
        ({"metrics": {"m": {"query": "a", "goal": "up"}}}, "direction must be 'min' or 'max'"),
        ({"metrics": {"m": {"query": "a", "max": "x"}}}, "Metric max must be a finite number"),
        ({"metrics": {"m": {"query": "sum(a)", "min_samples": 3}}}, "cannot be told from it"),
        ({"metrics": {"m": {"query": "a", "canary": "b"}}}, "both canary and control, or neither"),
        ({"metrics": {"m": {"query": "a", "missing": "ignore"}}}, "missing must be one of skip, wait, or a number"),
        ({"contexts": {"a b": "c"}}, "a context's name must be a word"),
        ({"contexts": {"a": {"query": "c", "kind": "colour"}}}, "kind must be one of number, log"),
        ({"contexts": {"a": {"query": "c", "label": "z", "kind": "number"}}}, "kind must be one of category, name"),
        ({"contexts": {"a": {"query": "c", "missing": "ignore"}}}, "must be skip, wait, or a usual value"),
        ({"contexts": {"a": {"query": "c", "x": 1}}}, "has no field 'x'; it takes query, kind, label, newest, missing"),
        ({"running": {"y": "c"}}, "running names 'y', which is no knob"),
        ({"running": {"x": {"query": "c", "label": 5}}}, "takes a query and the name of a label"),
        ({"sinks": {}}, "mode live writes parameters, but no sink is there"),
        ({"sinks": {"a": {"command": ["true"]}}}, "knob 'x' reaches no sink"),
        ({"sinks": {"a": 5}}, r"sinks\.a must be a table"),
        ({"mode": "loud"}, "mode must be one of shadow, canary, live"),
        ({"mode": ["live"]}, "mode must be one of"),
        ({"window": "soon"}, "window must be a duration"),
        ({"settle": -1}, "settle must be a duration"),
        ({"share": 1.5}, "share must be a share of steps from"),
        ({"share": 0}, r"share must be a share of steps from 0\.02 to 0\.98, got 0"),
        ({"holdout": 0.005}, r"holdout must be a share of steps from 0\.02 to 0\.98, or 0, got 0\.005"),
        ({"holdout": "x"}, "holdout must be a finite number"),
        ({"violations": 0}, "violations must be a whole number"),
        ({"budget": "much"}, "budget must be a finite number"),
        ({"budget": -1}, "budget must be a share of the default's loss such as 0.02, or false, got -1"),
        ({"budget": True}, "budget must be a share"),
        ({"metrics": {"m": {"query": "rate(a[{window}])", "min_samples": -1}}}, "min_samples must not be below zero"),
        ({"on_exit": "leave"}, "on_exit must be one of keep, default"),
        ({"name": "a b"}, "name must be letters"),
        ({"constraints": 5}, "constraint"),
        (
            {"prometheus": {"url": "localhost:9090"}},
            r"prometheus\.url must be an address such as http://localhost:9090",
        ),
        ({"prometheus": {"url": "http://a b"}}, "must be an address"),
        ({"prometheus": {"url": "http://host/ä"}}, r"must be an address .*plain ASCII \(%C3%A4 for ä\)"),
        ({"prometheus": {"headers": {"X-A": "ä"}}}, r"prometheus\.headers: 'X-A' must be a word of ASCII"),
        ({"prometheus": {"headers": {"X A": "b"}}}, r"prometheus\.headers: 'X A' must be a word of ASCII"),
        ({"prometheus": {"url": "http://u:p@host"}}, "must not hold a password"),
        ({"prometheus": {"adress": "x"}}, "prometheus has no field 'adress'"),
    ],
)
def test_a_study_that_makes_no_sense(world, change, words):
    with pytest.raises((InvalidSpace, ValueError), match=words) as caught:
        world.study(**change)
    assert type(caught.value).__module__ == "rasp_tuner.errors"


def test_a_study_needs_little(tmp_path):
    fields = {"knobs": {"x": "int:0..9"}, "default": {"x": 1}, "metrics": {"m": "m"}}
    study = build_study(fields)
    assert (study.mode, study.window_s, study.prometheus.url) == ("shadow", 60.0, "http://127.0.0.1:9090")
    path = tmp_path / "shop.toml"
    path.write_text(
        "\n".join(
            f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in t.items()) for name, t in fields.items()
        )
    )
    assert read_study(path).name == "shop"
