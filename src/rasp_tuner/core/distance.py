"""Distances between contexts: the one place where they are computed.

c context dimensions; keys [n, c] are contexts in memory. Long contexts are multiplied out instead of subtracted, in
blocks too small for BLAS to wake threads.
"""

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import LARGEST, Array, product

DIRECT_DIMENSIONS = 32  # up to which differences are formed; above, squares are multiplied out


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


def scaled_squares(keys: Array, key_squares: Array, context: Array, scales: Array) -> Array:
    """Weighted squared differences [k, n] from `context` [c] to each key, under k rows of weights [k, c]."""
    if len(context) <= DIRECT_DIMENSIONS:
        near: Array = scales @ ((keys - context) ** 2).T
        return near
    gaps = product(scales, key_squares) - product(2.0 * context * scales, keys) + product(scales, context[None] ** 2)
    return np.maximum(gaps, 0.0)


def scaled_pairs(keys: Array, key_squares: Array, scale: Array, rows: NDArray[np.intp]) -> Array:
    """Weighted squared differences [len(rows), n] between some keys and all of them; may round below zero."""
    sizes = np.einsum("nc,c->n", key_squares, scale)
    gaps: Array = sizes - product(2.0 * scale * keys[rows], keys) + sizes[rows, None]
    return gaps
