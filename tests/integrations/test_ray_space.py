"""Search spaces of Ray Tune as knobs: every value is legal on both sides, there and back and in a file."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner import InvalidSpace
from tests.later import Later

tune = Later("ray.tune", "an extra of its own: pip install 'rasp-tuner[ray-tune]'")
ray_space, ray_tune = Later("rasp_tuner.integrations.ray_space"), Later("rasp_tuner.integrations.ray_tune")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves sockets and files to the collector

CHOICES = [1, True, 1.5, "1", None, (64, 32), len]


def domains():
    """Domains of Ray with their ends and grids drawn at random."""
    low, width, q = st.integers(1, 50), st.integers(1, 200), st.integers(1, 7)
    ranges = st.tuples(low, width, q)
    return st.one_of(
        ranges.map(lambda x: tune.uniform(x[0] / 8, x[0] / 8 + x[1])),
        ranges.map(lambda x: tune.loguniform(x[0] / 8, x[0] / 8 + x[1])),
        ranges.map(lambda x: tune.quniform(x[0] * x[2] / 8, (x[0] + x[1]) * x[2] / 8, x[2] / 8)),
        ranges.map(lambda x: tune.qloguniform(x[0] * x[2] / 8, (x[0] + x[1]) * x[2] / 8, x[2] / 8)),
        ranges.map(lambda x: tune.randint(x[0], x[0] + x[1])),
        ranges.map(lambda x: tune.lograndint(x[0], x[0] + x[1] + 1)),
        ranges.map(lambda x: tune.qrandint(x[0] * x[2], (x[0] + x[1]) * x[2], x[2])),
        ranges.map(lambda x: tune.qlograndint(x[0] * x[2], (x[0] + x[1]) * x[2], x[2])),
        st.lists(st.sampled_from(CHOICES), min_size=1, max_size=4, unique_by=str).map(lambda x: tune.choice(x)),
    )


@given(domain=domains(), unit=st.floats(0, 1))
def test_every_value_is_one_that_ray_could_draw_and_every_value_that_ray_draws_is_learned(domain, unit):
    parameter = ray_space.parameters_of({"x": domain})["x"]
    drawn = domain.sample()
    if parameter.knob is None:
        assert drawn == parameter.only
        return
    value = parameter.from_knob(parameter.knob.from_unit(unit))
    if isinstance(domain, tune.search.sample.Categorical):
        assert any(value is choice for choice in domain.categories)
        assert parameter.from_knob(parameter.to_knob(drawn)) == drawn
        return
    assert domain.is_valid(value)
    assert type(value) is type(drawn)
    sampler = domain.get_sampler()
    if type(value) is int and getattr(sampler, "q", 1) == 1:
        assert value < domain.upper
    if hasattr(sampler, "q"):
        assert math.isclose(value / sampler.q, round(value / sampler.q))
    assert 0 <= parameter.knob.to_unit(parameter.to_knob(drawn)) <= 1


@given(domain=domains(), unit=st.floats(0, 1))
def test_parameters_come_back_from_json_as_they_were(domain, unit):
    before = ray_space.parameters_of({"x": domain})
    knobs = {"x": before["x"].knob} if before["x"].knob else {}
    saved = json.loads(json.dumps({"x": before["x"].to_json()}))
    after = ray_space.parameters_from_json(saved, knobs)
    if saved["x"] is None:
        assert not after
        assert any(choice in domain.categories for choice in (len, (64, 32)))
    elif not knobs:
        assert after["x"].only == before["x"].only
    else:
        value = before["x"].knob.from_unit(unit)
        assert after["x"].from_knob(value) == before["x"].from_knob(value)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (lambda: {"x": tune.grid_search([1, 2])}, "parameter 'x': a grid"),
        (lambda: {"x": {"y": tune.sample_from(lambda _: 1)}}, "parameter 'x/y': a function"),
        (lambda: {"x": tune.randn()}, "parameter 'x': a normal distribution"),
        (lambda: {"x": [tune.uniform(0, 1), 2]}, "parameter 'x': a list"),
        (lambda: {"x/y": tune.uniform(0, 1)}, "without '/'"),
        (lambda: {"x": 1}, "more than one value"),
        (lambda: {"x": tune.choice([])}, "at least one value"),
        (lambda: {"x": tune.choice([1, tune.uniform(0, 1)])}, "parameter 'x': a choice with ranges in it"),
        (lambda: {"x": tune.uniform(0, 1), "context": 3}, "'context'"),
    ],
)
def test_spaces_that_cannot_be_tuned_are_refused(space, message):
    with pytest.raises(InvalidSpace, match=message):
        ray_tune.RaspSearch(space(), "loss", "min", context=["load"])
