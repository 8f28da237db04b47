"""ContextPosterior: what a fit says about settings in one context. Means and covariances are in units of a (model.py).

symbol     shape    meaning
kc         [n]      how alike this context is to each row's
share      [n]      gs + gc kc + gt kt: how much of a row's effects holds here, now
base       [n]      v0 + vc kc + vt kt
"""

from functools import cached_property

import numpy as np

from rasp_tuner.base.common_constants import RECENT_STEPS
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import likeness, squared_gaps
from rasp_tuner.engine.gp.model import GC, GS, GT, VC, VR, VT, Fit
from rasp_tuner.engine.gp.native_gp import Features, NativeHere

LEAST_VARIANCE = 1e-12  # in units of a^2: by rounding it may be below 0


class ContextPosterior:
    """Good for as long as its fit is: until the family has learned twice."""

    def __init__(self, fit: Fit, context: Array, now: float) -> None:
        self.fit, self.context = fit, context
        h, rows = fit.weights.h, fit.rows
        self.native: NativeHere | None = None
        if fit.native is not None:
            self.native = NativeHere(fit.knobs.compiled(), fit.native, context, now)
            self.kc: Array = self.native.kc
            return
        self.kc = likeness(fit.metric.z(context, fit.weights.relevance)[None], fit.z)[0]
        kt = np.exp(-(now - rows.times) / RECENT_STEPS)
        self.share: Array = h[GS] + h[GC] * self.kc + h[GT] * kt
        self.base: Array = fit.weights.level + h[VC] * self.kc + h[VT] * kt
        self.own_share, self.own_base = h[GS] + h[GC] + h[GT], fit.weights.level + h[VC] + h[VT]

    @cached_property
    def visits(self) -> float:
        """How many samples there are of situations like this one."""
        return float(self.kc @ self.fit.rows.counts) if self.native is None else self.native.visits

    def default_runs(self) -> tuple[float, float]:
        """How many samples of such situations are of the default, by trust; how many rows are."""
        if self.native is not None:
            return self.native.at_default, self.native.defaults
        rows, default = self.fit.rows, self.fit.knobs.default
        runs = (rows.points == default).all(axis=1)
        return float(self.kc @ np.where(runs, rows.counts * rows.trust, 0.0)), float(runs.sum())

    @cached_property
    def _linear(self) -> tuple[Array, Array, float, Array]:
        """The mean's coefficients: of effects [p], of curved ones [q], constant, and of the residual [n]."""
        fit, f, w = self.fit, self.fit.rows.features, self.fit.weights
        shared = self.share * fit.alpha
        effects = w.effects * (shared @ f.effects) + w.choices * ((self.kc * fit.alpha) @ f.effects)
        return (
            effects,
            fit.knobs.curved_variance * (fit.alpha @ f.curved),
            float(self.base @ fit.alpha),
            self._of_residual() * fit.alpha,
        )

    def linear_means(self) -> Array:
        """[n] the mean at the rows' points here without the residual, up to a constant."""
        f = self.fit.rows.features
        effects, curved = self._linear[:2]
        linear: Array = f.mean + f.effects @ effects + f.curved @ curved
        return linear

    def effects_mean(self, points: Array) -> Array:
        """[m] the mean at points [m, d] without the residual, up to a constant."""
        f = self.fit.knobs.features(points)
        effects, curved = self._linear[:2] if self.native is None else (self.native.effects, self.native.curved)
        mean: Array = f.mean + f.effects @ effects + f.curved @ curved
        return mean

    def mean(self, points: Array) -> Array:
        """[m] at points [m, d]; in NumPy."""
        f = self.fit.knobs.features(points)
        effects, curved, constant, residual = self._linear
        mean: Array = f.mean + f.effects @ effects + f.curved @ curved + constant + self._residual(f) @ residual
        return mean

    def joint(self, points: Array) -> tuple[Array, Array]:
        """Mean [m] and covariance [m, m]."""
        if self.native is not None:
            return self.native.joint(points)
        fit, w = self.fit, self.fit.weights
        f = fit.knobs.features(points)
        cross = self._cross(f)
        reach: Array = fit.half @ cross.T  # type: ignore[operator]  # it is there without compiled code
        embedded = f.embedding * w.embedding
        residual = w.h[VR] * np.exp(-0.5 * squared_gaps(embedded, embedded))
        own = self.own_share * ((f.effects * w.effects) @ f.effects.T + residual) + w.turning * residual
        own += (
            (f.effects * w.choices) @ f.effects.T + (f.curved * fit.knobs.curved_variance) @ f.curved.T + self.own_base
        )
        own -= reach.T @ reach
        return f.mean + cross @ fit.alpha, own

    def marginal(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m]."""
        if self.native is not None:
            return self.native.marginal(points)
        fit, w = self.fit, self.fit.weights
        f = fit.knobs.features(points)
        cross = self._cross(f)
        reach: Array = fit.half @ cross.T  # type: ignore[operator]  # it is there without compiled code
        own = self.own_share * (f.effects**2 @ w.effects + w.h[VR]) + w.turning * w.h[VR] + f.effects**2 @ w.choices
        variance: Array = own + f.curved**2 @ fit.knobs.curved_variance + self.own_base - (reach**2).sum(axis=0)
        return f.mean + cross @ fit.alpha, variance

    def _of_residual(self) -> Array:
        """[n] how much of a row's residual holds here, now."""
        shares: Array = self.share + self.fit.weights.turning * self.kc
        return shares

    def _residual(self, f: Features) -> Array:
        """[m, n] without sharing."""
        fit, w = self.fit, self.fit.weights
        gaps = squared_gaps(f.embedding * w.embedding, fit.rows.features.embedding * w.embedding)
        residual: Array = w.h[VR] * np.exp(-0.5 * gaps)
        return residual

    def _cross(self, f: Features) -> Array:
        """Covariance [m, n] of points here and the rows."""
        w, rows = self.fit.weights, self.fit.rows.features
        cross = ((f.effects * w.effects) @ rows.effects.T) * self.share + self._residual(f) * self._of_residual()
        cross += ((f.effects * w.choices) @ rows.effects.T) * self.kc
        cross += (f.curved * self.fit.knobs.curved_variance) @ rows.curved.T
        cross += self.base
        return cross
