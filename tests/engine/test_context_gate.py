"""Tuner(screen=True): the context is ignored until it helps; and Tuner.context_report()."""

import math

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, InvalidSpace, Tuner, presets
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


def screened(**options):
    return Tuner(BOX, {"loss": "min"}, ["load", "noise"], screen=True, **options)


def test_until_the_context_helps_it_is_the_context_free_tuner():
    fooled = 0
    for seed in range(8):
        blind = Tuner(BOX, {"loss": "min"})
        tuner, rng = screened(), np.random.default_rng(seed)
        for step in range(30):
            context = rng.normal(size=2)
            mine, other = tuner.ask(context), blind.ask()
            if step and "has not shown yet" not in tuner.explain(mine.id).source:
                fooled += 1
                break
            assert mine.params == other.params, (seed, step)
            loss = (mine.params["x"] - 0.2) ** 2 + 0.01 * float(rng.normal())
            tuner.tell(mine.id, {"loss": loss})
            blind.tell(other.id, {"loss": loss})
    assert fooled <= 2  # one stream in twenty, if both models were true


def test_contexts_that_tell_situations_apart_are_used_soon():
    tuner = screened()
    losses = drive(tuner, 60)[1]
    assert tuner._optimizer.trusted
    assert max(losses[36:]) < 0.1  # for good: success does not take them away again
    assert tuner.recommend([1.0, 0.0])["x"] == pytest.approx(0.8, abs=0.15)
    assert tuner.recommend([0.0, 0.0])["x"] == pytest.approx(0.2, abs=0.15)


def test_an_explanation_says_whether_the_context_is_used():
    tuner, why = screened(), []
    for step in range(60):
        busy = step // 12 % 2 == 1
        s = tuner.ask([float(busy), 0.0])
        tuner.tell(s.id, {"loss": (s.params["x"] - (0.8 if busy else 0.2)) ** 2})
        why.append(tuner.explain(s.id))
        assert len(why[-1].gate) in (0, len(tuner.experts))
    assert "has not shown yet that it helps" in str(why[10])
    assert "has not shown yet" not in str(why[-1])


def test_knobs_of_every_kind_logs_and_freezing():
    space = {"pool": Int(1, 64, log=True), "codec": Categorical(["lz4", "zstd"])}
    records = [
        {"context": [float(i % 2)], "params": {"pool": 1 + i, "codec": "lz4"}, "metrics": {"ms": abs(i - 9.0)}}
        for i in range(20)
    ]
    tuner, report = Tuner.from_log(records, space=space, metrics={"ms": "min"}, context=["load"], screen=True)
    assert (report.used, tuner.learned) == (20, 20)
    tuner.freeze()
    assert tuner.ask([0.0]).params == tuner.recommend([0.0])
    assert Tuner.from_bytes(tuner.to_bytes()).to_bytes() == tuner.to_bytes()


def test_it_is_saved_and_goes_on_bit_for_bit():
    tuner = screened()
    drive(tuner, 30)
    twin = Tuner.from_bytes(tuner.to_bytes())
    assert drive(tuner, 20, seed=1) == drive(twin, 20, seed=1)
    assert tuner.to_bytes() == twin.to_bytes()


def test_failures_weights_guard_and_views_work_as_ever():
    tuner = screened(default={"x": 0.5, "y": 0.5}, guard=0.1, switching_cost=0.01)
    tuner.tell_failed(tuner.ask([0.0, 0.0]).id, "crashed")
    drive(tuner, 20)
    tuner.reweigh({"loss": 2.0})
    tuner.tell_failed(tuner.ask([0.0, 0.0]).id, "crashed")
    assert tuner.expected_of_default([0.0, 0.0]) is not None
    assert len(tuner.slots().contexts) == tuner.learned
    assert tuner.experts


def test_screen_is_true_or_false_and_not_for_the_paper():
    with pytest.raises(InvalidSpace, match="screen must be True or False"):
        Tuner(BOX, {"loss": "min"}, 2, screen=1)
    with pytest.raises(InvalidSpace, match="no constant 'screen'"):
        Tuner(BOX, {"loss": "min"}, 2, preset="paper", screen=True)
    assert presets.default().constants["screen"] == 0.0


@pytest.fixture
def few_shifts(monkeypatch):
    """Enough for p = 1/41, below the level of a report; the rest is time."""
    monkeypatch.setattr(shifts, "MAX_SHIFTS", 40)


@pytest.mark.usefixtures("few_shifts")
@pytest.mark.parametrize("screen", [False, True])
def test_the_report_of_a_running_tuner(screen):
    tuner = Tuner(BOX, {"loss": "min"}, ["load", "noise"], screen=screen)
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


def switches(steps, **options):
    """A tuner of two switches with few levels that was told of random runs; the first context says what is right."""
    space = {"codec": Categorical(["lz4", "zstd", "none"]), "cache": Categorical([True, False])}
    tuner, rng = Tuner(space, {"loss": "min", "cost": "min"}, ["busy", "moon"], **options), np.random.default_rng(0)
    for step in range(steps):
        busy = step // 8 % 2 == 1
        params = {name: knob.choices[rng.integers(len(knob.choices))] for name, knob in space.items()}
        wrong = ((params["codec"] == "zstd") != busy) + (params["cache"] != busy)
        context, metrics = [busy + 0.1 * rng.normal(), rng.normal()], {"loss": wrong + 0.05 * rng.normal(), "cost": 3.0}
        tuner.observe(context, params, metrics)
    return tuner


@pytest.mark.usefixtures("few_shifts")
@pytest.mark.parametrize("screen", [False, True])
def test_knobs_of_few_levels_are_reported_on_too(screen):
    tuner = switches(150, screen=screen)
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
