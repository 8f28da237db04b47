import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner.core.numerics import softmax
from rasp_tuner.engine.evidence import Evidence, log_student
from rasp_tuner.engine.kernel import pooled_prior

FREEDOM = 5.0
DENSITIES = pytest.mark.parametrize(
    "density",
    [np.vectorize(lambda gap, variance: log_student(gap, variance, FREEDOM)), pooled_prior.log_student],
    ids=["one", "kernel"],
)


@DENSITIES
def test_the_density_integrates_to_one(density):
    gaps = np.linspace(-400.0, 400.0, 400_001)
    for variance in (0.25, 1.0, 4.0):
        densities = np.exp(density(gaps, np.full(len(gaps), variance)))
        assert densities.sum() * (gaps[1] - gaps[0]) == pytest.approx(1.0, abs=1e-6)


@DENSITIES
def test_the_density_is_that_of_student(density):
    norm = math.gamma(3.0) / (math.gamma(2.5) * math.sqrt(5.0 * math.pi))
    assert density(np.array([1.5]), np.array([4.0]))[0] == pytest.approx(
        math.log(norm / 2.0 * (1.0 + 1.5**2 / 4.0 / 5.0) ** -3)
    )


@DENSITIES
@given(st.floats(-1e101, 1e101), st.floats(1e-300, 1e205))
def test_the_density_is_finite_everywhere(density, gap, variance):
    assert np.isfinite(density(np.array([gap]), np.array([variance]))).all()


@given(st.lists(st.lists(st.floats(-2000.0, 50.0), min_size=3, max_size=3), min_size=1, max_size=40))
def test_weights_sum_to_one_whatever_was_seen(rows):
    evidence = Evidence(np.array([0.0, -1.0, -2.0]))
    for row in rows:
        evidence.observe(np.array(row))
    assert softmax(evidence.scores).sum() == pytest.approx(1.0)
    assert evidence.scores.max() == 0.0


def test_what_predicts_better_leads_and_old_scores_fade():
    evidence = Evidence(np.zeros(2))
    for _ in range(50):
        evidence.observe(np.array([0.0, -1.0]))
    assert softmax(evidence.scores)[0] > 0.99
    for _ in range(100):
        evidence.observe(np.array([-1.0, 0.0]))
    assert evidence.scores.argmax() == 1
    for _ in range(400):
        evidence.observe(np.zeros(2))  # nothing tells them apart any more: back to the prior
    assert softmax(evidence.scores) == pytest.approx([0.5, 0.5], abs=0.01)


def test_the_prior_is_not_forgotten():
    prior = np.array([0.0, -3.0])
    evidence = Evidence(prior)
    for _ in range(200):
        evidence.observe(np.zeros(2))
    assert evidence.scores == pytest.approx(prior)
