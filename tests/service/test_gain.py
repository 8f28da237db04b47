"""The gain over the default as a study keeps and shows it, and the alerts that are made of its view."""

import json

import numpy as np
import pytest
from serving import STUDY, NoLog, definition, play

from rasp_tuner import Gain, VersusDefault
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.alerts import alerts
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.history import ToldStep
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.telemetry import study_numbers

TWO = {"p99_ms": "min", "rps": "max"}


def study(metrics=None, **changes):
    return LiveStudy(1, StudyDefinition.from_wire({**STUDY, "metrics": metrics or {"p99_ms": "min"}, **changes}), 0.0)


def test_a_step_has_the_gain_that_the_tuner_counted_for_it():
    """The best setting costs half of what the default does."""
    live, rng = study(), np.random.default_rng(0)
    for i in range(120):
        asked = live.ask({"qps": 1.0}, float(i))
        off = abs(np.log(asked.body["params"]["pool"] / 32.0))
        live.tell(f"s{asked.ask}", float(i), NoLog(), {"p99_ms": 100.0 * (1.0 + off) + rng.normal()})
    series = live.history.chart_data(600)["series"]
    came = dict(zip(series["metric:p99_ms"]["step"], series["metric:p99_ms"]["mean"], strict=True))
    counted = (series[name]["mean"] for name in ("gain:p99_ms", "default:p99_ms"))
    for step, gain, level in zip(series["gain:p99_ms"]["step"], *counted, strict=True):
        assert gain in (0.0, pytest.approx(level - came[step]))
    assert live.history.gain == pytest.approx(sum(series["gain"]["mean"]))
    found = live.view(0.0)["versus_default"]
    assert found["words"] == str(live.tuner.versus_default())
    assert found["gain"]["low"] > 0.0
    assert found["lately"]["p99_ms"]["value"] > found["gain"]["value"]  # exploring comes first


def test_one_outlier_does_not_turn_the_sum_that_the_chart_and_the_metrics_show():
    """The best setting costs half of what the default does; one run of 130 came to 300 times as much."""
    live, rng = study(), np.random.default_rng(0)
    for i in range(130):
        asked = live.ask({"qps": 1.0}, float(i))
        off = abs(np.log(asked.body["params"]["pool"] / 32.0))
        cost = 100.0 * (1.0 + off) + rng.normal()
        live.tell(f"s{asked.ask}", float(i), NoLog(), {"p99_ms": cost * (300.0 if i == 90 else 1.0)})
    view = live.view(0.0)
    assert view["versus_default"]["gain"]["low"] > 0.0
    assert view["versus_default"]["bounded"] == 1
    assert "1 outlier counts as" in view["versus_default"]["words"]
    assert live.history.gain > 0.0
    assert study_numbers(live, 0.0)["regret"] < 0.0


def test_what_nobody_asked_for_has_no_gain():
    live = study()
    for i in range(20):
        live.observe({"qps": 1.0}, live.definition.default, {"p99_ms": 5.0 + i}, None, float(i), NoLog())
    assert live.view(0.0)["versus_default"] is None
    assert live.history.chart_data(600)["series"]["gain"]["mean"] == []


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
        live.history.add_step(ToldStep(float(i), {"qps": 1.0}, live.definition.default, {"p99_ms": float(i)}, None, {}))
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


def words(**changes):
    live = study(budget=0.02)
    return alerts({**live.view(0.0), **changes})


def test_alerts_say_in_words_what_is_wrong_and_nothing_where_all_is_well():
    assert words() == []
    assert words(failures=9, failure_share=0.23) == ["23% of the latest runs failed."]
    assert words(failures=1, failure_share=0.5) == []
    lost, open_ = Gain("share", -0.04, -0.06, -0.02), Gain("share", -0.04, -0.06, 0.02)
    for gain, said in ((lost, ["p99_ms is worse than with the default lately: lost 4.0% (2.0 to 6.0%)."]), (open_, [])):
        versus = VersusDefault(90, 0, 0, gain, {"p99_ms": gain}, measured=False, lately={"p99_ms": gain})
        assert words(versus_default=versus.to_json()) == said
    measured = VersusDefault(90, 9, 0, lost, {"p99_ms": lost}, None, 40)
    assert words(versus_default=measured.to_json()) == [
        "p99_ms is worse than with the default as measured: lost 4.0% (2.0 to 6.0%)."
    ]
    assert words(coverage={"forecasts": 100, "held": 0.67}) == [
        "Intervals that should hold 90% of the outcomes hold 67%."
    ]
    assert words(asks=100, expired=40) == ["40% of the suggestions were never answered."]
    spent = {"share": 0.02, "steps": 10, "spent": 3.0, "earned": 0.0, "left": -0.1}
    assert words(budget_report=spent) == ["The budget is spent: nothing new is tried."]
