"""MovingOptimum: a bowl whose optimum moves linearly with the context; warm Gauss-Newton steps on a window.

symbol   shape        meaning
u        [n, d]       points relative to the default, in [-2, 2]
x        [n, r]       leading principal components of the context, standardised; r <= 3
y        [n]          target, in units of the shared curvature
theta    b, q, M      y = b + sum_i q_i (u_i - M_i [1, x])^2 with q [d], M [d, 1 + r]
J        [n, m]       slope of y by theta; m = 1 + d + d (1 + r)
rho      scalar       variance of one observation, in units of the shared curvature squared
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array, assign
from rasp_tuner.engine.outliers import CHI2_MEDIAN, residual_trust

WINDOW_SAMPLES = 128
RANK = 3
SKETCH_DIMENSIONS = 32  # a longer context is first projected at random to this many dimensions
SLOPE_VARIANCE = 0.6  # variance of how the optimum moves with x, in units of that of the optimum itself
REFRESH_EVERY_STEPS = 8  # between looks at the principal components, once there are PLENTY_SAMPLES
PLENTY_SAMPLES = 40
YOUNG_SAMPLES, YOUNG_EXTRA_STEPS = 50, 3  # samples up to which every fit takes so many steps more
LARGEST_TARGET = 1e12  # in units of the curvature: a constant metric that jumps must not overflow
FARTHEST_OPTIMUM = 1e3  # in u, which lies in [-2, 2]: one absurd context must not throw the others out
STEP_LENGTHS = (1.0, 0.4, 0.1)  # lengths tried in turn


@dataclass(frozen=True, slots=True)
class Shared:
    """What all situations have in common, in units of the curvature."""

    curvature: float
    level: float  # prior mean of the least y
    level_variance: float
    curvatures: Array  # [d] prior mean
    precision: Array  # [d, d] of the curvatures
    location_variance: float
    noise: float  # rho


@dataclass(frozen=True, slots=True)
class MovingBelief:
    """The posterior at one context, in units of the curvature."""

    level: float
    curvatures: Array  # [d]
    optimum: Array  # [d]
    covariance: Array  # [m, m] of theta, where b and q are in units of another curvature
    ratio: float  # that curvature, in units of this one
    x: Array  # [1 + r]

    def predict(self, u: Array) -> tuple[Array, Array, Array]:
        """Mean and variance [n] at points [n, d], and how each covaries with the optimum here [d, n]."""
        d, n = len(self.optimum), len(u)
        mean, jacobian = self._linearised(u)
        along = jacobian @ self.covariance
        moves = along[:, 1 + d :].reshape(n, d, -1) @ self.x
        return mean, (along * jacobian).sum(axis=1), moves.T

    def compare(self, u: Array) -> tuple[float, float]:
        """Mean of y at the first of two points [2, d] less y at the second, and its variance."""
        mean, jacobian = self._linearised(u)
        step = jacobian[0] - jacobian[1]
        return float(mean[0] - mean[1]), float(step @ self.covariance @ step)

    def _linearised(self, u: Array) -> tuple[Array, Array]:
        """Mean [n] at points [n, d], and its slope in theta."""
        d, n = len(self.optimum), len(u)
        gaps = u - self.optimum
        squares = gaps**2
        jacobian = np.empty((n, len(self.covariance)))
        jacobian[:, 0] = self.ratio
        jacobian[:, 1 : 1 + d] = squares * self.ratio
        jacobian[:, 1 + d :] = ((-2.0 * self.curvatures * gaps)[..., None] * self.x).reshape(n, -1)
        return self.level + squares @ self.curvatures, jacobian

    def location_covariance(self) -> Array:
        """[d, d] of the optimum here."""
        d, r = len(self.optimum), len(self.x)
        blocks = self.covariance[1 + d :, 1 + d :].reshape(d, r, d, r)
        covariance: Array = np.einsum("iajb,a,b->ij", blocks, self.x, self.x)
        return covariance


class MovingOptimum:
    """Learns theta from the latest samples; encodes contexts by their own principal components."""

    def __init__(self, dim: int, context_dim: int, metrics: int) -> None:
        self.dim = dim
        self.rank = min(RANK, context_dim)
        width = min(context_dim, SKETCH_DIMENSIONS)
        self._sketch = None
        if context_dim > SKETCH_DIMENSIONS:
            self._sketch = np.random.default_rng(7).normal(size=(context_dim, width)) / np.sqrt(width)
        size = 1 + dim + dim * (1 + self.rank)
        self._arrays = {
            "points": np.zeros((WINDOW_SAMPLES, dim)),
            "contexts": np.zeros((WINDOW_SAMPLES, width)),
            "values": np.zeros((WINDOW_SAMPLES, metrics)),
            "weights": np.ones(WINDOW_SAMPLES),  # of the samples; zero for one that looked false when it came
            "mean": np.zeros(width),
            "moments": np.zeros((width, width)),
            "centre": np.zeros(width),
            "encode": np.zeros((width, self.rank)),
            "theta": np.zeros(size),  # in units of y
            "unit": np.ones(1),  # curvature of the latest fit, in which the covariance is
            "covariance": np.zeros((size, size)),
            "counts": np.zeros(2),  # samples seen; 1 once fitted
        }

    @property
    def ready(self) -> bool:
        return bool(self._arrays["counts"][1] > 0.0)

    def forget_fit(self) -> None:
        """The target means something else now."""
        self._arrays["counts"][1] = 0.0

    def observe(self, u: Array, context: Array, values: Array, weight: float) -> None:
        a = self._arrays
        seen = int(a["counts"][0])
        row = seen % WINDOW_SAMPLES
        reduced = self._reduced(context)
        a["points"][row], a["contexts"][row], a["values"][row], a["weights"][row] = u, reduced, values, weight
        gap = reduced - a["mean"]
        a["mean"] += gap / (seen + 1)
        a["moments"] += (gap[:, None] * (reduced - a["mean"]) - a["moments"]) / (seen + 1)
        a["counts"][0] = seen + 1

    def trust(self, rows: NDArray[np.bool_], weight: float) -> None:
        """Weigh some of the first samples anew."""
        self._arrays["weights"][: len(rows)][rows] = weight

    def recent(self) -> tuple[Array, Array, Array]:
        """Points u, contexts (reduced if they are long) and values of the window, oldest first; copies."""
        seen = int(self._arrays["counts"][0])
        rows = np.arange(max(seen - WINDOW_SAMPLES, 0), seen) % WINDOW_SAMPLES
        return self._arrays["points"][rows], self._arrays["contexts"][rows], self._arrays["values"][rows]

    def restore_trust(self) -> None:
        """The latest sample was no mistake after all."""
        self._arrays["weights"][int(self._arrays["counts"][0] - 1) % WINDOW_SAMPLES] = 1.0

    def fit(self, weights: Array, offset: float, shared: Shared) -> None:
        """Gauss-Newton towards y = values @ weights - offset."""
        a, d, seen = self._arrays, self.dim, int(self._arrays["counts"][0])
        n = min(seen, WINDOW_SAMPLES)
        if seen < PLENTY_SAMPLES or seen % REFRESH_EVERY_STEPS == 0:
            self._refresh()  # here, and not when a sample comes: theta and its covariance must be in the same encoding
        u, x = a["points"][:n], self._encoded(a["contexts"][:n])
        y = np.clip((a["values"][:n] @ weights - offset) / shared.curvature, -LARGEST_TARGET, LARGEST_TARGET)
        prior, precision = self._prior(shared)
        theta = prior.copy()
        if self.ready:
            theta = a["theta"].copy()
            theta[0] -= offset
            theta[: 1 + d] = np.clip(theta[: 1 + d] / shared.curvature, -LARGEST_TARGET, LARGEST_TARGET)
        gaps, squares, residual = _residual(theta, u, x, y)
        squares_left = residual**2
        usual = max(float(np.median(squares_left)) / CHI2_MEDIAN, shared.noise)
        trust = residual_trust(squares_left, usual) * a["weights"][:n] / shared.noise
        for _ in range(1 + YOUNG_EXTRA_STEPS * (n < YOUNG_SAMPLES)):
            jacobian = np.empty((n, len(theta)))
            jacobian[:, 0] = 1.0
            jacobian[:, 1 : 1 + d] = squares
            jacobian[:, 1 + d :] = ((-2.0 * theta[1 : 1 + d] * gaps)[:, :, None] * x[:, None, :]).reshape(n, -1)
            weighted = jacobian.T * trust
            pull = precision @ (prior - theta)
            try:
                a["covariance"] = np.asarray(np.linalg.inv(weighted @ jacobian + precision), dtype=np.float64)
            except np.linalg.LinAlgError:  # the steps so far led nowhere, as where y jumps from constant to huge
                self.forget_fit()
                return
            step = a["covariance"] @ (weighted @ residual + pull)
            cost = trust @ residual**2 + (prior - theta) @ pull
            for length in STEP_LENGTHS:
                moved = theta + length * step
                after = _residual(moved, u, x, y)
                away = moved - prior
                if trust @ after[2] ** 2 + away @ precision @ away <= cost:
                    break
            else:
                break  # no step helps: stay
            theta, (gaps, squares, residual) = moved, after
        a["unit"] = np.array([shared.curvature])
        theta[: 1 + d] *= shared.curvature
        theta[0] += offset
        a["theta"] = theta
        a["counts"][1] = 1.0

    def believe(self, context: Array, offset: float, curvature: float) -> MovingBelief:
        """The posterior in these units: they have moved since the fit."""
        d, theta = self.dim, self._arrays["theta"]
        x = self._encoded(self._reduced(context)[None])[0]
        return MovingBelief(
            level=(float(theta[0]) - offset) / curvature,
            curvatures=theta[1 : 1 + d] / curvature,
            optimum=theta[1 + d :].reshape(d, -1) @ x,
            covariance=self._arrays["covariance"],
            ratio=float(self._arrays["unit"][0]) / curvature,
            x=x,
        )

    def state(self) -> dict[str, Array]:
        return dict(self._arrays)

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, array in self._arrays.items():
            assign(array, state[name])

    def _reduced(self, context: Array) -> Array:
        return context if self._sketch is None else np.einsum("c,cw->w", context, self._sketch)

    def _encoded(self, reduced: Array) -> Array:
        """[n, 1 + r] with a leading one."""
        x = np.ones((len(reduced), 1 + self.rank))
        x[:, 1:] = np.minimum(np.maximum((reduced - self._arrays["centre"]) @ self._arrays["encode"], -3.0), 3.0)
        return x

    def _refresh(self) -> None:
        """Look at the components anew, and re-express the optimum in them."""
        a, d = self._arrays, self.dim
        variance = np.diag(a["moments"])
        spread = np.sqrt(np.where(variance > 1e-12 * (variance + a["mean"] ** 2), variance, 1.0))
        if len(spread) > self.rank:
            sizes, axes = np.linalg.eigh(a["moments"] / np.outer(spread, spread))
            top, size = axes[:, -self.rank :], np.sqrt(np.maximum(sizes[-self.rank :], 1e-9))
            encode, decode = top / size / spread[:, None], (top * size).T * spread
        else:
            encode, decode = np.diag(1.0 / spread), np.diag(spread)
        if self.ready:
            old = a["theta"][1 + d :].reshape(d, -1)
            slopes = old[:, 1:] @ a["encode"].T  # [d, width] by the reduced context
            moved = np.column_stack([old[:, 0] + slopes @ (a["mean"] - a["centre"]), slopes @ decode.T])
            a["theta"][1 + d :] = np.clip(moved.ravel(), -FARTHEST_OPTIMUM, FARTHEST_OPTIMUM)
        a["centre"], a["encode"] = a["mean"].copy(), encode

    def _prior(self, shared: Shared) -> tuple[Array, Array]:
        d = self.dim
        mean = np.concatenate([[shared.level], shared.curvatures, np.zeros(d * (1 + self.rank))])
        precision = np.zeros((len(mean), len(mean)))
        precision[0, 0] = 1.0 / shared.level_variance
        precision[1 : 1 + d, 1 : 1 + d] = shared.precision
        moves = np.full((d, 1 + self.rank), 1.0 / (shared.location_variance * SLOPE_VARIANCE))
        moves[:, 0] = 1.0 / shared.location_variance
        rows = np.arange(1 + d, len(mean))
        precision[rows, rows] = moves.ravel()
        return mean, precision


def _residual(theta: Array, u: Array, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Gaps to the optimum [n, d], their squares, and what is left of y [n]."""
    d = u.shape[1]
    gaps = u - x @ theta[1 + d :].reshape(d, -1).T
    squares = gaps**2
    return gaps, squares, y - theta[0] - squares @ theta[1 : 1 + d]
