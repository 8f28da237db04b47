"""A Gaussian process fitted by the marginal likelihood, with what the agents need: slopes, draws, long contexts.

symbol  shape      meaning
x       [n, D]     inputs: the first D_own coordinates with a length scale each, the others with one between them
gaps    [L, n, m]  squared differences, one layer for each length scale
r       [n, m]     scaled distance
k       [n, m]     s (1 + sqrt5 r + 5/3 r^2) exp(-sqrt5 r), Matern-5/2; observations add white noise
theta   [2 + L]    logarithms of s, of the length scales and of the noise

scikit-learn's regressor finds the same maximum from the same start (a test compares them), but takes several times as
long: it forms all differences anew and stacks the slopes at every look at the likelihood.
"""

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from rasp_tuner.base.numerics import Array

ROOT5 = math.sqrt(5.0)
JITTER = 1e-10  # keeps the matrix regular
Bounds = tuple[float, float]
THREADS = ThreadpoolController()  # matrices this small are many times faster on one thread: `THREADS.limit(limits=1)`


class GaussianProcess:
    """Fitted once to x [n, D] and y [n]; answers in the units of y."""

    def __init__(
        self,
        x: Array,
        y: Array,
        scales: int,
        *,
        length: Bounds = (1e-2, 1e2),
        signal: Bounds = (1e-3, 1e3),
        noise: Bounds = (1e-5, 1e1),
    ) -> None:
        self.x, self._own = x, scales - 1
        self.centre, self.spread = float(y.mean()), float(y.std()) or 1.0
        start = np.ones(2 + scales)
        start[-2] = math.sqrt(x.shape[1] - scales + 1)  # rows a deviation apart in each tied coordinate still correlate
        start[-1] = 1e-2
        with THREADS.limit(limits=1):
            likelihood = Likelihood(self._gaps(x, x), (y - self.centre) / self.spread)
            box = np.log([signal, *[length] * scales, noise])
            theta: Array = minimize(likelihood, np.log(start), jac=True, method="L-BFGS-B", bounds=box).x
            self._root = likelihood.root(theta)
        self._signal, self.lengths = math.exp(theta[0]), np.exp(theta[1:-1])
        half = solve_triangular(self._root, likelihood.y, lower=True)
        self._weights: Array = solve_triangular(self._root, half, lower=True, trans="T")

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean [m] and covariance [m, m] of the noise-free function at points [m, D]."""
        k = self._kernel(self.x, points)
        half = solve_triangular(self._root, k, lower=True)
        covariance = self._kernel(points, points) - half.T @ half
        return self.centre + self.spread * (k.T @ self._weights), self.spread**2 * covariance

    def draw(self, points: Array, rng: np.random.Generator) -> Array:
        """One function [m] drawn from the posterior."""
        with THREADS.limit(limits=1):
            mean, covariance = self.predict(points)
            values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0.0)  # rounding makes some eigenvalues of a smooth function negative
        drawn: Array = mean + vectors @ (np.sqrt(values) * rng.normal(size=len(mean)))
        return drawn

    def lower_bound(self, point: Array, kappa: float, dim: int) -> tuple[float, Array]:
        """mean - kappa deviation at a point [D], and its slope by the first `dim` coordinates, which are own ones."""
        k, outer = matern(self._gaps(self.x, point[None])[:, :, 0], self._signal, self.lengths)
        slopes = -outer[:, None] * (point[:dim] - self.x[:, :dim]) / self.lengths[:dim] ** 2  # [n, dim]
        half = solve_triangular(self._root, k, lower=True)
        deviation = math.sqrt(max(self._signal - float(half @ half), 1e-12))
        pull = solve_triangular(self._root, half, lower=True, trans="T")
        slope = slopes.T @ self._weights + kappa * (slopes.T @ pull) / deviation
        value = float(k @ self._weights - kappa * deviation)
        return self.centre + self.spread * value, self.spread * slope

    def _kernel(self, a: Array, b: Array) -> Array:
        return matern(self._gaps(a, b), self._signal, self.lengths)[0]

    def _gaps(self, a: Array, b: Array) -> Array:
        own = self._own
        gaps = np.empty((own + 1, len(a), len(b)))
        gaps[:own] = (a.T[:own, :, None] - b.T[:own, None]) ** 2
        tied, others = a[:, own:], b[:, own:]
        squares = (tied**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2.0 * tied @ others.T
        gaps[own] = np.maximum(squares, 0.0)
        return gaps


class Likelihood:
    """Minus the log marginal likelihood of y [n], as a function of theta."""

    def __init__(self, gaps: Array, y: Array) -> None:
        self.gaps, self.y = gaps, y

    def root(self, theta: Array) -> Array:
        """The lower Cholesky factor of the covariance of y."""
        k = matern(self.gaps, math.exp(theta[0]), np.exp(theta[1:-1]))[0]
        lower = self._factor(k, math.exp(theta[-1]))
        if lower is None:
            raise np.linalg.LinAlgError("the covariance is not positive definite")
        return lower

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Its value, and its slope [2 + L]; infinite where the covariance is not positive definite."""
        signal, lengths, noise = math.exp(theta[0]), np.exp(theta[1:-1]), math.exp(theta[-1])
        k, outer = matern(self.gaps, signal, lengths)
        lower = self._factor(k, noise)
        if lower is None:
            return math.inf, np.zeros(len(theta))
        inverse, _ = dpotri(lower, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        alpha = inverse @ self.y
        rest = inverse - alpha[:, None] * alpha  # the slope is 1/2 sum rest * dK
        slope = np.empty(len(theta))
        slope[0] = np.vdot(rest, k)
        slope[1:-1] = self.gaps.reshape(len(lengths), -1) @ (rest * outer).ravel() / lengths**2
        slope[-1] = noise * np.trace(rest)
        log_root = np.log(lower.diagonal()).sum()
        return float(0.5 * self.y @ alpha + log_root + 0.5 * len(alpha) * math.log(2.0 * math.pi)), 0.5 * slope

    def _factor(self, k: Array, noise: float) -> Array | None:
        covariance = k.copy()
        covariance.flat[:: len(k) + 1] += noise + JITTER
        lower, failed = dpotrf(covariance, lower=1, clean=1)
        return None if failed else lower


def matern(gaps: Array, signal: float, lengths: Array) -> tuple[Array, Array]:
    """k, and 5/3 s (1 + sqrt5 r) exp(-sqrt5 r): its slope by half of r^2, sign turned; in the shape of one layer."""
    r = ROOT5 * np.sqrt(np.tensordot(lengths**-2.0, gaps, 1))
    decay = signal * np.exp(-r)
    linear = decay + r * decay
    return linear + (r * r / 3.0) * decay, (5.0 / 3.0) * linear
