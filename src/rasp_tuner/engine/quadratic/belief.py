"""QuadraticBelief: what the quadratic family holds true in one context; its candidates, and the choice among them.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
S, mean   [L, R, p, p]  posterior covariance of L local experts under R rival noises, in units of a^2; [L, R, p] mean
E         scalar        (L + 1) R hypotheses: the last R are those of an optimum that moves with the context
"""

from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice, Forecast
from rasp_tuner.engine.quadratic.moving_optimum import MovingBelief

LEAST_CURVATURE = 0.15  # of a: what a minimiser is computed with at least
OPTIMISM_DEVIATIONS = 0.7  # taken off the mean when candidates are compared
FIRST_PROBE = 0.35  # length of the first move, along one knob
REACH = np.array([0.1, -0.1, 0.2, -0.2, 0.4, -0.4])  # moves along the least known directions
DIRECTIONS, DRAWS = 3, 8
TIE = 1e-6  # of the range: a smaller difference is none
LEAST_WEIGHT = 1e-8  # an expert with less is left out of a choice; a larger cut would drop variances that matter


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
        count = self.mean.shape[0] * self.mean.shape[1]
        means = self.mean.reshape(count, -1) @ f
        variances = (self.S.reshape(count, len(f), -1) @ f) @ f
        rivals = self.mean.shape[1]
        more, unsure = (means[:rivals], variances[:rivals]) if self.moving is None else self.moving.compare(u, self.a)
        means, variances = np.concatenate([means, more]), np.maximum(np.concatenate([variances, unsure]), 0.0)
        mean, variance = self._mixed(means[:, None], variances[:, None] * self.a**2)
        return float(mean[0]), float(variance[0])

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
        locals_, rivals = self.mean.shape[:2]
        local, rival = divmod(expert, rivals)
        least = LEAST_CURVATURE * self.a
        if local == locals_ and self.moving is not None:
            curvatures = self.moving.curvatures[rival] * self.a
            return np.maximum(curvatures, least), float(self.moving.level[rival]) * self.a + self.offset
        c = self.mean[min(local, locals_ - 1), rival]
        u = minimisers(self.box, c, self.a)
        return np.maximum(c[1 + self.box.dim :], least), float(features(u) @ c) + self.offset

    def best(self) -> Array | None:
        """The least posterior mean among the experts' minimisers, their mean, the best tried and the default."""
        u = np.concatenate([self._centres(), self._hint()[None], np.zeros((1, self.box.dim))])
        return self._point(u[int(self._mixture_at(u)[0].argmin())])

    def choose(self, rng: np.random.Generator) -> Choice:
        """The least lower confidence bound of the mixture among experts' optima and moves around them."""
        if len(self.targets) < 2:
            return self._first_probe(rng)
        u, centres = self._candidates(rng)
        mean, own_variance, variance = self._mixture_at(u)
        bound = mean - OPTIMISM_DEVIATIONS * np.sqrt(own_variance)
        tie = TIE * float(bound.max() - bound.min())
        chosen = int((bound + tie * rng.random(len(u))).argmin())  # ties: either way is as good
        if chosen < centres:
            source = "predicted optimum"
        elif chosen == centres:
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

    def _candidates(self, rng: np.random.Generator) -> tuple[Array, int]:
        """Points u [n, d] to compare: the optima of experts (how many comes second), the best tried, moves, draws."""
        box, d = self.box, self.box.dim
        locals_, rivals = self.mean.shape[:2]
        local, rival = divmod(int(self.weights.argmax()), rivals)
        if local == locals_ and self.moving is not None:
            covariance = self.moving.location_covariance(rival)
        else:
            covariance = self.S[local, rival, 1 : 1 + d, 1 : 1 + d] / 4.0
        unsure = covariance.diagonal()
        jitter = TIE * float(unsure.sum()) * rng.random(d)  # knobs not tried yet take turns at random
        covariance = covariance.copy()
        np.fill_diagonal(covariance, unsure + jitter)
        sizes, axes = np.linalg.eigh(covariance)
        moves = (axes[:, ::-1][:, :DIRECTIONS].T[:, None] * REACH[:, None]).reshape(-1, d)
        draws = OPTIMISM_DEVIATIONS * (rng.normal(size=(DRAWS, d)) @ (axes * np.sqrt(np.maximum(sizes, 0.0))).T)
        centres, hint = self._centres(), self._hint()
        leader = centres[local * rivals + rival]
        parts = (centres, hint[None], leader + moves, leader + draws, hint + moves)
        return np.minimum(np.maximum(np.concatenate(parts), box.low), box.high), len(centres)

    def _centres(self) -> Array:
        """[E + 1, d] every expert's minimiser, and their mean."""
        box, d = self.box, self.box.dim
        local = minimisers(box, self.mean, self.a).reshape(-1, d)
        moved = (
            local[: self.mean.shape[1]]
            if self.moving is None
            else np.minimum(np.maximum(self.moving.optimum, box.low), box.high)
        )
        each = np.concatenate([local, moved])
        return np.concatenate([each, (self.weights @ each)[None]])

    def _hint(self) -> Array:
        """[d] the point of the slot with the best y in a situation like this."""
        point: Array = self.tried[int((self.targets / self.spread + 2.0 * (1.0 - self.kernels[2])).argmin())]
        return point

    def _mixture_at(self, u: Array) -> tuple[Array, Array, Array]:
        """Mean less the offset, the experts' own variance, and that with their disagreement, [n].

        Experts with next to no weight are left out.
        """
        f, count = features(u), self.mean.shape[0] * self.mean.shape[1]
        weights = np.where(self.weights < LEAST_WEIGHT, 0.0, self.weights)
        weights /= weights.sum()
        means = self.mean.reshape(count, -1) @ f.T
        S = (weights[:count] @ self.S.reshape(count, -1)).reshape(f.shape[1], -1)  # f' S f is linear in S
        own_variance = ((f @ S) * f).sum(axis=1)
        moved = [i for i, weight in enumerate(weights[count:].tolist()) if weight > 0.0]
        if moved and self.moving is not None:
            more, unsure = self.moving.predict(u, moved)
            means = np.concatenate([means, more * self.a])
            own_variance += weights[count:][moved] @ unsure
        weights = weights[[*range(count), *(count + i for i in moved)]]
        own_variance = np.maximum(own_variance, 0.0) * self.a**2
        mean = weights @ means
        return mean, own_variance, own_variance + weights @ (means - mean) ** 2

    def _each_centred(self, u: Array) -> tuple[Array, Array]:
        """Mean less the offset, and variance, of all experts, [E, n]."""
        f = features(u)
        locals_, rivals, p = self.mean.shape
        count = locals_ * rivals
        means = self.mean.reshape(count, p) @ f.T
        variances = ((self.S.reshape(-1, p) @ f.T).reshape(count, p, -1) * f.T).sum(axis=1)
        if self.moving is None:  # they begin as the blind ones
            more, unsure = means[:rivals], variances[:rivals]
        else:
            more, unsure = self.moving.predict(u, range(rivals))
            more = more * self.a
        return np.concatenate([means, more]), np.maximum(np.concatenate([variances, unsure]), 0.0) * self.a**2

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
