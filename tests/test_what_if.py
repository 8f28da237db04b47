"""What settings are expected to give: near the truth, beside default and recommendation, without a trace."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Auto, Categorical, Float, Int, InvalidValue, Metric, Tuner, WhatIf

DEFAULT = {"x": 2, "y": 0.5}
METRICS = {"ms": "min", "rps": Metric("max"), "mb": Metric("min", max=900.0)}
KINDS = {
    "smooth": {"space": {"x": Float(0.0, 10.0), "y": Float(0.0, 1.0)}, "metrics": {"ms": "min"}},
    "mixed": {"space": {"x": Int(0, 10), "y": Float(0.0, 1.0)}, "metrics": {"rps": "max"}},
    "limited": {"space": {"x": Float(0.0, 10.0), "y": Float(0.0, 1.0)}, "metrics": METRICS},
}
LOADS = [{"load": 1.0}, {"load": 9.0}]


def truth(x, load):
    return {"ms": 20.0 + (x - 7.0) ** 2 + 2.0 * load, "rps": 300.0 - 5.0 * abs(x - 4.0), "mb": 100.0 * np.exp(0.1 * x)}


def tuner_of(kind, steps):
    own = dict(KINDS[kind])
    tuner = Tuner(own.pop("space"), own.pop("metrics"), ["load"], default=DEFAULT, **own)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        context = LOADS[int(rng.integers(2))]
        s = tuner.ask(context)
        told = truth(s.params["x"], context["load"])
        tuner.tell(s.id, {name: told[name] * (1.0 + 0.01 * rng.normal()) for name in tuner.scales})
    return tuner


@pytest.mark.parametrize("kind", KINDS)
def test_each_metric_is_near_the_truth_in_its_own_unit(kind):
    tuner = tuner_of(kind, 60)
    for context in LOADS:
        found = tuner.what_if(context, {"x": 5})
        assert found.given.params == {"x": 5, "y": 0.5}
        assert found.default.params == DEFAULT
        assert found.recommended.params == tuner.recommend(context)
        assert found.default.metrics == tuner.default_levels(context)
        assert found.default.better is None
        for forecast in (found.given, found.default, found.recommended):
            assert list(forecast.metrics) == list(tuner.scales)
            assert forecast.margins == tuner.margins(context, forecast.params)
            for name, expected in forecast.metrics.items():
                assert expected.low <= expected.mean <= expected.high
                assert expected.mean == pytest.approx(truth(forecast.params["x"], context["load"])[name], rel=0.25)
        assert found.given.better > 0.5  # 5 is better than 2 by every measure but the limit's, which is far


def test_it_tells_better_from_worse():
    tuner = tuner_of("smooth", 60)
    better, worse = (tuner.what_if(LOADS[0], {"x": x}).given.better for x in (7, 0))
    assert worse < 0.05 < 0.95 < better


def test_without_settings_it_is_about_the_recommendation():
    found = tuner_of("smooth", 40).what_if(LOADS[0])
    assert found.given == found.recommended
    assert "These settings" not in str(found)


def test_before_anything_is_known_it_says_so():
    found = tuner_of("smooth", 0).what_if(LOADS[0], {"x": 5})
    assert (found.given.metrics, found.given.better, found.runs) == ({}, None, 0.0)
    assert str(found) == (
        "These settings (x=5 y=0.5): no forecast: too little is known, or the preset gives none.\n"
        "The default (x=2 y=0.5): no forecast: too little is known, or the preset gives none.\n"
        "The recommendation here is the default.\n"
        "No run so far was in a situation like this one."
    )


def test_a_situation_never_seen_is_called_a_guess():
    tuner = tuner_of("smooth", 40)
    assert "a guess" in str(tuner.what_if({"load": 1e6}, {"x": 5}))
    known = tuner.what_if(LOADS[0], {"x": 5})
    assert known.runs > 10
    assert "in a situation like this one, the latest" in str(known)


def test_preset_paper_gives_no_forecast_and_says_so():
    tuner = Tuner({"x": Float(0, 1)}, {"ms": "min"}, default={"x": 0.5}, preset="paper")
    for value in (3.0, 2.0, 4.0):
        tuner.tell(tuner.ask().id, {"ms": value})
    assert tuner.what_if(None, {"x": 0.1}).given.metrics == {}


def test_knobs_with_conditions_are_completed_from_the_default():
    space = {"mode": Categorical(["a", "b"]), "depth": Int(1, 9, when={"mode": "b"}), "w": Auto(Int(1, 8))}
    tuner = Tuner(space, {"ms": "min"}, default={"mode": "a", "w": "auto"}, constraints=["depth <= 8"])
    for value in (3.0, 2.0, 4.0, 5.0):
        tuner.tell(tuner.ask().id, {"ms": value})
    assert tuner.what_if(None, {"w": 3}).given.params == {"mode": "a", "w": 3}
    assert tuner.what_if(None, {"mode": "b", "depth": 3}).given.params == {"mode": "b", "depth": 3, "w": "auto"}
    with pytest.raises(InvalidValue, match="depth"):
        tuner.what_if(None, {"depth": 3})


@pytest.mark.parametrize(
    ("context", "params", "field"),
    [
        ({"load": float("nan")}, None, "load"),
        ({"other": 1.0}, None, "context"),
        (LOADS[0], {"z": 1}, "z"),
        (LOADS[0], {"x": float("nan")}, "x"),
        (LOADS[0], {"x": 11}, "x"),
        (LOADS[0], {"x": "5"}, "x"),
        (LOADS[0], [5], "params"),
    ],
)
def test_bad_input_is_named(context, params, field):
    with pytest.raises(InvalidValue, match=field):
        tuner_of("smooth", 3).what_if(context, params)


ASKED = st.tuples(st.floats(-10.0, 20.0), st.none() | st.floats(0.0, 10.0) | st.just(99.0))


@pytest.mark.parametrize("kind", ["smooth", pytest.param("limited", marks=pytest.mark.slow)])
@settings(max_examples=12, deadline=None)
@given(steps=st.integers(0, 12), asked=st.lists(ASKED, min_size=1, max_size=4))
def test_asking_changes_no_bit_and_no_later_suggestion(kind, steps, asked):
    plain, watched = tuner_of(kind, steps), tuner_of(kind, steps)
    for load, x in asked:
        try:
            found = watched.what_if({"load": load}, None if x is None else {"x": x})
        except InvalidValue:
            assert x == 99.0
        else:
            assert WhatIf.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    assert watched.to_bytes() == plain.to_bytes()
    assert watched.ask(LOADS[0]) == plain.ask(LOADS[0])
    told = {name: truth(3.0, 1.0)[name] for name in plain.scales}
    for tuner in (plain, watched):
        tuner.tell(tuner.pending[-1].id, told)
    assert watched.to_bytes() == plain.to_bytes()


def test_settings_that_break_a_constraint_are_refused_by_name():
    tuner = Tuner({"x": Float(0.0, 10.0), "n": Int(1, 9)}, {"ms": "min"}, constraints=["x * n <= 40"])
    with pytest.raises(InvalidValue, match=r"params break constraints\['x \* n <= 40'\]: .*'x': 10.0, 'n': 9"):
        tuner.what_if(None, {"x": 10.0, "n": 9})
    with pytest.raises(InvalidValue, match="params break constraints"):  # with the default's 5 of n
        tuner.what_if(None, {"x": 10.0})
    assert tuner.what_if(None, {"x": 8.0, "n": 5}).given.params == {"x": 8.0, "n": 5}


def test_the_settings_are_shown_as_they_were_given():
    found = tuner_of("smooth", 20).what_if(LOADS[0], {"x": 2.0123, "y": 0.123456})
    assert found.given.params == {"x": 2.0123, "y": 0.123456}
    assert "x=2.0123 y=0.123456" in str(found)


def test_a_name_or_a_choice_with_line_breaks_does_not_break_the_lines():
    tuner = Tuner({"a\n\nb": Categorical(["x\n\x1b[31my", "z"])}, {"m\ns": "min"}, default={"a\n\nb": "z"})
    for _ in range(20):
        s = tuner.ask()
        tuner.tell(s.id, {"m\ns": 1.0 if s.params["a\n\nb"] == "z" else 0.0})
    shown = str(tuner.what_if(None, {"a\n\nb": "x\n\x1b[31my"}))
    assert all(line.startswith(("The ", "Each ", "20 runs")) for line in shown.splitlines()), shown
    assert "\x1b" not in shown
    assert "\n" not in str(tuner.explain(s.id))
