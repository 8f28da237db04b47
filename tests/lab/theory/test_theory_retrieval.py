"""Perfect and noisy retrieval, and the weights of the nearest."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_lab.theory import noisy, retrieval, weights
from rasp_lab.theory.claim import ROUNDING, BrokenAssumption
from rasp_tuner.paper.memory import PromptMemory

seeds = st.integers(0, 2**32 - 1)
UP = 1.0 + ROUNDING


@given(seed=seeds, count=st.integers(2, 6), dim=st.integers(1, 5), key_radius=st.floats(0.0, 2.0))
def test_retrieval_is_perfect_above_twice_both_radii(seed, count, dim, key_radius):
    rng = np.random.default_rng(seed)
    separation = retrieval.sufficient_separation(1.0, key_radius) * 1.0001
    centers = retrieval.spread_centers(rng, count, dim, separation)
    keys = np.array([retrieval.in_ball(rng, center, key_radius) for center in centers])
    for regime, center in enumerate(centers):
        trial = retrieval.retrieval_trial(retrieval.in_ball(rng, center, 1.0), keys, regime)
        assert trial.ratio <= retrieval.worst_distance_ratio(separation, 1.0, key_radius) * UP < 1.0


@given(gap=st.floats(2.01, 3.99))
def test_between_two_and_four_radii_retrieval_may_err(gap):
    trial = retrieval.retrieval_trial(np.array([1.0]), np.array([[-1.0], [gap - 1.0]]), 0)
    assert trial.ratio == pytest.approx(2.0 / (gap - 2.0))
    assert trial.ratio > 1.0


@given(gap=st.floats(0.01, 0.999), key_radius=st.floats(0.0, 1.0))
def test_less_than_twice_both_radii_is_never_enough(gap, key_radius):
    """Sharp for every pair of radii: on a line, the right key at the far end of its ball, the wrong one at the near."""
    separation = gap * retrieval.sufficient_separation(1.0, key_radius)
    keys = np.array([[-key_radius], [separation - key_radius]])
    assert retrieval.retrieval_trial(np.array([1.0]), keys, 0).ratio > 1.0


@given(dim=st.integers(1, 300), u=st.floats(1e-3, 300.0))
def test_the_norm_of_noise_has_the_printed_tail(dim, u):
    assert noisy.chi_tail(dim, math.sqrt(dim) + math.sqrt(2.0 * u)) <= math.exp(-u) * UP


def test_the_tail_of_the_norm_is_that_of_samples():
    norms = np.linalg.norm(np.random.default_rng(0).normal(size=(40_000, 7)), axis=1)
    for radius in (1.5, 2.5, 3.5):
        expected = noisy.chi_tail(7, radius)
        assert abs((norms >= radius).mean() - expected) < 5 * math.sqrt(expected * (1 - expected) / len(norms))


lines = st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=6)


@given(offsets=lines, active=st.integers(0, 5), radius=st.floats(0.0, 0.49), noise=st.floats(0.2, 5.0))
def test_noisy_retrieval_errs_no_more_than_the_bound_without_dimension(offsets, active, radius, noise):
    """Centers 1 apart on a line, keys within `radius` of theirs."""
    count, active = len(offsets), active % len(offsets)
    keys = [i + radius * offset for i, offset in enumerate(offsets)]
    measured = noisy.wrong_on_a_line(keys, float(active), active, noise)
    assert measured <= noisy.bound(1.0, noise, count, radius) * UP


@given(separation=st.floats(0.1, 50.0), noise=st.floats(0.1, 5.0), dim=st.integers(1, 100), regimes=st.integers(2, 5))
def test_for_two_regimes_the_printed_bound_is_never_the_lesser(separation, noise, dim, regimes):
    if separation <= 2.0 * noise * math.sqrt(dim):
        with pytest.raises(BrokenAssumption, match="Delta > 2 sigma sqrt d"):
            noisy.printed_bound(separation, noise, dim)
    else:
        mended = noisy.bound(separation, noise, regimes)
        assert mended / (regimes - 1) <= noisy.printed_bound(separation, noise, dim) * UP


def test_the_memory_errs_as_often_as_computed_and_no_more_in_many_dimensions():
    rng, trials = np.random.default_rng(1), 3000
    for dim in (2, 60):
        centers = np.zeros((2, dim))
        centers[1, 0] = 3.0
        memory = PromptMemory(1, dim, 1, novelty_threshold=0.0, top_k=1)
        for center in centers:
            memory.write(memory.retrieve(center), np.zeros(1), 0.5)
        wrong = sum(memory.retrieve(rng.normal(size=dim)).slots != (0,) for _ in range(trials))
        expected = noisy.bound(3.0, 1.0, 2)
        assert abs(wrong / trials - expected) < 4 * math.sqrt(expected / trials)


@settings(max_examples=100)
@given(seed=seeds, dim=st.integers(1, 4), each=st.integers(1, 3), gap=st.floats(0.05, 5.0), tau=st.floats(0.05, 5.0))
def test_wrong_regimes_weigh_no_more_than_the_bound(seed, dim, each, gap, tau):
    rng = np.random.default_rng(seed)
    centers = retrieval.spread_centers(rng, 3, dim, retrieval.sufficient_separation(0.5, 0.5) + gap)
    owners = np.repeat(np.arange(3, dtype=np.int64), each)
    keys = np.array([retrieval.in_ball(rng, centers[owner], 0.5) for owner in owners])
    context = retrieval.in_ball(rng, centers[0], 0.5)
    trial = weights.measure(context, keys, owners, gap, tau, printed=False)
    assert trial.measured <= trial.bound * UP + 1e-15


@given(tau=st.floats(1e-3, 10.0))
def test_two_equal_keys_share_the_weight_at_every_temperature(tau):
    keys, owners = np.array([[-1.0], [1.0], [6.0]]), np.array([0, 0, 1])
    shares, _ = weights.top_weights(np.zeros(1), keys, owners, tau, 3)
    assert shares.max() <= 0.5


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda: retrieval.sufficient_separation(-1.0, 0.0), "radii"),
        (
            lambda: retrieval.worst_distance_ratio(4.0, 1.0, 1.0),
            r"separation > 2 \(rho \+ rho_k\), got separation = 4.0",
        ),
        (lambda: noisy.chi_tail(0, 1.0), "dim >= 1"),
        (lambda: noisy.bound(1.0, 1.0, 2, key_radius=0.5), "Delta > 2 rho_k"),
        (lambda: noisy.bound(1.0, 0.0, 2), "sigma > 0"),
        (lambda: weights.bound(0.0, 1.0, 3), "gap > 0"),
        (lambda: weights.bound(1.0, 1.0, 1), "K >= 2"),
    ],
)
def test_outside_its_assumptions_there_is_no_bound(broken, words):
    with pytest.raises(BrokenAssumption, match=words):
        broken()
