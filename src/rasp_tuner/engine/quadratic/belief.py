"""What family Q holds true in one context: predictions of every expert, candidates, and the choice among them.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
S, mean   [L, R, p, p]  posterior covariance of L local experts under R rival noises, in units of a^2; [L, R, p] mean
E         scalar        (L + 1) R hypotheses: the last R are those of an optimum that moves with the context
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rasp_tuner.core.numerics import Array, softmax
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.quadratic.moving_optimum import MovingBelief

FLAT = 0.15  # of a: the least curvature a minimiser is computed with
KAPPA = 0.7  # deviations of optimism
PROBE = 0.35  # first move, along one knob
REACH = np.array([0.1, -0.1, 0.2, -0.2, 0.4, -0.4])  # moves along the least known directions
DIRECTIONS, DRAWS = 3, 8
TIE = 1e-6  # of the range: less of a difference than that is none
IDLE = 1e-8  # an expert with less weight has no say in a choice; one with more may, for its doubt can be large


@dataclass(frozen=True)
class Box:
    """The unit box as seen from the default, in u."""

    default: Array  # [d]

    @property
    def dim(self) -> int:
        return len(self.default)

    @cached_property
    def low(self) -> Array:
        low: Array = -2.0 * self.default
        return low

    @cached_property
    def high(self) -> Array:
        high: Array = 2.0 * (1.0 - self.default)
        return high


@dataclass(frozen=True)
class Bowls:
    """What family Q holds true in one context; y here is relative to the first sample, less the offset."""

    box: "Box"
    scores: Array  # [E] of the experts
    noises: Array  # [E] variance of one observation, in units of a^2
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
    latest: dict[bytes, tuple[Array, Array]] = field(default_factory=dict)  # what was last said of every expert, and
    scored: dict[tuple[bytes, float], Array] = field(default_factory=dict)  # how likely y was to it: two ask for each

    @cached_property
    def weights(self) -> Array:
        scores = self.scores
        if self.moving is None:
            scores = np.concatenate([scores[: -self.rivals], np.full(self.rivals, -np.inf)])
        return softmax(scores)

    @cached_property
    def rivals(self) -> int:
        return int(self.mean.shape[1])

    @cached_property
    def locals(self) -> int:
        return int(self.mean.shape[0])

    @cached_property
    def noise(self) -> float:
        return float(self.weights @ self.noises) * self.a**2

    def predict(self, points: Array) -> tuple[Array, Array]:
        means, variances = self.each(points)
        mean: Array = self.weights @ means
        variance: Array = self.weights @ (variances + (means - mean) ** 2)
        return mean, variance

    def each(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [E, n] of every expert."""
        key = points.tobytes()
        if key not in self.latest:
            mean, variance = self._predict(2.0 * (points - self.box.default))
            self.latest.clear()
            self.latest[key] = mean + (self.offset + self.origin), variance
        return self.latest[key]

    def log_density(self, point: Array, y: float) -> Array:
        if (point.tobytes(), y) not in self.scored:
            mean, variance = self.each(point[None])
            self.scored.clear()
            self.scored[point.tobytes(), y] = log_student(y - mean[:, 0], variance[:, 0] + self.noises * self.a**2)
        return self.scored[point.tobytes(), y]

    def similar(self) -> Array:
        similar: Array = self.kernels[2]
        return similar

    def summary(self, expert: int) -> tuple[Array, float]:
        """Curvatures [d] and least value of one expert, in units of y; the value is relative to the first sample."""
        local, rival = divmod(expert, self.rivals)
        least = FLAT * self.a
        if local == self.locals and self.moving is not None:
            curvatures = self.moving.curvatures[rival] * self.a
            return np.maximum(curvatures, least), float(self.moving.level[rival]) * self.a + self.offset
        c = self.mean[min(local, self.locals - 1), rival]
        u = minimisers(self.box, c, self.a)
        return np.maximum(c[1 + self.box.dim :], least), float(features(u) @ c) + self.offset

    def best(self) -> Array | None:
        """The least posterior mean among the experts' minimisers, their mean, the best tried and the default."""
        u = np.concatenate([self._centres(), self._hint()[None], np.zeros((1, self.box.dim))])
        return self._point(u[int(self._weigh(u)[0].argmin())])

    def choose(self, rng: np.random.Generator) -> Choice:
        """The least lower confidence bound of the mixture among experts' ideas and moves around them."""
        box, d = self.box, self.box.dim
        if len(self.targets) < 2:
            knob, sign = rng.integers(d), rng.choice([-1.0, 1.0])
            if not box.low[knob] <= sign * PROBE <= box.high[knob]:  # the default is near this end
                sign = -sign
            move = np.zeros(d)
            move[knob] = PROBE * sign
            point = self._point(move)
            mean, variance = self.predict(point[None])
            return Choice(point, "first probe", float(mean[0]), float(variance[0]))
        local, rival = divmod(int(self.weights.argmax()), self.rivals)
        if local == self.locals and self.moving is not None:
            covariance = self.moving.location_covariance(rival)
        else:
            covariance = self.S[local, rival, 1 : 1 + d, 1 : 1 + d] / 4.0
        unsure = covariance.diagonal()
        jitter = TIE * float(unsure.sum()) * rng.random(d)  # knobs not tried yet take turns at random
        covariance = covariance.copy()
        np.fill_diagonal(covariance, unsure + jitter)
        sizes, axes = np.linalg.eigh(covariance)
        moves = (axes[:, ::-1][:, :DIRECTIONS].T[:, None] * REACH[:, None]).reshape(-1, d)
        draws = KAPPA * (rng.normal(size=(DRAWS, d)) @ (axes * np.sqrt(np.maximum(sizes, 0.0))).T)
        centres, hint = self._centres(), self._hint()
        leader = centres[local * self.rivals + rival]
        parts = (centres, hint[None], leader + moves, leader + draws, hint + moves)
        u = np.minimum(np.maximum(np.concatenate(parts), box.low), box.high)
        mean, doubt, variance = self._weigh(u)
        bound = mean - KAPPA * np.sqrt(doubt)
        tie = TIE * float(bound.max() - bound.min())
        chosen = int((bound + tie * rng.random(len(u))).argmin())  # ties: either way is as good
        if chosen < len(centres):
            source = "predicted optimum"
        elif chosen == len(centres):
            source = "best tried"
        else:
            source = "probe near it"
        expected = float(mean[chosen]) + self.offset + self.origin
        return Choice(self._point(u[chosen]), source, expected, float(variance[chosen]))

    def _centres(self) -> Array:
        """[E + 1, d] every expert's minimiser, and their mean."""
        box, d = self.box, self.box.dim
        local = minimisers(box, self.mean, self.a).reshape(-1, d)
        moved = (
            local[: self.rivals]
            if self.moving is None
            else np.minimum(np.maximum(self.moving.optimum, box.low), box.high)
        )
        each = np.concatenate([local, moved])
        return np.concatenate([each, (self.weights @ each)[None]])

    def _hint(self) -> Array:
        """[d] the point of the slot with the best y in a situation like this."""
        point: Array = self.tried[int((self.targets / self.spread + 2.0 * (1.0 - self.kernels[2])).argmin())]
        return point

    def _weigh(self, u: Array) -> tuple[Array, Array, Array]:
        """Mean less the offset, the experts' own variance, and that with their disagreement, [n]; not of idle ones."""
        f, count = features(u), self.locals * self.rivals
        weights = np.where(self.weights < IDLE, 0.0, self.weights)
        weights /= weights.sum()
        means = self.mean.reshape(count, -1) @ f.T
        S = (weights[:count] @ self.S.reshape(count, -1)).reshape(f.shape[1], -1)  # f' S f is linear in S
        doubt = ((f @ S) * f).sum(axis=1)
        moved = [i for i, weight in enumerate(weights[count:].tolist()) if weight > 0.0]
        if moved and self.moving is not None:
            more, unsure = self.moving.predict(u, moved)
            means = np.concatenate([means, more * self.a])
            doubt += weights[count:][moved] @ unsure
        weights = weights[[*range(count), *(count + i for i in moved)]]
        doubt = np.maximum(doubt, 0.0) * self.a**2
        mean = weights @ means
        return mean, doubt, doubt + weights @ (means - mean) ** 2

    def _predict(self, u: Array) -> tuple[Array, Array]:
        """Mean less the offset, and variance, of all experts, [E, n]."""
        f, rivals = features(u), self.rivals
        count, p = self.locals * rivals, f.shape[1]
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
    best = mean[..., 1 : 1 + d] / (-2.0 * np.maximum(mean[..., 1 + d :], FLAT * a))
    return np.minimum(np.maximum(best, box.low), box.high)
