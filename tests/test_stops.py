"""Stops: from which cost on a run should be ended, and what the tuner learns of one that was."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Metric, Tuner
from rasp_tuner.errors import AlreadyAnswered, InvalidValue, UnknownSuggestion

PLANS = {"plan": Categorical(["a", "b", "c"])}
RATE = {"rate": Float(0.0, 1.0), "size": Float(0.0, 1.0)}
COSTS = {"a": (1.0, 1.0), "b": (10.0, 10.0), "c": (0.25, 2.0)}  # of each plan, by situation
AHEAD = 60  # steps


def plans_tuner(**settings: object) -> Tuner:
    given = {"default": {"plan": "a"}, **settings}
    return Tuner(PLANS, {"cost": "min"}, ["situation"], **given)  # type: ignore[arg-type]


def rate_tuner(**settings: object) -> Tuner:
    given = {"default": {"rate": 0.5, "size": 0.5}, **settings}
    return Tuner(RATE, {"cost": "min"}, None, **given)  # type: ignore[arg-type]


def play(tuner: Tuner, cost: Callable[[dict, int], float], steps: int, honour: bool, seed: int = 0) -> float:
    """What all runs came to; a run that was ended costs what it had come to then."""
    rng, total = np.random.default_rng(seed), 0.0
    for step in range(steps):
        situation = step // 15 % 2
        own = tuner.ask({"situation": situation} if tuner.context_schema else None)
        came = cost(own.params, situation) * float(np.exp(0.1 * rng.standard_normal()))
        if honour and own.stop is not None and tuner.should_stop(own.id, {"cost": came}):
            tuner.tell(own.id, {"cost": own.stop}, stopped=True)
            total += own.stop
        else:
            tuner.tell(own.id, {"cost": came})
            total += came
    return total


def by_plan(params: dict, situation: int) -> float:
    return COSTS[params["plan"]][situation]


def by_rate(params: dict, situation: int) -> float:
    """Ruinous where either is above 0.6; the best is where both are 0.3."""
    del situation
    far = max(params.values()) > 0.6
    return 1.0 + 2.0 * sum((value - 0.3) ** 2 for value in params.values()) + (20.0 if far else 0.0)


def waiting(tuner: Tuner) -> tuple[str, float]:
    """A suggestion that has a stop, and waits."""
    tuner.tell(tuner.ask().id if not tuner.context_schema else tuner.ask({"situation": 0}).id, {"cost": 1.0})
    for _ in range(20):
        own = tuner.ask({"situation": 0} if tuner.context_schema else None)
        if own.stop is not None:
            return own.id, own.stop
        tuner.tell(own.id, {"cost": 1.0})
    raise AssertionError("no suggestion had a stop")


@pytest.mark.parametrize("seed", range(2))
def test_with_stops_a_ruinous_choice_costs_little(seed: int) -> None:
    with_stops = play(plans_tuner(seed=seed), by_plan, 150, True, seed)
    without = play(plans_tuner(seed=seed), by_plan, 150, False, seed)
    assert with_stops < 0.9 * without
    assert with_stops < 0.75 * 150  # of what the default costs; possible: 0.63


@pytest.mark.parametrize("seed", range(3))
def test_with_stops_continuous_knobs_cost_less_too(seed: int) -> None:
    with_stops = play(rate_tuner(seed=seed), by_rate, AHEAD, True, seed)
    without = play(rate_tuner(seed=seed), by_rate, AHEAD, False, seed)
    assert with_stops < 0.8 * without


def trap(rng: np.random.Generator) -> Callable[[dict, int], float]:
    """Good for four runs, then ruinous."""
    del rng
    runs: dict[str, int] = {}

    def cost(params: dict, step: int) -> float:
        del step
        runs[str(params)] = runs.get(str(params), 0) + 1
        return 0.7 if runs[str(params)] <= 4 else 10.0

    return cost


def heavy_tails(rng: np.random.Generator) -> Callable[[dict, int], float]:
    """One run in seven costs thirty times as much, whatever ran."""
    return lambda *_: 30.0 if rng.random() < 0.15 else 0.8


def turn(rng: np.random.Generator) -> Callable[[dict, int], float]:
    """All but the default turn ruinous."""
    del rng
    return lambda _, step: 0.6 if step < 60 else 6.0


MIXED = {"x": Float(0, 1), "n": Int(1, 20), **PLANS}


@pytest.mark.parametrize("world", [trap, heavy_tails, turn])
@pytest.mark.parametrize(
    ("space", "default"),
    [(PLANS, {"plan": "a"}), (MIXED, {"x": 0.5, "n": 5, "plan": "a"}), (RATE, {"rate": 0.5, "size": 0.5})],
    ids=["choices", "mixed", "continuous"],
)
def test_where_the_model_is_wrong_on_purpose_the_bill_keeps_the_rule(space: dict, default: dict, world: Any) -> None:
    """At every step: at most the allowance, 2% of each step so far, and a stake."""
    tuner, rng = Tuner(space, {"cost": "min"}, ["situation"], default), np.random.default_rng(0)
    budget, cost, bill = tuner.budget(), world(rng), 0.0
    assert budget is not None
    for step in range(120):
        situation = step // 10 % 2
        own, level = tuner.ask({"situation": situation}), 1.0 + situation
        came = level * (1.0 if own.params == default else cost(own.params, step))
        came *= float(np.exp(0.05 * rng.standard_normal()))
        stopped = own.stop is not None and came >= own.stop
        came = own.stop if stopped and own.stop is not None else came
        tuner.tell(own.id, {"cost": came}, stopped=stopped)
        bill += came / level - 1.0
        assert bill <= budget.left + 0.02 * step + 1.0


def test_after_two_stops_in_a_row_the_default_runs() -> None:
    tuner = rate_tuner()
    for _ in range(3):
        tuner.observe(None, tuner.default, {"cost": 1.0})
    for _ in range(2):
        tuner.tell(tuner.ask().id, {"cost": 1.5}, {"rate": 0.9}, stopped=True)
    for one in (tuner, Tuner.from_bytes(tuner.to_bytes())):
        own = one.ask()
        assert own.params == one.default
        assert "stopped" in one.explain(own.id).source
        one.tell(own.id, {"cost": 1.0})
        assert "stopped" not in one.explain(one.ask().id).source


def test_the_stop_is_the_cost_of_the_default_and_a_quarter_more() -> None:
    tuner = plans_tuner()
    _, stop = waiting(tuner)
    assert stop == pytest.approx(1.25, rel=0.02)  # nothing was noisy


def test_noise_makes_room() -> None:
    tuner, rng = plans_tuner(), np.random.default_rng(1)
    for _ in range(60):
        params = {"plan": "ac"[int(rng.integers(2))]}
        tuner.observe({"situation": 0}, params, {"cost": float(np.exp(0.5 * rng.standard_normal()))})
    for _ in range(30):
        own = tuner.ask({"situation": 0})
        if own.stop is not None:
            assert own.stop > 1.8
            return
        tuner.tell(own.id, {"cost": float(np.exp(0.5 * rng.standard_normal()))})
    raise AssertionError("no suggestion had a stop")


def test_a_budget_that_is_spent_leaves_a_small_stake() -> None:
    rich, poor = plans_tuner(budget=0.02), plans_tuner(budget=0.0001)
    assert waiting(poor)[1] < waiting(rich)[1]
    assert waiting(poor)[1] >= 1.0


def test_the_default_and_a_first_suggestion_have_no_stop() -> None:
    tuner = plans_tuner()
    own = tuner.ask({"situation": 0})
    assert own.stop is None
    assert not tuner.should_stop(own.id, {"cost": 1e9})
    for step in range(60):
        tuner.tell(own.id, {"cost": by_plan(own.params, step % 2)})
        own = tuner.ask({"situation": (step + 1) % 2})
        assert own.params != {"plan": "a"} or own.stop is None


@pytest.mark.parametrize(
    "tuner",
    [
        Tuner(PLANS, {"cost": "min"}, default={"plan": "a"}, budget=None),
        Tuner(PLANS, {"cost": "min"}),
        Tuner(PLANS, {"cost": "max"}, default={"plan": "a"}),
        Tuner(PLANS, {"cost": "min", "size": "min"}, default={"plan": "a"}),
    ],
    ids=["no budget", "no default", "maximised", "several"],
)
def test_where_nothing_can_be_said_there_is_no_stop_and_a_check_is_refused(tuner: Tuner) -> None:
    for _ in range(10):
        own = tuner.ask()
        assert own.stop is None
        with pytest.raises(InvalidValue):
            tuner.should_stop(own.id, {"cost": 2.0})
        tuner.tell(own.id, dict.fromkeys(tuner.scales, 1.0))


@pytest.mark.parametrize("made", [plans_tuner, rate_tuner])
def test_a_setting_that_was_stopped_is_not_thought_good(made: Callable[..., Tuner]) -> None:
    tuner = made()
    cost = by_plan if tuner.context_schema else by_rate
    play(tuner, cost, 45, True)
    stopped = [row for row in tuner.history() if row["stopped"]]
    assert stopped
    for row in stopped:
        told = tuner.what_if(row["context"] or None, row["params"]).given
        assert told.better is not None
        assert told.better < 0.2
    for situation in (0, 1):
        best = tuner.recommend({"situation": situation} if tuner.context_schema else None)
        assert cost(best, situation) < 1.2


@pytest.mark.parametrize("made", [plans_tuner, rate_tuner])
def test_a_bound_does_not_pull_down_what_is_known_to_be_worse(made: Callable[[], Tuner]) -> None:
    tuner = made()
    context = {"situation": 0} if tuner.context_schema else None
    bad = {"plan": "b"} if tuner.context_schema else {"rate": 0.9, "size": 0.5}
    rng = np.random.default_rng(0)
    for _ in range(12):
        for params, cost in ((tuner.default, 1.0), (bad, 10.0)):
            tuner.observe(context, params, {"cost": cost * float(np.exp(0.02 * rng.standard_normal()))})
    before = tuner.what_if(context, bad).given.metrics["cost"].mean
    for _ in range(5):
        tuner.tell(tuner.ask(context).id, {"cost": 1.3}, bad, stopped=True)
    after = tuner.what_if(context, bad).given.metrics["cost"].mean
    assert after > 0.9 * before


def test_a_bound_of_a_maximised_metric_is_an_upper_one() -> None:
    tuner = Tuner(PLANS, {"speed": "max"}, default={"plan": "a"})
    for _ in range(4):
        tuner.observe(None, {"plan": "a"}, {"speed": 10.0})
    tuner.tell(tuner.ask().id, {"speed": 3.0}, {"plan": "b"}, stopped=True)
    told = tuner.what_if(None, {"plan": "b"}).given
    assert told.metrics["speed"].mean < 5.0
    assert told.better is not None
    assert told.better < 0.3


def test_several_metrics_and_limits_learn_a_bound() -> None:
    metrics = {"cost": "min", "p99": Metric("min", max=5.0)}
    tuner = Tuner(PLANS, metrics, default={"plan": "a"})  # type: ignore[arg-type]
    for _ in range(6):
        tuner.observe(None, {"plan": "a"}, {"cost": 1.0, "p99": 2.0})
    for _ in range(3):
        tuner.tell(tuner.ask().id, {"cost": 1.3, "p99": 9.0}, {"plan": "b"}, stopped=True)
    assert tuner.margins(None, {"plan": "b"})["p99"].kept < 0.5
    both = Tuner(PLANS, {"cost": "min", "size": "min"}, default={"plan": "a"})
    for _ in range(6):
        both.observe(None, {"plan": "a"}, {"cost": 1.0, "size": 2.0})
        both.observe(None, {"plan": "c"}, {"cost": 1.1, "size": 1.8})
    both.tell(both.ask().id, {"cost": 3.0, "size": 4.0}, {"plan": "b"}, stopped=True)
    assert both.what_if(None, {"plan": "b"}).given.metrics["cost"].mean > 1.1


def test_bad_input_is_refused_and_changes_nothing() -> None:
    tuner = plans_tuner()
    id, stop = waiting(tuner)
    before = tuner.to_bytes()
    for wrong in ({"cost": math.nan}, {}, {"cost": "2"}, {"cost": 2.0, "speed": 1.0}, {"speed": 1.0}, None, 2.0):
        with pytest.raises(InvalidValue):
            tuner.should_stop(id, wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            tuner.tell(id, wrong, stopped=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="stopped"):
        tuner.tell(id, {"cost": stop}, stopped="yes")  # type: ignore[arg-type]
    with pytest.raises(UnknownSuggestion):
        tuner.should_stop("s99", {"cost": 1.0})
    assert tuner.to_bytes() == before
    tuner.tell(id, {"cost": stop}, stopped=True)
    with pytest.raises(AlreadyAnswered):
        tuner.should_stop(id, {"cost": 1.0})


def test_a_bound_before_any_value_is_learned_as_it_came() -> None:
    tuner = plans_tuner()
    own = tuner.ask({"situation": 0})
    tuner.tell(own.id, {"cost": 3.0}, stopped=True)
    assert "nothing is known yet" in str(tuner.explain(own.id))
    assert tuner.default_levels({"situation": 0})["cost"].mean == pytest.approx(3.0, rel=0.01)


def test_a_run_that_nobody_asked_for_may_have_been_ended() -> None:
    tuner = plans_tuner()
    for _ in range(3):
        tuner.observe({"situation": 0}, {"plan": "a"}, {"cost": 1.0})
        tuner.observe({"situation": 0}, {"plan": "b"}, {"cost": 1.5}, stopped=True)
    assert tuner.history()[-1]["stopped"]
    better = tuner.what_if({"situation": 0}, {"plan": "b"}).given.better
    assert better is not None
    assert better < 0.2
    with pytest.raises(InvalidValue, match="stopped"):
        tuner.observe({"situation": 0}, {"plan": "b"}, {"cost": 1.5}, stopped=1)  # type: ignore[arg-type]


def test_preset_paper_refuses() -> None:
    tuner = Tuner(PLANS, {"cost": "min"}, default={"plan": "a"}, preset="paper")
    own = tuner.ask()
    assert own.stop is None
    with pytest.raises(InvalidValue, match="paper"):
        tuner.tell(own.id, {"cost": 3.0}, stopped=True)
    with pytest.raises(InvalidValue):
        tuner.should_stop(own.id, {"cost": 3.0})


@pytest.mark.parametrize("made", [plans_tuner, rate_tuner])
def test_a_saved_tuner_goes_on_bit_for_bit(made: Callable[..., Tuner]) -> None:
    tuner = made()
    cost = by_plan if tuner.context_schema else by_rate
    play(tuner, cost, 25, True)
    context = {"situation": 0} if tuner.context_schema else None
    own = tuner.ask(context)
    copy = Tuner.from_bytes(tuner.to_bytes())
    assert copy.pending[-1].stop == own.stop
    assert play(tuner, cost, 25, True, seed=1) == play(copy, cost, 25, True, seed=1)
    assert tuner.to_bytes() == copy.to_bytes()


def test_a_stopped_run_is_on_record_as_such() -> None:
    tuner = plans_tuner()
    id, stop = waiting(tuner)
    assert f"The run should be ended if cost reaches {stop:.4g}." in tuner.explain(id).details
    tuner.tell(id, {"cost": stop}, stopped=True)
    row = tuner.history()[-1]
    assert row["stopped"]
    assert not row["failed"]
    assert row["metrics"] == {"cost": stop}
    assert not tuner.history()[0]["stopped"]
    assert "ended there" in " ".join(tuner.explain(id).details)


def test_a_stopped_run_is_billed_at_what_it_cost() -> None:
    stopped, whole = plans_tuner(), plans_tuner()
    for tuner, came in ((stopped, 1.25), (whole, 10.0)):
        for _ in range(6):
            tuner.observe({"situation": 0}, {"plan": "a"}, {"cost": 1.0})
        for _ in range(3):
            tuner.tell(tuner.ask({"situation": 0}).id, {"cost": came}, {"plan": "b"}, stopped=tuner is stopped)
    budgets = [tuner.budget() for tuner in (stopped, whole)]
    assert budgets[0] is not None
    assert budgets[1] is not None
    assert budgets[0].spent == pytest.approx(0.75, abs=0.2)
    assert budgets[1].spent > 3.0


def test_a_trial_checks_and_tells() -> None:
    tuner = plans_tuner()
    with tuner.trial({"situation": 0}) as t:
        t.report(cost=1.0)
    for _ in range(10):
        with tuner.trial({"situation": 0}) as t:
            if t.stop is None:
                t.report(cost=1.0)
                continue
            assert not t.check(cost=0.5 * t.stop)
            assert not t.stopped
            assert t.check({"cost": 1.5 * t.stop})
            assert t.stopped
            break
    else:
        raise AssertionError("no trial had a stop")
    assert tuner.history()[-1]["stopped"]
    assert tuner.history()[-1]["metrics"] == {"cost": 1.5 * t.stop}


def test_a_trial_that_went_on_reports_what_it_came_to() -> None:
    tuner = plans_tuner()
    waiting(tuner)
    with tuner.trial({"situation": 0}) as t:
        while t.stop is None:
            raise AssertionError("no stop")
        assert t.check(cost=2.0)
        t.report(cost=2.5)
    assert not tuner.history()[-1]["stopped"]
    assert tuner.history()[-1]["metrics"] == {"cost": 2.5}


@pytest.mark.parametrize("made", [plans_tuner, rate_tuner])
def test_an_absurd_bound_blinds_no_tuner(made: Callable[..., Tuner]) -> None:
    tuner = made()
    context = {"situation": 0} if tuner.context_schema else None
    play(tuner, by_plan if tuner.context_schema else by_rate, 40, True)
    bad = {"plan": "b"} if tuner.context_schema else {"rate": 0.9}
    for most in (1.5, 1e3):  # of the default's level: one is an outlier, two are believed as far as any value is
        tuner.tell(tuner.ask(context).id, {"cost": 1e12}, bad, stopped=True)
        assert 0.7 < tuner.default_levels(context)["cost"].mean < most
    assert tuner.what_if(context, {**tuner.default, **bad}).given.metrics["cost"].mean < 1e4
