"""The hierarchical kernel of the discrete family and its evidence, as functions over arrays.

k = b (1 + v_c kc) + (v_a phi'phi + v_p exp(-D)) (rho + (1 - rho) kc),   kc = exp(-gaps / (2 h^2))

symbol     shape      meaning
phi        [n, p]     main effects of points, steps [n, q] their thresholds (knobs.py)
D          [n, m]     weighted count of the steps that differ, in units of a length l
gaps       [n, m]     mean squared gap between standardised contexts
gram       [n, m]     v_a phi'phi + v_p exp(-D): the part that knows points only
b          scalar     variance of the level of y between contexts, where that within a context is one
theta      [7 + d]    logarithms of v_a, v_p, l, h, s2 and v_c, logit of rho, then logarithms of the knobs' weights in D
"""

import math
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete.knobs import Knobs

VA, VP, LENGTH, WIDTH, NOISE, VC, RHO, WEIGHTS = range(8)  # places in theta; weights take the rest
JITTER = 1e-6  # keeps matrices of equal points regular
NOISE_PRIOR, NOISE_LOOSE = math.log(0.03), 3.0  # expected log s2, and its deviation
NOISE_STEP = 1.0  # the most that log s2 moves at a refit


@dataclass(frozen=True)
class Kernel:
    """Hyperparameters as numbers; the target has a variance of about one within a context."""

    va: float
    vp: float
    width: float  # h
    noise: float  # s2, of one sample
    vc: float
    rho: float
    level: float  # b
    weights: Array  # [q] of each step in D, the length included

    @classmethod
    def of(cls, theta: Array, level: float, knobs: Knobs) -> "Kernel":
        va, vp, length, width, noise, vc = (float(x) for x in np.exp(theta[:RHO]))
        own = np.exp(theta[WEIGHTS:]) / knobs.dim
        rho = float(1.0 / (1.0 + np.exp(-theta[RHO])))
        return cls(va, vp, width, noise, vc, rho, level, own[knobs.step_knob] * knobs.step_weight / length)

    def base(self, kc: Array) -> Array:
        """b (1 + v_c kc): the part that knows contexts only."""
        return self.level * (1.0 + self.vc * kc)

    def closeness(self, gaps: Array) -> Array:
        """kc in [0, 1]: how much of one context holds in another."""
        kc: Array = np.exp(gaps * (-0.5 / self.width**2))
        return kc

    def blend(self, kc: Array) -> Array:
        """rho + (1 - rho) kc: how much one context says about points in another."""
        return self.rho + (1.0 - self.rho) * kc

    def distance(self, steps: Array, others: Array) -> Array:
        """D [n, m]."""
        weighted = steps * self.weights
        squares = (weighted * steps).sum(axis=1)[:, None] + (others * others) @ self.weights
        distances: Array = np.maximum(squares - 2.0 * (weighted @ others.T), 0.0)
        return distances

    def gram(self, phi: Array, steps: Array, other_phi: Array, other_steps: Array) -> Array:
        """[n, m]."""
        rugged = np.exp(-self.distance(steps, others=other_steps))
        rugged *= self.vp
        rugged += (self.va * phi) @ other_phi.T
        return rugged


@dataclass(frozen=True)
class KernelEvidence:
    """What one look at all rows gives."""

    gram: Array  # [n, n]
    inverse: Array  # [n, n] of the kernel matrix with its noise
    noise_step: float  # how far log s2 should move
    noises: Array  # [n] as they stand in it
    noise_factor: Array  # [n] times the usual noise that each row seems to have: EM weights of Student-t noise
    rivals: Array  # [n] how many rows of like context are better
    gradient: Array  # [7 + d] of the log evidence in theta


def evidence(
    kernel: Kernel,
    knobs: Knobs,
    phi: Array,
    steps: Array,
    gaps: Array,
    target: Array,
    noise_factor: Array,
    counts: Array,
    freedom: float,
    repeats: tuple[float, float],
) -> KernelEvidence:
    """Rebuild the matrices of rows whose noise variance is s2 noise_factor / counts."""
    linear = kernel.va * (phi @ phi.T)
    far = kernel.distance(steps, steps)
    rugged = kernel.vp * np.exp(-far)
    gram = linear + rugged
    kc = kernel.closeness(gaps)
    blend = kernel.blend(kc)
    matrix = gram * blend
    matrix += kernel.base(kc)
    diagonal = np.diag_indices(len(counts))
    usual = kernel.noise / counts
    noises = usual * noise_factor + JITTER
    matrix[diagonal] += noises
    inverse = np.linalg.inv(matrix)
    inverse = 0.5 * (inverse + inverse.T)
    alpha = inverse @ target
    errors = (noises * alpha) ** 2 + np.maximum(noises - noises**2 * inverse[diagonal], 0.0)
    means = target - noises * alpha  # of the rows, in their own contexts
    rivals = (kc * (means < means[:, None])).sum(axis=1)
    rest = np.outer(alpha, alpha) - inverse  # the gradient is 1/2 sum rest * dK
    by_gram = rest * blend
    by_rugged = by_gram * rugged
    by_gaps = rest * kc  # times the slope of k in kc
    total = kernel.level * kernel.vc * by_gaps.sum()
    by_gaps *= gram
    by_step = (steps**2).T @ by_rugged.sum(axis=1) - (steps * (by_rugged @ steps)).sum(axis=0)  # [q]
    gradient = np.empty(WEIGHTS + knobs.dim)
    gradient[VA] = np.vdot(by_gram, linear)
    gradient[VP] = by_rugged.sum()
    gradient[LENGTH] = np.vdot(by_rugged, far)
    gradient[VC] = total
    gradient[RHO] = kernel.rho * (1.0 - kernel.rho) * (np.vdot(rest, gram) - by_gaps.sum())
    gradient[WIDTH] = (
        kernel.level * kernel.vc * np.einsum("nm,nm,nm", rest, kc, gaps) + (1.0 - kernel.rho) * np.vdot(by_gaps, gaps)
    ) / kernel.width**2
    gradient[NOISE] = 0.0  # it has a step of its own
    gradient[WEIGHTS:] = -2.0 * np.bincount(knobs.step_knob, kernel.weights * by_step, knobs.dim)
    doubt = (freedom + errors / usual) / (freedom + 1.0)
    step = noise_step(rest, inverse, noises, kernel.noise, repeats)
    return KernelEvidence(gram, inverse, step, noises, doubt, rivals, 0.5 * gradient)


def noise_step(rest: Array, inverse: Array, noises: Array, noise: float, repeats: tuple[float, float]) -> float:
    """How far log s2 should move towards where the evidence peaks: one step of Fisher scoring.

    `repeats` are how many samples repeated a row, and the sum of their squared deviations from it.
    """
    count, squares = repeats
    gradient = 0.5 * (float(rest.diagonal() @ noises) + min(squares / noise, 1e6) - count)
    gradient -= (math.log(noise) - NOISE_PRIOR) / NOISE_LOOSE**2
    information = 0.5 * (float(noises @ (inverse**2 @ noises)) + count) + 1.0 / NOISE_LOOSE**2
    return min(max(gradient / information, -NOISE_STEP), NOISE_STEP)


def root(covariance: Array) -> Array:
    """A square root [n, n]; of the diagonal alone where rounding has made the matrix indefinite."""
    diagonal = np.diag_indices(len(covariance))
    padded = covariance.copy()
    padded[diagonal] += 1e-6 * float(covariance[diagonal].max(initial=0.0)) + 1e-12
    try:
        lower = np.linalg.cholesky(padded)
    except np.linalg.LinAlgError:
        return np.diag(np.sqrt(np.maximum(np.diag(padded), 0.0)))
    return lower.astype(np.float64, copy=False)


def updated(matrix: Array, left: Array, right: Array) -> Array:
    """matrix + left right', as a new array."""
    change = np.outer(left, right)
    change += matrix
    return change
