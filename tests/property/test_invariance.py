"""Units are the user's own business: no suggestion of preset `default` depends on them."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Float, Tuner

CENTRES = np.array([[0.25, 0.7], [0.8, 0.35]])
STEPS = 30
logs = st.floats(-3.0, 3.0).map(lambda power: 10.0**power)


def suggestions(seed, scale=1.0, offset=0.0, units=(1.0, 1.0), zeros=(0.0, 0.0), sign=1.0):
    """[30, 2] on a noisy stream of two situations, whose metric and contexts come in these units."""
    tuner = Tuner({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, {"m": "min" if sign > 0 else "max"}, 2, seed=seed)
    rng, asked = np.random.default_rng(seed), []
    for t in range(STEPS):
        regime = t // 8 % 2
        s = tuner.ask((regime + 0.05 * rng.normal(size=2)) * units + zeros)
        point = np.array([s.params["x"], s.params["y"]])
        loss = float(((point - CENTRES[regime]) ** 2).sum() + 0.01 * rng.normal())
        tuner.tell(s.id, {"m": sign * scale * loss + offset})
        asked.append(point)
    return np.array(asked)


@cache
def usual(seed):
    return suggestions(seed)


@given(seed=st.integers(0, 3), scale=logs, offset=st.floats(-500.0, 500.0))
@settings(max_examples=10)
def test_the_unit_of_a_metric_changes_no_suggestion(seed, scale, offset):
    assert suggestions(seed, scale, offset) == pytest.approx(usual(seed), abs=1e-6)


@pytest.mark.slow
@given(
    seed=st.integers(0, 3),
    units=st.lists(logs, min_size=2, max_size=2).map(np.array),
    zeros=st.lists(st.floats(-500.0, 500.0), min_size=2, max_size=2).map(np.array),
)
@settings(max_examples=10)
def test_the_units_of_context_change_no_suggestion(seed, units, zeros):
    assert suggestions(seed, units=units, zeros=zeros * units) == pytest.approx(usual(seed), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_metric_to_maximise_is_one_to_minimise_turned(seed):
    assert np.array_equal(suggestions(seed, sign=-1.0), usual(seed))


@pytest.mark.nightly
def test_several_metrics_may_each_have_their_own_unit():
    def run(units, seed):
        tuner, rng, asked = Tuner({"x": Float(0.0, 1.0)}, {"a": "min", "b": "max"}), np.random.default_rng(seed), []
        for _ in range(STEPS):
            s = tuner.ask()
            x = s.params["x"]
            a, b = (x - 0.2) ** 2 + 0.01 * rng.normal(), -abs(x - 0.6) + 0.01 * rng.normal()
            tuner.tell(s.id, {"a": a * units[0], "b": b * units[1] + 3.0 * units[1]})
            asked.append(x)
        return asked[10:]

    # until two samples are seen a metric's own unit is all there is to weigh it by; after that seeds differ by 0.05
    far, near = ([run(units, seed) for seed in range(8)] for units in ((1e3, 1e-3), (1.0, 1.0)))
    assert np.mean(far) == pytest.approx(np.mean(near), abs=0.05)
