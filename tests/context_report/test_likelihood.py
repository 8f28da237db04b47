import numpy as np
import pytest

from rasp_tuner.context_report import likelihood
from rasp_tuner.contexts.distance import pairwise_squares


def direct(K, noise, y):
    n, V = len(y), K + noise * np.eye(len(y))
    return -0.5 * n * np.log(y @ np.linalg.solve(V, y) / n) - 0.5 * np.linalg.slogdet(V)[1]


@pytest.mark.parametrize("seed", range(3))
def test_one_factor_gives_the_likelihood_that_solving_and_determinants_give(seed):
    rng = np.random.default_rng(seed)
    a, y = rng.normal(size=(12, 5)), rng.normal(size=12)
    Ks, noises = np.stack([a @ a.T, np.eye(12)]), np.array([1e-3, 0.5])
    expected = [[direct(K, noise, y) for noise in noises] for K in Ks]
    assert likelihood.log_likelihoods(Ks, noises, y) == pytest.approx(np.array(expected), rel=1e-6)


def test_errors_left_are_those_of_leaving_each_sample_out():
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    K = a @ a.T
    for i, error in enumerate(likelihood.errors_left(K, 0.1, y)):
        rest = np.arange(8) != i
        forecast = K[i, rest] @ np.linalg.solve(K[np.ix_(rest, rest)] + 0.1 * np.eye(7), y[rest])
        assert error == pytest.approx(y[i] - forecast)


def test_a_context_that_moves_the_optimum_gains_and_a_constant_one_does_not():
    rng = np.random.default_rng(0)
    points, context = rng.uniform(size=(60, 2)), rng.integers(2, size=60)
    y = ((points - 0.2 - 0.6 * context[:, None]) ** 2).sum(axis=1)
    y = (y - y.mean()) / y.std()
    blind = likelihood.fit_blind(points, y)
    true = pairwise_squares(4.0 * context[:, None].astype(float))
    assert likelihood.gain(blind, true, y) > 30.0
    assert likelihood.explained(blind, true, y) > 0.8
    assert likelihood.gain(blind, np.zeros((60, 60)), y) < 3.0


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_gains_little_where_the_optimum_wanders_by_itself(seed):
    rng = np.random.default_rng(seed)
    optimum = 0.5 + np.cumsum(0.04 * rng.normal(size=(80, 2)), axis=0)
    points = rng.uniform(size=(80, 2))
    y = ((points - optimum) ** 2).sum(axis=1) + 0.01 * rng.normal(size=80)
    y = (y - y.mean()) / y.std()
    time = np.arange(80)[:, None] / 23.0  # in units of its spread
    assert likelihood.gain(likelihood.fit_blind(points, y), pairwise_squares(time) / 2.0, y) < 8.0


def test_what_parameters_explain_of_a_context_is_explained_and_noise_is_not():
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(80, 2))
    x = np.column_stack([np.sin(3.0 * points[:, 0]), rng.normal(size=80)])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    left = (x - likelihood.explained_by_points(points, x)).var(axis=0)
    assert left[0] < 0.02
    assert left[1] > 0.7


def test_equal_points_everywhere_are_no_problem():
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    assert np.isfinite(likelihood.fit_blind(np.full((40, 3), 0.5), y).score)
