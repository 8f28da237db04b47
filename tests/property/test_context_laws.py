"""Laws of every kind of context: finite numbers of a fixed length, equal for equal values, in every process."""

import json
import math
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Category, Flag, Float, InvalidValue, Name, Number, TimeOfDay, Tuner, Weekday
from rasp_tuner.contexts import kind_json, kind_of, value_json
from rasp_tuner.contexts.context_encoder import KindEncoder, context_encoder

zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-7, minutes=30))])
moments = st.builds(
    lambda moment, zone: moment.replace(tzinfo=zone), st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), zones
)
texts = st.text(max_size=40)
missing = st.sampled_from([None, math.nan, np.float64("nan")])
numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**18), 10**18))
LEGAL = [
    (Number(), numbers),
    (Number(log=True), numbers),
    (Number(missing=3.0), st.one_of(numbers, missing)),
    (Flag(), st.one_of(st.booleans(), st.sampled_from([0, 1, 1.0, "yes", "Off", np.bool_(True)]), missing)),
    (Category(), st.one_of(texts, st.integers(), st.booleans(), missing)),
    (Category(["eu", "us"]), st.one_of(texts, st.sampled_from(["eu", "us"]), missing)),
    (Name(), st.one_of(texts, missing)),
    (Name(width=33), st.one_of(texts, missing)),
    (TimeOfDay(), st.one_of(moments, st.times(), st.floats(0.0, 86_400.0), moments.map(datetime.isoformat), missing)),
    (Weekday(), st.one_of(moments, st.dates(), st.integers(0, 6), st.sampled_from(["Mon", "sunday"]), missing)),
]
EU = [0.567657140994219, -0.357030192831961, -0.310204039032059, -0.265378214680143]
EU += [-0.395863007075847, -0.398600659669558, 0.143607505875918, 0.217783256982664, 0.0]
IDS = [repr(kind) for kind, _ in LEGAL]


@pytest.mark.parametrize(("kind", "values"), LEGAL, ids=IDS)
@given(data=st.data())
def test_every_legal_value_is_finite_numbers_of_a_fixed_length(kind, values, data):
    value = data.draw(values)
    encoded = kind.encode(value)
    assert len(encoded) == kind.dim
    assert all(type(one) is float and math.isfinite(one) for one in encoded)
    assert kind.encode(value) == encoded


@pytest.mark.parametrize(("kind", "values"), LEGAL, ids=IDS)
@given(data=st.data())
def test_json_changes_nothing(kind, values, data):
    value = data.draw(values)
    sent = json.loads(json.dumps(value_json("context", value)))
    again = kind_of("context", json.loads(json.dumps(kind_json(kind))))
    assert again == kind
    assert again.encode(sent) == pytest.approx(kind.encode(value), rel=1e-15)


@given(texts, texts)
def test_different_texts_are_apart(one, other):
    for kind in (Category(), Name(), Name(width=16)):
        far = math.dist(kind.encode(one), kind.encode(other))
        assert far == 0.0 if one == other else far > 0.05


@given(st.lists(st.one_of(texts, missing), min_size=1, max_size=5))
def test_what_came_before_does_not_matter(values):
    encoder, fresh = context_encoder({"where": "category"}), context_encoder({"where": Category()})
    encoded = [encoder.encode({"where": value}) for value in values]
    assert all((fresh.encode([value]) == own).all() for value, own in list(zip(values, encoded, strict=True))[::-1])


def test_a_text_has_the_same_numbers_in_every_process():
    """Python's own hash differs between processes."""
    says = "from rasp_tuner import Name; print(Name(width=20).encode('checkout-7 ü'))"
    said = {
        subprocess.run(
            [sys.executable, "-c", says],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {f"{Name(width=20).encode('checkout-7 ü')}\n"}


def test_the_numbers_of_a_text_are_a_file_format():
    """Snapshots hold them: no later version may change them."""
    assert Category().encode("eu") == pytest.approx(EU, abs=1e-12)


@given(moments)
def test_texts_of_a_moment_are_that_moment(moment):
    assert TimeOfDay().encode(moment.isoformat()) == TimeOfDay().encode(moment)
    assert Weekday().encode(moment.isoformat()) == Weekday().encode(moment) == Weekday().encode(moment.date())


def test_midnight_and_sunday_have_neighbours_on_both_sides():
    def apart(kind, one, other):
        return math.dist(kind.encode(one), kind.encode(other))

    assert apart(TimeOfDay(), "23:50", "00:10") == pytest.approx(apart(TimeOfDay(), "12:00", "12:20"))
    assert apart(Weekday(), "Sun", "Mon") == pytest.approx(apart(Weekday(), "Tue", "Wed"))
    assert Weekday().encode(date(2024, 1, 1)) == Weekday().encode("Monday") == Weekday().encode(0)
    assert TimeOfDay().encode(time(6)) == TimeOfDay().encode(6 * 3600)


@settings(max_examples=25)
@given(data=st.data())
def test_a_snapshot_goes_on_with_the_same_suggestions(data):
    schema = {f"f{i}": kind for i, (kind, _) in enumerate(LEGAL)}
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, schema, seed=data.draw(st.integers(0, 99)))
    for _ in range(3):
        context = {f"f{i}": data.draw(values) for i, (_, values) in enumerate(LEGAL)}
        s = tuner.ask(context)
        tuner.tell(s.id, {"loss": s.params["x"] ** 2})
    again = Tuner.from_bytes(tuner.to_bytes())
    assert again.to_bytes() == tuner.to_bytes()
    assert again.ask(context).params == tuner.ask(context).params
    assert isinstance(again._encoder, KindEncoder)
    assert again._encoder.kinds == schema


@given(st.sampled_from([kind for kind, _ in LEGAL]), st.sampled_from([b"raw", [1], {"a": 1}, object(), 1j]))
def test_what_is_no_value_is_refused_by_name(kind, value):
    with pytest.raises(InvalidValue, match=r"context\['it'\] must be"):
        context_encoder({"it": kind, "flag": "flag"}).encode({"it": value})
