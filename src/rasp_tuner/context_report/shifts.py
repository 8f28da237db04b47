"""Does a context say more about the loss than parameters and time do? A test by conditional circular shifts.

A context that has nothing to do with the loss fits it as well when it is moved along the time axis. A shift keeps what
makes steps dependent: regimes that last, slow drifts, dimensions that move together. But parameters follow the context,
by the tuner or by a rule, and a shifted context would lose that: it would look worse merely because it no longer stands
for the parameters. So only the part of the context that the parameters do not explain is shifted:
x* = explained + shifted (x - explained).
The gain of the true context is ranked among the gains of such x*.

symbol   shape      meaning
x        [n, k]     contexts, standardised; of many dimensions their leading principal components
views    v          ways to look at x: each column by itself, and all together
gains    [s, v]     of each view at each shift
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rasp_tuner.context_report.likelihood import explained, explained_by_points, fit_blind, gain
from rasp_tuner.core.distance import pairwise_squares
from rasp_tuner.core.numerics import Array

MAX_COLUMNS = 16  # dimensions up to which each is looked at by itself; of more, so many components are kept
SINGLE_COMPONENTS = 3  # and the first of these are looked at by themselves
MAX_SHIFTS = 127  # at most
ENOUGH_AS_GOOD = 10  # shifts that do as well as the truth, after which no more are tried (Besag and Clifford)
TIE_NATS = 1e-9  # nats
CONSTANT_VARIANCE_SHARE = 1e-12  # of the mean square: a variance below is none


@dataclass(frozen=True, slots=True)
class ShiftTest:
    """What the shifts said."""

    p: float  # that a context with no bearing on the loss gains as much; corrected for the number of views
    each: Array  # [k] the same of each column by itself
    shares: Array  # [k] of the squared error that each takes away by itself
    unexplained: Array  # [k] share of each column's variance that the parameters do not tell
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


def reduced(x: Array) -> tuple[Array, int]:
    """x [n, k] or, if it is wide, its leading components; and how many columns are looked at by themselves."""
    if x.shape[1] <= MAX_COLUMNS:
        return x, x.shape[1]
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    kept = min(MAX_COLUMNS, int((sizes > 1e-9 * sizes[0]).sum()))
    return left[:, :kept] * sizes[:kept], min(SINGLE_COMPONENTS, kept)


def compare(
    contexts: Array, points: Array, y: Array, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> ShiftTest:
    """Whether standardised contexts [n, k] help to explain losses y [n] at points [n, d], in the order of time."""
    x, single = reduced(contexts)
    y = (y - y.mean()) / y.std()
    blind = fit_blind(points, y)
    explained_part = explained_by_points(points, x)
    spread = x.std(axis=0)
    views = _views(x, spread, single)
    truth = np.array([gain(blind, view, y) for view in views])
    others: list[Array] = []
    plan = np.random.default_rng(seed).permutation(np.arange(1, len(y)))[:MAX_SHIFTS]
    for done, shift in enumerate(plan):
        if progress is not None:
            progress(done, len(plan))
        moved = explained_part + np.roll(x - explained_part, shift, axis=0)
        others.append(np.array([gain(blind, view, y) for view in _views(moved, spread, single)]))
        if sum(bool(row.max() >= truth.max() - TIE_NATS) for row in others) >= ENOUGH_AS_GOOD:
            break
    best = np.array([row.max() for row in others])
    p = (1.0 + (best[:, None] >= truth - TIE_NATS).sum(axis=0)) / (1.0 + len(best))
    shares = np.array([explained(blind, view, y) for view in views])
    unexplained = ((x - explained_part) ** 2).mean(axis=0) / spread**2
    return ShiftTest(
        float(p.min()), p[:single], shares[:single], unexplained[:single], float(shares.max()), float(truth.max()), best
    )


def _views(x: Array, spread: Array, single: int) -> list[Array]:
    """Squared distances [n, n]: by each of the first columns, and by all."""
    views = [pairwise_squares(x[:, [i]] / spread[i]) / 2.0 for i in range(single)]
    if x.shape[1] > 1:
        far = pairwise_squares(x)
        others = far[~np.eye(len(far), dtype=bool)]
        views.append(far / (float(np.median(others)) or float(others.mean())))  # most contexts may be the same one
    return views
