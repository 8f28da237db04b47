import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, InvalidSpace
from rasp_tuner.fleet.knobs import ContinuousKnobs
from rasp_tuner.space import Space

SPACES = {
    "linear": {"x": Float(0.0, 1.0), "y": Float(-273.15, 1e6), "z": Float(-3e-9, 7e-9)},
    "log": {"x": Float(0.001, 1e3, log=True), "y": Float(3e-12, 0.2, log=True), "z": Float(7.0, 1e12, log=True)},
    "whole": {"x": Int(1, 1000), "y": Int(1, 10_000, log=True), "z": Int(-500, 1500, step=10)},
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_values_are_those_of_a_space(space):
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.random((300, 3)), [[0.0] * 3, [1.0] * 3, [0.5] * 3, [1e-14] * 3]])
    values, own = ContinuousKnobs(Space(space)).values(points)
    for i, point in enumerate(points):
        params, legal = Space(space).nearest(point)
        assert {name: float(values[name][i]) for name in space} == pytest.approx(params, rel=1e-14)
        assert own[i] == pytest.approx(legal, abs=1e-12)
    assert ContinuousKnobs(Space(space)).illegal(values) is None
    assert ContinuousKnobs(Space(space)).points(values) == pytest.approx(own, abs=1e-15)


def test_the_default_keeps_its_bits():
    """A tuner that runs its default must be seen to run it."""
    for space in SPACES.values():
        point = Space(space).snap(np.array([0.3, 0.4, 0.7]))
        assert (ContinuousKnobs(Space(space)).values(point[None])[1][0] == point).all()


@pytest.mark.parametrize("knob", [Int(1, 64), Float(0.0, 1.0, step=0.1), Categorical(["a", "b"])])
def test_knobs_with_few_values_are_refused(knob):
    with pytest.raises(InvalidSpace, match=r"a RayFleet takes knobs that always exist.*space\['x'\]"):
        ContinuousKnobs(Space({"x": knob}))
