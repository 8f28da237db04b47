from enum import StrEnum

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, InvalidSpace, InvalidValue
from rasp_tuner.paper import ParamBounds
from rasp_tuner.space import Space


class Codec(StrEnum):
    LZ4 = "lz4"
    ZSTD = "zstd"


KNOBS = {
    "pool": Int(1, 64, log=True),
    "timeout_s": Float(0.1, 10.0),
    "ratio": Float(0.0, 1.0, step=0.1),
    "codec": Categorical(["lz4", "zstd", None, True, 7, 2.5]),
}


def test_float_hits_its_ends_and_middle():
    knob = Float(-3.0, 5.0)
    assert [knob.from_unit(u) for u in (0.0, 0.5, 1.0)] == [-3.0, 1.0, 5.0]
    assert [knob.to_unit(x) for x in (-3.0, 1.0, 5.0)] == [0.0, 0.5, 1.0]


def test_log_float_is_even_in_decades():
    knob = Float(1e-4, 1.0, log=True)
    assert [knob.from_unit(u) for u in (0.0, 0.25, 0.5, 1.0)] == [1e-4, 1e-3, 1e-2, 1.0]


def test_human_decimals_come_back_as_typed():
    for x in (0.3, 0.7, 1.1, 9.9, 0.123456789):
        for log in (False, True):
            knob = Float(0.1, 10.0, log=log, digits=12)
            assert knob.from_unit(knob.to_unit(x)) == x


def test_stepped_float_knows_only_its_grid():
    knob = Float(0.1, 1.0, step=0.3)
    assert knob.levels == 4
    assert [knob.from_unit(k / 3) for k in range(4)] == [0.1, 0.4, 0.7, 1.0]
    with pytest.raises(InvalidValue, match=r"grid 0.1 \+ k \* 0.3, got 0.5"):
        knob.to_unit(0.5)


def test_step_that_does_not_divide_the_range_stops_short_of_high():
    knob = Float(0.0, 1.0, step=0.3)
    assert [knob.from_unit(k / 3) for k in range(4)] == [0.0, 0.3, 0.6, 0.9]
    with pytest.raises(InvalidValue, match="grid"):
        knob.to_unit(1.0)


def test_steps_are_counted_in_the_decimals_a_person_writes():
    assert Float(273.15, 273.18, step=0.01).from_unit(1.0) == 273.18
    fine = Float(1000.123456, 1000.136656, step=1e-5)
    assert fine.levels == 1321
    assert fine.from_unit(fine.to_unit(fine.high)) == fine.high
    third = Float(1 / 3, 10.0, step=1 / 3)
    assert third.from_unit(third.to_unit(2 / 3)) == 2 / 3


def test_values_between_steps_are_refused_however_large_they_are():
    for knob, between in (
        (Float(1.7e9, 1.7e9 + 60, step=1), 1.7e9 + 29.7),
        (Float(1e6, 1e6 + 10, step=0.001), 1e6 + 0.0005),
    ):
        with pytest.raises(InvalidValue, match="grid"):
            knob.to_unit(between)


def test_narrow_log_ranges_keep_human_decimals():
    for knob, x in (
        (Float(273.1, 273.2, log=True, digits=12), 273.1017),
        (Float(5, 5.0001, log=True, digits=12), 5.0000004),
    ):
        assert knob.from_unit(knob.to_unit(x)) == x


def test_zero_is_never_negative():
    assert str(Float(-1, 1).from_unit(0.5 - 1e-14)) == "0.0"


@pytest.mark.parametrize(
    "knob", [Float(0, 1), Float(0, 1, step=0.5), Float(1, 9, log=True), Int(0, 5), Categorical(["a", "b"])]
)
def test_points_outside_the_box_name_the_nearest_end_and_nan_is_refused(knob):
    assert knob.from_unit(-3.0) == knob.from_unit(0.0)
    assert knob.from_unit(7.0) == knob.from_unit(1.0)
    with pytest.raises(InvalidValue, match="nan"):
        knob.from_unit(float("nan"))


def test_int_takes_whole_floats_and_numpy_integers_but_no_booleans():
    knob = Int(0, 10)
    assert knob.to_unit(5.0) == knob.to_unit(np.int32(5)) == 0.5
    assert type(knob.from_unit(0.5)) is int
    for bad in (5.5, True, np.bool_(True), "5"):
        with pytest.raises(InvalidValue, match="must be"):
            knob.to_unit(bad)


def test_int_step():
    knob = Int(10, 50, step=20)
    assert [knob.from_unit(u) for u in (0.0, 0.5, 1.0)] == [10, 30, 50]
    with pytest.raises(InvalidValue, match=r"grid 10 \+ k \* 20, got 20"):
        knob.to_unit(20)


def test_categorical_gives_every_choice_an_equal_share():
    knob = Categorical(["a", "b", "c", "d"])
    got = [knob.from_unit(u) for u in np.linspace(0, 1, 4001)]
    assert all(abs(got.count(choice) - 1000) <= 1 for choice in "abcd")


def test_categorical_accepts_numpy_scalars_of_its_choices():
    assert Categorical([1, 2]).to_unit(np.int64(2)) == 0.75


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Float(1.0, 1.0), "needs low < high"),
        (lambda: Float(2.0, 1.0), "needs low < high"),
        (lambda: Float(float("nan"), 1.0), "Float low must be a finite number"),
        (lambda: Float(0.0, float("inf")), "Float high must be a finite number"),
        (lambda: Float("0", 1.0), "Float low must be a finite number"),
        (lambda: Float(-1e305, 1e305), "within"),
        (lambda: Float(0.0, 1.0, log=True), "low > 0"),
        (lambda: Float(1e-300, 1e299, log=True), "finite high / low"),
        (lambda: Float(0.0, 1.0, log="yes"), "log must be True or False"),
        (lambda: Float(1.0, 2.0, log=True, step=0.1), "not both"),
        (lambda: Float(0.0, 1.0, step=0.0), "step must lie in"),
        (lambda: Float(0.0, 1.0, step=-0.1), "step must lie in"),
        (lambda: Float(0.0, 1.0, step=2.0), "step must lie in"),
        (lambda: Float(0.0, 1e9, step=1e-9), "too fine"),
        (lambda: Int(1, 1), "one value is a constant"),
        (lambda: Int(0.5, 3), "Int low must be a whole number"),
        (lambda: Int(True, 3), "Int low must be a whole number"),
        (lambda: Int(0, 2**60), "Int high must be a whole number"),
        (lambda: Int(-1, 8, log=True), "low >= 0"),
        (lambda: Int(0, 8, step=9), "step must be <="),
        (lambda: Int(1, 8, log=True, step=2), "not both"),
        (lambda: Categorical(["a"]), "at least two"),
        (lambda: Categorical("ab"), "must be a list"),
        (lambda: Categorical(["a", "b", "a"]), "must differ"),
        (lambda: Categorical([1, True]), "must differ"),
        (lambda: Categorical([10**5000, 1]), "must be strings"),
        (lambda: Categorical([Codec.LZ4, Codec.ZSTD]), "must be strings"),
        (lambda: Space({"x": type("Mine", (Float,), {})(0, 1)}), "must be a Float"),
        (lambda: Float(0, 5e-324), "high - low from 1e-300"),
        (lambda: ParamBounds(np.array(1.0), np.array(2.0)), "list of at least one number"),
        (lambda: ParamBounds.unit(0), "dim must be a whole number"),
        (lambda: ParamBounds([0.0], [5e-324]), "high - low from 1e-300"),
        (lambda: Categorical([["a"], ["b"]]), "must be strings"),
        (lambda: Categorical([float("nan"), 1.0]), "must be strings"),
        (lambda: Space({}), "at least one name"),
        (lambda: Space([Float(0, 1)]), "at least one name"),
        (lambda: Space({"": Float(0, 1)}), "non-empty strings"),
        (lambda: Space({"x": (0, 1)}), r"space\['x'\] must be a Float"),
        (lambda: Space.from_json({"x": {"type": "real"}}), "needs a type among"),
        (lambda: Space.from_json({"x": {"type": "int", "low": 1, "hi": 2}}), "takes other fields"),
        (lambda: ParamBounds([], []), "list of at least one number"),
        (lambda: ParamBounds([0.0], [1.0, 2.0]), "must hold 1 numbers"),
        (lambda: ParamBounds([0.0, 1.0], [1.0, 1.0]), r"ParamBounds\[1\] needs low < high"),
        (lambda: ParamBounds([0.0], [float("nan")]), "finite number"),
        (lambda: ParamBounds(3, 4), "at least one number"),
    ],
)
def test_ill_defined_spaces_are_refused_with_the_rule(build, says):
    with pytest.raises(InvalidSpace, match=says):
        build()


def test_space_round_trips_named_values():
    space = Space(KNOBS)
    params = {"pool": 8, "timeout_s": 1.0, "ratio": 0.3, "codec": None}
    assert space.from_unit(space.to_unit(params)) == params


def test_space_json_builds_the_same_space():
    space = Space(KNOBS)
    assert Space.from_json(space.to_json()).knobs == space.knobs


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pool": 65}, r"params\['pool'\]: value must lie in \[1, 64\], got 65"),
        ({"timeout_s": float("nan")}, r"params\['timeout_s'\]: value must be a finite number"),
        ({"codec": "gzip"}, r"params\['codec'\]: value must be one of"),
        ({"codec": ["lz4"]}, r"params\['codec'\]: value must be one of"),
        ({"speed": 1}, r"unknown names \['speed'\]"),
    ],
)
def test_bad_parameter_values_name_the_knob(change, says):
    space = Space(KNOBS)
    good = {"pool": 8, "timeout_s": 1.0, "ratio": 0.3, "codec": None}
    with pytest.raises(InvalidValue, match=says):
        space.to_unit({**good, **change})


def test_missing_parameter_is_named():
    with pytest.raises(InvalidValue, match=r"params lacks \['codec'\]"):
        Space(KNOBS).to_unit({"pool": 8, "timeout_s": 1.0, "ratio": 0.3})


def test_bounds_clip_normalize_and_return():
    box = ParamBounds([-5.0, 0.0], [5.0, 2.0])
    assert box.dim == 2
    assert box.center.tolist() == [0.0, 1.0]
    assert box.clip([-9.0, 1.0]).tolist() == [-5.0, 1.0]
    assert box.normalize([0.0, 2.0]).tolist() == [0.5, 1.0]
    assert box.denormalize([0.5, 1.0]).tolist() == [0.0, 2.0]


@pytest.mark.parametrize("bad", [[1.0], [1.0, float("nan")], "ab", None, [[1.0, 2.0]], np.zeros((2, 1)), 3])
def test_bounds_refuse_vectors_of_another_kind(bad):
    with pytest.raises(InvalidValue, match="theta"):
        ParamBounds([0.0, 0.0], [1.0, 1.0]).clip(bad)


def test_both_ends_of_a_range_narrower_than_its_digits_are_legal():
    knob = Float(9.999999999999226e299, 9.999999999999345e299, log=True)
    assert (knob.from_unit(0.0), knob.from_unit(1.0)) == (knob.low, knob.high)
