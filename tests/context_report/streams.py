"""Small logs for tests: contexts [n, d_c], points [n, d], losses [n]."""

from itertools import pairwise

import numpy as np


def noise(n=80, seed=0):
    """A bowl with one optimum; the context says nothing."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(n, 2))
    return rng.normal(size=(n, 2)), points, ((points - 0.3) ** 2).sum(axis=1) + 0.02 * rng.normal(size=n)


def regimes(n=80, seed=0):
    """Two situations in blocks of 7 to 15 steps, told apart by the second dimension; the first says nothing."""
    rng = np.random.default_rng(seed)
    blocks = np.repeat(np.arange(n), rng.integers(7, 16, size=n))[:n] % 2
    points = rng.uniform(size=(n, 2))
    optimum = np.where(blocks[:, None] == 1, 0.8, 0.2)
    contexts = np.column_stack([rng.normal(size=n), blocks + 0.1 * rng.normal(size=n)])
    return contexts, points, ((points - optimum) ** 2).sum(axis=1) + 0.02 * rng.normal(size=n)


def followed(n=100, seed=0):
    """A rule sets the parameters by the context; the loss is a rugged one of the parameters alone."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n, 2))
    for before, after in pairwise(contexts):
        after += 0.8 * before
    by_rule = 1.0 / (1.0 + np.exp(-contexts)) + 0.03 * rng.normal(size=(n, 2))
    points = np.clip(np.column_stack([by_rule, rng.uniform(size=n)]), 0.0, 1.0)
    losses = np.sin(9.0 * points[:, 0]) + 2.0 * np.abs(points[:, 1] - 0.4) + (points[:, 0] > 0.6)
    return contexts, points, losses + 0.1 * rng.normal(size=n)
