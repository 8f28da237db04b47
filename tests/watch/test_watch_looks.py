"""Looks inside the window: a run that is bad enough is ended, and what was good before comes back."""

import json
import time

import pytest

from rasp_tuner import InvalidSpace, Tuner
from rasp_tuner.watch import watch

WINDOW_S = 1.0
LOOKING = {"window": WINDOW_S, "look_every": 0.1, "budget": 0.02, "holdout": 0.2, "contexts": {}}
PLANS = {"knobs": {"x": "cat:good,ruinous"}, "default": {"x": "good"}}


def plan(world):
    path = world.folder / "settings.json"
    return json.loads(path.read_text())["x"] if path.exists() else "good"


@pytest.fixture
def plans(world):
    """A system with two plans, of which one costs ten times as much; and when each was seen."""
    world.seen = []

    def loss():
        world.seen.append((time.monotonic(), plan(world)))
        return 100.0 if plan(world) == "ruinous" else 10.0

    world.prometheus.answers["loss"] = loss
    return world


def test_a_ruinous_run_is_ended_at_its_stake_and_the_good_one_comes_back(plans):
    result = watch(plans.study(**LOOKING, **PLANS), steps=4, folder=plans.out)
    assert result.measured == 4
    (bad,) = [entry for entry in plans.entries() if entry["params"]["x"] == "ruinous"]
    assert bad["stopped"] <= 0.5 * WINDOW_S
    assert 12.0 <= bad["metrics"]["loss"] <= 60.0  # what the window came to, not ten times the default
    assert not bad["good"]
    assert plan(plans) == "good"
    ruinous = [at for at, seen in plans.seen if seen == "ruinous"]
    assert ruinous[-1] - ruinous[0] < 0.5 * WINDOW_S
    assert plans.status()["last_good"] == {"x": "good"}


def test_it_is_learned_as_a_bound_and_a_replay_learns_the_same(plans):
    watch(plans.study(**LOOKING, **PLANS), steps=4, folder=plans.out)
    tuner = Tuner.load(plans.out / "tuner.rasp")
    assert sum(row["stopped"] for row in tuner.history()) == 1
    assert tuner.recommend() == {"x": "good"}
    assert tuner.budget().spent < 1.5  # run to its end it would have cost nine steps of the default
    watch(plans.study(**LOOKING, **PLANS), steps=1, folder=plans.out)
    again = Tuner.load(plans.out / "tuner.rasp")
    assert [row["stopped"] for row in again.history()][:4] == [row["stopped"] for row in tuner.history()]


def test_without_looks_it_runs_to_the_end(plans):
    watch(plans.study(**{**LOOKING, "look_every": False, "window": 0.2}, **PLANS), steps=4, folder=plans.out)
    (bad,) = [entry for entry in plans.entries() if entry["params"]["x"] == "ruinous"]
    assert "stopped" not in bad
    assert bad["metrics"]["loss"] == 100.0


def test_looks_see_only_the_part_of_the_window_that_is_over(plans):
    ranges = {"query": "avg_over_time(loss[{window}])"}
    plans.prometheus.answers["avg_over_time(loss[1000ms])"] = 10.0
    watch(plans.study(**LOOKING, **PLANS, metrics={"loss": ranges}), steps=6, folder=plans.out)
    asked = [query for query in plans.prometheus.asked if query.startswith("avg_over_time")]
    parts = [int(query.removeprefix("avg_over_time(loss[").removesuffix("ms])")) for query in asked]
    assert parts.count(1000) >= 6  # a look that a busy machine delays sees the whole window, too
    assert all(90 <= part <= 1000 for part in parts)
    assert min(parts) < 1000


def test_a_look_that_sees_nothing_ends_nothing(plans):
    answers = plans.prometheus.answers
    answers["avg_over_time(loss[1000ms])"] = lambda: 100.0 if plan(plans) == "ruinous" else 10.0
    ranges = {"query": "avg_over_time(loss[{window}])"}  # of any other window there is no answer
    watch(plans.study(**LOOKING, **PLANS, metrics={"loss": ranges}), steps=3, folder=plans.out)
    assert [entry["metrics"]["loss"] for entry in plans.entries() if entry["params"]["x"] == "ruinous"] == [100.0]


def test_what_is_slightly_worse_runs_to_its_end(plans):
    plans.prometheus.answers["loss"] = lambda: 11.0 if plan(plans) == "ruinous" else 10.0
    watch(plans.study(**{**LOOKING, "window": 0.3, "look_every": 0.05}, **PLANS), steps=4, folder=plans.out)
    assert not [entry for entry in plans.entries() if "stopped" in entry]


def test_canaries_are_compared_with_their_control_instances(plans):
    answers = plans.prometheus.answers
    answers["canary_loss"] = lambda: 300.0 if plan(plans) == "ruinous" else 30.0
    answers["control_loss"] = 30.0
    metrics = {"loss": {"query": "loss", "canary": "canary_loss", "control": "control_loss"}}
    watch(plans.study(**LOOKING, **PLANS, metrics=metrics, mode="canary"), steps=5, folder=plans.out)
    (bad,) = [entry for entry in plans.entries() if "stopped" in entry]
    assert bad["params"] == {"x": "ruinous"}
    assert bad["control"] == {"loss": 30.0}
    assert plan(plans) == "good"


def test_the_log_says_what_was_ended(plans, caplog):
    watch(plans.study(**LOOKING, **PLANS), steps=4, folder=plans.out)
    assert "ended after" in caplog.text
    assert "ENDED EARLY after" in caplog.text


def test_max_change_of_a_study(world):
    study = world.study(max_change={"x": "2 steps"}, holdout=0.2, budget=0.02)
    watch(study, steps=14, folder=world.out)
    own = [entry["params"]["x"] for entry in world.entries() if entry["role"] == "suggestion"]
    assert all(abs(b - a) <= 2 for a, b in zip([15, *own], own, strict=False) if b != 15)
    assert len(set(own)) > 3
    with pytest.raises(InvalidSpace, match="max_change names 'y'"):
        world.study(max_change={"y": 0.1})


@pytest.mark.parametrize("given", ["often", -1, 0])
def test_look_every_is_a_duration(world, given):
    with pytest.raises(InvalidSpace, match="look_every must be a duration"):
        world.study(look_every=given)
