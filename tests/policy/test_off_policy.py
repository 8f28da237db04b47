"""What runs at edges gained: unbiased, and the intervals hold as often as they say, by simulation."""

import math

import numpy as np
import pytest

from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.evaluate import pick_of
from rasp_tuner.policy.off_policy import EdgeGain, edge_gain
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
    """Sums of several policies, one after the other."""
    taken = []
    for policy in policies:
        sums = OutcomeSums(policy, seed=int(rng.integers(2**31)))
        for key in rng.integers(10**9, size=runs):
            context = [float(rng.choice([100.0, 900.0]))]
            pick = pick_of(policy, context, int(key))
            metric = level(pick.params["pool"], context[0]) * float(rng.lognormal(0.0, 0.1))
            sums.add(pick, context, {"p99": metric})
        taken += sums.take()
    return taken


def true_value(policy):
    mean = math.exp(0.1**2 / 2.0)
    return mean * np.mean(
        [
            sum(one["weight"] / 1e4 * level(one["params"]["pool"], qps) for one in policy["tree"][branch]["settings"])
            for branch, qps in (("then", 100.0), ("else", 900.0))
        ]
    )


RAN = [a_policy("v1", (5000, 4500, 500), (1000, 8000, 1000)), a_policy("v2", (8000, 1500, 500), (500, 5500, 4000))]


def test_a_metric_that_no_sum_has_is_refused():
    taken = outcomes(RAN[:1], 10, np.random.default_rng(4))
    with pytest.raises(InvalidValue, match="metric must be one of p99"):
        edge_gain(taken, {"pool": 16}, {"p50": 1.0})


def true_gain(policies):
    """Of what ran over the default, as a share of the default's level."""
    default = a_policy("default", (0, 10_000, 0), (0, 10_000, 0))
    return 1.0 - float(np.mean([true_value(one) for one in policies])) / true_value(default)


@pytest.mark.nightly
def test_the_gain_of_edges_over_the_default_is_unbiased_and_its_interval_holds():
    rng, found = np.random.default_rng(3), []
    for _ in range(80):
        taken = outcomes(RAN, 1000, rng)
        found.append(edge_gain(taken, {"pool": 16}, {"p99": 1.0}))
    gains, truth = [one.gain for one in found], true_gain(RAN)
    assert abs(truth) > 0.01
    assert np.mean([gain.value for gain in gains]) == pytest.approx(truth, abs=0.003)
    assert 0.88 <= np.mean([gain.low <= truth <= gain.high for gain in gains]) <= 0.995
    assert {gain.kind for gain in gains} == {"share"}
    assert all(one.runs == 2000 and 600 < one.default_runs < 1400 for one in found)


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
