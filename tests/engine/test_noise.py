import numpy as np
import pytest

from rasp_tuner.engine.quadratic.noise import START, TrackedNoise


def steps(tracker, noise, unsure, samples):
    """Two experts: one knows the mean, the other is unsure of it by the variance `unsure`; the variances it saw."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(samples):
        e = np.sqrt(noise) * rng.normal() + np.sqrt([0.0, unsure]) * rng.normal(size=2)
        tracker.observe(e, np.array([0.0, unsure]))
        seen.append(tracker.variances)
    return np.array(seen)


def tracked(noise, unsure, samples=300):
    tracker = TrackedNoise(2)
    steps(tracker, noise, unsure, samples)
    return tracker


def test_it_starts_from_a_guess():
    assert TrackedNoise(3).variances == pytest.approx(START)


@pytest.mark.parametrize("noise", [1e-3, 0.05, 0.5])
def test_the_variance_of_the_noise_is_found_whatever_else_is_unsure(noise):
    seen = steps(TrackedNoise(2), noise, 0.2 * noise, 2000)[100:].mean(axis=0)
    assert (seen > 0.4 * noise).all()
    assert (seen < 1.6 * noise).all()


def test_without_noise_it_falls_to_the_least():
    assert tracked(0.0, 0.01).variances[0] < 2e-4


def test_one_false_measurement_is_no_noise():
    tracker = tracked(0.05, 0.1)
    before = tracker.variances
    tracker.observe(np.full(2, 1e3), np.array([0.0, 0.1]))
    assert (tracker.variances < 1.5 * before).all()


def test_state_restores_it():
    tracker, other = tracked(0.05, 0.1, 7), TrackedNoise(2)
    other.restore({name: array.copy() for name, array in tracker.state().items()})
    for part in (tracker, other):
        part.observe(np.array([0.2, -0.1]), np.array([0.1, 0.1]))
    assert np.array_equal(tracker.variances, other.variances)


def test_an_error_that_was_to_be_expected_is_no_noise():
    knows, unsure = tracked(1e-3, 1.0).variances
    assert max(knows, unsure) < 0.1
