"""Laws of knobs that are tied together: legal values only, equal settings are equal points, constraints always hold."""

import json
import math
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Auto, Bool, Categorical, Float, Int, Optional, PowerOfTwo, Tuner
from rasp_tuner.space import Space
from rasp_tuner.space.constraints import Constraint
from rasp_tuner.space.rules import MOST_LOOKS

unit = st.floats(0.0, 1.0)
NAMES = ("a", "b", "c", "d", "e")


@st.composite
def numbers(draw, when=None):
    low, width = draw(st.integers(0, 40)), draw(st.integers(1, 200))
    kind = draw(st.sampled_from(["float", "log float", "stepped", "int", "log int", "power"]))
    if kind == "float":
        return Float(low - 20.5, low + width, digits=draw(st.integers(1, 12)), when=when)
    if kind == "log float":
        return Float(0.01 + low, low + width, log=True, when=when)
    if kind == "stepped":
        return Float(low, low + width, step=width / 4, when=when)
    if kind == "int":
        return Int(low, low + width, when=when)
    if kind == "log int":
        return Int(low, low + width, log=True, when=when)
    return PowerOfTwo(2 ** (low % 5), 2 ** (low % 5 + 1 + width % 7), when=when)


@st.composite
def knobs(draw, when=None):
    kind = draw(st.sampled_from(["number", "number", "auto", "optional", "minus one", "words", "ordered", "bool"]))
    if kind == "auto":
        return Auto(draw(numbers()), when=when)
    if kind == "optional":
        return Optional(draw(numbers()), when=when)
    if kind == "minus one":
        return Auto(draw(numbers()), word=-1000, when=when)
    if kind in ("words", "ordered"):
        return Categorical(["x", "y", "z", 4][: draw(st.integers(2, 4))], kind == "ordered", when=when)
    return Bool(when=when) if kind == "bool" else draw(numbers(when=when))


def some_value(draw, knob):
    """A legal value, which a condition may name."""
    if isinstance(knob, Auto):
        return knob.word
    return knob.from_unit(draw(unit))


@st.composite
def spaces(draw):
    """Knobs of all kinds, of which some exist only if an earlier one has a value; in any order."""
    made = {}
    for name in NAMES[: draw(st.integers(1, 5))]:
        parents = [p for p, knob in made.items() if not (isinstance(knob, Float) and knob.step is None)]
        when = None
        if parents and draw(st.booleans()):
            parent = draw(st.sampled_from(parents))
            when = {parent: [some_value(draw, made[parent]) for _ in range(draw(st.integers(1, 2)))]}
        made[name] = draw(knobs(when=when))
    names = draw(st.permutations(list(made)))
    return {name: made[name] for name in names}


def exists(space, params, name):
    when = space[name].when or {}
    return all(parent in params and params[parent] in values for parent, values in when.items())


def check_legal(space, params):
    """Exactly the knobs that exist, each with a legal value of a plain type."""
    assert list(params) == [name for name in space if exists(space, params, name)]
    for name, value in params.items():
        assert space[name].check(value) == value
        assert type(value) in (str, int, float, bool, type(None))


@settings(max_examples=80)
@given(knobs=spaces(), data=st.data())
def test_every_point_names_legal_values_and_they_name_one_point(knobs, data):
    space = Space(knobs)
    point = np.array([data.draw(unit) for _ in range(space.dim)])
    params, own = space.nearest(point)
    check_legal(knobs, params)
    assert space.from_unit(own) == params
    assert np.array_equal(space.snap(own), own)
    assert np.allclose(space.to_unit(params), own, rtol=0, atol=1e-9)


@settings(max_examples=80)
@given(knobs=spaces(), data=st.data())
def test_what_does_not_exist_makes_no_difference(knobs, data):
    """Points that differ only where nothing exists are the same point."""
    space = Space(knobs)
    one, other = (np.array([data.draw(unit) for _ in range(space.dim)]) for _ in range(2))
    params = space.from_unit(one)
    mixed, at = one.copy(), 0
    for name, knob in knobs.items():
        size = 2 if isinstance(knob, Auto) else 1
        if name not in params:
            mixed[at : at + size] = other[at : at + size]
        elif size == 2 and knob.is_word(params[name]):
            mixed[at + 1] = other[at + 1]
        at += size
    assert np.array_equal(space.snap(mixed), space.snap(one))


@settings(max_examples=40)
@given(knobs=spaces(), data=st.data())
def test_json_and_snapshots_keep_the_space_and_the_default(knobs, data):
    space = Space(knobs)
    assert Space.from_json(json.loads(json.dumps(space.to_json()))).knobs == knobs
    default = space.from_unit(np.array([data.draw(unit) for _ in range(space.dim)]))
    tuner = Tuner(knobs, {"ms": "min"}, default=default)
    again = Tuner.from_bytes(tuner.to_bytes())
    assert again.to_bytes() == tuner.to_bytes()
    assert again.ask().params == default


@settings(max_examples=40)
@given(knob=numbers(), data=st.data())
def test_a_default_keeps_its_digits(knob, data):
    x = knob.check(knob.from_unit(data.draw(unit)))
    if isinstance(knob, Float) and knob.step is None:
        x = knob.check(min(knob.low + data.draw(unit) * (knob.high - knob.low), knob.high))
    tuner = Tuner({"x": knob, "y": Float(0, 1)}, {"ms": "min"}, default={"x": x, "y": 0.5})
    assert tuner.ask().params["x"] == x
    assert Tuner.from_bytes(tuner.to_bytes()).recommend()["x"] == x


PARTS = st.sampled_from(["a", "b", "c", "0.5", "3", "a * b", "a + c", "b - c", "a / b", "max(a, b)", "abs(a - c)"])
RULES = st.builds(lambda x, op, y: f"{x} {op} {y}", PARTS, st.sampled_from(["<=", "<", ">=", ">", "!="]), PARTS)


@st.composite
def rules(draw):
    text = draw(RULES)
    if draw(st.booleans()):
        text = f"{text} {draw(st.sampled_from(['and', 'or']))} not ({draw(RULES)})"
    return text


@settings(max_examples=80)
@given(data=st.data(), texts=st.lists(rules(), min_size=1, max_size=3))
def test_constraints_hold_wherever_a_proposal_lies(data, texts):
    knobs = {name: data.draw(numbers() | numbers().map(Auto)) for name in "abc"}
    knobs["d"] = data.draw(numbers(when={"e": True}))
    knobs["e"] = Bool()
    default = Space(knobs).from_unit(np.array([data.draw(unit) for _ in range(Space(knobs).dim)]))
    kept = [text for text in texts if re.search(r"\b[abc]\b", text) and Constraint.parse(text, knobs).holds(default)]
    space = Space(knobs, kept, default)
    point = np.array([data.draw(unit) for _ in range(space.dim)])
    params, own = space.nearest(point)
    check_legal(knobs, params)
    assert all(Constraint.parse(text, knobs).holds(params) for text in kept)
    assert np.array_equal(space.snap(own), own)
    if space.rules is not None:
        for offer in space.rules.offers(point):
            assert all(Constraint.parse(text, knobs).holds(space.from_unit(offer)) for text in kept)


def test_mending_a_point_takes_a_bounded_number_of_looks(monkeypatch):
    knobs = {f"k{i}": Float(0.1, 100, log=True) for i in range(64)}
    rule = " + ".join(knobs) + " <= 70"
    looks, holds = [], Constraint.holds
    monkeypatch.setattr(Constraint, "holds", lambda self, params: looks.append(1) or holds(self, params))
    space = Space(knobs, [rule], dict.fromkeys(knobs, 1.0))
    looks.clear()
    offers = space.rules.offers(np.ones(64))
    assert len(looks) <= MOST_LOOKS <= 200
    for offer in offers:
        assert math.fsum(space.from_unit(offer).values()) <= 70


def test_points_of_a_search_are_settled_group_by_group_as_all_at_once():
    """Three groups: a constraint, a condition, an Auto. A point that breaks the constraint becomes the default."""
    space = Space(
        {
            "x": Float(0.0, 1.0),
            "on": Bool(),
            "y": Float(0.0, 1.0),
            "size": Int(0, 100, when={"on": True}),
            "limit": Auto(Int(1, 64)),
            "free": Float(0.0, 1.0),
        },
        constraints=["x + y <= 1.2"],
    )
    rules = space.rules
    points = np.random.default_rng(0).random((200, len(rules.default)))
    broken = 0
    for point, found in zip(points, rules.lawful(points), strict=True):
        params, settled = rules._settle(point.tolist())
        if rules.broken(params):
            broken += 1
            np.testing.assert_array_equal(found, rules.default)
            continue
        np.testing.assert_array_equal(found, np.append(settled[:-1], point[-1]))  # nothing ties the last one
    assert 20 < broken < 180
    np.testing.assert_array_equal(rules.lawful(points), rules.lawful(points))  # what is remembered is the same
