"""Distances between contexts; those of the quadratic family are in engine/kernel/memory.py.

c context dimensions; keys [n, c] are contexts in memory.
"""

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array


def euclidean(keys: Array, context: Array) -> Array:
    """Distances [n] from `context` [c] to each key; finite for every finite input."""
    gaps = np.clip(keys, -LARGEST, LARGEST) - np.clip(context, -LARGEST, LARGEST)
    lengths: Array = np.sqrt((gaps**2).sum(axis=1))
    return lengths


def mean_squares(keys: Array, context: Array) -> Array:
    """Mean squared difference [n] between `context` [c] and each key; zero where there is no context."""
    difference = keys - context
    means: Array = np.einsum("nc,nc->n", difference, difference) / max(1, difference.shape[1])
    return means


def squared_distances(contexts: Array, keys: Array, scale: Array) -> Array:
    """Weighted squared distances [m, n] from contexts [m, c] to keys; infinite where they overflow."""
    difference = contexts[:, None] - keys
    with np.errstate(over="ignore"):
        gaps: Array = (difference * difference) @ scale
    return gaps


def pairwise_squares(keys: Array) -> Array:
    """Squared distance [n, n] between all pairs of keys."""
    squares = np.einsum("nc,nc->n", keys, keys)
    gaps: Array = np.maximum(squares[:, None] + squares - 2.0 * (keys @ keys.T), 0.0)
    return gaps
