"""Pairs of runs as one number with its interval: how many times the default's metric, and how sure that is.

symbol   shape   meaning
x_i      [n]     log(other / default) of pair i, or other - default where a metric is not positive
m, s     scalar  mean and deviation of x; the interval is m +- t s / sqrt(n), t of Student with n - 1 degrees of freedom

Over several situations the mean of their means counts, each situation the same; its deviation follows from theirs, its
degrees of freedom from Satterthwaite's formula. Each pair ran back to back, in random order, so drift cancels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rasp_tuner.gain.versus_default import LARGEST_LOG, LEVEL

METHOD = "paired t interval on log ratios"


@dataclass(frozen=True, slots=True)
class Effect:
    """Other against default: their ratio, or their difference where a metric is not positive."""

    kind: Literal["ratio", "difference"]
    value: float
    low: float
    high: float
    pairs: int

    @property
    def neutral(self) -> float:
        return 1.0 if self.kind == "ratio" else 0.0

    @property
    def method(self) -> str:
        return METHOD if self.kind == "ratio" else "paired t interval on differences"

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes "no difference"."""
        return not self.low <= self.neutral <= self.high


def effect(situations: Sequence[Sequence[tuple[float, float]]]) -> Effect | None:
    """The effect over all situations of pairs (default, other); None if no situation has a pair.

    >>> found = effect([[(10.0, 5.0), (20.0, 10.0), (8.0, 4.0)]])
    >>> (found.kind, found.value, found.low, found.high)
    ('ratio', 0.5, 0.5, 0.5)
    """
    groups = [np.array(pairs, dtype=np.float64) for pairs in situations if len(pairs)]
    if not groups:
        return None
    positive = all((group > 0.0).all() for group in groups)
    gaps = [np.log(group[:, 1] / group[:, 0]) if positive else group[:, 1] - group[:, 0] for group in groups]
    mean = float(np.mean([gap.mean() for gap in gaps]))
    half = _half_width(gaps)
    pairs = sum(len(gap) for gap in gaps)
    return _ratio(mean, half, pairs) if positive else Effect("difference", mean, mean - half, mean + half, pairs)


def _ratio(mean: float, half: float, pairs: int) -> Effect:
    """From logarithms to ratios."""
    value, low, high = (math.inf if x > LARGEST_LOG else math.exp(x) for x in (mean, mean - half, mean + half))
    return Effect("ratio", value, low, high, pairs)


def _half_width(gaps: Sequence[np.ndarray]) -> float:
    """Half of the interval of the mean of means."""
    if any(len(gap) < 2 for gap in gaps):
        return math.inf
    variances = [float(gap.var(ddof=1)) / len(gap) for gap in gaps]
    total = sum(variances)
    if total <= 0.0:
        return 0.0
    freedom = total**2 / sum(v**2 / (len(gap) - 1) for v, gap in zip(variances, gaps, strict=True))
    return t_quantile(max(1, math.floor(freedom + 1e-9))) * math.sqrt(total) / len(gaps)


def t_quantile(freedom: int) -> float:
    """Student's t that a fraction LEVEL of absolute values stays below, for whole degrees of freedom.

    >>> [round(t_quantile(n), 3) for n in (1, 2, 9, 30)]
    [12.706, 4.303, 2.262, 2.042]
    """
    low, high = 0.0, 1.0
    while _inside(high, freedom) < LEVEL:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _inside(middle, freedom) < LEVEL else (low, middle)
    return high


def _inside(t: float, freedom: int) -> float:
    """P(|T| <= t), by the finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    if freedom > 1000:
        return math.erf(t / math.sqrt(2.0))
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    term = total = (cosine if freedom > 1 else 0.0) if odd else 1.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total
