"""Contexts as systems have them, seen through the public names."""

import csv
from datetime import datetime, timedelta

import numpy as np
import pytest

from rasp_tuner import (
    Category,
    ContextShield,
    Flag,
    Fleet,
    Float,
    Int,
    InvalidSpace,
    InvalidValue,
    Name,
    Number,
    TimeOfDay,
    Tuner,
    Weekday,
    now,
)

SPACE = {"x": Float(0, 1)}
LOSS = {"loss": "min"}
BEST = {"eu": 0.2, "us": 0.8, "asia": 0.5}


def run(tuner, contexts, best):
    for context in contexts:
        s = tuner.ask(context)
        tuner.tell(s.id, {"loss": (s.params["x"] - best(context)) ** 2})


@pytest.mark.parametrize("kind", ["category", "name", Category(["eu", "us", "asia"]), {"kind": "name", "width": 4}])
def test_each_category_gets_its_own_optimum(kind):
    tuner = Tuner(SPACE, LOSS, {"region": kind})
    order = np.random.default_rng(0).permutation(list(BEST) * 30).tolist()
    run(tuner, [{"region": region} for region in order], lambda context: BEST[context["region"]])
    for region, best in BEST.items():
        assert tuner.recommend({"region": region})["x"] == pytest.approx(best, abs=0.06)


def test_a_new_category_starts_from_what_is_common():
    tuner = Tuner(SPACE, LOSS, {"region": "category"}, {"x": 0.5})
    run(tuner, [{"region": f"r{i % 4}"} for i in range(60)], lambda _: 0.1)
    assert tuner.recommend({"region": "never seen"})["x"] == pytest.approx(0.1, abs=0.05)
    assert tuner.recommend({})["x"] == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("space", [SPACE, {"x": Int(0, 10)}])
def test_what_is_missing_for_the_first_time_does_not_count(space):
    """By the known part alone; what was missing before is a situation of its own."""
    kinds = {"load": Number(), "region": Category(["eu", "us"]), "user": Name()}
    tuner = Tuner(space, LOSS, kinds)
    top = 1.0 if space is SPACE else 10.0
    for i in range(120):
        context = {"load": 100.0 * (i // 4 % 2), "region": "eu", "user": f"u{i % 3}"}
        s = tuner.ask(context)
        tuner.tell(s.id, {"loss": 1.0 + (s.params["x"] / top - (0.8 if context["load"] else 0.3)) ** 2})
    for load, best in ((0.0, 0.3), (100.0, 0.8)):
        whole = tuner.recommend({"load": load, "region": "eu", "user": "u1"})["x"]
        assert whole / top == pytest.approx(best, abs=0.11)
        assert tuner.recommend({"load": load})["x"] == pytest.approx(whole, abs=0.05 * top)
        assert tuner.recommend({"load": load, "user": "u2"})["x"] == pytest.approx(whole, abs=0.05 * top)


def test_names_with_the_kind_number_are_a_list_of_names():
    one, other = Tuner(SPACE, LOSS, ["qps"]), Tuner(SPACE, LOSS, {"qps": "number"})
    assert one.to_bytes() == other.to_bytes()


def test_what_may_be_missing_may_be_left_out():
    tuner = Tuner(SPACE, LOSS, {"qps": Number(missing=100.0), "cached": "flag", "at": "time of day", "day": Weekday()})
    assert tuner.ask({}).params == Tuner(SPACE, LOSS, {"at": TimeOfDay()}).ask({"at": float("nan")}).params
    tuner.check_context({"at": now(), "day": now(), "cached": True, "qps": 3})
    with pytest.raises(InvalidValue, match=r"unknown names \['zone'\]"):
        tuner.ask({"zone": "eu"})


def test_now_knows_its_zone():
    assert isinstance(now(), datetime)
    assert isinstance(now().utcoffset(), timedelta)


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"qps": None, "where": "eu"}, r"context\['qps'\] is missing; Number\(missing=...\)"),
        ({"where": "eu"}, r"context lacks \['qps'\]"),
        ({"qps": "many", "where": "eu"}, r"context\['qps'\] must be a finite number, got 'many'"),
        ({"qps": 1, "where": ["eu"]}, r"context\['where'\] must be a text, got \['eu'\]"),
        ({"qps": 1, "on": "maybe"}, r"context\['on'\] must be True or False, got 'maybe'"),
        ({"qps": 1, "on": 2}, r"context\['on'\] must be True or False, got 2"),
        ({"qps": 1, "at": "25:00"}, r"context\['at'\] must be a datetime, a time"),
        ({"qps": 1, "at": 90_000}, r"context\['at'\] must be a datetime, a time"),
        ({"qps": 1, "day": 7}, r"context\['day'\] must be a datetime, a date"),
        ({"qps": 1, "day": "someday"}, r"context\['day'\] must be a datetime, a date"),
        ([1, "eu"], r"context must hold 5 values, got 2"),
        ("eu", r"context must be given as \{'qps': ..."),
        (None, r"context is missing: give \{'qps': ..."),
    ],
)
def test_wrong_values_are_refused_by_name(context, says):
    kinds = {"qps": "number", "where": "category", "on": "flag", "at": "time of day", "day": "weekday"}
    with pytest.raises(InvalidValue, match=says):
        Tuner(SPACE, LOSS, kinds).ask(context)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, "context must have names"),
        ({"": "flag"}, "context must have names"),
        ({1: "flag"}, "context must have names"),
        ({"a": "colour"}, r"context\['a'\] must be a kind of context, as in Category\(\), or one of the words"),
        ({"a": None}, r"context\['a'\] must be a kind of context"),
        ({"a": {"kind": "flag", "width": 3}}, r"context\['a'\]: 'flag' has no such fields"),
        ({"a": {"kind": "name", "width": 1}}, r"context\['a'\]: width must be a whole number from 2"),
        ({"a": {"kind": "category", "values": []}}, "values must be 1 to 64 different texts"),
        ({"a": {"kind": "category", "values": ["b", "b"]}}, "values must be 1 to 64 different texts"),
        ({"a": {"kind": "category", "values": "bc"}}, "values must be a list of texts"),
        ({"a": {"kind": "category", "values": [None]}}, "values must hold texts"),
        ({"a": {"kind": "number", "log": 1}}, "log must be True or False"),
        ({"a": {"kind": "number", "missing": "x"}}, "missing must be a finite number"),
    ],
)
def test_ill_defined_kinds_are_refused(schema, says):
    with pytest.raises(InvalidSpace, match=says):
        Tuner(SPACE, LOSS, schema)


def test_whole_numbers_and_booleans_are_categories_too():
    kind = Category()
    assert kind.encode(200) == kind.encode("200") == kind.encode(200.0) == kind.encode(np.int64(200))
    assert kind.encode(True) == kind.encode("true") != kind.encode(1)


def test_no_text_is_in_a_snapshot():
    tuner = Tuner(SPACE, LOSS, {"user": "name", "region": "category"})
    run(tuner, [{"user": f"secret-{i}", "region": "hidden-place"} for i in range(5)], lambda _: 0.3)
    tuner.ask({"user": "secret-9", "region": "hidden-place"})
    data = tuner.to_bytes()
    assert b"secret" not in data
    assert b"hidden" not in data


def test_a_log_is_read_by_kinds(tmp_path):
    path = tmp_path / "log.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["zip", "cached", "at", "kb", "x", "loss"])
        for i in range(40):
            x = i / 39
            out.writerow([("007", "7")[i % 2], ("yes", "no")[i % 2], "13:45", "", x, (x - (0.2, 0.8)[i % 2]) ** 2])
    kinds = {"zip": Category(), "cached": Flag(), "at": TimeOfDay(), "kb": Number(log=True, missing=4.0)}
    tuner, report = Tuner.from_log(path, space=SPACE, metrics=LOSS, context=kinds)
    assert report.used == 40
    for text, cached, best in (("007", True, 0.2), ("7", False, 0.8)):
        seen = {"zip": text, "cached": cached, "at": 49_500}
        assert tuner.recommend(seen)["x"] == pytest.approx(best, abs=0.1)


def test_a_shield_takes_kinds():
    kinds = {"qps": Number(), "user": Name()}
    shield = ContextShield({"qps": (0, 1000), "user": Name()}, key="kept outside, and long")
    tuner = Tuner(SPACE, LOSS, kinds, shield=shield)
    order = [{"qps": 10.0, "user": f"u{i % 2}"} for i in range(40)]
    run(tuner, order, lambda context: {"u0": 0.2, "u1": 0.8}[context["user"]])
    assert tuner.recommend({"qps": 10.0, "user": "u1"})["x"] == pytest.approx(0.8, abs=0.1)
    with pytest.raises(InvalidSpace, match="shield has ranges for the context"):
        Tuner(SPACE, LOSS, {"qps": "number", "user": "category"}, shield=shield)
    with pytest.raises(InvalidSpace, match=r"ranges\['qps'\] must be \(low, high\) for a number"):
        ContextShield({"qps": Number(log=True)})


def test_a_fleet_takes_columns_of_kinds():
    fleet, rng = Fleet(SPACE, LOSS, {"region": "category", "kb": "number"}, size=3), np.random.default_rng(0)
    for i in range(40):
        regions, best = (["eu", "us", None], 0.2) if i % 2 else (["us", "eu", "asia"], 0.8)
        x = fleet.ask({"region": regions, "kb": np.ones(3)}).params["x"]
        fleet.tell({"loss": (x - best) ** 2 + 0.01 * rng.normal(size=3)})
    assert fleet.recommend({"region": regions, "kb": np.ones(3)})["x"] == pytest.approx([0.2] * 3, abs=0.1)
    assert fleet[0].recommend({"region": "us", "kb": 1.0})["x"] == pytest.approx(0.8, abs=0.1)
    with pytest.raises(InvalidValue, match=r"context\['kb'\] must be a finite number, got 'x' for tuner 1"):
        fleet.ask({"region": regions, "kb": [1.0, "x", 2.0]})
    with pytest.raises(InvalidValue, match=r"contexts\['kb'\] must hold 3 values"):
        fleet.ask({"region": regions, "kb": [1.0]})
    with pytest.raises(InvalidValue, match="contexts must be columns by name"):
        fleet.ask(np.zeros((3, 10)))
