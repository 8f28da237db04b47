"""What may be wrong with a context, whatever the test says; each finding is a sentence.

All take contexts [n, d_c] in the order of time and the names of the dimensions.
"""

from collections.abc import Sequence

import numpy as np

from rasp_tuner.context_report.likelihood import (
    NOISES,
    drifting,
    errors_left,
    log_likelihoods,
)
from rasp_tuner.context_report.shifts import MAX_COLUMNS, moving, standardised
from rasp_tuner.core.distance import pairwise_squares, squared_distances
from rasp_tuner.core.numerics import Array

SAME_CORRELATION = 0.999  # correlation from which on two dimensions are one
TREND_CORRELATION = 0.95  # rank correlation with time
LEAK_SHARE = 0.9  # share of the variance of the loss that one dimension tells alone
DRIFT_RATIO = 2.0  # the neighbouring steps must leave so many times more unexplained
SMOOTHNESS = 8.0  # of a loss as a function of the ranks of one dimension, which go from 0 to 1
LATEST_SAMPLES, FAR_RATIO = 10, 3.0  # samples that are now; times the usual distance to what was before
MAX_NAMES = 5  # names in one sentence


def constant(contexts: Array, names: Sequence[str]) -> list[str]:
    never_moved = [name for name, moves in zip(names, moving(contexts), strict=True) if not moves]
    return [f"{_list(never_moved)}: constant, so nothing can be learned from it"] if never_moved else []


def duplicates(contexts: Array, names: Sequence[str]) -> list[str]:
    """Dimensions that are a linear function of an earlier one."""
    kept = [name for name, moves in zip(names, moving(contexts), strict=True) if moves]
    if len(kept) < 2:
        return []
    x = standardised(contexts)
    like = np.triu(np.abs(x.T @ x) / len(x) > SAME_CORRELATION, k=1)
    pairs = [f"{kept[i]} and {kept[j]}" for i, j in zip(*np.nonzero(like), strict=True) if not like[:, i].any()]
    return [f"{_list(pairs)}: the same up to scale, so it counts twice in every distance"] if pairs else []


def one_way(contexts: Array, names: Sequence[str]) -> list[str]:
    """Dimensions that only grow or only fall."""
    time = np.arange(len(contexts), dtype=np.float64)
    kept = np.flatnonzero(moving(contexts)).tolist()
    trending = [names[i] for i in kept if abs(_correlation(_ranks(contexts[:, i]), time)) > TREND_CORRELATION]
    if not trending:
        return []
    return [f"{_list(trending)}: moves one way only, so it cannot be told from any other drift, or from time itself"]


def leakage(contexts: Array, names: Sequence[str], y: Array) -> list[str]:
    """Dimensions that tell the loss of their own step alone, whatever the parameters, and better than steps around do.

    Before a run nobody knows its noise, nor what its parameters will do; what does was made from its outcome.
    """
    kept = np.flatnonzero(moving(contexts))
    y = (y - y.mean()) / y.std()
    if len(kept) > MAX_COLUMNS:
        like = [abs(_correlation(_ranks(contexts[:, i]), _ranks(y))) for i in kept]
        kept = kept[np.argsort(like)[-MAX_COLUMNS:]]
    most = min(1.0 - LEAK_SHARE, _unexplained_share(1.0 + 10.0 * drifting(len(y)), y) / DRIFT_RATIO)
    found = []
    for i in kept.tolist():
        near = np.exp(-pairwise_squares(_ranks(contexts[:, i])[:, None] / len(y)) * SMOOTHNESS)
        left = _unexplained_share(1.0 + 10.0 * near, y)
        if left < most:
            found.append(f"{names[i]} ({1.0 - left:.0%})")
    if not found:
        return []
    return [
        f"{_list(found)}: tells the loss of its own step almost alone, whatever the parameters; is it known before the"
        " run, or computed from its outcome?"
    ]


def drifted(contexts: Array, memory: Array | None = None) -> list[str]:
    """Whether the latest contexts are far from all that came before, or from `memory` [N, d_c]."""
    known = contexts[:-LATEST_SAMPLES] if memory is None else memory
    kept = moving(known) if len(known) else np.zeros(contexts.shape[1], dtype=bool)
    if len(known) < 2 * LATEST_SAMPLES or not kept.any():
        return []
    scale = known[:, kept].std(axis=0)
    old, new = known[:, kept] / scale, contexts[-LATEST_SAMPLES:, kept] / scale
    within = pairwise_squares(old)
    near = np.abs(np.subtract.outer(np.arange(len(old)), np.arange(len(old)))) < LATEST_SAMPLES
    within[near] = np.inf  # neighbours in time look alike anyhow
    usual = float(np.median(np.sqrt(within.min(axis=1))))
    far = np.sqrt(squared_distances(new, old, np.ones(new.shape[1]))).min(axis=1)
    times = float(np.median(far)) / max(usual, 0.05 * np.sqrt(kept.sum()))
    if times < FAR_RATIO:
        return []
    latest = f"the latest {LATEST_SAMPLES} contexts"
    return [f"{latest} are {times:.0f} times as far from all known ones as those from each other"]


def _unexplained_share(K: Array, y: Array) -> float:
    """Share of the variance of y that the likeliest noise leaves unexplained, each sample forecast from the others."""
    noise = float(NOISES[int(log_likelihoods(K[None], NOISES, y)[0].argmax())])
    errors = errors_left(K, noise, y)
    return float(errors @ errors) / len(y)


def _ranks(values: Array) -> Array:
    """[n] from 0 up; equal values share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Array = (ends - (counts + 1) / 2.0)[which]
    return ranks


def _correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b) / max(float(np.sqrt((a @ a) * (b @ b))), 1e-300)


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"
