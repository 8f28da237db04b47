"""ContextMetric: how alike two contexts are. The one definition: of the engine, of regimes, returns and reports.

Robust, bounded scales, and a relevance for each dimension: learned by a family that learns one, else 1.

z_k = sqrt(r_k / d_c) 3 asinh((c_k - median_k) / (3 dev_k)),   kc = exp(-|z - z'|^2 / 2)

One value moves neither a median nor a trimmed deviation, and beyond three deviations only its logarithm counts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.common_constants import NORMAL_FROM_SAMPLES, ODD_DEVIATIONS
from rasp_tuner.base.numerics import LARGEST, Array

TRIMMED_SHARE = 0.02  # of the rows on either side, at least one once it is known what is normal
EARLY_SAMPLES = 10.0  # at which the spread is believed to within a factor of two: before, more is expected to come
FARTHEST = 1e6  # deviations
ALIKE = 0.5  # likeness from which on two contexts are called alike


class ContextMetric(NamedTuple):
    """Location and scale of each dimension."""

    median: Array  # [d_c]
    deviation: Array  # [d_c]

    @classmethod
    def of(cls, contexts: Array, samples: float) -> "ContextMetric":
        """From the contexts [n, d_c] of all rows, n >= 1, which hold so many samples."""
        ordered = np.sort(contexts, axis=0)
        n = len(ordered)
        trimmed = max(1, int(np.ceil(TRIMMED_SHARE * n))) if n >= NORMAL_FROM_SAMPLES else 0
        median: Array = ordered[n // 2]
        inside = np.abs(ordered[trimmed : n - trimmed] - median).mean(axis=0)
        deviation = _unless_tiny(inside, np.abs(ordered - median).mean(axis=0), median, n)
        return cls(median, np.minimum(deviation * (1.0 + EARLY_SAMPLES / samples), LARGEST))

    def bounded(self, contexts: Array) -> Array:
        """Contexts [..., d_c] in deviations from the median, beyond three their logarithm."""
        far = (contexts - self.median) / (ODD_DEVIATIONS * self.deviation)
        bounded: Array = ODD_DEVIATIONS * np.arcsinh(np.minimum(np.maximum(far, -FARTHEST), FARTHEST))
        return bounded

    def z(self, contexts: Array, relevance: Array) -> Array:
        """Contexts [..., d_c] in deviations, each dimension times the root of its relevance [d_c]."""
        return weighted(self.bounded(contexts), relevance)

    def likeness(self, context: Array, others: Array, relevance: Array | None) -> Array:
        """[n] from 0 to 1: how alike a context [d_c] is to others [n, d_c]; `relevance` [d_c], or 1."""
        counts = np.ones(len(context)) if relevance is None else relevance
        alike: Array = likeness(self.z(context[None], counts), self.z(others, counts))[0]
        return alike


def is_apart(contexts: Array, known: Array) -> bool:
    """Whether contexts [m, d_c] are a new situation: all nearer to one another than any is to a known one [n, d_c]."""
    metric = ContextMetric.of(known, float(len(known)))
    z, others = metric.bounded(contexts), metric.bounded(known)
    own = squared_gaps(z, z)
    np.fill_diagonal(own, np.inf)
    return bool(own.min(axis=1).max() < squared_gaps(z, others).min())


def weighted(bounded: Array, relevance: Array) -> Array:
    """Contexts in deviations [..., d_c], each dimension times the root of its relevance."""
    z: Array = bounded * np.sqrt(relevance / max(len(relevance), 1))
    return z


def z_of_many(contexts: Array, used: NDArray[np.bool_]) -> Array:
    """[B, n, d_c] contexts of B streams, each by the metric of those in use [B, n], with a relevance of 1; else 0."""
    counts, place = np.maximum(used.sum(axis=1), 1)[:, None, None], np.arange(used.shape[1])[:, None]
    ordered = np.sort(np.where(used[:, :, None], contexts, LARGEST), axis=1)  # those in use come first
    median = np.take_along_axis(ordered, counts // 2 * (counts > 1), axis=1)
    trimmed = np.where(counts >= NORMAL_FROM_SAMPLES, np.maximum(np.ceil(TRIMMED_SHARE * counts), 1.0), 0.0)
    far = np.where(place < counts, np.abs(ordered - median), 0.0)
    inner = np.where((place >= trimmed) & (place < counts - trimmed), far, 0.0)
    inside, everything = inner.sum(axis=1, keepdims=True), far.sum(axis=1, keepdims=True)
    deviation = _unless_tiny(inside / (counts - 2.0 * trimmed), everything / counts, median, counts)
    z = ContextMetric(median, deviation * (1.0 + EARLY_SAMPLES / counts)).bounded(contexts)
    return np.where(used[:, :, None], z / np.sqrt(max(contexts.shape[2], 1)), 0.0)


def _unless_tiny(inside: Array, everything: Array, median: Array, n: float | NDArray[np.int_]) -> Array:
    """A mean deviation without the outer values; with them, if all but a few are equal; tiny, if all are."""
    least = 1e-9 * np.abs(median) + 1e-200
    deviation = np.where(inside > least, inside, everything)
    return np.where(deviation > least, deviation, least / (n + 1.0))


def filled(context: Array, optional: Sequence[Sequence[int]], known: Array, relevance: Array | None) -> Array:
    """A context [d_c] in which a feature that is missing for the first time is that of the context most like the rest.

    `optional` are the dimensions of each feature that may be missing, the last a one where it is; `known` [n, d_c].
    """
    gone = [own for own in optional if context[own[-1]] == 1.0 and not known[:, own[-1]].any()]
    if not gone or not len(known) or known.shape[1] != len(context):
        return context
    left, hidden = np.ones(len(context), dtype=bool), [i for own in gone for i in own]
    left[hidden] = False
    metric = ContextMetric.of(known[:, left], float(len(known)))
    nearest = metric.likeness(context[left], known[:, left], None if relevance is None else relevance[left]).argmax()
    return np.where(left, context, known[nearest])


def squared_gaps(some: Array, others: Array) -> Array:
    """[m, n] squared distances between the rows of [m, k] and [n, k]."""
    gaps = some @ others.T
    gaps *= -2.0
    gaps += (some * some).sum(axis=1)[:, None]
    gaps += (others * others).sum(axis=1)
    return np.maximum(gaps, 0.0, out=gaps)


def likeness(z: Array, others: Array) -> Array:
    """kc [m, n] between contexts [m, d_c] and [n, d_c] in deviations; ones without a context."""
    return np.exp(-0.5 * squared_gaps(z, others))
