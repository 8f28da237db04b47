import numpy as np
import pytest

from rasp_tuner.core import distance
from rasp_tuner.core.distance import DIRECT_DIMENSIONS, euclidean, mean_squares, pairwise_squares, scaled_squares
from rasp_tuner.core.numerics import LARGEST


def test_distances_are_euclidean():
    keys = np.array([[0.0, 0.0], [3.0, 4.0], [-6.0, 8.0]])
    assert euclidean(keys, np.zeros(2)).tolist() == [0.0, 5.0, 10.0]


def test_distances_without_context_dimensions_are_zero():
    assert euclidean(np.zeros((3, 0)), np.zeros(0)).tolist() == [0.0, 0.0, 0.0]


def test_distances_saturate_instead_of_overflowing():
    away = euclidean(np.array([[1e308], [-1e308], [0.0]]), np.array([1e308]))
    assert away.tolist() == [0.0, 2 * LARGEST, LARGEST]


@pytest.mark.parametrize("dim", [0, 1, 5, DIRECT_DIMENSIONS, DIRECT_DIMENSIONS + 1, 500])
def test_every_way_of_computing_a_squared_distance_agrees(dim):
    rng = np.random.default_rng(dim)
    keys, context, scales = rng.normal(size=(7, dim)), rng.normal(size=dim), rng.random((2, dim))
    squares = (keys - context) ** 2
    assert mean_squares(keys, context) == pytest.approx(squares.mean(axis=1) if dim else np.zeros(7))
    assert scaled_squares(keys, keys**2, context, scales) == pytest.approx(scales @ squares.T)
    pairs = ((keys[:, None] - keys) ** 2).sum(axis=2)
    assert pairwise_squares(keys) == pytest.approx(pairs, abs=1e-9)
    rows = np.array([1, 4])
    weighted = ((keys[rows, None] - keys) ** 2) @ scales[0]
    assert distance.scaled_pairs(keys, keys**2, scales[0], rows) == pytest.approx(weighted, abs=1e-9)
