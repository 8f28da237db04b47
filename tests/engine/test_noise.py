"""Noise is told from what an expert does not know yet, and one false measurement is no noise."""

import numpy as np
import pytest

from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.pooled_prior import START_NOISE, noise_variances, observe_noise
from rasp_tuner.engine.kernel.state import Dims, E, blank

KNOWS, UNSURE = 0, slice(1, None)  # experts: one knows the mean, the others are unsure of it


def fresh():
    dims = Dims(1, 0, 1)
    return blank(dims, 1, start(dims))


def observe(state, errors, unsure):
    """Of one sample: what each expert was wrong by, and the variance of what all but the first expected."""
    variances = np.full((1, E), unsure)
    variances[0, KNOWS] = 0.0
    observe_noise(state, np.broadcast_to(errors, (1, E)), variances, np.ones(1, dtype=bool))


def steps(state, noise, unsure, samples):
    """The variances [samples, E] that it saw."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(samples):
        errors = np.full(E, np.sqrt(noise) * rng.normal())
        errors[UNSURE] += np.sqrt(unsure) * rng.normal(size=2)[1]  # the same for all of them
        observe(state, errors, unsure)
        seen.append(noise_variances(state.noises)[0])
    return np.array(seen)


def tracked(noise, unsure, samples=300):
    state = fresh()
    steps(state, noise, unsure, samples)
    return state


def test_it_starts_from_a_guess():
    assert noise_variances(fresh().noises) == pytest.approx(START_NOISE)


@pytest.mark.parametrize("noise", [1e-3, 0.05, 0.5])
def test_the_variance_of_the_noise_is_found_whatever_else_is_unsure(noise):
    seen = steps(fresh(), noise, 0.2 * noise, 2000)[100:].mean(axis=0)
    assert (seen > 0.4 * noise).all()
    assert (seen < 1.6 * noise).all()


def test_without_noise_it_falls_to_the_least():
    assert noise_variances(tracked(0.0, 0.01).noises)[0, KNOWS] < 2e-4


def test_one_false_measurement_is_no_noise():
    state = tracked(0.05, 0.1)
    before = noise_variances(state.noises)
    observe(state, 1e3, 0.1)
    assert (noise_variances(state.noises) < 1.5 * before).all()


def test_only_the_tuners_in_a_mask_take_a_sample_in():
    dims = Dims(1, 0, 1)
    state = blank(dims, 2, start(dims))
    observe_noise(state, np.full((2, E), 3.0), np.zeros((2, E)), np.array([False, True]))
    left, moved = noise_variances(state.noises)
    assert left == pytest.approx(START_NOISE)
    assert (moved > 2.0 * START_NOISE).all()


def test_an_error_that_was_to_be_expected_is_no_noise():
    assert noise_variances(tracked(1e-3, 1.0).noises).max() < 0.1
