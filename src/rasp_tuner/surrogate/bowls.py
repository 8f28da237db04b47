"""What family Q holds true in one context: predictions of every expert, candidates, and the choice among them.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
S, mean   [L, R, p, p]  posterior covariance of L local experts under R rival noises, in units of a^2; [L, R, p] mean
E         scalar        (L + 1) R hypotheses: the last R are those of an optimum that moves with the context
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rasp_tuner.numerics import Array, softmax
from rasp_tuner.surrogate.evidence import log_student
from rasp_tuner.surrogate.linear import MovingBelief, Shared

FLAT = 0.15  # of a: the least curvature a minimiser is computed with
KAPPA = 0.7  # deviations of optimism
PROBE = 0.35  # first move, along one knob
REACH = np.array([0.1, -0.1, 0.2, -0.2, 0.4, -0.4])  # moves along the least known directions
DIRECTIONS, DRAWS = 3, 8


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
    kernels: Array  # [L, N] how much each slot counts for each local expert
    tried: Array  # [N, d] mean point of each slot
    targets: Array  # [N] its mean y
    spread: float  # of y
    origin: float  # y of the first sample
    offset: float
    a: float  # the curvature all situations share
    blind_curvature: float  # that curvature, estimated afresh
    S: Array
    mean: Array
    moving: MovingBelief | None
    shared: Shared
    latest: dict[str, Any] = field(default_factory=dict)  # what `predict` was last asked, and its answer

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

    @cached_property
    def noise(self) -> Array:
        return np.tile(self.a**2 * self.shared.noises, self.locals + 1)

    def predict(self, points: Array) -> tuple[Array, Array]:
        key = points.tobytes()
        if self.latest.get("key") != key:  # the same point is asked about by gate, family and explanation
            self._remember(points, *self._predict(2.0 * (points - self.box.default)))
        answer: tuple[Array, Array] = self.latest["answer"]
        return answer

    def log_density(self, point: Array, y: float) -> Array:
        mean, variance = self.predict(point[None])
        return log_student(y - mean[:, 0], variance[:, 0] + self.noise)

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
        return self._point(u[int((self.weights @ self._predict(u)[0]).argmin())])

    def choose(self, rng: np.random.Generator) -> tuple[Array, str]:
        """The least lower confidence bound of the mixture among experts' ideas and moves around them."""
        box, d = self.box, self.box.dim
        if len(self.targets) < 2:
            knob, sign = rng.integers(d), rng.choice([-1.0, 1.0])
            if not box.low[knob] <= sign * PROBE <= box.high[knob]:  # the default is near this end
                sign = -sign
            move = np.zeros(d)
            move[knob] = PROBE * sign
            return self._point(move), "first probe"
        local, rival = divmod(int(self.weights.argmax()), self.rivals)
        if local == self.locals and self.moving is not None:
            covariance = self.moving.location_covariance(rival)
        else:
            covariance = self.S[local, rival, 1 : 1 + d, 1 : 1 + d] / 4.0
        sizes, axes = np.linalg.eigh(covariance)
        moves = (axes[:, ::-1][:, :DIRECTIONS].T[:, None] * REACH[:, None]).reshape(-1, d)
        draws = KAPPA * (rng.normal(size=(DRAWS, d)) @ (axes * np.sqrt(np.maximum(sizes, 0.0))).T)
        centres, hint = self._centres(), self._hint()
        leader = centres[local * self.rivals + rival]
        parts = (centres, hint[None], leader + moves, leader + draws, hint + moves)
        u = np.minimum(np.maximum(np.concatenate(parts), box.low), box.high)
        mean, variance = self._predict(u)
        chosen = int((self.weights @ mean - KAPPA * np.sqrt(self.weights @ variance)).argmin())
        if chosen < len(centres):
            source = "predicted optimum"
        elif chosen == len(centres):
            source = "best tried"
        else:
            source = "probe near it"
        point = self._point(u[chosen])
        self._remember(point[None], mean[:, chosen, None], variance[:, chosen, None])
        return point, source

    def _remember(self, points: Array, mean: Array, variance: Array) -> None:
        self.latest.update(key=points.tobytes(), answer=(mean + (self.offset + self.origin), variance))

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

    def _predict(self, u: Array) -> tuple[Array, Array]:
        """Mean less the offset, and variance, [E, n]."""
        f = features(u)
        mean = (self.mean @ f.T).reshape(-1, len(u))
        variance = ((f @ self.S) * f).sum(axis=3).reshape(-1, len(u)) * self.a**2
        if self.moving is None:
            return np.concatenate([mean, mean[: self.rivals]]), np.maximum(
                np.concatenate([variance, variance[: self.rivals]]), 0.0
            )
        moved, unsure = self.moving.predict(u)
        means, variances = np.concatenate([mean, moved * self.a]), np.concatenate([variance, unsure * self.a**2])
        return means, np.maximum(variances, 0.0)

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
