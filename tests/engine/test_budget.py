"""The budget: its laws, and what it bounds when a Tuner has one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner import Categorical, Int, Tuner
from rasp_tuner.engine.budget import CONFIDENCE_DEVIATIONS, MOST_PRICE, START_STEPS, BudgetLedger

shares = st.floats(0.0, 10.0)
prices, deviations = st.floats(-3.0, 3.0), st.floats(0.0, 3.0)
seen = st.none() | st.floats(-10.0, 10.0)
runs = st.lists(st.tuples(prices, deviations, seen), max_size=30)


def kept(share, booked):
    ledger = BudgetLedger(share)
    for run in booked:
        ledger.record(*run)
    return ledger


@given(shares, runs, st.floats(0.0, 3.0), deviations)
def test_spending_never_leaves_more(share, booked, price, deviation):
    ledger = kept(share, booked)
    steps, before = ledger.steps + 1, ledger.left(ledger.steps + 1)
    ledger.record(price, deviation, None)
    assert ledger.steps == steps
    assert ledger.left(steps) <= before - price + 1e-9


@given(shares, runs, deviations, st.floats(0.0, 3.0))
def test_what_is_surely_a_gain_is_always_allowed(share, booked, deviation, gain):
    ledger = kept(share, [(3.0, 1.0, 3.0)] * 20 + booked)
    assert ledger.allows(-CONFIDENCE_DEVIATIONS * deviation - gain, deviation)


@given(shares, runs, prices, deviations)
def test_what_is_allowed_is_a_gain_or_within_what_is_left(share, booked, price, deviation):
    ledger = kept(share, booked)
    if ledger.allows(price, deviation) and price + CONFIDENCE_DEVIATIONS * deviation > 0.0:
        assert price <= ledger.left(ledger.steps + 1)


@given(shares, runs)
def test_only_the_sure_part_of_a_gain_is_booked_and_the_default_costs_nothing(share, booked):
    ledger = kept(share, booked)
    assert 0.0 <= ledger.earned <= sum(max(-price, 0.0) for price, _, _ in booked) + 1e-9
    spent, earned = ledger.spent, ledger.earned
    typical = ledger.typical
    ledger.record(0.0, 0.0, None)
    assert (ledger.spent, ledger.earned, ledger.typical) == (spent, earned, typical)


@given(shares, runs, runs)
def test_a_restored_budget_is_the_same(share, booked, later):
    ledger, other = kept(share, booked), BudgetLedger(share)
    other.restore(ledger.state())
    for one in (ledger, other):
        for run in later:
            one.record(*run)
    assert other == ledger
    assert other.report() == ledger.report()


def test_the_allowance_may_be_spent_at_once_and_more_comes_with_time():
    ledger = BudgetLedger(0.02)
    assert ledger.left(0) == pytest.approx(0.02 * START_STEPS)
    ledger.record(1.9, 0.0, 1.9)
    assert not ledger.allows(0.2, 0.0)
    for _ in range(10):
        ledger.record(0.0, 0.0, None)
    assert ledger.allows(0.2, 0.0)
    assert ledger.report().left == pytest.approx(0.02 * (START_STEPS + 11) - 1.9)


def test_uncertain_costs_leave_less():
    sure, unsure = kept(0.02, [(0.1, 0.0, 1.0)] * 4), kept(0.02, [(0.1, 0.05, 1.0)] * 4)
    assert sure.left(50) - unsure.left(50) == pytest.approx(CONFIDENCE_DEVIATIONS * math.sqrt(4 * 0.05**2))


def test_one_run_costs_and_gains_a_bounded_amount():
    dear, lucky = kept(0.02, [(1e6, 0.0, 1e6)]), kept(0.02, [(-1e6, 0.0, -1e6)])
    assert (dear.spent, lucky.earned) == (MOST_PRICE, MOST_PRICE)


@given(shares, runs, st.floats(0.0, 1.0))
def test_what_matters_little_may_spend_little(share, booked, gap):
    ledger = kept(share, booked)
    assert 0.0 < ledger.typical <= 1.0
    for _ in range(4000):
        ledger.record(0.0, 0.0, gap)
    assert ledger.typical == pytest.approx(gap, abs=0.1)


SPACE = {f"k{i}": Int(1, 4) for i in range(5)} | {"c": Categorical(["a", "b", "c"])}
TODAY = dict.fromkeys(list(SPACE)[:5], 2) | {"c": "a"}


def extra_cost(seed, steps=150, **options):
    """By how many steps of its loss a default that is optimal was exceeded, after the first looks, under 10% noise."""
    space, default = SPACE, TODAY
    tuner, rng, cost = (
        Tuner(space, {"ms": "min"}, default=default, seed=seed, **options),
        np.random.default_rng(seed),
        [],
    )
    for _ in range(steps):
        s = tuner.ask()
        away = [
            float(s.params[key] != default[key]) if isinstance(default[key], str) else abs(s.params[key] - default[key])
            for key in space
        ]
        worse = 0.3 * sum(away)
        tuner.tell(s.id, {"ms": 100.0 * (1.0 + worse) * math.exp(0.1 * rng.normal())})
        cost.append(worse)
    return sum(cost[len(space) + 2 :]), tuner


def test_a_default_that_is_optimal_is_exceeded_by_no_more_than_the_allowance():
    steps, share = 150, 0.02
    for seed in range(2):
        cost, tuner = extra_cost(seed, steps)
        assert cost <= share * (START_STEPS + steps)
        assert tuner.budget().steps >= steps - len(SPACE) - 2
        assert tuner.budget().share == share
        assert Tuner.from_bytes(tuner.to_bytes()).budget() == tuner.budget()


def test_without_a_budget_the_same_default_is_exceeded_by_more():
    cost, tuner = extra_cost(0, budget=None)
    assert tuner.budget() is None
    assert cost > extra_cost(0, budget=0.0)[0]
