"""What came of a policy's picks, added up at the edge and told: the loop closes without a request for a decision."""

import json
import math
import subprocess
import sys
from math import log
from pathlib import Path

import numpy as np
import pytest

from rasp_tuner import Category, Float, Int, InvalidValue, Number, Tuner
from rasp_tuner.policy.evaluate import load, pick_of
from rasp_tuner.policy.sums import CONTEXTS, MOST_SUMS, OutcomeSums

SOURCE = Path(__file__).parents[2] / "src/rasp_tuner/policy"
SPACES = {"levels": Int(1, 64, log=True), "floats": Float(1, 64, log=True)}
OUTCOMES = 1000  # of a round
KINDS = {"qps": Number(), "region": Category(["eu", "us"])}


def level(pool, qps):
    return 20.0 + 10.0 * log(pool / (40.0 if qps > 500.0 else 4.0)) ** 2


def exported(tuner, tmp_path, explore=True):
    tuner.export(tmp_path / "policy.json", explore=explore)
    return load(tmp_path / "policy.json")


def a_round(tuner, policy, rng, outcomes, noise):
    """Outcomes of users at the edge, told as sums; their mean."""
    sums, total = OutcomeSums(policy, seed=0), 0.0
    for i, user in enumerate(rng.integers(10**9, size=outcomes)):
        context = {"qps": float((100.0, 900.0)[i % 2] + rng.random()), "region": str(rng.choice(["eu", "us"]))}
        pick = pick_of(policy, context, f"user-{user}")
        p99 = level(pick.params["pool"], context["qps"])
        total += p99
        sums.add(pick, context, {"p99": p99 + noise * rng.normal()})
    told = json.loads(json.dumps(sums.take()))
    assert tuner.tell_sums(told) == outcomes
    return total / outcomes


@pytest.mark.parametrize("noise", [1.0, pytest.param(30.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("space", SPACES)
def test_edges_learn_from_nothing_with_sums_alone(space, noise, tmp_path):
    """The default costs 33.8, the best 20.0; nobody ever asks the tuner for a decision."""
    tuner = Tuner({"pool": SPACES[space]}, {"p99": "min"}, context=KINDS, default={"pool": 16})
    rng = np.random.default_rng(0)
    means = [a_round(tuner, exported(tuner, tmp_path, OUTCOMES), rng, OUTCOMES, noise) for _ in range(10)]
    assert means[0] == pytest.approx(33.8, abs=0.1)  # nothing is known, so that the default runs
    assert max(means) < 33.8 * 1.4  # what exploring may cost in one round, of which nothing is known until it ends
    assert np.mean(means) < 33.8
    assert np.mean(means[-3:]) < (20.5 if noise == 1.0 else 25.0)
    assert tuner.learned == 10 * OUTCOMES
    assert tuner.asked == 0


def some_policy(tmp_path):
    tuner = Tuner({"pool": SPACES["levels"]}, {"p99": "min"}, context=KINDS, default={"pool": 16})
    for qps in (100.0, 900.0) * 4:
        tuner.observe({"qps": qps, "region": "eu"}, {"pool": 8}, {"p99": level(8, qps)})
    return exported(tuner, tmp_path)


def test_sums_are_the_count_the_sum_and_the_squares_of_each_setting(tmp_path):
    policy, rng = some_policy(tmp_path), np.random.default_rng(1)
    sums, by_place = OutcomeSums(policy), {}
    for i in range(500):
        context = {"qps": float(rng.choice([100.0, 900.0])), "region": str(rng.choice(["eu", "us"]))}
        pick, value = pick_of(policy, context, i), rng.normal()
        sums.add(pick, context, {"p99": value})
        by_place.setdefault((pick.leaf, pick.setting, context["region"]), []).append(value)
    taken = sums.take()
    assert len(taken) == len(by_place)
    for one in taken:
        assert one["policy"] == policy["explore"]["version"]
        assert len(one["contexts"]) == min(one["count"], CONTEXTS)
        (region,) = {context["region"] for context in one["contexts"]}  # texts are told apart
        values = np.array(by_place[one["leaf"], one["setting"], region])
        assert one["count"] == len(values)
        assert one["metrics"]["p99"]["sum"] == pytest.approx(values.sum())
        assert one["metrics"]["p99"]["squares"] == pytest.approx((values**2).sum())
        assert 0.0 < one["probability"] <= 1.0
    assert len(sums) == 0
    assert sums.take() == []


def test_contexts_that_are_kept_are_drawn_from_all(tmp_path):
    policy = some_policy(tmp_path)
    sums = OutcomeSums(policy, seed=3)
    for i in range(4000):
        sums.add(pick_of(policy, [100.0 + i / 1e4, "eu"], None), [100.0 + i / 1e4, "eu"], {"p99": 1.0})
    (one,) = sums.take()
    assert len(one["contexts"]) == CONTEXTS
    assert 100.05 < np.mean([qps for qps, _ in one["contexts"]]) < 100.35


def test_sums_are_bounded_and_wrong_contexts_are_left_out(tmp_path):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, context={"user": "name"})
    for i in range(20):
        tuner.observe({"user": f"u{i}"}, {"x": 0.5}, {"loss": 1.0})
    policy = exported(tuner, tmp_path)
    sums = OutcomeSums(policy)
    for i in range(MOST_SUMS + 500):
        sums.add(pick_of(policy, {"user": f"u{i}"}, i), {"user": f"u{i}"}, {"loss": 1.0})
    sums.add(pick_of(policy, {"nobody": 3}, "a"), {"nobody": 3}, {"loss": 1.0})
    assert len(sums) <= MOST_SUMS + 8
    assert sum(one["count"] for one in sums.take()) == MOST_SUMS + 500


def test_other_metrics_are_a_sum_of_their_own(tmp_path):
    policy = some_policy(tmp_path)
    sums, context = OutcomeSums(policy), {"qps": 1.0, "region": "eu"}
    for metrics in ({"p50": 1.0}, {"p99": 1.0}, {"p99": 3.0}):
        sums.add(pick_of(policy, context, "a"), context, metrics)
    assert [(list(one["metrics"]), one["count"]) for one in sums.take()] == [(["p50"], 1), (["p99"], 2)]


def test_names_of_metrics_that_never_end_are_bounded(tmp_path):
    policy = some_policy(tmp_path)
    sums, context = OutcomeSums(policy), {"qps": 1.0, "region": "eu"}
    pick = pick_of(policy, context, "a")
    for i in range(2 * MOST_SUMS):
        sums.add(pick, context, {f"p{i}": 1.0})
    with pytest.raises(ValueError, match="take them first"):
        sums.add(pick, context, {"one more": 1.0})
    assert len(sums) == 2 * MOST_SUMS


def test_policies_that_do_not_explore_are_refused(tmp_path):
    with pytest.raises(ValueError, match="explore=True"):
        OutcomeSums({**some_policy(tmp_path), "explore": None})


@pytest.mark.parametrize(
    ("context", "metrics", "said"),
    [
        (None, {"p99": 1.0}, "a context must have qps, region"),
        ([1.0], {"p99": 1.0}, "a context must have qps, region"),
        ({"qqq": 1.0}, {"p99": 1.0}, "a context has qps, region; got qqq"),
        ([math.inf, "eu"], {"p99": 1.0}, r"context\['qps'\] must be a text or a finite number"),
        ([[1.0], "eu"], {"p99": 1.0}, r"context\['qps'\] must be a text or a finite number"),
        ([1.0, "eu"], None, "metrics must be numbers by name"),
        ([1.0, "eu"], {}, "metrics must be numbers by name"),
        ([1.0, "eu"], {"p99": math.nan}, "metrics must be finite numbers by name, got 'p99'"),
        ([1.0, "eu"], {"p99": 1e200}, "metrics must be finite numbers by name, got 'p99'"),
        ([1.0, "eu"], {"p99": "2"}, "metrics must be finite numbers by name, got 'p99': '2'"),
        ([1.0, "eu"], {"p99": True}, "metrics must be finite numbers by name, got 'p99': True"),
        ([1.0, "eu"], {3: 1.0}, "metrics must be finite numbers by name, got 3: 1.0"),
    ],
)
def test_what_is_wrong_is_refused_before_it_counts(tmp_path, context, metrics, said):
    policy = some_policy(tmp_path)
    sums, right = OutcomeSums(policy), [1.0, "eu"]
    pick = pick_of(policy, right, "a")
    sums.add(pick, right, {"p99": 1.0})
    with pytest.raises(ValueError, match=said):
        sums.add(pick, context, metrics)
    (one,) = sums.take()
    assert (one["count"], one["metrics"]["p99"]["sum"], len(one["contexts"])) == (1, 1.0, 1)


def test_scalars_of_numpy_are_plain_numbers(tmp_path):
    policy = some_policy(tmp_path)
    sums, context = OutcomeSums(policy), {"qps": np.int64(100), "region": "eu"}
    sums.add(pick_of(policy, context, "a"), context, {"p99": np.float32(1.5)})
    (one,) = json.loads(json.dumps(sums.take()))
    assert (one["contexts"], one["metrics"]["p99"]["sum"]) == ([{"qps": 100, "region": "eu"}], 1.5)


def test_a_sum_that_cannot_be_learned_is_named(tmp_path):
    policy = some_policy(tmp_path)
    tuner = Tuner({"pool": SPACES["levels"]}, {"p99": "min"}, context=KINDS, default={"pool": 16})
    sums, context = OutcomeSums(policy), [1.0, "eu"]
    for setting in ("a", "b", "c"):
        sums.add(pick_of(policy, context, setting), context, {"p99": 1.0})
    taken = sums.take()
    taken[-1]["contexts"] = [["x", "eu"]]
    with pytest.raises(InvalidValue, match=rf"sums\[{len(taken) - 1}\].contexts\[0\]: "):
        tuner.tell_sums(taken)
    assert tuner.learned == 0


def test_the_collector_needs_only_the_standard_library(tmp_path):
    for name in ("evaluate.py", "sums.py"):
        (tmp_path / name).write_text((SOURCE / name).read_text())
    (tmp_path / "policy.json").write_text(json.dumps(some_policy(tmp_path)))
    code = (
        "import sys; sys.path.insert(0, '.'); from evaluate import load, pick_of; from sums import OutcomeSums;"
        " p = load('policy.json'); s = OutcomeSums(p); s.add(pick_of(p, [1.0, 'eu'], 'a'), [1.0, 'eu'], {'p99': 2.0});"
        " print(s.take()[0]['count'], 'numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "1 False\n"
