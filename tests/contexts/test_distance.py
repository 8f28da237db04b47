import numpy as np
import pytest

from rasp_tuner.base.numerics import LARGEST
from rasp_tuner.contexts.context_metric import squared_gaps
from rasp_tuner.contexts.distance import euclidean, pairwise_squares


def test_distances_are_euclidean():
    keys = np.array([[0.0, 0.0], [3.0, 4.0], [-6.0, 8.0]])
    assert euclidean(keys, np.zeros(2)).tolist() == [0.0, 5.0, 10.0]


def test_distances_without_context_dimensions_are_zero():
    assert euclidean(np.zeros((3, 0)), np.zeros(0)).tolist() == [0.0, 0.0, 0.0]


def test_distances_saturate_instead_of_overflowing():
    away = euclidean(np.array([[1e308], [-1e308], [0.0]]), np.array([1e308]))
    assert away.tolist() == [0.0, 2 * LARGEST, LARGEST]


@pytest.mark.parametrize("dim", [0, 1, 5, 32, 500])
def test_both_ways_of_computing_squared_distances_agree(dim):
    keys = np.random.default_rng(dim).normal(size=(7, dim))
    pairs = ((keys[:, None] - keys) ** 2).sum(axis=2)
    assert pairwise_squares(keys) == pytest.approx(pairs, abs=1e-9)
    assert squared_gaps(keys[:3], keys) == pytest.approx(pairs[:3], abs=1e-9)
