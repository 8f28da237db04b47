"""A Gaussian process by scikit-learn with what the agents need around it: slopes, draws, and many context dimensions.

symbol  shape   meaning
x       [n, D]  inputs: the first D_own coordinates with a length scale each, the others with one between them
r       [n, m]  scaled distance
k       [n, m]  s (1 + sqrt5 r + 5/3 r^2) exp(-sqrt5 r), Matern-5/2; observations add white noise
"""

import warnings
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    ConstantKernel,
    Hyperparameter,
    Kernel,
    NormalizedKernelMixin,
    StationaryKernelMixin,
    WhiteKernel,
)
from threadpoolctl import ThreadpoolController

from rasp_tuner.numerics import Array

ROOT5 = np.sqrt(5.0)
Bounds = tuple[float, float]
THREADS = ThreadpoolController()  # matrices this small are many times faster on one thread: `THREADS.limit(limits=1)`


class TiedMatern(StationaryKernelMixin, NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    """Matern-5/2 with one length scale for each of the first coordinates, and the last one shared by all others.

    With as many length scales as coordinates it is scikit-learn's own ARD Matern. With fewer, the slope of the marginal
    likelihood costs O(n^2) per length scale, not per coordinate: 768 contexts remain possible.
    """

    def __init__(self, length_scale: Array, length_scale_bounds: Bounds) -> None:
        self.length_scale = length_scale
        self.length_scale_bounds = length_scale_bounds

    @property
    def hyperparameter_length_scale(self) -> Hyperparameter:
        return Hyperparameter("length_scale", "numeric", self.length_scale_bounds, len(self.length_scale))

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:
        gaps = self.squared_gaps(X, X if Y is None else Y)
        r = np.sqrt(gaps.sum(axis=0))
        decay = np.exp(-ROOT5 * r)
        k = (1.0 + ROOT5 * r + 5.0 / 3.0 * r**2) * decay
        if not eval_gradient:
            return k
        return k, np.moveaxis(5.0 / 3.0 * (1.0 + ROOT5 * r) * decay * gaps, 0, -1)  # by log length scale

    def squared_gaps(self, X: Array, Y: Array) -> Array:
        """[L, n, m] what each length scale adds to the squared distance."""
        own = len(self.length_scale) - 1
        gaps = np.empty((own + 1, len(X), len(Y)))
        gaps[:own] = ((X[:, None, :own] - Y[None, :, :own]) / self.length_scale[:own]).transpose(2, 0, 1) ** 2
        x, y = X[:, own:] / self.length_scale[own], Y[:, own:] / self.length_scale[own]
        squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None] - 2.0 * x @ y.T
        gaps[own] = np.maximum(squares, 0.0)
        return gaps


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
        self.x = x
        self.centre, self.spread = float(y.mean()), float(y.std()) or 1.0
        start = np.ones(scales)
        # where rows a deviation apart in each tied coordinate still correlate
        start[-1] = np.sqrt(x.shape[1] - scales + 1)
        kernel = ConstantKernel(1.0, signal) * TiedMatern(start, length) + WhiteKernel(1e-2, noise)
        model = GaussianProcessRegressor(kernel)
        with warnings.catch_warnings(), THREADS.limit(limits=1):
            # a coordinate that does not matter rightly ends at its longest length scale
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, (y - self.centre) / self.spread)
        self._signal = float(model.kernel_.k1.k1.constant_value)
        self._matern: TiedMatern = model.kernel_.k1.k2
        self._root, self._weights = model.L_, model.alpha_

    @property
    def lengths(self) -> Array:
        return self._matern.length_scale

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean [m] and covariance [m, m] of the noise-free function at points [m, D]."""
        k = self._signal * self._matern(self.x, points)
        half = solve_triangular(self._root, k, lower=True)
        covariance = self._signal * self._matern(points) - half.T @ half
        return self.centre + self.spread * (k.T @ self._weights), self.spread**2 * covariance

    def draw(self, points: Array, rng: np.random.Generator) -> Array:
        """One function [m] drawn from the posterior."""
        with THREADS.limit(limits=1):
            mean, covariance = self.predict(points)
            values, vectors = np.linalg.eigh(
                covariance
            )  # rounding makes some eigenvalues of a smooth function negative
        drawn: Array = mean + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=len(mean)))
        return drawn

    def lower_bound(self, point: Array, kappa: float, dim: int) -> tuple[float, Array]:
        """mean - kappa deviation at a point [D], and its slope by the first `dim` coordinates, which are own ones."""
        r = np.sqrt(self._matern.squared_gaps(self.x, point[None])[:, :, 0].sum(axis=0))
        decay = self._signal * np.exp(-ROOT5 * r)
        k = (1.0 + ROOT5 * r + 5.0 / 3.0 * r**2) * decay
        outer = -5.0 / 3.0 * (1.0 + ROOT5 * r) * decay
        slopes = outer[:, None] * (point[:dim] - self.x[:, :dim]) / self.lengths[:dim] ** 2  # [n, dim]
        half = solve_triangular(self._root, k, lower=True)
        deviation = np.sqrt(max(self._signal - half @ half, 1e-12))
        pull = solve_triangular(self._root, half, lower=True, trans="T")
        slope = slopes.T @ self._weights + kappa * (slopes.T @ pull) / deviation
        value = float(k @ self._weights - kappa * deviation)
        return self.centre + self.spread * value, self.spread * slope
