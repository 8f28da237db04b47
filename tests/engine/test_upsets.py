"""Nothing that is told once may blind a tuner: neither a context nor a metric; and a metric may change its unit."""

import logging

import numpy as np
import pytest
from upset_worlds import WORLDS, Upset, run, standing_still

from rasp_tuner import Categorical, Float, Int, Metric, Tuner

SEEDS = range(1, 4)
WORST = {"floats": 0.06, "discrete": 0.03}  # excess of a clean run over the steps that are looked at, and a little


def later(*values):
    """A case between others, which `make test` leaves to `make test-ci`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def excess(kind, upset, steps, start, seeds=SEEDS, **settings):
    """Mean excess over the best from a step on, over all seeds."""
    return float(np.mean([run(kind, seed, steps, upset, **settings)[start:].mean() for seed in seeds]))


@pytest.mark.parametrize(("kind", "value"), [("floats", 1000.0), ("floats", -1e9), ("discrete", -1e9)])
def test_an_absurd_context_is_forgotten_within_twenty_steps(kind, value):
    assert excess(kind, Upset(contexts={150: value}), 230, 170) < WORST[kind]


@pytest.mark.parametrize("kind", WORLDS)
def test_absurd_contexts_that_come_now_and_then_are_no_new_scale(kind):
    assert excess(kind, Upset(contexts=dict.fromkeys((70, 130, 190), 65535.0)), 270, 210) < WORST[kind]


@pytest.mark.parametrize("kind", WORLDS)
def test_an_absurd_context_before_anything_is_known_costs_a_start_at_most(kind):
    assert excess(kind, Upset(contexts={0: 1e9}), 200, 160, range(3)) < 0.08


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("value", [1e300, 0.0])
def test_an_absurd_metric_is_not_believed(kind, value):
    assert excess(kind, Upset(values={100: value}), 200, 101) < WORST[kind] + 0.02


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize(("when", "value"), [(0, 1e300), (20, -1e6), later(3, -1e6)])
def test_an_absurd_metric_at_the_start_is_not_believed(kind, when, value):
    assert excess(kind, Upset(values={when: value}), 200, 160) < 0.09


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("factor", [0.001, later(8.0)])
def test_a_metric_may_change_its_unit(kind, factor, caplog):
    with caplog.at_level(logging.WARNING, logger="rasp_tuner"):
        assert excess(kind, Upset(factors={120: factor}), 200, 140) < 0.08
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(SEEDS)
    assert all("cost is" in text for text in told)


def test_the_same_with_more_is_better_and_no_context():
    tuner, rng = Tuner({"x": Float(0, 1)}, {"rate": "max"}, default={"x": 0.1}, seed=0), np.random.default_rng(0)
    rates = []
    for step in range(160):
        s = tuner.ask()
        rates.append(2.0 - 3.0 * (s.params["x"] - 0.7) ** 2)
        unit = 1000.0 if step == 60 else 60.0 if step >= 90 else 1.0
        tuner.tell(s.id, {"rate": unit * rates[-1] * np.exp(0.05 * rng.normal())})
    assert np.mean(rates[61:90]) > 1.9
    assert np.mean(rates[100:]) > 1.9
    assert tuner.expected_of_default() == pytest.approx(-60.0 * 0.92, rel=0.2)


def test_of_several_metrics_the_one_that_changed_is_found():
    metrics = {"ms": "min", "mb": Metric("min", weight=0.5)}
    tuner, rng, costs = Tuner({"x": Float(0, 1)}, metrics, default={"x": 0.1}, seed=1), np.random.default_rng(1), []
    for step in range(140):
        s = tuner.ask()
        ms, mb = 1.0 + 4.0 * (s.params["x"] - 0.6) ** 2, 50.0 * (1.0 + s.params["x"])
        costs.append(ms)
        told = {"ms": (1000.0 if step >= 60 else 1.0) * ms, "mb": mb}
        tuner.tell(s.id, {name: value * np.exp(0.03 * rng.normal()) for name, value in told.items()})
        if step == 59:
            before = np.mean(costs[40:])
    reasons = [tuner.explain(f"s{i}").reason for i in range(60, 66)]
    assert sum("ms is" in reason for reason in reasons) == 1
    assert not any("mb is" in reason for reason in reasons)
    assert np.mean(costs[70:]) < before + 0.05


def test_the_change_is_explained():
    tuner, rng = Tuner({"x": Float(0, 1)}, {"ms": "min"}, default={"x": 0.1}, seed=0), np.random.default_rng(0)
    for step in range(50):
        s = tuner.ask()
        ms = (1000.0 if step >= 40 else 1.0) * (1.0 + 4.0 * (s.params["x"] - 0.6) ** 2)
        tuner.tell(s.id, {"ms": ms * np.exp(0.03 * rng.normal())})
    why = [f"{tuner.explain(f's{i}')} {tuner.explain(f's{i}').details}" for i in range(40, 46)]
    assert sum("put aside" in text for text in why) == 4
    assert sum("whatever the settings" in text for text in why) == 1
    assert any("has the metric changed?" in text for text in why)
    assert tuner.expected_of_default() == pytest.approx(2000.0, rel=0.2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dearer_situation_is_no_other_unit(seed, caplog):
    """Its level is a hundred times that of the one before: the context says that it is new."""
    tuner, rng = Tuner({"x": Float(0, 1)}, {"ms": "min"}, ["load"], {"x": 0.1}, seed=seed), np.random.default_rng(seed)
    for step in range(120):
        load = float(step // 30 % 2)
        s = tuner.ask({"load": load})
        ms = (1.0 + 99.0 * load) * (1.0 + 4.0 * (s.params["x"] - 0.6) ** 2)
        tuner.tell(s.id, {"ms": ms * np.exp(0.05 * rng.normal())})
    assert not [record for record in caplog.records if "a metric has changed" in record.getMessage()]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_that_changes_is_no_other_unit(seed, caplog):
    """The optimum moves where no context shows it: what was best is ten times as dear, the default is cheaper."""
    tuner, rng = Tuner({"x": Float(0, 1)}, {"ms": "min"}, None, {"x": 0.1}, seed=seed), np.random.default_rng(seed)
    costs = []
    for step in range(140):
        s = tuner.ask()
        costs.append(1.0 + 30.0 * (s.params["x"] - (0.8 if step < 60 else 0.2)) ** 2)
        tuner.tell(s.id, {"ms": costs[-1] * np.exp(0.05 * rng.normal())})
    assert not [record for record in caplog.records if "a metric has changed" in record.getMessage()]
    assert max(costs[60:66]) > 5.0
    assert np.mean(costs[90:]) < 4.0


@pytest.mark.parametrize("when", ["held", "first"])
def test_what_is_kept_aside_is_saved(when):
    tuner, rng = Tuner({"x": Float(0, 1)}, {"ms": "min"}, ["load"], {"x": 0.1}, seed=0), np.random.default_rng(0)
    steps = 43 if when == "held" else 7
    for step in range(steps):
        s = tuner.ask({"load": float(step % 2)})
        ms = (1000.0 if step >= 40 else 1.0) * (1.0 + 4.0 * (s.params["x"] - 0.6) ** 2)
        tuner.tell(s.id, {"ms": ms * np.exp(0.03 * rng.normal())})
    twin = Tuner.from_bytes(tuner.to_bytes())
    for step in range(steps, steps + 20):
        s, other = tuner.ask({"load": 0.0}), twin.ask({"load": 0.0})
        assert s.params == other.params
        ms = {"ms": (1e9 if step == 8 else 1000.0 if when == "held" else 1.0) * (1.0 + (s.params["x"] - 0.6) ** 2)}
        tuner.tell(s.id, ms)
        twin.tell(other.id, ms)
    assert tuner.to_bytes() == twin.to_bytes()


def test_standing_still_is_dear():
    """So that the other tests can fail."""
    assert standing_still("floats") > 2.0
    assert standing_still("discrete") > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_a_new_situation_near_a_known_one_is_no_other_unit(seed, caplog):
    knobs = {"plan": Categorical(["a", "b", "c"]), "size": Int(0, 4)}
    tuner = Tuner(knobs, {"cost": "min"}, ["load", "mix"], {"plan": "a", "size": 1}, seed=seed)
    rng, places = np.random.default_rng(seed), {(2.0, 2.0): 9.0, (-0.6, -0.8): 13.0, (-1.0, -0.8): 1.0}
    blocks = [*list(places)[:2] * 3, list(places)[2], *list(places)[:2]]
    with caplog.at_level(logging.WARNING, logger="rasp_tuner"):
        for place in np.repeat(blocks, 25, axis=0):
            at = place + 0.05 * rng.normal(size=2)
            asked = tuner.ask({"load": at[0], "mix": at[1]})
            shape = 1.0 + 0.3 * (asked.params["plan"] != "b") + 0.1 * abs(asked.params["size"] - 3)
            tuner.tell(asked.id, {"cost": places[tuple(place.tolist())] * shape * np.exp(0.02 * rng.normal())})
    assert not [record for record in caplog.records if "a metric has changed" in record.getMessage()]
