"""Policies that explore: what a leaf tries, how often, at which stake; and keys that stay with what they got."""

import json
from collections import Counter
from math import log

import numpy as np
import pytest
from typer.testing import CliRunner

from rasp_tuner import Float, Int, Tuner
from rasp_tuner.cli import app
from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.evaluate import MOST_SETTINGS, WEIGHTS, load, pick_of
from rasp_tuner.policy.explore import LOOKS
from rasp_tuner.policy.tree import leaves_of
from rasp_tuner.presets import BUDGET


def taught(steps, space=None, seed=0, **settings):
    """A tuner that was asked and told: 4 is best below 500 qps, 40 above; the default is 16."""
    rng, space = np.random.default_rng(seed), space or {"pool": Int(1, 64, log=True)}
    tuner = Tuner(space, {"p99": "min"}, context=["qps"], default={"pool": 16}, **settings)
    for _ in range(steps):
        qps = float(rng.choice([100.0, 900.0]) + rng.random())
        asked = tuner.ask([qps])
        off = log(asked.params["pool"] / (40.0 if qps > 500.0 else 4.0))
        tuner.tell(asked.id, {"p99": 20.0 + 10.0 * off**2 + rng.normal()})
    return tuner


@pytest.fixture(scope="module")
def young():
    return taught(8, seed=1)


def exported(tuner, tmp_path, **how):
    report = tuner.export(tmp_path / "policy.json", **{"explore": True, **how})
    return report, load(tmp_path / "policy.json")


@pytest.mark.parametrize("space", [None, {"pool": Float(1, 64, log=True)}], ids=["levels", "floats"])
@pytest.mark.parametrize("steps", [10, 40])
def test_every_leaf_has_what_is_recommended_the_default_and_what_would_be_asked_for(space, steps, tmp_path):
    tuner = taught(steps, space)
    report, policy = exported(tuner, tmp_path)
    plain = tuner.export(tmp_path / "plain.json").policy["tree"]
    explored = 0
    assert {json.dumps(leaf["params"]) for leaf in leaves_of(policy["tree"])} == {
        json.dumps(leaf["params"]) for leaf in leaves_of(plain)
    }
    for leaf in leaves_of(policy["tree"]):
        settings = leaf["settings"]
        assert settings[0]["params"] == leaf["params"]
        assert len(settings) <= MOST_SETTINGS
        assert sum(one["weight"] for one in settings) == WEIGHTS
        default = [one for one in settings if one["params"] == policy["default"]]
        assert [one["stake"] for one in default] == [0.0]
        assert default[0]["weight"] >= 100
        others = [one["params"] for one in settings[1:] if one not in default]
        explored += len(others)
        assert len({json.dumps(one["params"]) for one in settings}) == len(settings)
    assert explored or steps > 10
    assert f"{report.explored.share:.1%} of the keys run something else" in str(report)


def test_what_is_tried_is_what_the_tuner_asks_for(young, tmp_path):
    policy = exported(young, tmp_path)[1]
    offered = {one["params"]["pool"] for leaf in leaves_of(policy["tree"]) for one in leaf["settings"]}
    contexts = [[qps + i / 8.0] for qps in (100.0, 900.0) for i in range(8)]
    asked = [Tuner.from_bytes(young.to_bytes()).ask(context).params["pool"] for context in contexts]
    assert len(set(asked) & offered - {16}) >= 1


def test_exploring_stays_within_the_budget_or_within_a_few_runs(young, tmp_path):
    many = exported(young, tmp_path)[0].explored
    assert 0.0 < many.stake <= BUDGET
    for outcomes in (20, 10_000_000):
        report, policy = exported(young, tmp_path, explore=outcomes)
        leaves = list(leaves_of(policy["tree"]))
        assert (report.explored.stake > BUDGET) == (outcomes == 20)
        for leaf in leaves:
            looks = sum(one["weight"] for one in leaf["settings"][1:]) / WEIGHTS
            stake = sum(one["weight"] * one["stake"] for one in leaf["settings"][1:]) / WEIGHTS
            few = looks <= LOOKS / (outcomes * leaf["share"]) + 0.01
            assert few or (stake <= BUDGET + 1e-6 and looks <= 0.11)


def test_a_key_stays_with_its_setting_and_keys_are_spread_as_the_weights_say(young, tmp_path):
    policy = exported(young, tmp_path)[1]
    picks = [pick_of(policy, [100.5], f"user-{i}") for i in range(20_000)]
    assert picks == [pick_of(policy, [100.5], f"user-{i}") for i in range(20_000)]
    leaf = next(one for one in leaves_of(policy["tree"]) if one["leaf"] == picks[0].leaf)
    counts = Counter(pick.setting for pick in picks)
    for setting, one in enumerate(leaf["settings"]):
        share = one["weight"] / WEIGHTS
        assert counts[setting] / 20_000 == pytest.approx(share, abs=4.0 * (share / 20_000) ** 0.5)
        assert {pick.probability for pick in picks if pick.setting == setting} <= {share}
    other = exported(young, tmp_path, salt="another")[1]
    moved = sum(pick_of(other, [100.5], f"user-{i}").setting != picks[i].setting for i in range(20_000))
    same = sum((one["weight"] / WEIGHTS) ** 2 for one in leaf["settings"])
    assert moved / 20_000 == pytest.approx(1.0 - same, abs=0.03)


def test_a_version_names_what_a_policy_says(young, tmp_path):
    before = young.to_bytes()
    first, again = exported(young, tmp_path)[1], exported(Tuner.from_bytes(before), tmp_path)[1]
    assert first == again
    assert young.to_bytes() == before
    other = exported(taught(11, seed=1), tmp_path)[1]
    assert other["explore"]["version"] != first["explore"]["version"]
    assert other["explore"]["salt"] == first["explore"]["salt"]  # keys stay where they were as far as weights do
    assert exported(taught(8, seed=0), tmp_path)[1]["explore"]["salt"] == first["explore"]["salt"]


def test_a_frozen_tuner_explores_nothing(tmp_path):
    tuner = taught(40)
    tuner.freeze()
    report, policy = exported(tuner, tmp_path)
    assert report.explored.share == 0.0
    assert {pick_of(policy, [900.5], str(i)).params["pool"] for i in range(99)} == {tuner.recommend([900.5])["pool"]}
    tuner.freeze(default=True)
    policy = exported(tuner, tmp_path)[1]
    assert {pick_of(policy, [900.5], str(i)).params["pool"] for i in range(99)} == {16}


def test_without_a_key_or_with_a_wrong_context_nothing_is_drawn(young, tmp_path):
    policy = exported(young, tmp_path)[1]
    pick, version = pick_of(policy, [100.5], "a"), policy["explore"]["version"]
    assert pick_of(policy, [100.5])[1:] == (pick.leaf, 0, None, version)
    assert pick_of(policy, ["many"], "a") == ({"pool": 16}, -1, 0, None, version)


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"preset": "paper"}, "paper"), ({"goal": "find"}, "find"), ({"max_change": 0.1}, "max_change")],
)
def test_tuners_that_cannot_explore_at_the_edge_say_why(settings, told, tmp_path):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, default={"x": 0.5}, **settings)
    with pytest.raises(InvalidValue, match=f"explore: .*{told}.*export without it"):
        tuner.export(tmp_path / "policy.json", explore=True)


def test_wrong_arguments_are_refused(young, tmp_path):
    for wrong in ({"explore": 0}, {"explore": 0.5}, {"explore": "yes"}, {"salt": 3}, {"salt": ""}):
        with pytest.raises(InvalidValue, match=f"{next(iter(wrong))} must be"):
            exported(young, tmp_path, **wrong)


def test_the_command_exports_what_explores(young, tmp_path):
    young.save(tmp_path / "run.rasp")
    ran = CliRunner().invoke(app, ["export", str(tmp_path / "run.rasp"), str(tmp_path / "p.json"), "--explore"])
    assert ran.exit_code == 0, ran.output
    assert "of the keys run something else than what is recommended" in ran.output
    assert load(tmp_path / "p.json")["explore"]["version"]
