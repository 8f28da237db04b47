"""The composer's proposition and stability, and the moving averages underneath. What other tests hold is not repeated:
tests/property/test_composer_laws.py has the proposition and the unrolled mean."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_lab.theory import composer, ema
from rasp_lab.theory.claim import ROUNDING, BrokenAssumption

momenta = st.floats(0.02, 0.99)
values = st.floats(-1e4, 1e4)
UP = 1.0 + ROUNDING


@given(past=st.lists(values, max_size=20), value=values, change=values, momentum=momenta)
def test_the_error_moves_no_further_than_sigma_before_the_step_allows(past, value, change, momentum):
    trial = composer.stability_trial(past, value, change, momentum, printed=False)
    assert trial.measured <= trial.bound * UP + 1e-12


def test_sigma_after_the_step_allows_too_little():
    assert composer.far_outlier(printed=True).ratio == pytest.approx(1.154, abs=1e-3)
    assert composer.far_outlier(printed=False).ratio < 1.0


def test_errors_of_different_times_are_in_no_order():
    assert composer.error_across_time().ratio > 1.5


@given(momentum=momenta, steps=st.integers(1, 500), deviations=st.floats(0.01, 8.0))
def test_the_mean_of_gaussian_metrics_concentrates_as_printed(momentum, steps, deviations):
    tail = ema.mean_tail(deviations * math.sqrt(ema.spread(momentum, steps)), momentum, steps)
    assert math.erfc(deviations / math.sqrt(2.0)) <= tail * UP


@settings(max_examples=60)
@given(momentum=momenta, steps=st.integers(1, 8), deviation=st.floats(0.01, 1.0))
def test_the_mean_of_coins_concentrates_as_printed(momentum, steps, deviation):
    means, _ = ema.coin_paths(momentum, steps)
    assert (np.abs(means) >= deviation).mean() <= ema.mean_tail(deviation, momentum, steps) * UP
    assert math.isclose((means**2).mean(), ema.spread(momentum, steps), rel_tol=1e-9)


@given(momentum=momenta, steps=st.integers(1, 400))
def test_the_second_form_of_the_tail_is_the_limit_of_the_first(momentum, steps):
    """(1-m)^2 sum m^(2j) <= (1-m) / (1+m), the variance the paper's last step allows."""
    limit = (1.0 - momentum) / (1.0 + momentum)
    assert ema.spread(momentum, steps) <= limit * UP
    assert ema.spread(momentum, 5000) == pytest.approx(limit)


@settings(max_examples=60)
@given(momentum=momenta, steps=st.integers(1, 7), shift=st.floats(-3.0, 3.0))
def test_the_mean_of_the_variance_is_exact(momentum, steps, shift):
    _, variances = ema.coin_paths(momentum, steps, shift)
    assert math.isclose(variances.mean(), ema.mean_variance(momentum, steps, 1.0, 1.0, shift), rel_tol=1e-9)


@given(momentum=st.floats(0.02, 0.97), start=st.floats(0.1, 10.0), offset=st.floats(-3.0, 3.0))
def test_the_variance_tends_to_less_than_the_variance(momentum, start, offset):
    limit = ema.variance_limit(momentum)
    assert limit < 1.0
    assert ema.mean_variance(momentum, 900, start, 2.0, offset) == pytest.approx(2.0 * limit, rel=1e-6)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda: ema.spread(1.0, 3), "0 < m < 1"),
        (lambda: ema.mean_tail(0.0, 0.9, 3), "deviation > 0"),
        (lambda: ema.variance_limit(0.0), "0 < m < 1"),
        (lambda: composer.stability(0.0, 1.0, 1.0), "0 < share <= 1"),
    ],
)
def test_outside_its_assumptions_there_is_no_bound(broken, words):
    with pytest.raises(BrokenAssumption, match=words):
        broken()
