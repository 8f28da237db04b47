"""The engine of preset `default`, through the public Tuner."""

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Tuner

TWO = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}
MIXED = {"n": Int(1, 9), "x": Float(0.0, 1.0), "c": Categorical(["a", "b", "c"])}


def drive(tuner, steps, metrics, context=lambda _: None):
    """Every suggestion of a stream; `metrics(t, params)` answers, None tells of a failure."""
    asked = []
    for t in range(steps):
        s = tuner.ask(context(t))
        told = metrics(t, s.params)
        if told is None:
            tuner.tell_failed(s.id, "boom")
        else:
            tuner.tell(s.id, told)
        asked.append(s.params)
        assert all(np.isfinite(value) for value in s.params.values() if isinstance(value, float))
        assert str(tuner.explain(s.id))
    return asked


@pytest.mark.parametrize("corner", [0.0, 1.0])
def test_the_first_probe_leaves_a_default_at_the_edge(corner):
    for seed in range(8):
        tuner = Tuner(TWO, {"loss": "min"}, default={"x": corner, "y": corner}, seed=seed)
        first = tuner.ask()
        tuner.tell(first.id, {"loss": 1.0})
        assert tuner.ask().params != first.params


@pytest.mark.parametrize("before", [0.0, 3.0])
@pytest.mark.parametrize("after", [1e-100, 1.0, 1e100])
def test_a_metric_may_be_constant_and_then_move(before, after):
    tuner = Tuner(TWO, {"loss": "min"}, context=1)
    drive(tuner, 40, lambda t, p: {"loss": before if t < 15 else after * (p["x"] - 0.3) ** 2}, lambda t: [float(t % 2)])


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-100, 1e100, 1e300])
@pytest.mark.parametrize("space", [TWO, MIXED], ids=["floats", "mixed"])
def test_tiny_and_huge_metrics_give_finite_suggestions(space, size):
    tuner = Tuner(space, {"loss": "min"}, context=1)
    drive(tuner, 30, lambda t, p: {"loss": size * (p["x"] - 0.3 * (t % 2)) ** 2}, lambda t: [float(t % 2)])


@pytest.mark.parametrize("size", [1e-320, 1e-100, 1e100, 1e308])
def test_tiny_and_huge_contexts_give_finite_suggestions(size):
    tuner = Tuner(TWO, {"loss": "min"}, context=2)
    noise = np.random.default_rng(0)
    drive(
        tuner, 40, lambda _, p: {"loss": (p["x"] - 0.3) ** 2}, lambda t: [size * noise.uniform(-1, 1), (-1) ** t * size]
    )


@pytest.mark.parametrize("space", [TWO, MIXED], ids=["floats", "mixed"])
def test_a_default_that_fails_is_left(space):
    tuner = Tuner(space, {"loss": "min"})
    asked = drive(tuner, 40, lambda _, p: None if p["x"] > 0.4 else {"loss": p["x"]})
    assert sum(params["x"] <= 0.4 for params in asked) > 20
    assert tuner.recommend()["x"] <= 0.4


@pytest.mark.parametrize("change", [2, 4, 9])
def test_a_metric_that_was_tiny_may_become_huge_beside_another(change):
    tuner = Tuner(TWO, {"a": "min", "b": "max"})
    drive(tuner, 20, lambda t, p: {"a": (1e-100 if t < change else 1e100) * (p["x"] + t % 3), "b": p["y"]})


def test_a_metric_may_jump_from_tiny_to_huge():
    tuner = Tuner(TWO, {"loss": "min"})
    drive(tuner, 30, lambda t, p: {"loss": (1e-50 if t < 9 else 1e100) * (p["x"] + t % 3)})
