import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.kernel import pooled_prior

FREEDOM = 5.0
DENSITIES = pytest.mark.parametrize(
    "density",
    [np.vectorize(lambda gap, variance: log_student(gap, variance, FREEDOM)), pooled_prior.log_student],
    ids=["one", "kernel"],
)


@DENSITIES
def test_the_density_integrates_to_one(density):
    gaps = np.linspace(-400.0, 400.0, 40_001)
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
