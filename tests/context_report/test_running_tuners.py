"""Tuner.context_report(): is the context any good? Of tuners that run."""

import math

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Tuner
from rasp_tuner.context_report import shifts

BOX = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}


def drive(tuner, steps, told=True, seed=0):
    """Two situations in turn, told by the context or not; the settings suggested and the loss of each step."""
    rng = np.random.default_rng(seed)
    points, losses = [], []
    for step in range(steps):
        busy = step // 12 % 2 == 1
        context = {"load": float(busy) if told else float(rng.normal()), "noise": float(rng.normal())}
        s = tuner.ask(context)
        best = 0.8 if busy and told else 0.2
        loss = (s.params["x"] - best) ** 2 + (s.params["y"] - best) ** 2 + 0.01 * float(rng.normal())
        tuner.tell(s.id, {"loss": loss})
        points.append((s.params["x"], s.params["y"]))
        losses.append(loss)
    return points, losses


@pytest.fixture
def few_shifts(monkeypatch):
    """Enough for p = 1/41, below the level of a report; the rest is time."""
    monkeypatch.setattr(shifts, "MAX_SHIFTS", 40)


@pytest.mark.usefixtures("few_shifts")
def test_the_report_of_a_running_tuner():
    tuner = Tuner(BOX, {"loss": "min"}, ["load", "noise"])
    before = drive(tuner, 70) and tuner.to_bytes()
    report = tuner.context_report()
    assert report.verdict == "helps"
    assert [d.name for d in report.dimensions] == ["load", "noise"]
    assert report.dimensions[1].note == "no sign"
    assert tuner.to_bytes() == before  # it looks and changes nothing
    assert str(Tuner.from_bytes(before).context_report()) == str(report)


def test_the_window_is_bounded_and_in_the_order_of_time():
    tuner = Tuner(BOX, {"loss": "min"}, ["load", "noise"])
    points, losses = drive(tuner, 150)
    recent = tuner._optimizer.recent()
    assert recent.points == pytest.approx(np.array(points[-128:]))
    assert recent.errors == pytest.approx(np.array(losses[-128:]))


def switches(steps):
    """A tuner of two switches with few levels that was told of random runs; the first context says what is right."""
    space = {"codec": Categorical(["lz4", "zstd", "none"]), "cache": Categorical([True, False])}
    tuner, rng = Tuner(space, {"loss": "min", "cost": "min"}, ["busy", "moon"]), np.random.default_rng(0)
    for step in range(steps):
        busy = step // 8 % 2 == 1
        params = {name: knob.choices[rng.integers(len(knob.choices))] for name, knob in space.items()}
        wrong = ((params["codec"] == "zstd") != busy) + (params["cache"] != busy)
        context, metrics = [busy + 0.1 * rng.normal(), rng.normal()], {"loss": wrong + 0.05 * rng.normal(), "cost": 3.0}
        tuner.observe(context, params, metrics)
    return tuner


@pytest.mark.usefixtures("few_shifts")
def test_knobs_of_few_levels_are_reported_on_too():
    tuner = switches(150)
    report = tuner.context_report()
    assert report.samples == 128
    assert [(d.name, d.note) for d in report.dimensions] == [("busy", "helps"), ("moon", "no sign")]
    again = Tuner.from_bytes(tuner.to_bytes())
    assert str(again.context_report()) == str(report)
    tuner.reweigh({"cost": 1e6})
    assert tuner._optimizer.recent().errors == pytest.approx(
        np.full(128, math.log(3.0)), rel=1e-3
    )  # switches: in logarithms


def test_a_context_that_leaves_memory_is_warned_of():
    tuner = Tuner(BOX, {"loss": "min"}, ["load", "noise"])
    drive(tuner, 60)
    for _ in range(10):
        s = tuner.ask([40.0, -30.0])
        tuner.tell(s.id, {"loss": 1.0})
    assert any("times as far" in warning for warning in tuner.context_report().warnings)


def test_where_nothing_can_be_told_the_report_says_why():
    assert "without context" in Tuner(BOX, {"loss": "min"}).context_report().words
    few = Tuner({"on": Categorical([True, False])}, {"loss": "min"}, 2)
    assert "0 samples" in few.context_report().words
    long = Tuner(BOX, {"loss": "min"}, 100)
    assert "0 samples" in long.context_report().words
