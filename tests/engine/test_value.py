"""What looks are worth: they serve the visits after them."""

import numpy as np
import pytest

from rasp_tuner import Categorical
from rasp_tuner.engine.gp.knobs import Knobs
from rasp_tuner.engine.gp.search import Candidates
from rasp_tuner.engine.gp.value import LOOKS, knowledge_gradient, looks_ahead
from rasp_tuner.space import Space

MANY_ROWS = 100


def value_of_other(noise, horizon):
    """Of a look at the second of two levels, which is expected to be worse by 0.5, give or take 1."""
    space = Space({"mode": Categorical(["a", "b", "c"])})
    points = space.to_unit({"mode": "a"}), space.to_unit({"mode": "b"})
    found = Candidates(np.array(points), np.array([0, 3]), np.array([1]), np.array([0]))
    knobs = Knobs(space.layout(points[0]))
    covariance = np.diag([1e-12, 1.0])
    return knowledge_gradient(knobs, found, np.array([0.0, 0.5]), covariance, noise, MANY_ROWS, horizon)[1]


@pytest.mark.parametrize("horizon", [0.0, 5.0, 24.0, 50.0])
def test_looks_and_visits_after_them_are_all_the_visits_there_are(horizon):
    looks, served = looks_ahead(horizon)
    assert looks.tolist() == LOOKS.tolist()
    assert np.maximum(horizon + 1.0 - looks, 0.0).tolist() == (looks * served).tolist()


def test_without_noise_one_look_serves_all_visits_that_follow():
    assert value_of_other(0.0, 40.0) == pytest.approx(4.0 * value_of_other(0.0, 10.0))


def test_what_cannot_be_told_apart_in_the_visits_that_are_left_is_worth_little():
    """Under noise it takes several looks to learn anything: five times the visits leave more than that after them."""
    few, many = value_of_other(25.0, 10.0), value_of_other(25.0, 50.0)
    assert many > 6.0 * few > 0.0
    assert value_of_other(25.0, 0.0) == 0.0
