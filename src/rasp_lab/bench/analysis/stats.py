"""Confidence intervals, the paper's paired t-test, and Holm's correction over domains."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from rasp_tuner.base.numerics import Array


def confidence(values: Array, level: float = 0.95) -> float:
    """Half-width of the t interval of the mean; NaN for a single value."""
    return float(confidences(values[:, None], level)[0])


def confidences(values: Array, level: float = 0.95) -> Array:
    """Half-widths [m] of the t intervals of the means over the rows of values [n, m]; NaN for a single row."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1], np.nan)
    half: Array = stats.t.ppf(0.5 + level / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return half


def paired_p(ours: Array, theirs: Array) -> float:
    """Two-sided p of the paired t-test; 1 where all differences are zero, NaN for a single pair."""
    gaps = ours - theirs
    if len(gaps) < 2:
        return float("nan")
    spread = gaps.std(ddof=1)
    if spread <= 1e-12 * max(1.0, float(np.abs(gaps).max())):  # the same gap every time: no test is needed
        return 1.0 if abs(float(gaps.mean())) <= 1e-12 else 0.0
    return float(stats.ttest_rel(ours, theirs).pvalue)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down adjusted p-values, by name; a NaN stays one and does not count."""
    known = {name: p for name, p in p_values.items() if not np.isnan(p)}
    order: Sequence[str] = sorted(known, key=lambda name: known[name])
    adjusted, highest = dict(p_values), 0.0
    for rank, name in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * known[name]))
        adjusted[name] = highest
    return adjusted
