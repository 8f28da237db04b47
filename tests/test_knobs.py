"""Knobs as systems have them: words beside numbers, switches, powers of two, conditions, constraints."""

import numpy as np
import pytest

from rasp_tuner import (
    Auto,
    Bool,
    Categorical,
    Float,
    Int,
    InvalidSpace,
    InvalidValue,
    Optional,
    PowerOfTwo,
    Tuner,
)
from rasp_tuner.space import Space

PRAGMAS = {
    "journal_mode": Categorical(["DELETE", "WAL", "OFF"]),
    "synchronous": Categorical(["OFF", "NORMAL", "FULL"], ordered=True, when={"journal_mode": ["WAL", "DELETE"]}),
    "checkpoint": Int(0, 4096, log=True, when={"journal_mode": "WAL"}),
    "cache_mb": Auto(Int(1, 1024, log=True)),
    "mmap_mb": Optional(Float(1, 4096, log=True)),
    "page": PowerOfTwo(512, 65536),
    "vacuum": Bool(),
}
DEFAULT = {"journal_mode": "DELETE", "synchronous": "FULL", "cache_mb": "auto", "mmap_mb": None} | {
    "page": 4096,
    "vacuum": False,
}


def tuner(**more):
    return Tuner(PRAGMAS, {"ms": "min"}, default=DEFAULT, **more)


def test_a_log_scale_may_start_at_zero():
    knob = Int(0, 255, log=True)
    assert [knob.from_unit(k / 8) for k in range(9)] == [0, 1, 3, 7, 15, 31, 63, 127, 255]
    assert knob.to_unit(0) == 0.0


def test_float_suggestions_have_three_digits_of_the_range_or_the_value():
    assert Float(0.1, 10.0).from_unit(0.393939) == 4.0
    assert Float(0, 1).from_unit(1 / 3) == 0.33
    assert Float(0, 2e6).from_unit(1 / 3) == 670000.0
    assert Float(1e-6, 1, log=True).from_unit(0.3) == 6.31e-05
    assert Float(0, 1, digits=5).from_unit(1 / 3) == 0.3333


def test_many_asks_give_few_different_values():
    tuner, seen = Tuner({"x": Float(0, 1)}, {"ms": "min"}), set()
    for _ in range(60):
        s = tuner.ask()
        seen.add(s.params["x"])
        tuner.tell(s.id, {"ms": (s.params["x"] - 0.3) ** 2})
    assert len(seen) < 20


def test_a_value_with_more_digits_is_learned_and_told_as_it_is():
    tuner = Tuner({"mb": Float(0, 1e6), "x": Float(0, 1)}, {"ms": "min"}, default={"mb": 4096, "x": 0.12345})
    s = tuner.ask()
    assert s.params == {"mb": 4096.0, "x": 0.12345}
    tuner.tell(s.id, {"ms": 1.0}, params={"mb": 12.5})
    assert tuner.explain(s.id).ran == {"mb": 12.5, "x": 0.12345}
    tuner.observe(None, {"mb": 77.125, "x": 0.5}, {"ms": 2.0})


def test_space_json_of_version_0_1_has_all_digits():
    old = Space.from_json({"x": {"type": "float", "low": 0.0, "high": 1.0, "log": False, "step": None}})
    assert old.knobs["x"] == Float(0, 1, digits=12)
    assert Space.from_json(Space({"x": Float(0, 1)}).to_json()).knobs["x"] == Float(0, 1)


def test_powers_of_two_are_the_only_legal_values():
    knob = PowerOfTwo(4, 64)
    assert [knob.from_unit(u) for u in np.linspace(0, 1, 5)] == [4, 8, 16, 32, 64]
    for bad in (2, 6, 128, True, "8"):
        with pytest.raises(InvalidValue):
            knob.check(bad)


def test_bool_takes_booleans_only():
    assert {Bool().from_unit(u) for u in (0.0, 1.0)} == {False, True}
    for bad in (1, 0, "true", None):
        with pytest.raises(InvalidValue, match="True or False"):
            Bool().check(bad)


def test_auto_is_two_coordinates_and_the_number_is_at_home_beside_the_word():
    space = Space({"x": Auto(Int(1, 64))})
    assert space.dim == 2
    assert space.nearest(np.array([1.0, 0.9]))[0] == {"x": "auto"}
    assert np.array_equal(space.snap(np.array([1.0, 0.9])), space.snap(np.array([1.0, 0.1])))
    assert space.nearest(np.array([0.0, 1.0]))[0] == {"x": 64}
    assert space.from_unit(space.to_unit({"x": 7})) == {"x": 7}


def test_ordered_choices_are_a_scale_and_others_are_not():
    scale = Space({"x": Categorical(["a", "b", "c"], ordered=True)})
    layout = scale.layout(scale.default)
    assert layout.unordered == (False,)
    assert layout.levels[0].tolist() == [0.0, 0.5, 1.0]
    words = Space({"x": Categorical(["a", "b", "c"])})
    assert words.layout(words.default).unordered == (True,)


def test_params_hold_exactly_the_knobs_that_exist():
    space = Space(PRAGMAS, default=DEFAULT)
    assert space.from_unit(space.default) == DEFAULT
    wal = {**DEFAULT, "journal_mode": "WAL", "checkpoint": 1000}
    assert space.from_unit(space.to_unit(wal)) == wal
    off = {name: value for name, value in DEFAULT.items() if name != "synchronous"} | {"journal_mode": "OFF"}
    assert space.from_unit(space.to_unit(off)) == off
    with pytest.raises(InvalidValue, match=r"params\['checkpoint'\] exists only if 'journal_mode' is 'WAL': leave it"):
        space.to_unit({**DEFAULT, "checkpoint": 1000})
    with pytest.raises(InvalidValue, match=r"params lacks \['checkpoint'\], which exists as 'journal_mode' is 'WAL'"):
        space.to_unit({**DEFAULT, "journal_mode": "WAL"})
    with pytest.raises(InvalidValue, match=r"params has unknown names \['chekpoint'\]"):
        space.to_unit({**DEFAULT, "chekpoint": 1000})
    with pytest.raises(InvalidValue, match=r"params\['cache_mb'\]: value must .*'auto' is legal, too"):
        space.to_unit({**DEFAULT, "cache_mb": "automatic"})


def test_what_ran_leaves_out_what_does_not_exist_beside_it():
    t = tuner()
    s = t.ask()
    t.tell(s.id, {"ms": 1.0}, params={"journal_mode": "OFF"})
    assert "synchronous" not in t.explain(s.id).ran
    s = t.ask()
    planned = {**s.params, "journal_mode": "WAL"}
    if "checkpoint" not in s.params:
        with pytest.raises(InvalidValue, match="lacks"):
            t.tell(s.id, {"ms": 1.0}, params={"journal_mode": "WAL"})
    t.tell(s.id, {"ms": 1.0}, params={"checkpoint": 5, **planned, "synchronous": "OFF"})
    assert t.explain(s.id).ran["checkpoint"] == 5


def test_chains_of_conditions_may_be_declared_in_any_order():
    space = Space(
        {
            "c": Int(0, 3, when={"b": True}),
            "b": Bool(when={"a": ["on"]}),
            "a": Categorical(["off", "on"]),
        },
        default={"a": "off"},
    )
    assert space.from_unit(space.default) == {"a": "off"}
    assert space.from_unit(space.to_unit({"a": "on", "b": True, "c": 2})) == {"c": 2, "b": True, "a": "on"}


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Float(0.0, 1.0, log=True), r"low > 0, the smallest value that matters, as 0.0001 may be.*word=0"),
        (lambda: Int(-1, 8, log=True), r"low >= 0.*Auto\(Int\(0, 8, log=True\), word=-1\)"),
        (lambda: Float(0, 1, step=0.1, digits=3), "a step or digits, not both"),
        (lambda: Float(0, 1, digits=0), "Float digits must be a whole number from 1 to 12"),
        (lambda: Float(0, 1, digits=13), "Float digits must be a whole number from 1 to 12"),
        (lambda: PowerOfTwo(3, 8), "PowerOfTwo low must be a power of two, as 2 or 4, got 3"),
        (lambda: PowerOfTwo(8, 8), "one value is a constant"),
        (lambda: PowerOfTwo(0, 8), "PowerOfTwo low must be a whole number"),
        (lambda: Categorical(["a", "b"], ordered=1), "ordered must be True or False"),
        (lambda: Auto(Categorical(["a", "b"])), "to a Categorical add one more choice"),
        (lambda: Auto(Int(0, 8), word=3), "must not be a value of its knob"),
        (lambda: Auto(Int(0, 8), word=["auto"]), "Auto word must be strings"),
        (lambda: Auto(Int(0, 8, when={"x": 1})), "give when to Auto"),
        (lambda: Int(0, 8, when=[]), "when must map names"),
        (lambda: Int(0, 8, when={}), "when must map names"),
        (lambda: Int(0, 8, when={"x": []}), "at least one value"),
        (lambda: Space({"x": Int(0, 8, when={"y": 1})}), r"space\['x'\] when: 'y' must be another knob"),
        (lambda: Space({"x": Int(0, 8, when={"x": 1})}), r"space\['x'\] when: 'x' must be another knob"),
        (lambda: Space({"x": Bool(when={"y": 1}), "y": Int(2, 3)}), r"space\['x'\] when\['y'\]: value must lie"),
        (lambda: Space({"x": Bool(when={"y": 1}), "y": Float(0, 3)}), "no exact values"),
        (
            lambda: Space({"x": Bool(when={"y": True}), "y": Bool(when={"x": True})}),
            r"exist only if each other do: \['x', 'y'\]",
        ),
        (lambda: Space.from_json({"x": {"type": "auto", "knob": {"type": "word"}}}), r"space\['x'\].knob needs a type"),
        (lambda: Space.from_json({"x": 3}), r"space\['x'\] must be a mapping"),
        (lambda: tuner(constraints="page <= 4096"), "must be a list of texts"),
        (lambda: tuner(constraints=[3]), "must be texts of 1 to 500 characters"),
        (lambda: tuner(constraints=["page <"]), "cannot be read"),
        (lambda: tuner(constraints=["pages <= 4096"]), "has no knob 'pages'"),
        (lambda: tuner(constraints=["1 <= 2"]), "names no knob"),
        (lambda: tuner(constraints=["page"]), "a constraint compares"),
        (lambda: tuner(constraints=["page.real <= 1"]), "has no knob 'page.real'"),
        (lambda: tuner(constraints=["__import__('os').system('x') == 1"]), "has"),
        (lambda: tuner(constraints=["round(page) <= 1"]), "a constraint compares"),
        (lambda: tuner(constraints=["page <= 4096 if vacuum else 1"]), "a constraint compares"),
        (lambda: tuner(constraints=["page @ page <= 1"]), "a constraint compares"),
        (lambda: tuner(constraints=["page in (1, 2)"]), "a constraint compares"),
        (lambda: tuner(constraints=["journal_mode <= 3"]), "whose choices are not all numbers"),
        (lambda: tuner(constraints=["journal_mode == 'WALL'"]), "compares 'journal_mode' with no value of it"),
        (lambda: tuner(constraints=["page <= " + "9" * 490]), "cannot be read"),
        (lambda: tuner(constraints=["-" * 499 + "1"]), "constraints"),
        (lambda: tuner(constraints=["page <= 2048"]), r"\['page <= 2048'\] is broken by the default"),
        (lambda: Tuner({"x": Int(0, 9)}, {"y": "min"}, constraints=["x > 8"]), "middle of every range: give a default"),
        (lambda: tuner(constraints=["page <= 9999"] * 65), "at most 64"),
    ],
)
def test_ill_defined_knobs_are_refused_with_the_rule(build, says):
    with pytest.raises(InvalidSpace, match=says):
        build()


@pytest.mark.parametrize(
    ("rule", "params", "holds"),
    [
        ("a * b <= 6", {"a": 2, "b": 3}, True),
        ("a * b <= 6", {"a": 2, "b": 4}, False),
        ("2 <= a + b < 6", {"a": 2, "b": 4}, False),
        ("min(a, b) > 1 and max(a, b) < 5", {"a": 2, "b": 4}, True),
        ("abs(a - b) ** 2 <= 4", {"a": 2, "b": 5}, False),
        ("a / b >= 0.5", {"a": 1, "b": 0}, False),  # cannot be computed
        ("not (a / b >= 0.5)", {"a": 1, "b": 0}, False),
        ("b == 0 or a / b >= 0.5", {"a": 1, "b": 0}, True),
        ("a ** 9999 <= 1", {"a": 2, "b": 0}, False),
        ("(-a) ** 0.5 != 1", {"a": 2, "b": 0}, False),
        ("codec == 'zstd' or a <= 3", {"a": 4, "b": 0, "codec": "lz4"}, False),
        ("codec != 'lz4' or a <= 3", {"a": 4, "b": 0, "codec": "zstd"}, True),
        ("not on or a <= 3", {"a": 4, "b": 0, "on": True}, False),
        ("a <= t", {"a": 4, "t": "auto"}, True),  # nothing to compare with
        ("a <= t", {"a": 4, "t": 3}, False),
        ("t != 'auto' or a <= 3", {"a": 4, "t": "auto"}, False),
        ("a <= t and a <= 3", {"a": 4, "t": "auto"}, False),
        ("not (a > late)", {"a": 4}, True),  # `late` does not exist
        ("not (a > late)", {"a": 4, "late": 1}, False),
        ("late <= 1 or a <= 3", {"a": 4}, True),
        ("net.core <= a", {"a": 4, "net.core": 5}, False),
    ],
)
def test_constraints_mean_what_they_say(rule, params, holds):
    from rasp_tuner.space.constraints import Constraint

    knobs = {"a": Int(0, 9), "b": Int(0, 9), "codec": Categorical(["lz4", "zstd"]), "on": Bool()} | {
        "t": Auto(Int(0, 9)),
        "late": Int(0, 9, when={"on": True}),
        "net.core": Int(0, 9),
    }
    assert Constraint.parse(rule, knobs).holds(params) is holds


def test_what_breaks_a_constraint_is_never_suggested_but_may_be_observed():
    knobs, rules = {"workers": Int(1, 64, log=True), "mb": PowerOfTwo(1, 1024)}, ["workers * mb <= 2048"]
    tuner, rng = (
        Tuner(knobs, {"ms": "min"}, default={"workers": 8, "mb": 16}, constraints=rules),
        np.random.default_rng(1),
    )
    for _ in range(10):
        tuner.observe(None, {"workers": 64, "mb": 1024}, {"ms": 1.0})  # it ran, and was good
        s = tuner.ask()
        assert s.params["workers"] * s.params["mb"] <= 2048
        best = tuner.recommend()
        assert best["workers"] * best["mb"] <= 2048
        tuner.tell(s.id, {"ms": 5 + rng.random()})


def test_merging_needs_equal_constraints():
    one, other = (
        Tuner({"x": Int(0, 9)}, {"y": "min"}, seed=seed, constraints=rules) for seed, rules in ((1, []), (2, ["x < 9"]))
    )
    with pytest.raises(InvalidValue, match="same constraints"):
        one.merge(other)


def test_a_step_as_wide_as_the_range_is_legal_whatever_the_floats_say():
    assert 0.35 - 0.1 < 0.25
    assert [Float(0.1, 0.35, step=0.25).from_unit(unit) for unit in (0.0, 1.0)] == [0.1, 0.35]
