import numpy as np
import pytest

from rasp_tuner.paper import CandidatePolicy
from rasp_tuner.paper.surrogate import Prediction


def test_defaults_are_the_papers():
    policy = CandidatePolicy()
    assert (policy.base_step, policy.kappa, policy.stay) == (0.15, 2.0, 0.65)


def test_base_center_leans_on_the_current_point():
    center = CandidatePolicy().center(np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    assert np.allclose(center, [0.35, 0.65])


def test_base_center_without_a_hint_is_the_point_itself():
    assert CandidatePolicy().center(np.array([0.2]), None).tolist() == [0.2]


def test_proposals_are_a_gradient_step_perturbations_in_the_box_and_the_hint():
    policy = CandidatePolicy(base_step=0.25, perturbations=50)
    base, slope, hint = np.array([0.5, 0.5]), np.array([1.0, -2.0]), np.array([0.9, 0.1])
    got = policy.propose(base, slope, hint, np.random.default_rng(0))
    assert got.sources == ("gradient", *["perturbation"] * 50, "hint")
    assert np.allclose(got.points[0], [0.25, 1.0])
    spread = got.points[1:-1] - base
    assert 0.2 < np.abs(spread).max() <= 0.25
    assert got.points[-1].tolist() == [0.9, 0.1]


def test_no_hint_no_hint_candidate():
    got = CandidatePolicy().propose(np.array([0.5]), np.array([0.0]), None, np.random.default_rng(0))
    assert "hint" not in got.sources
    assert got.points.shape == (7, 1)


@pytest.mark.parametrize(("kappa", "chosen"), [(0.0, 0), (2.0, 1)])
def test_selection_minimises_the_lower_confidence_bound(kappa, chosen):
    prediction = Prediction(np.array([0.4, 0.5, 0.5]), np.array([0.0, 0.01, 0.0]), np.ones((3, 1)))
    assert CandidatePolicy(kappa=kappa).select(prediction) == chosen
