"""Laws of the unit box: every legal value survives the round trip, every point of [0, 1] names a legal value."""

import math
from decimal import Decimal

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rasp_tuner import Categorical, Float, Int
from rasp_tuner.paper import ParamBounds
from rasp_tuner.space import LARGEST_INT, MOST_DIGITS

unit = st.floats(0.0, 1.0)
bound = st.floats(-1e300, 1e300)


@st.composite
def float_knobs(draw):
    low, high = sorted((draw(bound), draw(bound)))
    assume(high - low >= 1e-300)
    log = draw(st.booleans()) and low > 0 and math.isfinite(high / low)
    if log or draw(st.booleans()):
        return Float(low, high, log=log, digits=draw(st.integers(1, MOST_DIGITS)))
    steps = draw(st.integers(1, 1000))
    step = (high - low) / steps
    assume(0 < step <= high - low)
    return Float(low, high, step=step)


@st.composite
def int_knobs(draw):
    low, high = sorted((draw(st.integers(-LARGEST_INT, LARGEST_INT)), draw(st.integers(-LARGEST_INT, LARGEST_INT))))
    assume(low < high)
    if low >= 0 and draw(st.booleans()):
        return Int(low, high, log=True)
    return Int(low, high, step=draw(st.integers(1, min(high - low, LARGEST_INT))))


@settings(max_examples=150)
@given(knob=float_knobs(), u=unit)
def test_legal_float_values_round_trip_exactly(knob, u):
    x = knob.from_unit(u)
    assert knob.low <= x <= knob.high
    assert 0.0 <= knob.to_unit(x) <= 1.0
    assert knob.from_unit(knob.to_unit(x)) == x


@settings(max_examples=150)
@given(knob=float_knobs() | int_knobs(), u=st.floats(-0.5, 1.5))
def test_the_nearest_value_and_its_place_are_those_of_single_steps(knob, u):
    x = knob.from_unit(u)
    assert knob.nearest(u) == (x, knob.to_unit(x))


@settings(max_examples=150)
@given(knob=float_knobs())
def test_the_ends_of_a_float_are_legal(knob):
    assert knob.from_unit(0.0) == knob.low
    if knob.step is None:
        assert knob.from_unit(1.0) == knob.high
        assert knob.from_unit(knob.to_unit(knob.high)) == knob.high
    assert knob.from_unit(knob.to_unit(knob.low)) == knob.low


@settings(max_examples=150)
@given(
    low=st.decimals(-1000, 1000, places=3),
    width=st.decimals("0.001", 1000, places=3),
    k=st.integers(0, 10**6),
    log=st.booleans(),
)
def test_decimals_a_person_would_type_come_back_as_typed(low, width, k, log):
    x = low + (width * k / 10**6).quantize(Decimal("1e-8"))
    assume(low <= x <= low + width and (not log or low > 0))
    knob = Float(float(low), float(low + width), log=log, digits=MOST_DIGITS)
    assume(knob.low <= float(x) <= knob.high)
    assert knob.from_unit(knob.to_unit(float(x))) == float(x)


@settings(max_examples=150)
@given(knob=float_knobs(), u=unit)
def test_any_other_float_comes_back_within_its_last_digit(knob, u):
    assume(knob.step is None)
    x = knob.low + u * (knob.high - knob.low)
    assume(knob.low <= x <= knob.high)
    back = knob.from_unit(knob.to_unit(x))
    scale = x if knob.log else knob.high - knob.low
    assert abs(back - x) <= 10.0 ** (1 - knob.digits) * scale + 1e-13 * max(abs(knob.low), abs(knob.high))


@settings(max_examples=150)
@given(knob=int_knobs(), data=st.data())
def test_every_integer_round_trips_exactly(knob, data):
    k = data.draw(st.integers(0, knob.levels - 1))
    x = knob.low + k * knob.step
    assert knob.from_unit(knob.to_unit(x)) == x


@settings(max_examples=200)
@given(knob=int_knobs(), u=unit)
def test_every_point_names_a_legal_integer(knob, u):
    x = knob.from_unit(u)
    assert knob.low <= x <= knob.high
    assert (x - knob.low) % knob.step == 0


@given(
    choices=st.lists(
        st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(-1e9, 1e9)),
        min_size=2,
        max_size=12,
        unique=True,
    ),
    u=unit,
)
def test_every_choice_round_trips(choices, u):
    knob = Categorical(choices)
    for choice in choices:
        assert knob.from_unit(knob.to_unit(choice)) == choice
    assert knob.from_unit(u) in choices


@given(knob=st.one_of(float_knobs(), int_knobs()), a=unit, b=unit)
def test_the_map_from_the_unit_box_is_monotone(knob, a, b):
    low, high = sorted((a, b))
    assert knob.from_unit(low) <= knob.from_unit(high)


@given(
    sides=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)), min_size=1, max_size=6),
    data=st.data(),
)
def test_param_bounds_normalise_and_return(sides, data):
    lower = np.array([low for low, _ in sides])
    upper = lower + np.array([width for _, width in sides])
    box = ParamBounds(lower, upper)
    u = np.array([data.draw(unit) for _ in sides])
    theta = box.denormalize(u)
    assert np.allclose(box.clip(theta), theta, rtol=1e-12, atol=0)
    assert np.allclose(box.normalize(theta), u, rtol=0, atol=1e-6)  # rounding of 1e6 seen through a width of 1e-3
