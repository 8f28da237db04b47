"""What family Q holds true in one context: predictions of every expert, candidates, and the choice among them.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
S, mean   [L, R, p, p]  posterior covariance of L local experts under R rival noises, in units of a^2; [L, R, p] mean
E         scalar        (L + 1) R hypotheses: the last R are those of an optimum that moves with the context
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rasp_tuner.numerics import Array, softmax
from rasp_tuner.surrogate.base import Choice
from rasp_tuner.surrogate.evidence import log_student
from rasp_tuner.surrogate.linear import MovingBelief

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
    latest: dict[bytes, tuple[Array, Array]] = field(default_factory=dict)  # what was last said of every expert

    @cached_property
    def weights(self) -> Array:
        scores = self.scores
        if self.moving is None:
            scores = np.concatenate([scores[: -self.rivals], np.full(self.rivals, -np.inf)])
        return softmax(scores)

    @property
    def rivals(self) -> int:
        return int(self.mean.shape[1])

    @property
    def locals(self) -> int:
        return int(self.mean.shape[0])

    @property
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
        if key not in self.latest:  # gate and family ask about the same point
            mean, variance = self._predict(2.0 * (points - self.box.default))
            self.latest.clear()
            self.latest[key] = mean + (self.offset + self.origin), variance
        return self.latest[key]

    def log_density(self, point: Array, y: float) -> Array:
        mean, variance = self.each(point[None])
        return log_student(y - mean[:, 0], variance[:, 0] + self.noises * self.a**2)

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
        return np.maximum(c[1 + self.box.dim :], least), float(features(u[None])[0] @ c) + self.offset

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
        jitter = TIE * float(np.trace(covariance)) * rng.random(d)  # knobs not tried yet take turns at random
        sizes, axes = np.linalg.eigh(covariance + np.diag(jitter))
        moves = (axes[:, ::-1][:, :DIRECTIONS].T[:, None] * REACH[:, None]).reshape(-1, d)
        draws = KAPPA * (rng.normal(size=(DRAWS, d)) @ (axes * np.sqrt(np.maximum(sizes, 0.0))).T)
        centres, hint = self._centres(), self._hint()
        leader = centres[local * self.rivals + rival]
        parts = (centres, hint[None], leader + moves, leader + draws, hint + moves)
        u = np.minimum(np.maximum(np.concatenate(parts), box.low), box.high)
        mean, doubt, variance = self._weigh(u)
        bound = mean - KAPPA * np.sqrt(doubt)
        chosen = int((bound + TIE * float(np.ptp(bound)) * rng.random(len(u))).argmin())  # ties: either way is as good
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
        busy = [i for i, weight in enumerate(self.weights.tolist()) if weight >= IDLE]
        means, variances = self._predict(u, busy)
        weights = self.weights[busy]
        weights = weights / weights.sum()
        mean, doubt = weights @ means, weights @ variances
        return mean, doubt, doubt + weights @ (means - mean) ** 2

    def _predict(self, u: Array, experts: Sequence[int] | None = None) -> tuple[Array, Array]:
        """Mean less the offset, and variance, of all experts or of some, [E, n]."""
        f, count = features(u), self.locals * self.rivals
        mean, S = self.mean.reshape(count, -1), self.S.reshape(count, f.shape[1], -1)
        moved = list(range(self.rivals))
        if experts is not None:
            own = [i for i in experts if i < count]
            moved = [i - count for i in experts if i >= count]
            mean, S = mean[own], S[own]
        elif self.moving is None:  # they begin as the blind ones
            mean, S = np.concatenate([mean, mean[: self.rivals]]), np.concatenate([S, S[: self.rivals]])
        means, variances = mean @ f.T, ((f @ S) * f).sum(axis=2)
        if moved and self.moving is not None:
            more, unsure = self.moving.predict(u, moved)
            means, variances = np.concatenate([means, more * self.a]), np.concatenate([variances, unsure])
        return means, np.maximum(variances, 0.0) * self.a**2

    def _point(self, u: Array) -> Array:
        return np.minimum(np.maximum(self.box.default + u / 2.0, 0.0), 1.0)


def features(u: Array) -> Array:
    """[n, p]"""
    n, d = u.shape
    f = np.empty((n, 1 + 2 * d))
    f[:, 0] = 1.0
    f[:, 1 : 1 + d] = u
    f[:, 1 + d :] = u**2
    return f


def minimisers(box: Box, mean: Array, a: float) -> Array:
    """[..., d] where quadratics with coefficients [..., p] are least within the box."""
    d = box.dim
    best = mean[..., 1 : 1 + d] / (-2.0 * np.maximum(mean[..., 1 + d :], FLAT * a))
    return np.minimum(np.maximum(best, box.low), box.high)
