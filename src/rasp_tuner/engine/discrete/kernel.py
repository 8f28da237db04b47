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

from rasp_tuner.core.distance import pairwise_squares
from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete import compiled
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

    def rows_of(self, knobs: Knobs, points: Array) -> Rows:
        """Of points [n, d]."""
        if knobs.tables is not None:
            return Rows(*knobs.tables.features(points, self.weights))
        return self.rows(*knobs.features(points))

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
    if knobs.tables is not None:
        arrays = (gaps, kc, target, noise_factor, counts)
        found = compiled.evidence(kernel, knobs.tables, rows, *arrays, freedom=freedom, jitter=JITTER)
        if found is not None:
            (gram, inverse, noises, doubt, rivals, gradient), (slope, information) = found
            step = noise_step(slope, information, kernel.noise, repeats)
            return KernelEvidence(gram, inverse, step, noises, doubt, rivals, gradient)
    usual = kernel.noise / counts
    noises = usual * noise_factor + JITTER
    made = Matrices(kernel, rows, kc, noises)
    inverse = inverted(made.matrix)
    alpha = inverse @ target
    by_noise, own = noises * alpha, inverse.diagonal()
    errors = by_noise**2 + np.maximum(noises - noises**2 * own, 0.0)
    means = target - by_noise  # of the rows, in their own contexts
    by_row, rivals, sums = made.slopes(inverse, alpha, gaps, means)
    by_linear, by_near, by_kc, by_gaps, by_gram_gaps, by_gram, by_gram_kc, information = sums
    step = noise_step(float((alpha**2 - own) @ noises), information, kernel.noise, repeats)
    by_step = by_row @ rows.steps**2 - (rows.steps * (made.rugged @ rows.steps)).sum(axis=0)  # [q]
    of_contexts = kernel.level * kernel.vc
    gradient = np.empty(WEIGHTS + knobs.dim)
    gradient[VA] = by_linear
    gradient[VP] = by_row.sum()
    gradient[LENGTH] = -by_near
    gradient[VC] = of_contexts * by_kc
    gradient[WIDTH] = (of_contexts * by_gaps + (1.0 - kernel.rho) * by_gram_gaps) / kernel.width**2
    gradient[RHO] = kernel.rho * (1.0 - kernel.rho) * (by_gram - by_gram_kc)
    gradient[NOISE] = 0.0  # it has a step of its own
    gradient[WEIGHTS:] = -2.0 * np.bincount(knobs.step_knob, kernel.weights * by_step, knobs.dim)
    gradient *= 0.5
    doubt = (freedom + errors / usual) / (freedom + 1.0)
    return KernelEvidence(made.gram, inverse, step, noises, doubt, rivals, gradient)


class Matrices:
    """The matrices [n, n] of all rows at a refit."""

    def __init__(self, kernel: Kernel, rows: Rows, kc: Array, noises: Array) -> None:
        self._kc, self._noises = kc, noises
        self._near = kernel.nearness(rows, rows)
        self.rugged = np.exp(self._near)
        self.rugged *= kernel.vp
        self._linear = (kernel.va * rows.phi) @ rows.phi.T
        self.gram = self._linear + self.rugged
        self._blend = kernel.blend(kc)
        self.matrix, self._spare = kernel.base(kc), self.gram * self._blend  # new memory costs more than such sums
        self.matrix += self._spare
        self.matrix.reshape(-1)[:: len(noises) + 1] += noises  # the diagonal

    def slopes(self, inverse: Array, alpha: Array, gaps: Array, means: Array) -> tuple[Array, Array, list[float]]:
        """[n] the rugged part of the gradient summed, [n] rivals, and the other sums that `evidence` needs.

        The gradient is 1/2 sum rest * dK, rest = alpha alpha' - inverse. `rugged` becomes its part of it, and the
        matrix is used up.
        """
        kc, spare, rest = self._kc, self._spare, self.matrix
        rivals: Array = np.multiply(kc, means < means[:, None], out=spare).sum(axis=1)
        information = float(self._noises @ (np.multiply(inverse, inverse, out=spare) @ self._noises))
        np.multiply(alpha[:, None], alpha, out=rest)
        rest -= inverse
        by_gram = np.multiply(rest, self._blend, out=self._blend)
        self.rugged *= by_gram
        by_linear, by_near = np.vdot(by_gram, self._linear), np.vdot(self.rugged, self._near)
        by_gaps = np.multiply(rest, kc, out=spare)  # times the slope of k in kc
        sums = [by_linear, by_near, by_gaps.sum(), np.vdot(by_gaps, gaps)]
        by_gaps *= self.gram
        sums += [np.vdot(by_gaps, gaps), np.vdot(rest, self.gram), by_gaps.sum(), information]
        return self.rugged.sum(axis=1), rivals, [float(one) for one in sums]


def likeness(contexts: Array, width: float) -> tuple[Array, Array]:
    """gaps and kc [n, n] between standardised contexts [n, d_c]."""
    if compiled.ready():
        return compiled.likeness(contexts, width)
    gaps = pairwise_squares(contexts / math.sqrt(max(1, contexts.shape[1])))
    return gaps, np.exp(gaps * (-0.5 / width**2))


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


def sampled_effects(va: float, covariance: Array, effects: Array, draws: Array) -> Array:
    """Main effects [m, p] by normal draws [m, p]; the covariance [p, p] lacks its prior, va, and is used up."""
    covariance.reshape(-1)[:: len(covariance) + 1] += va  # the diagonal
    sampled: Array = effects + draws @ root(covariance).T
    return sampled


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
    return _with_border(changed, row, edge, corner)


def _with_border(matrix: Array, row: int, edge: Array, corner: float) -> Array:
    """In place."""
    matrix[row, : len(edge)] = matrix[: len(edge), row] = edge
    matrix[row, row] = corner
    return matrix


def with_row(inverse: Array, row: int, cross: Array, variance: float, least: float) -> Array:
    """The inverse [n, n] of a matrix that gets a row and column: in the place of others, or as the last.

    `cross` [n] is the new column, `variance` its own entry, which the others explain but for `least`.
    """
    size = max(len(inverse), row + 1)
    if row == len(inverse):
        reach = inverse @ cross
        rest = max(variance - float(cross @ reach), least)
        changed = _updated(inverse, [reach / rest], [reach], size)
    else:
        cross[row] = 0.0
        gone = inverse[row] / math.sqrt(inverse[row, row])
        reach = inverse @ cross - gone * float(gone @ cross)
        rest = max(variance - float(cross @ reach), least)
        changed = _updated(inverse, [reach / rest, -gone], [reach, gone], size)
    return _with_border(changed, row, -reach / rest, 1.0 / rest)


def with_noise(inverse: Array, row: int, change: float) -> Array:
    """The inverse of a matrix that changes by so much at one place of its diagonal."""
    if compiled.ready():
        return compiled.with_noise(inverse, row, change)
    column = inverse[row]
    by = -change / (1.0 + change * float(column[row]))
    return _updated(inverse, [column * by], [column], len(inverse))


def _updated(matrix: Array, left: list[Array], right: list[Array], size: int) -> Array:
    """The matrix plus the sum of left_i right_i', in the corner of a new one [size, size]."""
    if compiled.ready():
        return compiled.updated(matrix, np.array(left), np.array(right), size)
    changed: Array = np.empty((size, size))
    corner = changed[: len(matrix), : len(matrix)]
    np.matmul(np.array(left).T, np.array(right), out=corner)
    corner += matrix
    return changed


def clipped(array: Array, low: float | Array, high: float | Array) -> Array:
    """As np.clip, which takes several times as long for a few numbers."""
    return np.minimum(np.maximum(array, low), high)


def standard(contexts: Array, middle: Array, width: Array) -> Array:
    return clipped((contexts - middle) / width, -1e4, 1e4)
