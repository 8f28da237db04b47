"""Bill: what own steps have cost against the default, in hindsight.

Of every row it is known how often it ran as a suggestion. What all of them have cost is one linear functional of
today's belief: the sum over rows of runs times (loss of the row's point - loss of the default, in the row's context).
So it has a mean and a variance, and nothing is booked once and for all: when a setting that ran thirty times turns out
to be better, all thirty count at once. Steps that rest on one doubtful run of the default share its error, and the
variance says so.

symbol     shape    meaning
gap        [n]      expected f of each row's point less that of the default, in the row's context
beside     [n, n]   prior covariance of the first's gap with the second's f
between    [n, n]   prior covariance of two gaps
weight     [n]      what a rise of the row's gap by one adds to the bill
"""

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import squared_gaps
from rasp_tuner.engine.family import Prices
from rasp_tuner.engine.gp import native_gp
from rasp_tuner.engine.gp.model import VC, VR, VT, Fit, covariance
from rasp_tuner.engine.gp.posterior import ContextPosterior

SMALL_STEP = 1e-6  # in units of a: for the slope of a price


class HindsightBill:
    """Of n rows that were suggested `own` [n] times; in steps of the default's loss."""

    def __init__(self, fit: Fit, own: Array, prices: Prices) -> None:
        self._fit, self._weights = fit, np.empty((2, len(own)))  # of the rows; what is left of them beside the rows
        if fit.native is not None:
            told = (fit.center, fit.unit, fit.scale / fit.unit)
            self._weights, figures = native_gp.bill(fit.knobs.compiled(), fit.native, own, prices, *told)
            self.spent, self.earned, self.variance = figures
            return
        beside, between = _beside(fit)
        expected = (fit.rows.y - fit.center) / fit.scale - fit.noises * fit.alpha
        gap = fit.rows.features.mean + beside @ fit.alpha
        level = fit.center + fit.scale * (expected - gap)
        shares = prices.shares(level, fit.scale * gap)
        slopes = (prices.shares(level, fit.scale * (gap + SMALL_STEP)) - shares) / SMALL_STEP
        costs, weight = own * shares, own * slopes
        self.spent, self.earned = float(costs.clip(0.0).sum()), float((-costs).clip(0.0).sum())
        with_rows = weight @ beside
        solution = fit.half.T @ (fit.half @ with_rows)  # type: ignore[union-attr, operator]
        self.variance = max(float(weight @ between @ weight - with_rows @ solution), 0.0)
        self._weights[:] = weight, weight - solution

    def covariance(self, here: ContextPosterior, point: Array) -> float:
        """Of the bill and of the gap of a point here, which is in units of a."""
        if here.native is not None:
            return here.native.billed(self._weights, point)
        fit, w, (weight, left), kc, share = self._fit, self._fit.weights, self._weights, here.kc, here.share
        f, rows = fit.knobs.features(np.stack([point, fit.knobs.default])), fit.rows.features
        more = f.effects[0] - f.effects[1]
        effects = w.effects * ((left * share) @ rows.effects) + w.choices * ((left * kc) @ rows.effects)
        curved = fit.knobs.curved_variance * (left @ rows.curved)
        embedded = f.embedding * w.embedding
        near = w.h[VR] * np.exp(-0.5 * squared_gaps(embedded, rows.embedding * w.embedding))
        moved = more @ effects + f.curved[0] @ curved + (near[0] - near[1]) @ (left * (share + w.turning * kc))
        # the default itself, in the rows' contexts
        own = (w.effects * f.effects[1]) @ more
        apart = w.h[VR] * (np.exp(-0.5 * squared_gaps(embedded[:1], embedded[1:])[0, 0]) - 1.0)
        choice = (w.choices * f.effects[1]) @ more + w.turning * apart
        return float(moved - (own + apart) * (weight @ share) - choice * (weight @ kc))


def _beside(fit: Fit) -> tuple[Array, Array]:
    knobs, w, h = fit.knobs, fit.weights, fit.weights.h
    rows, at = fit.rows.features, knobs.features(knobs.default[None])
    lin, choice = rows.effects @ (w.effects * at.effects[0]), rows.effects @ (w.choices * at.effects[0])
    embedded = at.embedding * w.embedding
    near = h[VR] * np.exp(-0.5 * squared_gaps(embedded, rows.embedding * w.embedding)[0])
    lin, choice = lin + near, choice + w.turning * near
    own = (w.effects * at.effects[0]) @ at.effects[0] + h[VR]
    own_choice = (w.choices * at.effects[0]) @ at.effects[0] + w.turning * h[VR]
    parts = covariance(w, knobs, fit.rows, fit.z)
    level = w.level + h[VC] * parts.kc + h[VT] * parts.kt
    default = level + lin * parts.sharing + choice * parts.kc  # [r, j]: the default in the context of r, and row j
    both = level + own * parts.sharing + own_choice * parts.kc
    return parts.whole - default, parts.whole - default - default.T + both
