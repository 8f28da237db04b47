"""The gain over the default: one figure, by forecast where nothing is measured, the same for everybody who shows it."""

import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from damaged_snapshot import damaged

from rasp_tuner import Categorical, Float, Gain, Metric, SnapshotError, Tuner, VersusDefault

KNOBS = {"x": Float(0.0, 1.0)}
DEFAULT = {"x": 0.5}


def play(tuner, steps, seed=0, best=0.2, noise=0.02, metric="ms", level=100.0):
    """The default costs 30% more than the best; each of two loads has another level. What was saved, in truth."""
    rng, saved = np.random.default_rng(seed), []
    for step in range(steps):
        load = float(step // 7 % 2)
        s = tuner.ask({"load": load})
        cost = [level * (1.0 + load) * (1.0 + 0.3 * ((x - best) / 0.3) ** 2) for x in (s.params["x"], 0.5)]
        tuner.tell(s.id, {metric: cost[0] * math.exp(noise * rng.normal())})
        saved.append(math.log(cost[0] / cost[1]))
    return 1.0 - math.exp(np.mean(saved))


def tuner_of(metrics=None, **settings):
    return Tuner(KNOBS, metrics or {"ms": "min"}, ["load"], DEFAULT, **settings)


def test_without_a_holdout_the_gain_is_a_forecast_and_says_so():
    tuner = tuner_of()
    assert tuner.versus_default() is None
    truth = play(tuner, 150)
    found = tuner.versus_default()
    assert not found.measured
    assert tuner.savings() is None
    assert found.gain.low < truth < found.gain.high
    assert found.gain.outcome == "better"
    assert found.steps == 150
    assert str(found).startswith("saved ")
    assert str(found).endswith(" in 150 steps, by forecast of what the default would have given")


@pytest.mark.parametrize("holdout", [None, 0.2])
def test_there_is_one_count_of_steps_and_it_says_how_many_failed(holdout):
    tuner, rng = tuner_of(holdout=holdout), np.random.default_rng(0)
    for step in range(100):
        s = tuner.ask({"load": 0.0})
        if step % 10 == 7:
            tuner.tell_failed(s.id)
        else:
            tuner.tell(s.id, {"ms": 100.0 * (1.0 + (s.params["x"] - 0.2) ** 2) * math.exp(0.02 * rng.normal())})
    for same in (tuner, Tuner.from_bytes(tuner.to_bytes())):
        found = same.versus_default()
        assert found.measured == (holdout is not None)
        assert (found.steps, found.failed) == (same.learned, 10)
        assert " in 100 steps, of which 10 failed, " in str(found)
        assert found == VersusDefault.from_json(found.to_json())


def test_no_other_count_of_steps_stands_beside_it(tmp_path):
    tuner = tuner_of(budget=0.02)
    play(tuner, 60)
    for _ in range(3):
        tuner.tell_failed(tuner.ask({"load": 0.0}).id)
    tuner.report(tmp_path / "page.html")
    said = [str(tuner.versus_default()), str(tuner.budget()), repr(tuner), (tmp_path / "page.html").read_text()]
    assert " in 63 steps, of which 3 failed" in said[0]
    for text in said:
        assert not re.search(r"\b(?:57|60) (?:steps|runs|learned)", text)
        assert "learned=60" not in text


def test_steps_of_merged_tuners_that_failed_add_up():
    one, other = tuner_of(), tuner_of(seed=1)
    for tuner in (one, other):
        play(tuner, 20)
        tuner.tell_failed(tuner.ask({"load": 0.0}).id)
    one.merge(other)
    assert (one.versus_default().steps, one.versus_default().failed) == (42, 2)


def test_with_a_holdout_it_is_measured_as_soon_as_that_says_something():
    tuner = tuner_of(holdout=0.2)
    play(tuner, 10)
    assert not tuner.versus_default().measured
    play(tuner, 120, seed=1)
    assert tuner.versus_default() == tuner.savings()
    assert "measured against" in str(tuner.versus_default())


def test_more_of_what_is_maximised_is_a_gain():
    tuner, rng = tuner_of({"rps": "max"}), np.random.default_rng(0)
    for step in range(120):
        s = tuner.ask({"load": float(step % 2)})
        tuner.tell(s.id, {"rps": 100.0 - 200.0 * (s.params["x"] - 0.2) ** 2 + rng.normal()})
    found = tuner.versus_default()
    assert found.gain.maximised
    assert found.gain.outcome == "better"
    assert str(found).startswith("gained ")


def test_a_profit_that_changes_its_sign_has_no_percentage():
    tuner, rng = (
        Tuner({"x": Float(0, 1), "y": Float(0, 1)}, {"profit": "max"}, default={"x": 0.1, "y": 0.2}),
        np.random.default_rng(0),
    )
    for _ in range(100):
        s = tuner.ask()
        away = (s.params["x"] - 0.6) ** 2 + (s.params["y"] - 0.5) ** 2
        tuner.tell(s.id, {"profit": 20.0 - 100.0 * away + rng.normal()})
    found = tuner.versus_default()
    assert found.gain.kind == "difference"
    assert found.gain.value > 20.0


def test_where_knobs_do_nothing_no_gain_is_claimed():
    for seed in range(12):
        tuner, rng = Tuner({"a": Categorical(["u", "v", "w"])}, {"ms": "min"}, None, {"a": "u"}, seed=seed), None
        rng = np.random.default_rng(100 + seed)
        for _ in range(60):
            s = tuner.ask()
            tuner.tell(s.id, {"ms": 10.0 * math.exp(0.2 * rng.normal())})
        found = tuner.versus_default()
        assert found.gain.outcome == "open", (seed, str(found))


def test_a_tuner_that_only_ran_its_default_has_gained_exactly_nothing():
    tuner = tuner_of()
    for step in range(30):
        s = tuner.ask({"load": float(step % 2)})
        tuner.tell(s.id, {"ms": 100.0 + step}, params=DEFAULT)
    assert tuner.versus_default().gain == Gain("share", 0.0, 0.0, 0.0)
    assert "only the default ran" in str(tuner.versus_default())


def test_several_metrics_have_a_gain_each_and_one_together():
    tuner, rng = tuner_of({"ms": "min", "rps": "max"}), np.random.default_rng(0)
    for step in range(200):
        s = tuner.ask({"load": float(step // 7 % 2)})
        ms = 20.0 * (1.0 + 10.0 * (s.params["x"] - 0.2) ** 2) * math.exp(0.02 * rng.normal())
        tuner.tell(s.id, {"ms": ms, "rps": 1000.0 / ms})
    found = tuner.versus_default()
    assert list(found.metrics) == ["ms", "rps"]
    assert found.steps == 200
    assert {gain.outcome for gain in (*found.metrics.values(), found.gain)} == {"better"}
    assert not found.metrics["ms"].maximised
    assert found.metrics["rps"].maximised


def test_a_frozen_tuner_goes_on_counting():
    tuner = tuner_of()
    play(tuner, 100)
    tuner.freeze()
    before = tuner.versus_default()
    play(tuner, 200, seed=1)
    after = tuner.versus_default()
    assert after.steps == 300
    assert after.gain.value > before.gain.value  # nothing is explored


def test_failed_runs_and_what_nobody_asked_for_have_no_gain():
    tuner = tuner_of()
    play(tuner, 60)
    before = tuner.versus_default()
    tuner.tell_failed(tuner.ask({"load": 1.0}).id, "no memory")
    tuner.observe({"load": 1.0}, {"x": 0.9}, {"ms": 1e6})
    assert tuner.versus_default() == replace(before, steps=61, failed=1)


@cache
def undisturbed(scale):
    """What was saved where nothing is absurd: in truth, and as it is told."""
    plain = tuner_of({"ms": Metric("min", scale=scale)})
    return play(plain, 120), plain.versus_default()


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("at", [0, 5, 60])
@pytest.mark.parametrize("absurd", [1e308, 1e13])
def test_one_absurd_value_is_left_out_and_said(scale, at, absurd):
    """A counter was reset, or a sensor said its largest number."""
    truth, plain = undisturbed(scale)
    spoilt = tuner_of({"ms": Metric("min", scale=scale)})
    if at:
        play(spoilt, at)
    spoilt.tell(spoilt.ask({"load": 0.0}).id, {"ms": absurd})
    play(spoilt, 119 - at, seed=1)
    found = spoilt.versus_default()
    assert found.gain.value == pytest.approx(truth, abs=0.1)
    assert found.gain.high - found.gain.low < 2.0 * (plain.gain.high - plain.gain.low)
    assert 1 <= found.left_out <= 14
    assert str(found).endswith(f"; {found.left_out} absurd step{'s' * (found.left_out > 1)} left out")
    assert plain.left_out == 0
    assert Tuner.from_bytes(spoilt.to_bytes()).versus_default() == found
    assert VersusDefault.from_json(found.to_json()) == found


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_one_outlier_turns_neither_the_share_nor_the_sum_and_is_said(scale):
    """One run of 120 came to 300 times what it should: no step of the others is worth as much."""
    tuner, rng, summed = tuner_of({"ms": Metric("min", scale=scale)}), np.random.default_rng(0), 0.0
    for step in range(120):
        load = float(step // 7 % 2)
        s = tuner.ask({"load": load})
        cost = 100.0 * (1.0 + load) * (1.0 + 0.3 * ((s.params["x"] - 0.2) / 0.3) ** 2) * math.exp(0.02 * rng.normal())
        tuner.tell(s.id, {"ms": cost * (300.0 if step == 90 else 1.0)})
        summed += sum(one.gain * one.weight for one in tuner.latest_step_gain().values())
    found = tuner.versus_default()
    assert (found.bounded, found.left_out) == (1, 0)
    assert str(found).endswith("; 1 outlier counts as 10 times the usual at most")
    assert Tuner.from_bytes(tuner.to_bytes()).versus_default() == found == VersusDefault.from_json(found.to_json())
    assert found.gain.value > 0.0
    assert summed > 0.0


def test_a_gain_that_is_really_twenty_fold_is_no_outlier():
    tuner, rng = Tuner({"a": Categorical([0, 1])}, {"rps": "max"}, None, {"a": 0}), np.random.default_rng(0)
    for _ in range(60):
        s = tuner.ask()
        tuner.tell(s.id, {"rps": (20.0 if s.params["a"] else 1.0) * math.exp(0.02 * rng.normal())})
    found = tuner.versus_default()
    assert found.bounded <= 2  # the first look at it
    assert found.gain.value > 8.0  # the steps that ran the default gain nothing


def test_situations_of_very_different_levels_are_no_absurd_values():
    tuner, rng = tuner_of(), np.random.default_rng(0)
    for step in range(200):
        load = float(step // 7 % 2)
        s = tuner.ask({"load": load})
        tuner.tell(s.id, {"ms": 1e5**load * (1.0 + (s.params["x"] - 0.2) ** 2) * math.exp(0.02 * rng.normal())})
    assert tuner.versus_default().left_out <= 2  # the first look at another situation
    found = tuner.versus_default().gain  # of a default that hardly ever ran: a wide one
    assert -0.05 < found.low < 1.0 - 1.0 / 1.09 < found.high < 0.25


def test_one_absurd_value_moves_a_measured_gain_by_little():
    tuner = tuner_of(holdout=0.2)
    play(tuner, 200)
    before = tuner.savings().gain.value
    tuner.tell(tuner.ask({"load": 0.0}).id, {"ms": 1e308})
    assert tuner.savings().gain.value == pytest.approx(before, abs=0.1)


def test_preset_paper_knows_no_gain():
    pytest.importorskip("torch")
    tuner = Tuner(KNOBS, {"ms": "min"}, ["load"], DEFAULT, preset="paper")
    play(tuner, 12)
    assert tuner.versus_default() is None


def test_it_survives_a_snapshot_bit_for_bit_and_a_merge_adds_up():
    one, other = tuner_of(seed=1), tuner_of(seed=2)
    play(one, 80)
    play(other, 80, seed=1)
    again = Tuner.from_bytes(one.to_bytes())
    assert again.versus_default() == one.versus_default()
    assert again.to_bytes() == one.to_bytes()
    one.merge(other)
    assert one.versus_default().steps == 160


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("forecasts/counts", lambda a: a - 1e9),
        ("forecasts/sums", lambda a: a[:, :1]),
        ("forecasts/sums", lambda a: np.full_like(a, math.nan)),
        ("forecasts/positive", lambda a: a + 0.5),
    ],
)
def test_a_damaged_gain_is_refused(name, change):
    tuner = tuner_of()
    play(tuner, 20)
    with pytest.raises(SnapshotError, match="forecasts"):
        Tuner.from_bytes(damaged(tuner, name, change))


def test_extreme_metrics_leave_finite_numbers():
    tuner = tuner_of()
    for step, value in enumerate((1.7e308, -1.7e308, 1e-320, 5.0, 1.7e308, 7.0) * 4):
        s = tuner.ask({"load": float(step % 2)})
        tuner.tell(s.id, {"ms": value})
    found = tuner.versus_default()
    assert found is None or math.isfinite(found.gain.value)
    assert Tuner.from_bytes(tuner.to_bytes()).versus_default() == found


def test_json_holds_the_figure_and_its_words():
    tuner = tuner_of()
    play(tuner, 80)
    found = tuner.versus_default()
    assert found.to_json()["words"] == str(found)
    assert found.to_json()["gain"]["words"] == str(found.gain)
    assert VersusDefault.from_json({**found.to_json(), "new": 1}) == found
