"""QuadraticBelief: what the quadratic family holds true in one context; its candidates, and the choice among them.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
S, mean   [L, p, p]     posterior covariance of L local experts, in units of a^2; [L, p] mean
E         scalar        L + 1 experts: the last is an optimum that moves with the context
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice, Comparison, Forecast, compared
from rasp_tuner.engine.quadratic.moving_optimum import MovingBelief

LEAST_CURVATURE = 0.15  # of a: what a minimiser is computed with at least
HORIZON_STEPS = 12.0  # in which one more observation shall pay for itself
FIRST_PROBE = 0.35  # length of the first move, along one knob
REACH = np.array([0.1, -0.1, 0.2, -0.2, 0.4, -0.4])  # moves along the least known directions
DIRECTIONS = 3
TIE = 1e-6  # of the range: a smaller difference is none
LEAST_WEIGHT = 1e-8  # an expert with less is left out of a choice


class Sums(NamedTuple):
    """Over the samples of L local experts, by how much each counts; y less the offset."""

    G: Array  # [L, p, p] of phi phi'
    b: Array  # [L, p] of phi y
    rest: Array  # [L] of y^2


class Box:
    """The unit box as seen from the default, in u."""

    def __init__(self, default: Array) -> None:
        self.default = default  # [d]
        self.dim = len(default)
        self.low: Array = -2.0 * default
        self.high: Array = 2.0 * (1.0 - default)


@dataclass(frozen=True, slots=True)
class QuadraticBelief:
    """What the family holds true in one context; y here is relative to the first sample, less the offset."""

    box: Box
    weights: Array  # [E] of the experts, summing to one
    noises: Array  # [E] variance of one observation, in units of a^2
    noise: float  # the same of their mixture, in units of y^2
    kernels: Array  # [L, N] how much each slot counts for each local expert
    tried: Array  # [N, d] mean point of each slot
    targets: Array  # [N] its mean y
    spread: float  # of y
    origin: float  # y of the first sample
    offset: float
    a: float  # the curvature all situations share
    S: Array
    mean: Array
    moving: MovingBelief | None
    sums: Sums  # what S and mean were made of

    def predict(self, points: Array) -> tuple[Array, Array]:
        return self._mixed(*self.each(points))

    def each(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [E, n] of every expert."""
        mean, variance = self._each_centred(2.0 * (points - self.box.default))
        return mean + (self.offset + self.origin), variance

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        u = 2.0 * (np.stack([point, other]) - self.box.default)
        f = features(u)
        f = f[0] - f[1]
        means, variances = self.mean @ f, (self.S @ f) @ f
        if self.moving is None:  # it begins as the blind one
            more, unsure = means[0], variances[0]
        else:
            more, unsure = self.moving.compare(u)
            more *= self.a
        means, variances = np.append(means, more), np.maximum(np.append(variances, unsure), 0.0)
        mean, variance = self._mixed(means[:, None], variances[:, None] * self.a**2)
        return float(mean[0]), float(variance[0])

    def against(self, point: Array, default: Array) -> Comparison:
        return compared(self, point, default)

    def forecast(self, point: Array, y: float) -> Forecast:
        means, variances = self.each(point[None])
        logs = log_student(y - means[:, 0], variances[:, 0] + self.noises * self.a**2)
        mean, variance = self._mixed(means, variances)
        return Forecast(float(mean[0]), float(variance[0]), logs)

    def _mixed(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of the mixture, from those of its experts [E, n]."""
        mean: Array = self.weights @ means
        variance: Array = self.weights @ (variances + (means - mean) ** 2)
        return mean, variance

    def similar(self) -> Array:
        similar: Array = self.kernels[2]
        return similar

    def summary(self, expert: int) -> tuple[Array, float]:
        """Curvatures [d] and least value of one expert, in units of y; the value is relative to the first sample."""
        least = LEAST_CURVATURE * self.a
        if expert == len(self.mean) and self.moving is not None:
            return np.maximum(self.moving.curvatures * self.a, least), self.moving.level * self.a + self.offset
        c = self.mean[min(expert, len(self.mean) - 1)]
        u = minimisers(self.box, c, self.a)
        return np.maximum(c[1 + self.box.dim :], least), float(features(u) @ c) + self.offset

    def best(self) -> Array | None:
        """The least posterior mean among the experts' minimisers, their mean, the best tried and the default."""
        centres = self._centres()
        u = np.concatenate([centres, self._hint()[None], np.zeros((1, self.box.dim))])
        return self._point(u[int(self._mixture_at(u, centres)[0].argmin())])

    def choose(self, rng: np.random.Generator) -> Choice:
        """The least expected y, less what an observation is worth, among experts' optima and moves around them."""
        if len(self.targets) < 2:
            return self._first_probe(rng)
        u, centres = self._candidates(rng)
        mean, variance, gain = self._mixture_at(u, centres)
        score = mean - HORIZON_STEPS * gain
        tie = TIE * float(score.max() - score.min())
        chosen = int((score + tie * rng.random(len(u))).argmin())  # ties: either way is as good
        if chosen < len(centres):
            source = "predicted optimum"
        elif chosen == len(centres):
            source = "best tried"
        else:
            source = "probe near it"
        expected = float(mean[chosen]) + self.offset + self.origin
        return Choice(self._point(u[chosen]), source, expected, float(variance[chosen]))

    def _first_probe(self, rng: np.random.Generator) -> Choice:
        """A move along one knob, drawn at random."""
        box = self.box
        knob, sign = rng.integers(box.dim), rng.choice([-1.0, 1.0])
        if not box.low[knob] <= sign * FIRST_PROBE <= box.high[knob]:  # the default is near this end
            sign = -sign
        move = np.zeros(box.dim)
        move[knob] = FIRST_PROBE * sign
        point = self._point(move)
        mean, variance = self.predict(point[None])
        return Choice(point, "first probe", float(mean[0]), float(variance[0]))

    def _candidates(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Points u [n, d] to compare: the optima of experts (which come second, [E + 1, d]), the best tried, moves."""
        box, d = self.box, self.box.dim
        leader = int(self.weights.argmax())
        if leader == len(self.mean) and self.moving is not None:
            covariance = self.moving.location_covariance()
        else:
            covariance = self.S[leader, 1 : 1 + d, 1 : 1 + d].copy()
        unsure = covariance.diagonal()
        jitter = TIE * float(unsure.sum()) * rng.random(d)  # knobs not tried yet take turns at random
        np.fill_diagonal(covariance, unsure + jitter)
        axes = np.linalg.eigh(covariance)[1]
        moves = (axes[:, ::-1][:, :DIRECTIONS].T[:, None] * REACH[:, None]).reshape(-1, d)
        centres, hint = self._centres(), self._hint()
        parts = (centres, hint[None], centres[leader] + moves, hint + moves)
        return np.minimum(np.maximum(np.concatenate(parts), box.low), box.high), centres

    def _centres(self) -> Array:
        """[E + 1, d] every expert's minimiser, and their mean."""
        box = self.box
        local = minimisers(box, self.mean, self.a)
        moved = local[0] if self.moving is None else np.minimum(np.maximum(self.moving.optimum, box.low), box.high)
        each = np.concatenate([local, moved[None]])
        return np.concatenate([each, (self.weights @ each)[None]])

    def _hint(self) -> Array:
        """[d] the point of the slot with the best y in a situation like this."""
        point: Array = self.tried[int((self.targets / self.spread + 2.0 * (1.0 - self.kernels[2])).argmin())]
        return point

    def _mixture_at(self, u: Array, centres: Array) -> tuple[Array, Array, Array]:
        """Mean less the offset, variance with the experts' disagreement, and worth of one observation, [n].

        An observation is worth the expected fall of the least y a step from then on: where it moves the minimiser by
        m, that is the curvature times m^2. Experts with next to no weight are left out.
        """
        f, d, box = features(u), self.box.dim, self.box
        weights = np.where(self.weights < LEAST_WEIGHT, 0.0, self.weights)
        weights /= weights.sum()
        inside = (centres[:-1] > box.low) & (centres[:-1] < box.high)  # an optimum at the edge stays there
        Sf = self.S @ f.T
        variances = np.maximum((Sf * f.T).sum(axis=1), 0.0)
        curvatures = np.maximum(self.mean[:, 1 + d :] / self.a, LEAST_CURVATURE)
        moves = Sf[:, 1 : 1 + d] + 2.0 * centres[: len(Sf), :, None] * Sf[:, 1 + d :]
        gains = ((inside[:-1] / (4.0 * curvatures))[:, None] @ moves**2)[:, 0]
        means = self.mean @ f.T
        if self.moving is not None and weights[-1] > 0.0:
            mean, variance, moved = self.moving.predict(u)
            means = np.concatenate([means, mean[None] * self.a])
            variances = np.concatenate([variances, np.maximum(variance, 0.0)[None]])
            gain = (inside[-1] * np.maximum(self.moving.curvatures, LEAST_CURVATURE)) @ moved**2
            gains = np.concatenate([gains, gain[None]])
        weights = weights[: len(means)]
        gains = weights @ (gains / (variances + self.noises[: len(means), None]))
        mean = weights @ means
        return mean, self.a**2 * (weights @ variances) + weights @ (means - mean) ** 2, self.a * gains

    def _each_centred(self, u: Array) -> tuple[Array, Array]:
        """Mean less the offset, and variance, of all experts, [E, n]."""
        f = features(u)
        means = self.mean @ f.T
        variances = ((self.S @ f.T) * f.T).sum(axis=1)
        if self.moving is None:  # it begins as the blind one
            more, unsure = means[0], variances[0]
        else:
            more, unsure, _ = self.moving.predict(u)
            more = more * self.a
        every = np.concatenate([variances, unsure[None]])
        return np.concatenate([means, more[None]]), np.maximum(every, 0.0) * self.a**2

    def _point(self, u: Array) -> Array:
        return np.minimum(np.maximum(self.box.default + u / 2.0, 0.0), 1.0)


def features(u: Array) -> Array:
    """phi [..., p] of points [..., d]."""
    *shape, d = u.shape
    f = np.empty((*shape, 1 + 2 * d))
    f[..., 0] = 1.0
    f[..., 1 : 1 + d] = u
    np.multiply(u, u, out=f[..., 1 + d :])
    return f


def minimisers(box: Box, mean: Array, a: float) -> Array:
    """[..., d] where quadratics with coefficients [..., p] are least within the box."""
    d = box.dim
    best = mean[..., 1 : 1 + d] / (-2.0 * np.maximum(mean[..., 1 + d :], LEAST_CURVATURE * a))
    return np.minimum(np.maximum(best, box.low), box.high)
