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
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete.knobs import Knobs

VA, VP, LENGTH, WIDTH, NOISE, VC, RHO, WEIGHTS = range(8)  # places in theta; weights take the rest
JITTER = 1e-6  # keeps matrices of equal points regular
NOISE_PRIOR, NOISE_LOOSE = math.log(0.03), 3.0  # expected log s2, and its deviation
NOISE_STEP = 1.0  # the most that log s2 moves at a refit
PLAIN_ROWS = 64  # up to which LAPACK inverts a matrix as fast as products of its blocks do
TRIANGLE_ROWS = 32  # the same, of a triangle


class Rows(NamedTuple):
    """Features of points, and what their distances need: worked out once, for they are compared with many."""

    phi: Array  # [n, p]
    steps: Array  # [n, q]
    weighted: Array  # [n, q] twice the steps, each times its weight in D
    sizes: Array  # [n] D of each point to where no step is passed


class Kernel(NamedTuple):
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
        grown = np.exp(theta)
        va, vp, length, width, noise, vc, odds = grown[:WEIGHTS].tolist()
        weights = grown[WEIGHTS:][knobs.step_knob] * knobs.step_weight
        weights /= knobs.dim * length
        return cls(va, vp, width, noise, vc, odds / (1.0 + odds), level, weights)

    def base(self, kc: Array) -> Array:
        """b (1 + v_c kc): the part that knows contexts only."""
        base: Array = (self.level * self.vc) * kc
        base += self.level
        return base

    def closeness(self, gaps: Array) -> Array:
        """kc in [0, 1]: how much of one context holds in another."""
        kc: Array = gaps * (-0.5 / self.width**2)
        return np.exp(kc, out=kc)

    def blend(self, kc: Array) -> Array:
        """rho + (1 - rho) kc: how much one context says about points in another."""
        blend: Array = (1.0 - self.rho) * kc
        blend += self.rho
        return blend

    def rows(self, phi: Array, steps: Array) -> Rows:
        weighted = steps * self.weights
        return Rows(phi, steps, 2.0 * weighted, (weighted * steps).sum(axis=1))

    def nearness(self, some: Rows, others: Rows) -> Array:
        """-D [n, m]; may round above zero."""
        near: Array = some.steps @ others.weighted.T
        near -= others.sizes
        near -= some.sizes[:, None]
        return near

    def gram(self, some: Rows, others: Rows) -> Array:
        """[n, m]."""
        near = self.nearness(some, others)
        rugged: Array = np.exp(near, out=near)
        rugged *= self.vp
        rugged += (self.va * some.phi) @ others.phi.T
        return rugged

    def variances(self, phi: Array) -> Array:
        """[n] of points before anything is known."""
        own: Array = (phi * phi).sum(axis=1)
        own *= self.va
        own += self.level * (1.0 + self.vc) + self.vp
        return own


class KernelEvidence(NamedTuple):
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
    rows: Rows,
    gaps: Array,
    kc: Array,
    target: Array,
    noise_factor: Array,
    counts: Array,
    freedom: float,
    repeats: tuple[float, float],
) -> KernelEvidence:
    """Rebuild the matrices of rows whose noise variance is s2 noise_factor / counts."""
    near = kernel.nearness(rows, rows)
    rugged = np.exp(near)
    rugged *= kernel.vp
    linear = (kernel.va * rows.phi) @ rows.phi.T
    gram = linear + rugged
    blend = kernel.blend(kc)
    matrix, spare = kernel.base(kc), gram * blend  # spare: new memory costs more than the sums that go into it
    matrix += spare
    usual = kernel.noise / counts
    noises = usual * noise_factor + JITTER
    matrix.reshape(-1)[:: len(counts) + 1] += noises  # the diagonal
    inverse = inverted(matrix)
    alpha = inverse @ target
    by_noise, own = noises * alpha, inverse.diagonal()
    errors = by_noise**2 + np.maximum(noises - noises**2 * own, 0.0)
    means = target - by_noise  # of the rows, in their own contexts
    rivals = np.multiply(kc, means < means[:, None], out=spare).sum(axis=1)
    information = float(noises @ (np.multiply(inverse, inverse, out=spare) @ noises))
    step = noise_step(float((alpha**2 - own) @ noises), information, kernel.noise, repeats)
    rest = np.multiply(alpha[:, None], alpha, out=matrix)
    rest -= inverse  # the gradient is 1/2 sum rest * dK
    by_gram = np.multiply(rest, blend, out=blend)
    by_rugged = np.multiply(by_gram, rugged, out=rugged)
    by_row = by_rugged.sum(axis=1)
    by_step = by_row @ rows.steps**2 - (rows.steps * (by_rugged @ rows.steps)).sum(axis=0)  # [q]
    gradient = np.empty(WEIGHTS + knobs.dim)
    gradient[VA] = np.vdot(by_gram, linear)
    gradient[VP] = by_row.sum()
    gradient[LENGTH] = -np.vdot(by_rugged, near)
    by_gaps = np.multiply(rest, kc, out=spare)  # times the slope of k in kc
    gradient[VC] = kernel.level * kernel.vc * by_gaps.sum()
    width = kernel.level * kernel.vc * np.vdot(by_gaps, gaps)
    by_gaps *= gram
    gradient[WIDTH] = (width + (1.0 - kernel.rho) * np.vdot(by_gaps, gaps)) / kernel.width**2
    gradient[RHO] = kernel.rho * (1.0 - kernel.rho) * (np.vdot(rest, gram) - by_gaps.sum())
    gradient[NOISE] = 0.0  # it has a step of its own
    gradient[WEIGHTS:] = -2.0 * np.bincount(knobs.step_knob, kernel.weights * by_step, knobs.dim)
    gradient *= 0.5
    doubt = (freedom + errors / usual) / (freedom + 1.0)
    return KernelEvidence(gram, inverse, step, noises, doubt, rivals, gradient)


def inverted(matrix: Array) -> Array:
    """The inverse of a positive definite matrix, symmetric to the last digit."""
    if len(matrix) > PLAIN_ROWS:
        try:
            half = _inverted_triangle(np.linalg.cholesky(matrix).astype(np.float64, copy=False))
        except np.linalg.LinAlgError:
            pass  # rounding made it indefinite
        else:
            return half.T @ half
    inverse = np.linalg.inv(matrix).astype(np.float64, copy=False)
    return 0.5 * (inverse + inverse.T)


def _inverted_triangle(lower: Array) -> Array:
    """By halves, whose products are many times faster than LAPACK's general inverse."""
    half = len(lower) // 2
    if len(lower) <= TRIANGLE_ROWS:
        return np.linalg.inv(lower).astype(np.float64, copy=False)
    inverse = np.zeros_like(lower)
    first, second = _inverted_triangle(lower[:half, :half]), _inverted_triangle(lower[half:, half:])
    inverse[:half, :half], inverse[half:, half:] = first, second
    inverse[half:, :half] = -(second @ (lower[half:, :half] @ first))
    return inverse


def noise_step(slope: float, information: float, noise: float, repeats: tuple[float, float]) -> float:
    """How far log s2 should move towards where the evidence peaks: one step of Fisher scoring.

    `slope` and `information` are twice those that the rows give. `repeats` are how many samples repeated a row, and the
    sum of their squared deviations from it.
    """
    count, squares = repeats
    gradient = 0.5 * (slope + min(squares / noise, 1e6) - count)
    gradient -= (math.log(noise) - NOISE_PRIOR) / NOISE_LOOSE**2
    curvature = 0.5 * (information + count) + 1.0 / NOISE_LOOSE**2
    return min(max(gradient / curvature, -NOISE_STEP), NOISE_STEP)


def root(covariance: Array) -> Array:
    """A square root [n, n]; of the diagonal alone where rounding has made the matrix indefinite.

    The matrix changes: what keeps it regular is added to its diagonal.
    """
    diagonal = covariance.reshape(-1)[:: len(covariance) + 1]
    diagonal += 1e-6 * max(float(diagonal.max()), 0.0) + 1e-12
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return np.diag(np.sqrt(np.maximum(diagonal, 0.0)))
    return lower.astype(np.float64, copy=False)


def bordered(matrix: Array, row: int, edge: Array, corner: float) -> Array:
    """The matrix with this row and column, in the place of old ones or as the last; a new array."""
    size = max(len(matrix), row + 1)
    changed = np.empty((size, size))
    changed[: len(matrix), : len(matrix)] = matrix
    changed[row, : len(edge)] = changed[: len(edge), row] = edge
    changed[row, row] = corner
    return changed


def with_row(inverse: Array, row: int, cross: Array, variance: float, least: float) -> Array:
    """The inverse [n, n] of a matrix that gets a row and column: in the place of others, or as the last.

    `cross` [n] is the new column, `variance` its own entry, which the others explain but for `least`.
    """
    if row == len(inverse):
        reach = inverse @ cross
        rest = max(variance - float(cross @ reach), least)
        changed = _updated(inverse, [reach / rest], [reach])
    else:
        cross[row] = 0.0
        gone = inverse[row] / math.sqrt(inverse[row, row])
        reach = inverse @ cross - gone * float(gone @ cross)
        rest = max(variance - float(cross @ reach), least)
        changed = _updated(inverse, [reach / rest, -gone], [reach, gone])
    return bordered(changed, row, -reach / rest, 1.0 / rest)


def with_noise(inverse: Array, row: int, change: float) -> Array:
    """The inverse of a matrix that changes by so much at one place of its diagonal."""
    column = inverse[row]
    return _updated(inverse, [column * (-change / (1.0 + change * float(column[row])))], [column])


def _updated(matrix: Array, left: list[Array], right: list[Array]) -> Array:
    """The matrix plus the sum of left_i right_i', as a new array."""
    change: Array = np.array(left).T @ np.array(right)
    change += matrix
    return change


def clipped(array: Array, low: float | Array, high: float | Array) -> Array:
    """As np.clip, which takes several times as long for a few numbers."""
    return np.minimum(np.maximum(array, low), high)


def standard(contexts: Array, middle: Array, width: Array) -> Array:
    return clipped((contexts - middle) / width, -1e4, 1e4)
