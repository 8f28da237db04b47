"""The steps that a tuner remembers: as they were told, never more than stated, and the same after save and load."""

import csv
import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import (
    Auto,
    Bool,
    Categorical,
    Category,
    ContextShield,
    Flag,
    Fleet,
    Float,
    Int,
    InvalidValue,
    Metric,
    MissingExtra,
    Name,
    Number,
    Optional,
    PowerOfTwo,
    TimeOfDay,
    Tuner,
    Weekday,
)
from rasp_tuner.files import snapshot
from rasp_tuner.records import step_record
from rasp_tuner.records.step_record import LONGEST_CONTEXT, MOST_STEPS, StepRecord

SPACE = {
    "rate": Float(0.0, 1.0),
    "threads": Auto(Int(1, 64, log=True)),
    "limit": Optional(Float(0.5, 2.0)),
    "mode": Categorical(["DELETE", "WAL"]),
    "checkpoint": Int(0, 4096, log=True, when={"mode": "WAL"}),
    "page": PowerOfTwo(512, 65536),
    "fast": Bool(),
}
TODAY = {"rate": 0.123456789, "threads": "auto", "limit": None, "mode": "DELETE", "page": 4096, "fast": False}
KINDS = {
    "qps": Number(),
    "kb": Number(log=True, missing=4.0),
    "cached": Flag(),
    "tier": Category(["gold", "free"]),
    "region": Category(),
    "user": Name(width=4),
    "at": TimeOfDay(),
    "day": Weekday(),
}
SITUATION = {"qps": 420.0, "kb": 3.5, "cached": True, "tier": "gold", "region": "eu", "user": "ann", "at": "13:45"}


def tuner_of(**options):
    return Tuner(SPACE, {"ms": "min", "rps": Metric("max", weight=0.5)}, KINDS, TODAY, **options)


answers = st.one_of(
    st.none(),
    st.tuples(st.floats(-1e9, 1e9, allow_subnormal=False), st.integers(-1000, 1000)).map(
        lambda two: {"ms": two[0], "rps": two[1]}
    ),
)
loads = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(loads, answers, st.booleans()), max_size=8), st.integers(0, 8))
@settings(max_examples=15, deadline=None)
def test_rows_are_what_was_told_and_save_and_load_keeps_them(steps, saved_at):
    tuner, told = Tuner(SPACE, {"ms": "min", "rps": "max"}, ["load"], TODAY), []
    for i, (load, metrics, ask) in enumerate(steps):
        if i == saved_at:
            tuner = Tuner.from_bytes(tuner.to_bytes())
        context, params = {"load": load}, {**TODAY, "rate": 0.987654321 if i % 2 else 0.5, "threads": 1 + i}
        if ask:
            suggestion = tuner.ask(context)
            params = suggestion.params
            tuner.tell_failed(suggestion.id, "no") if metrics is None else tuner.tell(suggestion.id, metrics)
        elif metrics is None:
            tuner.observe_failed(context, params)
        else:
            tuner.observe(context, params, metrics)
        told.append((i, context, params, metrics, metrics is None, params == TODAY))
    for looked_at in (tuner, Tuner.from_bytes(tuner.to_bytes())):
        rows = looked_at.history()
        fields = ("step", "context", "params", "metrics", "failed", "default")
        assert [tuple(row[field] for field in fields) for row in rows] == told
        assert [row["chosen_by"] == "observed" for row in rows] == [not ask for _, _, ask in steps]
        assert rows.note == ""


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5), st.integers(0, 12))
@settings(max_examples=40)
def test_a_record_never_exceeds_its_bound_and_keeps_the_latest(count, bound, batch, latest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_record, "MOST_STEPS", bound)
        patch.setattr(step_record, "FRESH_STEPS", batch)
        record = StepRecord(["ms"], 1, 1)
        for i in range(count):
            record.add(i, i, np.array([2.0 * i]), np.array([0.5]), None if i % 3 == 0 else {"ms": float(i)})
            assert len(record) == min(i + 1, bound)
            assert len(record._rows) <= bound
        expected = [[i, i, i % 3 == 0, i if i % 3 else 0, 0.5, 2 * i] for i in range(count)][-bound:]
        assert record.rows().tolist() == expected
        assert record.rows(latest).tolist() == expected[max(len(expected) - latest, 0) :]
        again = StepRecord(["ms"], 1, 1)
        again.restore({"rows": record.rows()})
        assert again.rows().tolist() == expected


def test_the_record_is_as_long_as_the_docs_say():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"})
    for i in range(MOST_STEPS + 30):
        tuner._record.add(i, -1, np.zeros(0), np.array([0.5]), {"ms": 1.0})
    assert len(tuner.history()) == MOST_STEPS == 1000
    _, arrays = snapshot.decode(tuner.to_bytes())
    assert arrays["history/rows"].nbytes == 8 * (3 + 1 + 1) * MOST_STEPS


@pytest.mark.parametrize("latest", [0, 1, 3, 5, 9])
def test_the_latest_steps_are_the_end_of_all_of_them(latest):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"})
    for _ in range(5):
        suggestion = tuner.ask()
        tuner.tell(suggestion.id, {"loss": suggestion.params["x"]})
    assert list(tuner.history(latest=latest)) == list(tuner.history())[max(5 - latest, 0) :]
    with pytest.raises(InvalidValue, match="latest must be"):
        tuner.history(latest=-1)


def test_reasons_come_along_in_the_units_of_the_metric():
    tuner = Tuner({"x": Float(0.0, 10.0)}, {"rps": "max"}, default={"x": 5.0})
    for _ in range(20):
        s = tuner.ask()
        tuner.tell(s.id, {"rps": 100.0 - (s.params["x"] - 2.0) ** 2})
    last, why = tuner.history()[-1], tuner.explain("s19")
    assert (last["id"], last["chosen_by"], last["expert"], last["better"]) == (
        "s19",
        why.source,
        why.expert,
        why.better,
    )
    assert (last["expected"], last["expected_default"], last["target"]) == (-why.predicted, -why.level, -why.error)
    assert last["target"] == pytest.approx(last["metrics"]["rps"])
    assert 80.0 < last["expected_default"] < 100.0


def test_what_ran_is_shown_in_the_place_of_what_was_suggested():
    tuner = Tuner({"x": Float(0.0, 10.0), "y": Float(0.0, 10.0)}, {"ms": "min"}, constraints=["x + y <= 12"])
    s = tuner.ask()
    tuner.tell(s.id, {"ms": 1.0}, params={"x": 9.87654321, "y": 8.0})  # breaks the rule, and ran
    assert tuner.history()[0]["params"] == {"x": 9.87654321, "y": 8.0}


def test_contexts_come_back_as_far_as_they_are_known():
    tuner = tuner_of()
    tuner.observe({**SITUATION, "day": "Wed"}, TODAY, {"ms": 1.0, "rps": 2.0})
    tuner.observe({"qps": 1.0, "tier": "silver", "region": "us", "user": "bob"}, TODAY, {"ms": 1.0, "rps": 2.0})
    first, second = (row["context"] for row in tuner.history())
    assert first.pop("region").startswith("#")
    assert first.pop("user").startswith("#")
    known = {name: value for name, value in SITUATION.items() if name not in ("region", "user")}
    assert first == {**known, "at": "13:45:00", "day": "Wednesday"}
    assert second["tier"] == "other"
    assert [second[name] for name in ("kb", "cached", "at", "day")] == [None] * 4
    named = tuner.history(texts={"region": ["us", "eu", "asia"], "user": ["ann"]})
    assert [row["context"]["region"] for row in named] == ["eu", "us"]
    assert named[0]["context"]["user"] == "ann"
    assert named[1]["context"]["user"].startswith("#")
    with pytest.raises(InvalidValue, match="'qps' must be the name of a context that has texts"):
        tuner.history(texts={"qps": ["eu"]})
    for wrong in ("region", {"region": "eu"}, {"region": 3}, {"region": [[]]}):
        with pytest.raises(InvalidValue):
            tuner.history(texts=wrong)


@given(
    st.floats(-1e90, 1e90), st.floats(0.0, 86_399.0), st.integers(0, 6), st.sampled_from([True, False, None]), st.text()
)
def test_a_decoded_context_is_the_same_situation(number, at, day, flag, text):
    for kind, value in (
        (Number(), number), (Number(log=True), number), (Number(missing=1.0), None), (Flag(), flag),
        (TimeOfDay(), float(round(at))), (TimeOfDay(), None), (Weekday(), day), (Category(["a", text or "b"]), text),
    ):  # fmt: skip
        if value is not None or kind.may_be_missing:
            encoded = kind.encode(value)
            assert kind.encode(kind.decode(encoded)) == pytest.approx(encoded, rel=1e-9, abs=1e-9)


def test_no_text_of_a_context_is_kept_and_a_shield_has_no_way_back():
    tuner = tuner_of()
    tuner.tell(tuner.ask({**SITUATION, "region": "sesame-street"}).id, {"ms": 1.0, "rps": 1.0})
    assert b"sesame" not in tuner.to_bytes()
    assert "sesame" not in str(list(tuner.history()))
    shield = ContextShield({"qps": (0.0, 1000.0), "user": Name()}, key="long enough for a test")
    hidden = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, {"qps": Number(), "user": Name()}, shield=shield)
    hidden.tell(hidden.ask({"qps": 421.5, "user": "ann"}).id, {"ms": 1.0})
    row, table = hidden.history()[0], hidden.history()
    assert len(row["context"]) == shield.dim
    assert 421.5 not in row["context"]
    assert "qps" not in table.columns
    assert "context[0]" in table.columns


def test_long_contexts_are_left_out_and_the_table_says_so():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, LONGEST_CONTEXT + 1)
    tuner.observe([1.0] * (LONGEST_CONTEXT + 1), {"x": 0.5}, {"ms": 1.0})
    assert tuner.history()[0]["context"] is None
    assert "contexts of more than 32 numbers are not kept" in str(tuner.history())
    short = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, LONGEST_CONTEXT)
    short.observe([1.0] * LONGEST_CONTEXT, {"x": 0.5}, {"ms": 1.0})
    assert short.history()[0]["context"] == [1.0] * LONGEST_CONTEXT


def test_a_tuner_of_a_fleet_starts_its_history_outside_of_it():
    fleet = Fleet({"x": Float(0.0, 1.0)}, {"ms": "min"}, ["load"], {"x": 0.5}, size=2)
    for _ in range(3):
        fleet.tell({"ms": 1.0 + np.asarray(fleet.ask(np.zeros((2, 1))).params["x"])})
    one = fleet[1]
    assert "a fleet" in str(one.history())
    one.tell(one.ask({"load": 0.0}).id, {"ms": 1.0})
    assert [row["step"] for row in one.history()] == [3]


def taught():
    tuner = Tuner(SPACE, {"ms": "min", "rate": "max"}, {"qps": Number(), "mode": Category(["a", "b"])}, TODAY)
    for i in range(30):
        s = tuner.ask({"qps": float(i), "mode": "a"})
        if i == 28:
            tuner.tell_failed(s.id, "out of\n<memory>")
        else:
            tuner.tell(s.id, {"ms": 1.0 + i, "rate": 0.1})
    return tuner


def test_looking_changes_nothing():
    tuner = taught()
    before = tuner.to_bytes()
    str(tuner.history()), tuner.history().flat(), tuner.history()._repr_html_()
    assert tuner.to_bytes() == before


def test_the_table_fits_a_terminal_and_names_what_does_not(monkeypatch):
    history = taught().history()
    for width in (60, 100, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        head, *lines = str(history).splitlines()
        assert len(head) <= width
        assert "step" in head.split()
        assert "ms" in head.split()
        assert ("more columns: " in str(history)) == (width < 400)
        assert "the latest 20 of 30 rows" in lines
    assert "out of <memory>" in str(history)
    assert "&lt;memory&gt;" in history._repr_html_()
    assert "<memory>" not in history._repr_html_()


def test_rows_columns_and_slices():
    history = taught().history()
    assert history.columns[:6] == ["step", "id", "qps", "context.mode", "params.rate", "threads"]
    assert {"params.mode", "metrics.rate", "ms"} <= set(history.columns)
    assert history.flat()[-1]["metrics.rate"] == 0.1
    assert history.flat()[-2]["ms"] is None
    assert [row["step"] for row in history[-3:]] == [27, 28, 29]
    assert history[-3:].columns == history.columns
    json.dumps(list(history), allow_nan=False)


def test_a_csv_file_can_be_learned_from(tmp_path):
    tuner = Tuner(SPACE, {"ms": "min"}, {"qps": Number(), "cached": Flag()}, TODAY)
    for i in range(12):
        s = tuner.ask({"qps": float(i), "cached": i % 2 == 0})
        tuner.tell(s.id, {"ms": 1.0 + i})
    tuner.history().to_csv(tmp_path / "steps.csv")
    with (tmp_path / "steps.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == tuner.history().columns
    assert len(rows) == 12
    task = {"space": SPACE, "metrics": {"ms": "min"}, "context": {"qps": Number(), "cached": Flag()}, "default": TODAY}
    for source in (tmp_path / "steps.csv", list(tuner.history())):
        again, report = Tuner.from_log(source, **task)
        assert again.learned == 12, report
        key = [(row["params"], row["metrics"], row["context"]) for row in tuner.history()]
        assert all((row["params"], row["metrics"], row["context"]) in key for row in again.history())


def test_pandas_gets_the_table_and_an_error_names_it_where_it_is_missing(monkeypatch):
    history = taught().history()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        history.to_pandas()
    frame = SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns))
    monkeypatch.setitem(sys.modules, "pandas", frame)
    assert history.to_pandas() == (history.flat(), history.columns)


def test_numbers_stay_finite_however_large_they_are():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, ["load"])
    tuner.tell(tuner.ask({"load": 1e308}).id, {"ms": -1.7e308})
    row = Tuner.from_bytes(tuner.to_bytes()).history()[0]
    assert row["metrics"] == {"ms": -1.7e308}
    assert math.isfinite(row["context"]["load"])
