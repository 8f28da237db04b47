"""SharedShape: what all situations have in common, and the prior it gives a bowl that is not known yet.

symbol    shape   meaning
a         scalar  the curvature all situations share: the unit that coefficients are measured in
rho a^2           variance of one observation
G, b      [p, p]  sums of phi phi' over samples; [p] of phi y
"""

import math
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array, softmax

OPTIMUM_VARIANCE = 0.25  # of an optimum around the default
OWN_DEVIATION, COMMON_DEVIATION = 0.3, 0.4  # of a knob's own curvature and of the common one, in units of a
OWN_DEVIATION_LEAST = 0.1  # of the first, once the knobs' curvatures are known
LEVEL_VARIANCE = 25.0  # of the least y, in units of a, while nothing is known
LARGEST_LEVEL = 1e30  # in units of a: a metric that jumps must not overflow
TINY = 1e-100  # a curvature where y is constant, so that no logarithm sees a zero
NOISES = np.array([1e-4, 1e-3, 1e-2, 1e-1, 1.0])  # rho that the curvature is estimated with
NOISE_ODDS = 2.0  # nats against each but the one before
CURVATURE_RATE = 0.3  # of one step towards the curvature that is likeliest now
RATE = 0.1  # of one step towards what the leading expert sees


@dataclass(frozen=True, slots=True)
class Prior:
    """Of the coefficients, in units of a, level left out."""

    mean: Array  # [p]
    precision: Array  # [p, p]
    pull: Array  # [p] their product
    level_variance: float


class SharedShape:
    """Curvature and level of the quadratics, and each knob's part in the curvature; tracked slowly."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.curvature = 0.0  # 0 until it is known
        self.level, self.level_variance = 0.0, 4.0  # of the least y; its variance in units of a
        self.largest = 0.0  # deviation of y, slowly forgotten
        self.tracked = 0  # samples so far
        self.shape = np.ones(dim)  # curvature of each knob relative to the others
        self._mean = np.concatenate([[dim * OPTIMUM_VARIANCE], np.zeros(dim), np.ones(dim)])
        self._precision = np.diag(np.concatenate([[0.0], np.full(dim, 0.25 / OPTIMUM_VARIANCE), np.ones(dim)]))
        self.prior = self.blank = self._make_prior()  # the latter is the prior before any sample
        self.blank_covariance = np.asarray(np.linalg.inv(self.blank.precision), dtype=np.float64)

    def track(self, curvatures: Array, least: float, likeliest: float, spread: float | None) -> None:
        """Move towards what is seen now.

        That is the curvatures [d] and the least y of the leading expert, and the likeliest curvature of all; the first
        of these begins it. `spread` is that of y, where it was looked at.
        """
        if not self.curvature:
            self.curvature, self.level = likeliest, least
        gap = least - self.level
        self.level += RATE * gap
        self.level_variance += RATE * (min(abs(gap) / self.curvature, 1e6) ** 2 - self.level_variance)
        mean = float(curvatures.sum()) / self.dim
        self.shape += RATE * (np.minimum(np.maximum(curvatures / mean, 0.2), 4.0) - self.shape)
        self.shape /= float(self.shape.sum()) / self.dim
        self.curvature *= min(max(likeliest / self.curvature, 0.3), 3.0) ** CURVATURE_RATE
        self.largest *= 0.995
        if spread is not None:
            self.largest = max(spread, self.largest)
        if self.largest > 0.0:
            self.curvature = min(max(self.curvature, 0.1 * self.largest), 100.0 * self.largest)

    def refresh(self) -> None:
        """Make the prior anew of what is known now."""
        self.prior = self._make_prior()

    def reset(self) -> None:
        """The target means something else now."""
        self.curvature, self.tracked, self.largest, self.level_variance = 0.0, 0, 0.0, 4.0
        self.refresh()

    def outliers_found(self, a: float) -> None:
        """False measurements had bent what is shared: without them the curvature is `a` at most."""
        if self.curvature:
            self.curvature, self.largest = min(self.curvature, a), 0.0
            self.refresh()

    def centred_level(self, offset: float, a: float) -> float:
        """Level of the least y, less the offset, in units of a; 0 while it is unknown."""
        if not self.curvature:
            return 0.0
        return min(max((self.level - offset) / a, -LARGEST_LEVEL), LARGEST_LEVEL)

    def estimate(self, G: Array, b: Array, rest: float, level: float) -> float:
        """The likeliest curvature, whatever the noise; `rest` is the sum of y^2, `level` the expected least y.

        For each noise the evidence is largest at one curvature, in closed form; then the noises are weighed by it.
        """
        prior, n = self.prior, max(float(G[0, 0]), TINY)
        b, rest = b - level * G[:, 0], rest - level * (2.0 * float(b[0]) - level * n)
        precision = G / NOISES[:, None, None] + prior.precision
        sides = np.empty((len(NOISES), len(b), 2))
        sides[..., 0], sides[..., 1] = b / NOISES[:, None], prior.pull
        by_data, by_prior = np.moveaxis(np.linalg.solve(precision, sides), 2, 0)
        square = np.maximum((rest - by_data @ b) / NOISES, max(1e-20 * abs(rest), TINY**2) / NOISES)
        linear = by_prior @ b / NOISES
        root = np.sqrt(linear**2 + 4.0 * n * square)
        a = np.where(linear >= 0.0, 2.0 * square / (root + np.abs(linear)), (root - linear) / (2.0 * n))
        a = np.maximum(a, TINY)  # that of answers without noise may be 0
        evidence = linear / a - 0.5 * square / a**2 - n * np.log(a) - 0.5 * by_prior @ (G @ prior.mean) / NOISES
        evidence -= 0.5 * (n * np.log(NOISES) + np.linalg.slogdet(precision)[1]) + NOISE_ODDS * np.arange(len(NOISES))
        # plus a little: too steep is safer than too flat
        logs = np.log(a) + np.minimum(0.5 / np.maximum(2.0 * square / a**2 - linear / a, 0.5), 1.0)
        return max(float(np.exp(softmax(evidence) @ logs)), TINY)

    def _make_prior(self) -> Prior:
        d, known = self.dim, self.curvature > 0.0
        level_variance = min(LEVEL_VARIANCE, max(4.0 * self.level_variance, 0.01)) if known else LEVEL_VARIANCE
        own = OWN_DEVIATION
        if known:
            own = max(OWN_DEVIATION_LEAST, OWN_DEVIATION / math.sqrt(1.0 + self.tracked / 20.0))
        mean, precision = self._mean.copy(), self._precision.copy()
        if known:
            mean[1 + d :] = self.shape
        precision[0, 0] = 1.0 / (level_variance + 0.1 * d * known)
        precision[1 + d :, 1 + d :] -= COMMON_DEVIATION**2 / (own**2 + d * COMMON_DEVIATION**2)
        precision[1 + d :, 1 + d :] /= own**2
        return Prior(mean, precision, precision @ mean, level_variance)
