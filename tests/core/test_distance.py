import numpy as np
import pytest

from rasp_tuner.core.distance import euclidean, mean_squares, pairwise_squares, squared_distances
from rasp_tuner.core.numerics import LARGEST


def test_distances_are_euclidean():
    keys = np.array([[0.0, 0.0], [3.0, 4.0], [-6.0, 8.0]])
    assert euclidean(keys, np.zeros(2)).tolist() == [0.0, 5.0, 10.0]


def test_distances_without_context_dimensions_are_zero():
    assert euclidean(np.zeros((3, 0)), np.zeros(0)).tolist() == [0.0, 0.0, 0.0]


def test_distances_saturate_instead_of_overflowing():
    away = euclidean(np.array([[1e308], [-1e308], [0.0]]), np.array([1e308]))
    assert away.tolist() == [0.0, 2 * LARGEST, LARGEST]


@pytest.mark.parametrize("dim", [0, 1, 5, 32, 500])
def test_every_way_of_computing_a_squared_distance_agrees(dim):
    rng = np.random.default_rng(dim)
    keys, context, scale = rng.normal(size=(7, dim)), rng.normal(size=dim), rng.random(dim)
    squares = (keys - context) ** 2
    assert mean_squares(keys, context) == pytest.approx(squares.mean(axis=1) if dim else np.zeros(7))
    assert squared_distances(context[None], keys, scale)[0] == pytest.approx(squares @ scale)
    pairs = ((keys[:, None] - keys) ** 2).sum(axis=2)
    assert pairwise_squares(keys) == pytest.approx(pairs, abs=1e-9)
