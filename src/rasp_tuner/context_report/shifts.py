"""Does a context say more about the loss than parameters and time do? A test by conditional circular shifts.

A context that has nothing to do with the loss fits it as well when it is moved along the time axis. A shift keeps what
makes steps dependent: regimes that last, slow drifts, dimensions that move together. But parameters follow the context,
by the tuner or by a rule, and a shifted context would lose that: it would look worse merely because it no longer stands
for the parameters. So only the part of the context that the parameters do not explain is shifted:
x* = explained + shifted (x - explained).
The gain of the true context is ranked among the gains of such x*.

symbol   shape      meaning
x        [n, k]     contexts in deviations (contexts/context_metric.py); of many features their leading components
features f          columns of x that belong together: one each, but for texts and the like
views    v          ways to look at x: each feature by itself, and all together
gains    [s, v]     of each view at each shift
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.context_report.likelihood import explained, explained_by_points, fit_blind, gain
from rasp_tuner.contexts.context_metric import ContextMetric
from rasp_tuner.contexts.distance import pairwise_squares

MAX_FEATURES = 16  # up to which each is looked at by itself; of more, so many components are kept
SINGLE_COMPONENTS = 3  # and the first of these are looked at by themselves
MAX_SHIFTS = 66  # at most: with one that does as well p is 2 / 67, just below the level
ENOUGH_AS_GOOD = 10  # shifts that do as well as the truth, after which no more are tried (Besag and Clifford)
TIE_NATS = 1e-9  # nats
CONSTANT_VARIANCE_SHARE = 1e-12  # of the mean square: a variance below is none


@dataclass(frozen=True, slots=True)
class ShiftTest:
    """What the shifts said."""

    p: float  # that a context with no bearing on the loss gains as much; corrected for the number of views
    each: Array  # [f] the same of each feature by itself
    shares: Array  # [f] of the squared error that each takes away by itself
    unexplained: Array  # [f] share of each feature's variance that the parameters do not tell
    share: float  # the most that any view takes away
    gain: float  # nats, of the best view
    others: Array  # [s] the same of the shifted ones


def moving(contexts: Array) -> Array:
    """[d_c] whether a dimension has moved at all."""
    moved: Array = contexts.var(axis=0) > CONSTANT_VARIANCE_SHARE * (contexts**2).mean(axis=0)
    return moved


def standardised(contexts: Array) -> Array:
    """[n, k] the dimensions that move, each with mean 0 and variance 1."""
    kept = contexts[:, moving(contexts)]
    scaled: Array = (kept - kept.mean(axis=0)) / kept.std(axis=0)
    return scaled


def in_deviations(contexts: Array) -> Array:
    """[n, k] the dimensions that move, as the engine measures them, around their means."""
    kept = contexts[:, moving(contexts)]
    x = ContextMetric.of(kept, float(len(kept))).bounded(kept)
    centred: Array = x - x.mean(axis=0)
    return centred


def features_of(names: Sequence[str]) -> dict[str, list[int]]:
    """The dimensions of each feature, by the name that each dimension has."""
    found: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        found.setdefault(name, []).append(i)
    return found


def reduced(x: Array, features: Sequence[Sequence[int]]) -> tuple[Array, list[list[int]]]:
    """x [n, k] or, of many features, its leading components; and the columns that are looked at by themselves."""
    if len(features) <= MAX_FEATURES:
        return x, [list(own) for own in features]
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    kept = min(MAX_FEATURES, int((sizes > 1e-9 * sizes[0]).sum()))
    sizes *= np.sqrt(kept / x.shape[1])  # together they count as all columns do
    return left[:, :kept] * sizes[:kept], [[i] for i in range(min(SINGLE_COMPONENTS, kept))]


def compare(
    x: Array,
    features: Sequence[Sequence[int]],
    points: Array,
    y: Array,
) -> ShiftTest:
    """Whether contexts x [n, k] as of `reduced` help to explain losses y [n] at points [n, d], in the order of time."""
    y = (y - y.mean()) / y.std()
    blind = fit_blind(points, y)
    explained_part = explained_by_points(points, x)
    spread = x.std(axis=0)
    views = _views(x, spread, features)
    truth = np.array([gain(blind, view, y) for view in views])
    others: list[Array] = []
    plan = np.random.default_rng(0).permutation(np.arange(1, len(y)))[:MAX_SHIFTS]
    for shift in plan:
        moved = explained_part + np.roll(x - explained_part, shift, axis=0)
        others.append(np.array([gain(blind, view, y) for view in _views(moved, spread, features)]))
        if sum(bool(row.max() >= truth.max() - TIE_NATS) for row in others) >= ENOUGH_AS_GOOD:
            break
    best = np.array([row.max() for row in others])
    p = (1.0 + (best[:, None] >= truth - TIE_NATS).sum(axis=0)) / (1.0 + len(best))
    shares = np.array([explained(blind, view, y) for view in views])
    left = ((x - explained_part) ** 2).mean(axis=0) / spread**2
    unexplained, some = np.array([left[own].mean() for own in features]), len(features)
    return ShiftTest(
        float(p.min()), p[:some], shares[:some], unexplained, float(shares.max()), float(truth.max()), best
    )


def distances(x: Array) -> Array:
    """[n, n] between rows of x [n, k], contexts in deviations: minus the logarithm of their likeness."""
    far = pairwise_squares(x)
    far /= 2.0 * max(x.shape[1], 1)
    return far


def _views(x: Array, spread: Array, features: Sequence[Sequence[int]]) -> list[Array]:
    """Distances [n, n]: by each feature, one column in units of its spread; and by all columns."""
    views = [distances(x[:, own] / spread[own] if len(own) == 1 else x[:, own]) for own in features]
    if x.shape[1] > 1 and [len(own) for own in features] != [x.shape[1]]:
        views.append(distances(x))
    return views
