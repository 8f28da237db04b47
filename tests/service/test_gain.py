"""The gain over the default: by metric, in its own unit, exactly 0 where nothing but the default ran."""

import json

import numpy as np
import pytest
from serving import STUDY, NoLog, definition, play

from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.alerts import alerts
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.gain import DefaultRuns, GainSums, Level
from rasp_tuner.service.study.history import Step
from rasp_tuner.service.study.live_study import LiveStudy

TWO = {"p99_ms": "min", "rps": "max"}


def study(metrics=None, **changes):
    return LiveStudy(1, StudyDefinition.from_wire({**STUDY, "metrics": metrics or {"p99_ms": "min"}, **changes}), 0.0)


def measured(rng, metrics):
    return {name: x for name, x in (("p99_ms", 200 + 20 * rng.normal()), ("rps", 50 + rng.normal())) if name in metrics}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("metrics", [{"p99_ms": "min"}, TWO])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_study_that_only_ran_its_default_has_gained_exactly_nothing(metrics, told, preset):
    if preset == "paper":
        pytest.importorskip("torch")
    live, rng = study(metrics, preset=preset, budget=None), np.random.default_rng(0)
    for i in range(96):
        context, values = {"qps": 1.0 + 0.1 * rng.normal()}, measured(rng, metrics)
        if told:
            asked = live.ask(context, float(i))
            live.tell(f"s{asked.ask}", float(i), NoLog(), values, params=live.definition.default)
        else:
            live.observe(context, live.definition.default, values, None, float(i), NoLog())
    assert live.history.gain == 0.0
    for gain in live.view(0.0)["gains"].values():
        for part in gain.values():
            assert set(part.values()) == {0.0}
    series = live.history.chart_data(600)["series"]
    assert set(series["gain"]["mean"]) == {0.0}


def test_with_several_metrics_each_gain_is_in_its_own_unit_from_the_first_step_to_the_last():
    """The default costs 100 ms and serves 50 rps; everything else 10 ms less and 5 rps more."""
    live, rng = study(TWO), np.random.default_rng(1)
    for i in range(200):
        params = live.definition.default if i % 4 == 0 else {"pool": 16, "t": 2.0}
        better = 0.0 if i % 4 == 0 else 1.0
        values = {"p99_ms": 100 - 10 * better + 0.5 * rng.normal(), "rps": 50 + 5 * better + 0.2 * rng.normal()}
        live.observe({"qps": 1.0}, params, values, None, float(i), NoLog())
    gains = live.view(0.0)["gains"]
    for name, truth, level in (("p99_ms", 7.5, 100), ("rps", 3.75, 50)):
        for part in gains[name].values():
            assert part["mean"] == pytest.approx(truth, rel=0.12)
            assert part["low"] < part["mean"] < part["high"]
            assert part["mean_share"] == pytest.approx(truth / level, rel=0.12)
    series = live.history.chart_data(600)["series"]
    assert np.median([x for x in series["gain:p99_ms"]["mean"] if x]) == pytest.approx(10.0, rel=0.1)
    assert np.ptp(series["gain"]["mean"]) < 0.2  # shares: no step squashes the others


def test_the_interval_holds_the_true_gain_about_nine_times_in_ten():
    rng, held = np.random.default_rng(2), 0
    for _ in range(400):
        runs, sums = DefaultRuns(), GainSums()
        for value in 100 + 5 * rng.normal(size=30):
            runs.add(value)
        for value in 96 + 5 * rng.normal(size=60):
            sums.add(runs.level.value - value, runs.level, 1.0)
        gain = sums.report()
        held += gain["low"] <= 4.0 <= gain["high"]
    assert 0.84 <= held / 400 <= 0.97


def test_a_gain_has_no_share_of_a_level_that_is_zero_or_changes_its_sign():
    for levels in ([0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0]):
        sums = GainSums()
        for level in levels:
            sums.add(0.5, Level(level), 1.0)
        assert sums.report()["mean"] == 0.5
        assert sums.report()["mean_share"] is None


def test_extreme_metrics_leave_finite_sums_that_a_snapshot_can_hold():
    live = study()
    for i, value in enumerate((1.7e308, -1.7e308, 1e-320, 5.0, 1.7e308, 7.0)):
        live.observe({"qps": 1.0}, live.definition.default, {"p99_ms": value}, None, float(i), NoLog())
        live.observe({"qps": 1.0}, {"pool": 9, "t": 2.0}, {"p99_ms": -value}, None, float(i), NoLog())
    json.dumps(live.history.to_json(), allow_nan=False)
    json.dumps(live.history.chart_data(600), allow_nan=False)


@pytest.mark.parametrize("metrics", [{"p99_ms": {"direction": "min"}}, TWO])
def test_a_restored_history_goes_on_as_the_original(metrics):
    live = LiveStudy(1, definition(metrics={"p99_ms": {"direction": "min"}}), 0.0) if len(metrics) == 1 else study(TWO)
    if len(metrics) == 1:
        play(live, 700)
    else:
        for i in range(700):
            params = live.definition.default if i % 5 == 0 else {"pool": 1 + i % 60, "t": 2.0}
            live.observe({"qps": float(i % 3)}, params, {"p99_ms": i % 7, "rps": 1.0 + i % 5}, None, float(i), NoLog())
    again = study_snapshot.restore(study_snapshot.capture(live)(), 1, live.definition, 0.0)
    for i in range(3):
        for one in (live, again):
            one.observe({"qps": 1.0}, one.definition.default, dict.fromkeys(metrics, 3.0 + i), None, 1e6 + i, NoLog())
    assert again.history.to_json() == live.history.to_json()
    assert again.history.chart_data(400, 600.0) == live.history.chart_data(400, 600.0)


def test_the_latest_steps_are_drawn_one_by_one_and_older_ones_in_pieces():
    live = study()
    for i in range(3_000):
        live.history.add_step(Step(float(i), {"qps": 1.0}, live.definition.default, {"p99_ms": float(i)}, None, {}))
    everything = live.history.chart_data(400)
    assert (everything["first"], everything["bucket"]) == (0, 8)
    assert everything["times"]["first"][1] == 8.0
    assert everything["times"]["last"][1] == 15.0
    lately = live.history.chart_data(400, 2_900.0)
    assert (lately["first"], lately["bucket"]) == (2_900, 1)
    assert lately["series"]["metric:p99_ms"]["mean"] == [float(i) for i in range(2_900, 3_000)]
    longer = live.history.chart_data(400, 1_000.0)
    assert 996 <= longer["first"] <= 1_000
    assert longer["series"]["metric:p99_ms"]["step"][0] == longer["first"]
    assert live.history.chart_data(400, 1e9)["series"]["metric:p99_ms"]["step"] == []


def test_default_runs_of_two_situations_become_one():
    values = np.random.default_rng(3).normal(size=40)
    one, two, both = DefaultRuns(), DefaultRuns(), DefaultRuns()
    for i, value in enumerate(values):
        both.add(value)
        (one if i < 15 else two).add(value)
    one.merge(two)
    assert (one.count, one.mean, one.variance) == pytest.approx((both.count, both.mean, both.variance))


def words(**changes):
    live = study(budget=0.02)
    return alerts({**live.view(0.0), **changes})


def test_alerts_say_in_words_what_is_wrong_and_nothing_where_all_is_well():
    assert words() == []
    assert words(failures=9, failure_share=0.23) == ["23% of the latest runs failed."]
    assert words(failures=1, failure_share=0.5) == []
    loss = {"mean": -4.0, "low": -6.0, "high": -2.0, "mean_share": -0.04, "low_share": -0.06, "high_share": -0.02}
    assert words(gains={"p99_ms": {"all": None, "lately": loss}}) == [
        "p99_ms is worse than with the default lately, by 4% (2% to 6%)."
    ]
    bare = {**loss, "mean_share": None}
    assert words(gains={"p99_ms": {"all": None, "lately": bare}}) == [
        "p99_ms is worse than with the default lately, by 4 (2 to 6)."
    ]
    assert words(gains={"p99_ms": {"all": None, "lately": {**loss, "high": 1.0}}}) == []
    assert words(coverage={"forecasts": 100, "held": 0.67}) == [
        "Intervals that should hold 90% of the outcomes hold 67%."
    ]
    assert words(fallbacks={"asks": 72, "without_server": 70}) == [
        "97% of the clients' asks were answered without this server."
    ]
    assert words(fallbacks={"asks": 1000, "without_server": 20}) == []
    assert words(asks=100, expired=40) == ["40% of the suggestions were never answered."]
    spent = {"share": 0.02, "steps": 10, "spent": 3.0, "earned": 0.0, "left": -0.1}
    assert words(budget_report=spent) == ["The budget is spent: nothing new is tried."]
