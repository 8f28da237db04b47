"""Regimes on Theta = [-1, 1]^d whose constants and constrained minimiser are known exactly, interior or not.

symbol      shape    meaning
minimiser   [d]      theta*, the minimiser over Theta
slope       [d]      gradient at theta*: zero inside Theta, may point inwards where theta* touches a side
curvature   [d, d]   H, symmetric, positive definite
ripples     [k, d]   b_j: f(w) = <slope, x> + x'Hx / 2 + sum_j log cosh(b_j'x) with x = w - theta*
mu, L       scalar   strong convexity and smoothness: H <= f'' <= H + sum_j b_j b_j'
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from rasp_lab.theory.claim import require
from rasp_tuner.base.numerics import Array

LOG_TWO = float(np.log(2.0))


def project(point: Array) -> Array:
    """The nearest point of Theta."""
    nearest: Array = np.minimum(np.maximum(point, -1.0), 1.0)
    return nearest


@dataclass(frozen=True)
class Regime:
    """f with f(theta*) = 0, so that its value is the regret."""

    minimiser: Array
    slope: Array
    curvature: Array
    ripples: Array = field(default_factory=lambda: np.zeros((0, 1)))

    def __post_init__(self) -> None:
        require(
            bool(np.all(np.abs(self.minimiser) <= 1.0)), "the minimiser must lie in Theta", minimiser=self.minimiser
        )
        require(self.mu > 0.0, "a regime must be strongly convex", mu=self.mu)
        first_order = np.all(self.slope * (project(self.minimiser - np.sign(self.slope)) - self.minimiser) >= 0.0)
        require(bool(first_order), "no feasible direction may go down at the minimiser", slope=self.slope)

    @property
    def dim(self) -> int:
        return len(self.minimiser)

    @cached_property
    def mu(self) -> float:
        return float(np.linalg.eigvalsh(self.curvature)[0])

    @cached_property
    def smoothness(self) -> float:
        """L."""
        ripples = self.ripples.T @ self.ripples if len(self.ripples) else 0.0
        return float(np.linalg.eigvalsh(self.curvature + ripples)[-1])

    @cached_property
    def tilt(self) -> float:
        """G*, the norm of the gradient at the minimiser: zero if that is interior."""
        return float(np.linalg.norm(self.slope))

    @cached_property
    def reach(self) -> float:
        """The largest distance from the minimiser to a point of Theta."""
        return float(np.linalg.norm(1.0 + np.abs(self.minimiser)))

    @cached_property
    def steepest(self) -> float:
        """G: no gradient on Theta is longer."""
        return self.tilt + self.smoothness * self.reach

    @cached_property
    def worst(self) -> float:
        """Delta_max: the largest regret on Theta, which a convex function takes at a corner."""
        return max(self.excess(np.array(corner)) for corner in product((-1.0, 1.0), repeat=self.dim))

    def distance(self, point: Array) -> float:
        return float(np.linalg.norm(point - self.minimiser))

    def look(self, point: Array) -> tuple[float, Array]:
        """f(w) - f(theta*) and the gradient [d] there."""
        x = point - self.minimiser
        bent = self.curvature @ x
        value, gradient = (self.slope + 0.5 * bent) @ x, self.slope + bent
        if len(self.ripples):
            t = self.ripples @ x
            value += (np.logaddexp(t, -t) - LOG_TWO).sum()
            gradient = gradient + np.tanh(t) @ self.ripples
        return float(value), gradient

    def excess(self, point: Array) -> float:
        """f(w) - f(theta*)."""
        return self.look(point)[0]

    def gradient(self, point: Array) -> Array:
        return self.look(point)[1]


def quadratic_1d(minimiser: float, slope: float = 0.0, curvature: float = 1.0) -> Regime:
    """In one dimension: f(w) = slope x + curvature x^2 / 2."""
    return Regime(np.array([minimiser]), np.array([slope]), np.array([[curvature]]))


def draw_regime(rng: np.random.Generator, dim: int, *, interior: bool = False) -> Regime:
    """A rotated quadratic, condition up to 30, with or without ripples; minimiser on the boundary unless `interior`."""
    turn, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    curvature = turn @ np.diag(np.exp(rng.uniform(np.log(1 / 30), 0.0, dim))) @ turn.T
    ripples = rng.normal(size=(rng.integers(0, 3), dim)) * rng.uniform(0.1, 1.0)
    minimiser, slope = rng.uniform(-0.8, 0.8, dim), np.zeros(dim)
    if not interior:
        touching = rng.uniform(size=dim) < 0.7
        touching[rng.integers(dim)] = True
        side = rng.choice([-1.0, 1.0], size=dim)
        minimiser = np.where(touching, side, minimiser)
        slope = np.where(touching, -side * rng.exponential(size=dim) * 10.0 ** rng.uniform(-2.0, 0.5), 0.0)
    return Regime(minimiser, slope, (curvature + curvature.T) / 2.0, ripples)
