"""What another policy would have come to: unbiased, and the intervals hold as often as they say, by simulation."""

import math

import numpy as np
import pytest

from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.evaluate import pick_of
from rasp_tuner.policy.off_policy import EdgeGain, edge_gain, settings_compared, value_of
from rasp_tuner.policy.sums import OutcomeSums

POOLS = (4, 16, 40)


def a_policy(version, low, high):
    """Weights of the three pools where qps is low, and where it is high."""

    def leaf(number, weights):
        settings = [{"params": {"pool": p}, "weight": w, "stake": 0.0} for p, w in zip(POOLS, weights, strict=True)]
        return {"leaf": number, "params": {"pool": POOLS[0]}, "settings": settings}

    tree = {"if": {"field": "qps", "at_most": 500.0}, "then": leaf(0, low), "else": leaf(1, high)}
    return {
        "format": "rasp-policy", "version": 1, "context": [{"name": "qps", "kind": "number"}],
        "default": {"pool": 16}, "tree": tree, "explore": {"version": version, "salt": version},
    }  # fmt: skip


def level(pool, qps):
    return 200.0 + 10.0 * math.log(pool / (40.0 if qps > 500.0 else 4.0)) ** 2 + qps / 10.0


def outcomes(policies, runs, rng):
    """Sums of several policies, one after the other, and the mean of all runs."""
    taken, total = [], 0.0
    for policy in policies:
        sums = OutcomeSums(policy, seed=int(rng.integers(2**31)))
        for key in rng.integers(10**9, size=runs):
            context = [float(rng.choice([100.0, 900.0]))]
            pick = pick_of(policy, context, int(key))
            metric = level(pick.params["pool"], context[0]) * float(rng.lognormal(0.0, 0.1))
            total += metric
            sums.add(pick, context, {"p99": metric})
        taken += sums.take()
    return taken, total / (runs * len(policies))


def true_value(policy):
    mean = math.exp(0.1**2 / 2.0)
    return mean * np.mean(
        [
            sum(one["weight"] / 1e4 * level(one["params"]["pool"], qps) for one in policy["tree"][branch]["settings"])
            for branch, qps in (("then", 100.0), ("else", 900.0))
        ]
    )


RAN = [a_policy("v1", (5000, 4500, 500), (1000, 8000, 1000)), a_policy("v2", (8000, 1500, 500), (500, 5500, 4000))]
OTHER = a_policy("new", (9900, 100, 0), (0, 100, 9900))


def test_another_policy_is_judged_without_bias_and_the_interval_holds_as_often_as_it_says():
    rng, worlds, runs = np.random.default_rng(0), 250, 150
    found, ran = [], []
    for _ in range(worlds):
        taken, mean = outcomes(RAN, runs, rng)
        found.append(value_of(taken, "p99", OTHER))
        ran.append(mean)
    truth, before = true_value(OTHER), np.mean([true_value(policy) for policy in RAN])
    for values, true in (([one.value for one in found], truth), ([one.difference for one in found], truth - before)):
        means = np.array([one.mean for one in values])
        error = means.std(ddof=1) / math.sqrt(worlds)
        assert abs(means.mean() - true) < 3.0 * error
        held = np.mean([one.low <= true <= one.high for one in values])
        assert 0.90 <= held <= 0.98
    assert np.mean(ran) - truth > 5.0  # what ran says nothing of it
    assert np.mean([one.covered for one in found]) == pytest.approx(1.0, abs=0.02)
    assert found[0].runs == 2 * runs


def test_the_difference_of_a_policy_that_decides_the_same_is_nothing():
    taken, mean = outcomes(RAN[:1], 500, np.random.default_rng(1))
    same = value_of(taken, "p99", RAN[0])
    assert same.value.mean == pytest.approx(mean)
    assert (same.difference.low, same.difference.high) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert same.covered == pytest.approx(1.0)


def test_what_never_ran_is_said_to_be_missing():
    taken, _ = outcomes(RAN[:1], 500, np.random.default_rng(2))
    found = value_of(taken, "p99", lambda _, params: 0.25 * (params["pool"] == 4))
    assert 0.1 < found.covered < 0.5
    plain = {**OTHER, "explore": None}
    assert value_of(taken, "p99", plain).covered == pytest.approx(1.0, abs=0.5)


@pytest.mark.slow
def test_settings_of_a_leaf_are_compared_with_what_is_recommended_there():
    rng, worlds, held = np.random.default_rng(3), 150, []
    for _ in range(worlds):
        taken, _ = outcomes(RAN[:1], 300, rng)
        found = {(one.leaf, one.setting): one for one in settings_compared(taken, "p99")}
        true = (level(16, 100.0) - level(4, 100.0)) * math.exp(0.1**2 / 2.0)
        one = found[0, 1]
        held.append(one.difference.low <= true <= one.difference.high)
        assert found[0, 0].difference is None
        assert (one.params, one.probability, one.policy) == ({"pool": 16}, 0.45, "v1")
        assert sum(one.runs for one in found.values()) == 300
    assert 0.90 <= np.mean(held) <= 0.99


def test_one_run_has_no_interval_and_wrong_questions_are_refused():
    taken, _ = outcomes(RAN[:1], 1, np.random.default_rng(4))
    (one,) = settings_compared(taken, "p99")
    assert (one.runs, one.value, one.difference) == (1, None, None)
    with pytest.raises(InvalidValue, match="at least 2 runs"):
        value_of(taken, "p99", OTHER)
    taken, _ = outcomes(RAN[:1], 10, np.random.default_rng(4))
    with pytest.raises(InvalidValue, match="metric must be one of p99"):
        value_of(taken, "p50", OTHER)
    with pytest.raises(InvalidValue, match="confidence"):
        value_of(taken, "p99", OTHER, confidence=95)


def true_gain(policies):
    """Of what ran over the default, as a share of the default's level."""
    default = a_policy("default", (0, 10_000, 0), (0, 10_000, 0))
    return 1.0 - float(np.mean([true_value(one) for one in policies])) / true_value(default)


@pytest.mark.slow
def test_the_gain_of_edges_over_the_default_is_unbiased_and_its_interval_holds():
    rng, found = np.random.default_rng(3), []
    for _ in range(120):
        taken, _ = outcomes(RAN, 400, rng)
        found.append(edge_gain(taken, {"pool": 16}, {"p99": 1.0}))
    gains, truth = [one.gain for one in found], true_gain(RAN)
    assert abs(truth) > 0.01
    assert np.mean([gain.value for gain in gains]) == pytest.approx(truth, abs=0.003)
    assert 0.88 <= np.mean([gain.low <= truth <= gain.high for gain in gains]) <= 0.995
    assert {gain.kind for gain in gains} == {"share"}
    assert all(one.runs == 800 and 240 < one.default_runs < 560 for one in found)


def test_a_gain_has_no_interval_while_the_default_ran_seldom_or_not_everywhere():
    def run(pool, probability, count, mean, leaf=0):
        metrics = {"p99": {"sum": count * mean, "squares": count * (mean**2 + 1.0)}}
        return {
            "policy": "v1", "leaf": leaf, "setting": pool, "params": {"pool": pool}, "probability": probability,
            "contexts": [], "count": count, "metrics": metrics,
        }  # fmt: skip

    often = edge_gain([run(16, 0.1, 100, 10.0), run(4, 0.9, 900, 8.0)], {"pool": 16}, {"p99": 1.0})
    assert often.gain.value == pytest.approx(0.18)
    assert often.gain.low < 0.18 < often.gain.high
    assert str(often).endswith("in 1,000 runs at edges, measured against 100 of the default")
    assert EdgeGain(**{name: getattr(often, name) for name in ("runs", "default_runs", "metrics")}) == often
    seldom = edge_gain([run(16, 0.1, 10, 10.0), run(4, 0.9, 90, 8.0)], {"pool": 16}, {"p99": 1.0})
    assert (seldom.gain.low, str(seldom).endswith("too few for an interval")) == (None, True)
    elsewhere = edge_gain([run(16, 1.0, 100, 10.0), run(4, 1.0, 900, 8.0, 1)], {"pool": 16}, {"p99": 1.0})
    assert elsewhere.gain.low is None
    assert edge_gain([run(4, 0.9, 90, 8.0)], {"pool": 16}, {"p99": 1.0}) is None
    more = edge_gain([run(16, 0.1, 100, 10.0), run(4, 0.9, 900, 8.0)], {"pool": 16}, {"p99": -1.0})
    assert (more.gain.outcome, more.gain.maximised) == ("worse", True)
    signed = edge_gain([run(16, 0.1, 100, -10.0), run(4, 0.9, 900, -12.0)], {"pool": 16}, {"p99": 1.0})
    assert (signed.gain.kind, signed.gain.value) == ("difference", pytest.approx(1.8))
