"""Distances between contexts as the paper has them; for how alike they are to the engine see context_metric.py.

c context dimensions; keys [n, c] are contexts in memory.
"""

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array


def euclidean(keys: Array, context: Array) -> Array:
    """Distances [n] from `context` [c] to each key; finite for every finite input."""
    gaps = np.clip(keys, -LARGEST, LARGEST) - np.clip(context, -LARGEST, LARGEST)
    lengths: Array = np.sqrt((gaps**2).sum(axis=1))
    return lengths


def pairwise_squares(keys: Array) -> Array:
    """Squared distance [n, n] between all pairs of keys."""
    squares = np.einsum("nc,nc->n", keys, keys)
    gaps: Array = keys @ (-2.0 * keys.T)
    gaps += squares
    gaps += squares[:, None]
    return np.maximum(gaps, 0.0, out=gaps)
