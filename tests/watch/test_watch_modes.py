"""Modes of `rasp watch`: a shadow changes nothing, canaries are compared, live learns; and rollbacks."""

import json
import math
import re

import pytest
from watch_running import vector

from rasp_tuner import Tuner
from rasp_tuner.errors import TuningStopped
from rasp_tuner.watch import build_study, watch


def test_live_finds_the_best_setting_and_leaves_it_in_place(world):
    watch(world.study(holdout=0.2), steps=25, folder=world.out)
    assert abs(world.x - 7) <= 1
    roles = [entry["role"] for entry in world.entries()]
    assert 2 <= roles.count("default") <= 9  # each with a probability of one in five
    assert world.status()["gain"].startswith("against the default: saved ")
    assert world.status()["gain"] == f"against the default: {Tuner.load(world.out / 'tuner.rasp').versus_default()}"


def test_a_shadow_changes_nothing_and_says_that_it_cannot_tell(world):
    done = watch(world.study(), mode="shadow", steps=6, folder=world.out)
    assert done.measured == 6
    assert not (world.folder / "settings.json").exists()
    assert {entry["role"] for entry in world.entries()} == {"observed"}
    assert all(entry["params"] == {"x": 15} and entry["would_try"] for entry in world.entries())
    assert "cannot tell what going live would gain: only one setting has run" in world.status()["gain"]


def test_a_shadow_learns_from_what_others_try_and_forecasts_the_gain(world):
    tried = iter([15, 12, 9, 7, 5, 8, 7, 15, 3, 10, 6, 7, 15, 15, 15, 15, 15, 15, 15, 15])
    state = {"x": 15}

    def runs():
        state["x"] = next(tried)
        return float(state["x"])

    world.prometheus.answers["x_now"] = lambda: float(state["x"])
    world.prometheus.answers["loss"] = lambda: 1.0 + (runs() - 7) ** 2
    study = world.study(running={"x": "x_now"}, contexts={})
    watch(study, mode="shadow", steps=20, folder=world.out)
    assert [entry["params"]["x"] for entry in world.entries()][:4] == [15, 12, 9, 7]
    (found,) = Tuner.load(world.out / "tuner.rasp").situations()
    assert found.changed
    assert world.status()["gain"].endswith(f"less what exploring costs: {found}")


def test_what_runs_is_learned_where_the_study_asks_for_it(world, caplog):
    world.prometheus.answers["x_now"] = 9.0
    watch(world.study(running={"x": "x_now"}), steps=2, folder=world.out)
    assert all(entry["ran"] == {"x": 9} for entry in world.entries())
    assert "what runs is x=9, not what was handed over" in caplog.text
    world.prometheus.answers["x_now"] = 99.0
    assert watch(world.study(running={"x": "x_now"}), steps=1, folder=world.out).measured == 0
    assert "running 'x': 99 runs, which is no value of the knob" in caplog.text


def test_parameters_that_never_ran_are_not_the_last_good_ones(world):
    """The service refuses them all and stays at the default."""
    world.prometheus.answers.update({"x_now": 15.0, "loss": 5.0})
    watch(world.study(running={"x": "x_now"}, holdout=0), steps=3, folder=world.out)
    assert any(entry["params"] != {"x": 15} for entry in world.entries())
    assert world.status()["last_good"] == {"x": 15}
    assert world.x == 15


def test_a_text_that_runs_is_the_text_of_a_label(world):
    world.prometheus.answers["info"] = lambda: vector(1, labels={"codec": "zstd"})
    study = world.study(
        knobs={"x": "int:0..20", "codec": "cat:lz4,zstd"},
        default={"x": 15, "codec": "zstd"},
        running={"x": "x_now", "codec": {"query": "info", "label": "codec"}},
    )
    world.prometheus.answers["x_now"] = 9.0
    assert watch(study, mode="shadow", steps=1, folder=world.out).measured == 1
    assert world.entries()[0]["params"] == {"x": 9, "codec": "zstd"}


def test_canaries_by_time_run_in_their_share_of_steps(world):
    watch(world.study(share=0.25), mode="canary", steps=12, folder=world.out)
    entries = world.entries()
    assert sum(entry["role"] == "suggestion" for entry in entries) == 3
    assert all(entry["params"] == {"x": 15} for entry in entries if entry["role"] == "default")


def test_canaries_by_instances_are_compared_with_the_others_at_the_same_time(world):
    metric = {"query": "loss_all", "canary": "loss", "control": "loss_control"}
    world.prometheus.answers["loss_control"] = 65.0
    watch(world.study(metrics={"loss": metric}), mode="canary", steps=40, folder=world.out)
    assert {entry["role"] for entry in world.entries()} == {"suggestion"}
    assert {entry["control"]["loss"] for entry in world.entries()} == {65.0}
    assert "loss_all" not in world.prometheus.asked
    assert world.status()["gain"].startswith("against the default: saved 9")
    assert "in 40 steps, measured against 39 controls; never proven worse" in world.status()["gain"]
    world.prometheus.answers["loss_all"] = 64.0
    watch(world.study(metrics={"loss": metric}), mode="shadow", steps=1, folder=world.out)
    assert world.entries()[-1]["params"] == {"x": 15}  # not what the canaries got


def limited(world, **more):
    """A study with a limit that nothing keeps from now on."""
    world.prometheus.answers["p99"] = 250.0
    metrics = {"loss": {"query": "loss"}, "p99": {"query": "p99", "max": 200}}
    return world.study(metrics=metrics, holdout=0, **more)


def test_a_limit_that_is_broken_again_and_again_brings_the_default_back(world, caplog):
    study = limited(world, violations=2)
    done = watch(study, steps=6, folder=world.out)
    assert "a limit was broken in 2 steps one after the other (p99 is 250, its limit 200)" in done.rolled_back
    assert "give the same command with --resume" in caplog.text
    assert "the default breaks limits, too" in caplog.text
    assert world.x == 15
    roles = [entry["role"] for entry in world.entries()]
    assert roles == ["suggestion"] * 2 + ["frozen"] * 4
    assert world.status()["state"] == "rolled back"
    again = watch(study, steps=2, folder=world.out)  # it is remembered
    assert again.rolled_back
    assert world.x == 15
    world.prometheus.answers["p99"] = 100.0
    resumed = watch(study, steps=4, folder=world.out, resume=True)
    assert resumed.rolled_back == ""
    assert [entry["role"] for entry in world.entries()][-4:] == ["suggestion"] * 4


def test_a_limit_broken_now_and_then_is_no_reason(world):
    study = limited(world, violations=2)
    values = iter([250.0, 100.0] * 10)
    world.prometheus.answers["p99"] = lambda: next(values)
    assert watch(study, steps=6, folder=world.out).rolled_back == ""


def spendthrift(world, **more):
    """A study with hardly a budget, of a system whose load goes up and down: what helps in one situation costs in the
    other."""
    steps = iter(range(1, 1000))

    def loss():
        found = 20.0 + 40.0 * math.log(world.x / (40 if world.load > 500.0 else 4)) ** 2
        world.load = 900.0 if next(steps) // 3 % 2 else 100.0
        return found

    world.prometheus.answers["loss"], world.load = loss, 100.0
    (world.folder / "settings.json").write_text('{"x": 8}')
    study = world.study(budget=0.003, holdout=0, knobs={"x": "int:1..64:log"}, default={"x": 8}, **more)
    watch(study, mode="shadow", steps=5, folder=world.out)
    return study


@pytest.mark.nightly
def test_a_spent_budget_brings_the_default_back_and_resume_goes_on(world, caplog):
    study = spendthrift(world)
    done = watch(study, steps=250, folder=world.out)
    said = r"the budget is spent \(exploring lost \S+ runs of the default, and won \S+ back\)"
    assert re.search(said, done.rolled_back)
    assert world.x == 8
    assert {entry["params"]["x"] for entry in world.entries() if entry["role"] == "frozen"} == {8}
    watch(study, steps=1, folder=world.out, resume=True)
    assert "resumed: suggestions run again" in caplog.text
    assert world.entries()[-1]["role"] != "frozen"


def test_with_exploit_a_spent_budget_is_no_rollback(world):
    study = spendthrift(world, when_spent="exploit")
    assert watch(study, steps=5, folder=world.out).rolled_back == ""


def test_resume_without_a_rollback_changes_nothing(world, caplog):
    watch(world.study(), steps=1, folder=world.out, resume=True)
    assert "nothing is rolled back" in caplog.text


def test_on_exit_default_puts_the_default_in_place(world):
    watch(world.study(on_exit="default"), steps=10, folder=world.out)
    assert world.x == 15
    assert {entry["params"]["x"] for entry in world.entries()} != {15}


def test_who_leaves_parameters_behind_is_told_that_situations_change(world, caplog):
    watch(world.study(), steps=20, folder=world.out)
    assert world.x != 15
    assert f"left in place: x={world.x} (good where they ran last; in other situations" in caplog.text


def test_by_default_what_is_good_in_one_situation_does_not_stay_for_others(world):
    fields = world.fields()
    del fields["on_exit"]
    assert build_study(fields).on_exit == "default"
    assert build_study({**fields, "contexts": {}}).on_exit == "keep"


def test_a_bad_suggestion_is_not_left_in_place(world):
    """What was worse than the default would have been is nothing to go back to."""
    world.best = 12
    study = world.study(holdout=0)
    watch(study, mode="shadow", steps=3, folder=world.out)
    watch(study, steps=12, folder=world.out)
    bad = [entry for entry in world.entries() if entry["metrics"]["loss"] > 20.0]  # the default has 10
    assert bad
    assert not any(entry["good"] for entry in bad)
    assert world.loss() <= 10.0


def test_another_definition_is_refused_but_other_queries_are_not(world):
    watch(world.study(), steps=2, folder=world.out)
    with pytest.raises(TuningStopped, match=r"(?s)default\.x: was 15, is 14.*--fresh"):
        watch(world.study(default={"x": 14}), steps=1, folder=world.out)
    world.prometheus.answers["loss_v2"] = world.loss
    study = world.study(metrics={"loss": {"query": "loss_v2"}}, window=0.03)
    assert watch(study, steps=1, folder=world.out).measured == 1
    watch(world.study(default={"x": 14}), steps=1, folder=world.out, fresh=True)
    assert len(world.entries()) == 1
    assert (world.out / "journal.1.jsonl").exists()


def test_the_status_says_where_it_stands(world):
    watch(world.study(budget=0.02), steps=2, folder=world.out)
    found = world.status()
    assert (found["study"], found["mode"], found["state"], found["steps"]) == ("parabola", "live", "stopped", 2)
    assert found["parameters"] == {"x": world.x}
    assert found["budget"].startswith("Exploring may cost 2.0% more")
    assert found["gain"].startswith("against the default: ")
    assert found["latest"]["metrics"]["loss"] > 0
    assert found["problem"] is None


def test_several_series_are_named_in_the_status(world):
    world.prometheus.answers["loss"] = vector(1, 2)
    watch(world.study(), steps=1, folder=world.out)
    assert "sum(...)" in json.dumps(world.status()["problem"])
