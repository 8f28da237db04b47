"""What may be wrong with a context, whatever the test says; each finding is a sentence.

All take contexts [n, d_c] in the order of time and the name of the feature that each dimension belongs to.
"""

from collections.abc import Sequence

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.context_report.likelihood import RIVAL_NOISES, drifting, errors_left, log_likelihoods, shape_of
from rasp_tuner.context_report.shifts import MAX_FEATURES, distances, features_of, in_deviations, moving, standardised
from rasp_tuner.contexts.context_metric import ContextMetric, squared_gaps
from rasp_tuner.contexts.distance import pairwise_squares
from rasp_tuner.page.words import listed

SAME_CORRELATION = 0.999  # correlation from which on two dimensions are one
TREND_CORRELATION = 0.95  # rank correlation with time
LEAK_SHARE = 0.9  # share of the variance of the loss that one feature tells alone
PARAMETERS_SHARE = 0.1  # of what drift leaves that parameters must explain: else nothing shows who knows their effect
ADDED_SHARE = 0.5  # of what a feature leaves: parameters that explain as much have an effect it does not know
FOLLOWING_SHARE = 0.8  # of a knob's variance that a feature tells: then the knob may have been set by it
DRIFT_RATIO = 2.0  # the neighbouring steps must leave so many times more unexplained
SMOOTHNESS = 8.0  # of a loss as a function of the ranks of one dimension, which go from 0 to 1
FINER = 25  # times as sharp: what a feature tells exactly
LATEST_SAMPLES, FAR_RATIO = 10, 3.0  # samples that are now; times the usual distance to what was before


def constant(contexts: Array, names: Sequence[str]) -> list[str]:
    moves = moving(contexts)
    never_moved = [name for name, own in features_of(names).items() if not moves[own].any()]
    return [f"{listed(never_moved)}: constant, so nothing can be learned from it"] if never_moved else []


def duplicates(contexts: Array, names: Sequence[str]) -> list[str]:
    """Dimensions that are a linear function of an earlier one, of another feature."""
    kept = [name for name, moves in zip(names, moving(contexts), strict=True) if moves]
    if len(kept) < 2:
        return []
    x = standardised(contexts)
    like = np.triu(np.abs(x.T @ x) / len(x) > SAME_CORRELATION, k=1)
    pairs = [(kept[i], kept[j]) for i, j in zip(*np.nonzero(like), strict=True) if not like[:, i].any()]
    said = list(dict.fromkeys(f"{one} and {other}" for one, other in pairs if one != other))
    return [f"{listed(said)}: the same up to scale, so it counts twice in every distance"] if said else []


def one_way(contexts: Array, names: Sequence[str]) -> list[str]:
    """Features that only grow or only fall."""
    time = np.arange(len(contexts), dtype=np.float64)
    kept = {name: own[0] for name, own in _moving_features(contexts, names).items() if len(own) == 1}
    ranks = {name: _ranks(contexts[:, i]) for name, i in kept.items()}
    trending = [name for name in kept if abs(_correlation(ranks[name], time)) > TREND_CORRELATION]
    if not trending:
        return []
    return [f"{listed(trending)}: moves one way only, so it cannot be told from any other drift, or from time itself"]


def leakage(contexts: Array, names: Sequence[str], y: Array, points: Array) -> list[str]:
    """Features that know what the parameters [n, d] of their own step did to its loss.

    A feature may well set the level of the loss, as the size of the input does. But parameters are chosen after it:
    what they do within that level it cannot know, unless it was made from the outcome.
    """
    features, y = _moving_features(contexts, names), (y - y.mean()) / y.std()
    if len(features) > MAX_FEATURES:
        ranks = _ranks(y)
        like = [max(abs(_correlation(_ranks(contexts[:, i]), ranks)) for i in own) for own in features.values()]
        kept = [list(features)[i] for i in np.argsort(like)[-MAX_FEATURES:]]
        features = {name: features[name] for name in kept}
    by_drift = _unexplained_share(1.0 + 10.0 * drifting(len(y)), y)
    found = []
    for name, own in features.items():
        near = _nearness(contexts[:, own])
        left = _unexplained_share(1.0 + 10.0 * near, y)
        if left < min(1.0 - LEAK_SHARE, by_drift / DRIFT_RATIO):
            others = [i for other, dimensions in features.items() if other != name for i in dimensions]
            if _knows_their_effect(contexts[:, own], contexts[:, others], y, points):
                found.append(f"{name} ({1.0 - left:.0%})")
    if not found:
        return []
    return [
        f"{listed(found)}: tells the loss of its own step almost alone, and what the parameters did to it as well; is"
        " it known before the run, or computed from its outcome?"
    ]


def _knows_their_effect(feature: Array, others: Array, y: Array, points: Array) -> bool:
    """Whether parameters explain y, but not what is left by a feature that they were not set by."""
    bowl, rough = shape_of(points)
    near, drift, shape = _nearness(feature), drifting(len(y)), 10.0 * (bowl + rough)
    beside = _nearness(others) if others.shape[1] else np.zeros_like(near)
    known = 1.0 + 10.0 * (drift + beside)
    if _unexplained_share(known + shape * (1.0 + beside), y) > (1.0 - PARAMETERS_SHARE) * _unexplained_share(known, y):
        return False  # they hardly matter: all that the loss does may well be known before
    x = standardised(feature)
    exactly = 1.0 + 10.0 * (near + near**FINER + x @ x.T)
    if _unexplained_share(exactly + shape * (1.0 + near), y) < (1.0 - ADDED_SHARE) * _unexplained_share(exactly, y):
        return False  # it sets the level only
    followed = [_unexplained_share(exactly, knob) < 1.0 - FOLLOWING_SHARE for knob in standardised(points).T]
    return not any(followed)


def drifted(contexts: Array, memory: Array | None = None) -> list[str]:
    """Whether the latest contexts are far from all that came before, or from `memory` [N, d_c]."""
    known = contexts[:-LATEST_SAMPLES] if memory is None else memory
    kept = moving(known) if len(known) else np.zeros(contexts.shape[1], dtype=bool)
    if len(known) < 2 * LATEST_SAMPLES or not kept.any():
        return []
    metric = ContextMetric.of(known[:, kept], float(len(known)))
    old, new = metric.bounded(known[:, kept]), metric.bounded(contexts[-LATEST_SAMPLES:, kept])
    within = pairwise_squares(old)
    near = np.abs(np.subtract.outer(np.arange(len(old)), np.arange(len(old)))) < LATEST_SAMPLES
    within[near] = np.inf  # neighbours in time look alike anyhow
    usual = float(np.median(np.sqrt(within.min(axis=1))))
    far = np.sqrt(squared_gaps(new, old)).min(axis=1)
    times = float(np.median(far)) / max(usual, 0.05 * np.sqrt(kept.sum()))
    if times < FAR_RATIO:
        return []
    latest = f"the latest {LATEST_SAMPLES} contexts"
    return [f"{latest} are {times:.0f} times as far from all known ones as those from each other"]


def _moving_features(contexts: Array, names: Sequence[str]) -> dict[str, list[int]]:
    """Those that have moved, each with the dimensions that have."""
    moves = moving(contexts)
    kept = {name: [i for i in own if moves[i]] for name, own in features_of(names).items()}
    return {name: own for name, own in kept.items() if own}


def _nearness(feature: Array) -> Array:
    """[n, n] from 0 to 1, between the values [n, k] of a feature."""
    if feature.shape[1] > 1:
        near: Array = np.exp(-distances(in_deviations(feature)))
    else:
        near = np.exp(-pairwise_squares(_ranks(feature[:, 0])[:, None] / len(feature)) * SMOOTHNESS)
    return near


def _unexplained_share(K: Array, y: Array) -> float:
    """Share of the variance of y that the likeliest noise leaves unexplained, each sample forecast from the others."""
    noise = float(RIVAL_NOISES[int(log_likelihoods([K], RIVAL_NOISES, y)[0].argmax())])
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
