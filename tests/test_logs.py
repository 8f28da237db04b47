"""Tuner.from_log: past records in any order and of any shape; what is missing follows a stated rule."""

import csv
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Auto, Bool, Categorical, Float, Int, InvalidValue, Optional, PowerOfTwo, Tuner

SPACE = {"n": Int(1, 64, log=True), "x": Float(0.0, 1.0), "c": Categorical(["a", "b", None])}
TASK = {"space": SPACE, "metrics": {"ms": "min", "tps": "max"}, "context": ["q", "k"]}


def record(i):
    rng = np.random.default_rng(i)
    q, x = float(rng.choice([1.0, 9.0])), float(rng.uniform())
    params = {"n": int(rng.integers(1, 65)), "x": x, "c": ["a", "b", None][i % 3]}
    metrics = {"ms": 10.0 + q * (x - 0.3) ** 2, "tps": 5.0 + x}
    return {"context": {"q": q, "k": float(rng.normal())}, "params": params, "metrics": metrics, "at": float(i)}


RECORDS = [record(i) for i in range(24)]


def flat(one):
    return {**one["context"], **one["params"], **one["metrics"], "at": one["at"]}


@pytest.mark.slow
@settings(max_examples=15)
@given(st.permutations(RECORDS), st.sampled_from([None, "at"]))
def test_any_order_of_the_records_gives_the_same_tuner(shuffled, time):
    expected, _ = Tuner.from_log(RECORDS, time=time, **TASK)
    tuner, report = Tuner.from_log(iter(shuffled), time=time, **TASK)
    assert tuner.to_bytes() == expected.to_bytes()
    assert (report.used, report.dropped, dict(report.why)) == (24, 0, {})


def test_with_a_time_they_are_learned_in_its_order():
    straight = Tuner(**TASK)
    for one in RECORDS:
        straight.observe(one["context"], one["params"], one["metrics"])
    tuner, report = Tuner.from_log(RECORDS[::-1], time="at", **TASK)
    assert tuner.to_bytes() == straight.to_bytes()
    assert "'at'" in str(report)
    dated = [{**one, "at": f"2026-01-{1 + i:02d}T00:00:00"} for i, one in enumerate(RECORDS)]
    assert Tuner.from_log(dated[::-1], time="at", **TASK)[0].to_bytes() == straight.to_bytes()


def test_a_file_and_columns_are_read_like_records(tmp_path):
    expected = Tuner.from_log(RECORDS, **TASK)[0].to_bytes()
    rows = [flat(one) for one in RECORDS]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "c"}
    columns["c"] = [row["c"] for row in rows]
    assert Tuner.from_log(columns, **TASK)[0].to_bytes() == expected
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "more"])
        writer.writeheader()
        writer.writerows({**row, "c": str(row["c"]), "more": "?"} for row in rows)
    assert Tuner.from_log(tmp_path / "log.csv", **TASK)[0].to_bytes() == expected
    assert Tuner.from_log(str(tmp_path / "log.csv"), time="at", **TASK)[1].used == 24


def holed():
    """Records with something missing, each in another way."""
    yield {**RECORDS[0], "context": {"q": math.nan, "k": 1.0}}, "context['q'] is missing", "the context is missing"
    yield {**RECORDS[0], "context": {"k": 1.0}}, "context['q'] is missing", "the context is missing"
    yield {**RECORDS[0], "params": {"n": 3, "x": None, "c": None}}, "params['x'] is missing", "a parameter is missing"
    yield {**RECORDS[0], "params": {"n": 3, "x": 0.1}}, "params['c'] is missing", "a parameter is missing"
    yield {**RECORDS[0], "metrics": {"ms": 3.0}}, "metrics['tps'] is missing", "a metric is missing"
    yield {**RECORDS[0], "metrics": {"ms": 3.0, "tps": math.inf}}, "metrics['tps'] must be", "an illegal value"
    yield {**RECORDS[0], "params": {"n": 300, "x": 0.1, "c": "a"}}, "params['n']", "an illegal value"
    yield {**RECORDS[0], "context": {"q": 1.0, "k": 1.0, "z": 1.0}}, "unknown names ['z']", "an illegal value"
    yield {**RECORDS[0], "at": "noon"}, "at must be", "an illegal value"


@pytest.mark.parametrize(("bad", "said", "reason"), list(holed()))
def test_what_is_missing_or_illegal_is_refused_or_dropped(bad, said, reason):
    with pytest.raises(InvalidValue) as refused:
        Tuner.from_log([*RECORDS, bad], time="at", **TASK)
    assert "record 24" in str(refused.value)
    assert said in str(refused.value)
    tuner, report = Tuner.from_log([bad, *RECORDS], time="at", missing="drop", **TASK)
    assert tuner.to_bytes() == Tuner.from_log(RECORDS, time="at", **TASK)[0].to_bytes()
    assert (report.used, report.dropped, dict(report.why)) == (24, 1, {reason: 1})
    assert reason in str(report)


def test_misuse_says_what_to_do(tmp_path):
    with pytest.raises(InvalidValue, match="missing must be one of"):
        Tuner.from_log(RECORDS, missing="mean", **TASK)
    with pytest.raises(InvalidValue, match=r"lacks the columns \['tps'\]"):
        Tuner.from_log({"q": [], "k": [], "n": [], "x": [], "c": [], "ms": []}, **TASK)
    with pytest.raises(InvalidValue, match="columns of one length"):
        Tuner.from_log({"q": [1.0], "k": [], "n": [], "x": [], "c": [], "ms": [], "tps": []}, **TASK)
    with pytest.raises(InvalidValue, match="must be a readable CSV"):
        Tuner.from_log(tmp_path / "none.csv", **TASK)
    with pytest.raises(InvalidValue, match="must name its columns"):
        Tuner.from_log(tmp_path / "none.csv", **{**TASK, "context": 2})
    with pytest.raises(InvalidValue, match="records must be"):
        Tuner.from_log(7, **TASK)
    with pytest.raises(InvalidValue, match="each record must be a mapping"):
        Tuner.from_log([7], missing="drop", **TASK)


def test_an_empty_log_and_a_tuner_without_context():
    tuner, report = Tuner.from_log([], **TASK)
    assert (tuner.to_bytes(), report.used) == (Tuner(**TASK).to_bytes(), 0)
    blind = {**TASK, "context": None}
    one = {"params": RECORDS[0]["params"], "metrics": RECORDS[0]["metrics"]}
    assert Tuner.from_log([one, one], **blind)[0].learned == 2


def test_a_table_may_have_words_and_knobs_that_do_not_exist_in_every_row(tmp_path):
    space = {
        "journal": Categorical(["DELETE", "WAL"]),
        "sync": Categorical(["OFF", "FULL"], when={"journal": "WAL"}),
        "cache": Auto(Int(1, 64)),
        "mmap": Optional(Float(1, 8)),
        "page": PowerOfTwo(1, 8),
        "on": Bool(),
    }
    rows = [
        "journal,sync,cache,mmap,page,on,ms",
        "WAL,FULL,auto,,4,true,3",
        "DELETE,,16,2.5,8,off,4",
        "DELETE,FULL,16,2.5,8,0,4",  # the column has a value, but the knob does not exist
        "WAL,,16,2.5,8,1,5",  # it exists, and is missing
        "DELETE,,16,2.5,3,1,5",  # not a power of two
    ]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    tuner, report = Tuner.from_log(tmp_path / "log.csv", space=space, metrics={"ms": "min"}, missing="drop", seed=3)
    assert (report.used, report.dropped) == (3, 2)
    assert dict(report.why) == {"a parameter is missing": 1, "an illegal value": 1}
    by_hand = Tuner(space, {"ms": "min"}, seed=3)
    delete = {"journal": "DELETE", "cache": 16, "mmap": 2.5, "page": 8, "on": False}
    wal = {"journal": "WAL", "sync": "FULL", "cache": "auto", "mmap": None, "page": 4, "on": True}
    for params, ms in ((delete, 4.0), (delete, 4.0), (wal, 3.0)):
        by_hand.observe(None, params, {"ms": ms})
    assert tuner.recommend() == by_hand.recommend()
