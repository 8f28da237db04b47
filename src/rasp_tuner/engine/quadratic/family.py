"""Family Q: conjugate quadratic bowls over smooth knobs; rival experts pool prompts by context in rival ways.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
prompt    [q q]         sums of psi psi' over samples, psi = [phi, v] with metrics v [K]; q = p + K; y = v @ weights
W         [L, N]        retrieval weight of each slot for each of L local experts
G, b      [L, p, p]     pooled sums of phi phi'; [L, p] of phi y
a         scalar        the curvature all situations share; rho a^2 are the R rival noise variances
S, mean   [L, R, p, p]  posterior covariance in units of a^2; [L, R, p] posterior mean
E         scalar        (L + 1) R hypotheses: the last R are those of an optimum that moves with the context
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array, assign, under
from rasp_tuner.engine.evidence import Evidence, log_mean
from rasp_tuner.engine.memory import SlotMemory
from rasp_tuner.engine.outliers import suspects, unlikely
from rasp_tuner.engine.quadratic.belief import Bowls, Box, features, minimisers
from rasp_tuner.engine.quadratic.moving_optimum import MovingOptimum, Shared
from rasp_tuner.types import Samples, Slots

LOCAL = ("all history", "recent history", "situations like this one", "the most similar situations")
MOVING = "an optimum that moves with the context"
NOISES = np.array([1e-4, 1e-2, 1e-1])  # rho
R = len(NOISES)
EACH = np.tile(NOISES, len(LOCAL) + 1)  # [E]
NOISE_ODDS = 2.0  # nats against each but the one before
LOCAL_ODDS = 3.0  # nats against every local expert but the blind one
LOCATION = 0.25  # variance of an optimum around the default
OWN, COMMON = 0.3, 0.4  # deviation of a knob's own curvature and of the common one, in units of a
OWN_LEAST = 0.1  # of the first, once the knobs' curvatures are known
LEVEL = 25.0  # variance of the least y, in units of a, while nothing is known
RECENT = 20.0  # steps that the short memory lasts
NEAR = 0.3  # width of the narrow kernel, in deviations of the context
SLOTS = 192
YOUNG = 5  # samples until the curvature is tracked instead of estimated
OUTLYING = 5.0  # deviations at which a sample counts a quarter
FALSE_ODDS, FALSE_FROM = 1e-2, 8  # prior odds of a false measurement; from this many samples on
NEWS_ODDS = 1e-5  # the same in a situation never seen before: it may well be unlike all others
FAMILIAR = 0.5  # of the wide kernel: likeness from which on a situation was seen before
DOUBTFUL = 40  # samples in which the worst few are looked at anew, again and again
DISTRUST = 1e-6  # how much a false measurement counts
FALSE, FAILED = 1.0, 2.0  # what is known of an early sample; a failure is no false measurement
SETTLED, SELDOM = 100, 4  # samples; from then on, what changes little is looked at one step in so many
ASLEEP = -7.0  # nats behind the leader at which the moving optimum is, too
TINY, FLATTEST = 1e-100, 1e-95  # a curvature where y is constant, so that no logarithm sees a zero; and one where not
HIGHEST = 1e30  # level, in units of a: a metric that jumps must not overflow
FARTHEST = 1e60  # mean squared residual, in units of the usual one, at which a slot is not trusted at all


class Quadratic:
    """Bounded slots of sufficient statistics; every belief is one weighted regression, solved exactly."""

    experts = tuple(f"{name}{noise}" for name in (*LOCAL, MOVING) for noise in ("", " (noisy)", " (very noisy)"))

    def __init__(self, default: Array, context_dim: int, metrics: int) -> None:
        d = len(default)
        self.dim, self.default, self.metrics, self.p, self.q = d, default, metrics, 1 + 2 * d, 1 + 2 * d + metrics
        self.box = Box(default)
        self.slots = SlotMemory(context_dim, self.q**2, len(LOCAL), SLOTS)
        self.moving = MovingOptimum(d, context_dim, metrics, R)
        prior = np.zeros((len(LOCAL) + 1, R))
        prior -= NOISE_ODDS * np.arange(R)
        prior[1 : len(LOCAL)] -= LOCAL_ODDS
        self.evidence = Evidence(prior.ravel())
        self.weights = np.ones(metrics)
        self._first = np.zeros(metrics)  # metrics of the first sample; all are kept relative to them
        self._shape = np.ones(d)  # curvature of each knob beside the others
        self._curvature = 0.0  # 0 until it is known
        self._level, self._level_variance = 0.0, 4.0  # of the least y; its variance in units of a
        self._largest = 0.0  # deviation of y, slowly forgotten
        self._judged = 0  # samples the curvature was tracked by
        self._suspect = False  # whether the latest sample looked false
        self._early = np.zeros(DOUBTFUL)  # what is known of the first samples: 0, FALSE or FAILED
        self._blank_mean = np.concatenate([[d * LOCATION], np.zeros(d), np.ones(d)])
        self._blank_precision = np.diag(np.concatenate([[0.0], np.full(d, 0.25 / LOCATION), np.ones(d)]))
        self._prior = self._blank = self._make_prior()  # the latter is that of one who knows nothing
        self._blank_covariance = np.asarray(np.linalg.inv(self._blank.precision), dtype=np.float64)
        self._cache: tuple[bytes, Bowls] | None = None

    def believe(self, context: Array) -> Bowls:
        key = context.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = key, self._believe(context)
        return self._cache[1]

    def learn(self, point: Array, context: Array, values: Array, failed: bool) -> None:
        """Score the experts, then take the sample in; a failed one counts like any other, but is never doubted."""
        if self.slots.steps == 0:
            self._first = values.copy()
        belief = self.believe(context) if self.slots.steps else None
        v = np.minimum(np.maximum(values - self._first, -LARGEST), LARGEST)
        u = 2.0 * (point - self.default)
        trust = 1.0
        if belief is not None and self.slots.steps >= 2:
            densities = belief.log_density(point, float(values @ self.weights))
            trust = self._credit(densities, belief)
            if trust >= 0.5:
                self.evidence.observe(densities)
                self._track(belief)
                self._prior = self._make_prior()
            if self._due():
                self._judge(belief)
        if self.slots.steps < DOUBTFUL:
            trust = 1.0  # these are judged together, and again with every one that comes
        psi = np.concatenate([features(u), v])
        self.slots.write(context, (psi[:, None] * psi).ravel(), trust)
        self.moving.observe(u, context, v, trust)
        if self.slots.steps <= DOUBTFUL:
            self._early[self.slots.steps - 1] = FAILED * failed
            self._doubt()
        if belief is not None and self.slots.steps >= 3 and self._due():
            self._fit_moving(belief)
        self._cache = None

    def relearn(self) -> None:
        """More steps for the moving optimum; and a curvature that lost its way is estimated anew."""
        if self.slots.steps < 3:
            return
        if self._curvature and self.evidence.leader < R:
            fresh = self._estimate(*self._pool(self.slots.trust[:1]))
            if not 0.2 < fresh / self._curvature < 5.0:
                self._curvature = fresh
        self._fit_moving(self.believe(self.slots.latest), extra=2)
        self._cache = None

    def reweigh(self, weights: Array) -> None:
        self.weights = weights.copy()
        self._curvature, self._judged, self._largest, self._level_variance = 0.0, 0, 0.0, 4.0
        self._prior = self._make_prior()
        self.moving.forget_fit()
        self._cache = None

    def remembered(self) -> Slots:
        return Slots(self.slots.contexts, self.slots.counts.copy(), self.slots.ages)

    def recent(self) -> Samples:
        u, contexts, values = self.moving.recent()
        return Samples(contexts, self.default + u / 2.0, values @ self.weights + self.origin)

    def targets(self) -> Array:
        """[N] mean y of each slot, relative to the first sample."""
        y: Array = self.slots.prompts[:, self.p : self.q] @ self.weights / self.slots.counts
        return y

    @property
    def origin(self) -> float:
        """y of the first sample."""
        return float(self._first @ self.weights)

    def state(self) -> dict[str, Array]:
        numbers = [self._curvature, self._level, self._level_variance, self._largest, self._judged, self._suspect]
        return {
            "numbers": np.array(numbers, dtype=np.float64),
            "weights": self.weights,
            "first": self._first,
            "shape": self._shape,
            "early": self._early,
            **{f"evidence/{name}": array for name, array in self.evidence.state().items()},
            **{f"slots/{name}": array for name, array in self.slots.state().items()},
            **{f"moving/{name}": array for name, array in self.moving.state().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        *numbers, judged, suspect = (float(x) for x in state["numbers"])
        self._curvature, self._level, self._level_variance, self._largest = numbers
        self._judged, self._suspect = int(judged), suspect > 0.0
        own = {"weights": self.weights, "first": self._first, "shape": self._shape, "early": self._early}
        for name, target in own.items():
            assign(target, state[name])
        for part, prefix in ((self.evidence, "evidence/"), (self.slots, "slots/"), (self.moving, "moving/")):
            part.restore(under(prefix, state))
        self._prior = self._make_prior()
        self._cache = None

    def _believe(self, context: Array) -> Bowls:
        kernels = self._kernels(context)
        G, b, offset, rest = self._pool(kernels * self.slots.trust)
        a = self._curvature or self._estimate(G, b, offset, rest)
        prior, level = self._prior, a * self._centred_level(offset, a)
        S = np.linalg.inv(G[:, None] / NOISES[:, None, None] + prior.precision)
        pull = a * prior.pull
        pull[0] += level * prior.precision[0, 0]
        mean = (S @ (b[:, None] / NOISES[:, None] + pull)[..., None])[..., 0]
        if self._curvature:
            mean, S = self._pin(mean, S, level)
        targets = self.targets()
        return Bowls(
            box=self.box,
            scores=self.evidence.scores,
            noises=EACH,
            kernels=kernels,
            tried=self.slots.prompts[:, 1 : 1 + self.dim] / self.slots.counts[:, None],
            targets=targets,
            spread=self._largest or float(targets.std()) or 1.0,
            origin=self.origin,
            offset=offset,
            a=a,
            S=S,
            mean=mean,
            moving=self.moving.believe(context, offset, a) if self.moving.ready and self._awake() else None,
        )

    def _kernels(self, context: Array) -> Array:
        """[L, N] how much each slot counts for each local expert."""
        far = np.zeros((len(LOCAL), self.slots.count))
        np.divide(self.slots.ages, -RECENT, out=far[1])
        gaps = self.slots.gaps(context)
        gaps[0] /= self.slots.reach
        gaps[1] /= 2.0 * NEAR**2
        np.minimum(gaps, 26.0, out=gaps)
        np.multiply(gaps, -gaps, out=far[2:])
        return np.exp(far, out=far)

    def _pool(self, W: Array) -> tuple[Array, Array, float, float]:
        """G, b less the offset, that offset (the blind mean: numbers stay small), and the blind sum of y^2 less it."""
        p, w = self.p, self.weights
        sums = (W @ self.slots.prompts).reshape(-1, self.q, self.q)
        G, b = sums[:, :p, :p], sums[:, :p, p:] @ w
        count = float(G[0, 0, 0])
        offset = float(b[0, 0]) / count
        return G, b - offset * G[:, :, 0], offset, float(w @ sums[0, p:, p:] @ w) - offset**2 * count

    def _estimate(self, G: Array, b: Array, offset: float, rest: float) -> float:
        """The shared curvature by the blind expert alone, at the middle noise."""
        prior, rho = self._prior, float(NOISES[1])
        pull = prior.pull.copy()
        pull[0] += self._centred_level(offset, self._curvature) * prior.precision[0, 0]
        by_data, by_prior = np.linalg.solve(G[0] / rho + prior.precision, np.column_stack([b[0] / rho, pull])).T
        return _likeliest_curvature(float(G[0, 0, 0]), b[0], rest, by_data, by_prior, rho)

    def _centred_level(self, offset: float, a: float) -> float:
        """Level of the least y that all situations share, less the offset, in units of a; 0 while it is unknown."""
        if not self._curvature:
            return 0.0
        return min(max((self._level - offset) / a, -HIGHEST), HIGHEST)

    def _make_prior(self) -> "Prior":
        """What is held true of a bowl before it is seen."""
        d, known = self.dim, self._curvature > 0.0
        level_variance = min(LEVEL, max(4.0 * self._level_variance, 0.01)) if known else LEVEL
        own = max(OWN_LEAST, OWN / math.sqrt(1.0 + self._judged / 20.0)) if known else OWN
        mean, precision = self._blank_mean.copy(), self._blank_precision.copy()
        if known:
            mean[1 + d :] = self._shape
        precision[0, 0] = 1.0 / (level_variance + 0.1 * d * known)
        precision[1 + d :, 1 + d :] -= COMMON**2 / (own**2 + d * COMMON**2)
        precision[1 + d :, 1 + d :] /= own**2
        return Prior(mean, precision, precision @ mean, level_variance)

    def _pin(self, mean: Array, S: Array, level: float) -> tuple[Array, Array]:
        """Add what a quadratic cannot say by itself: its least value is about the level all situations share."""
        u = minimisers(self.box, mean, self._curvature)
        f = features(u)
        Sf = (S @ f[..., None])[..., 0]
        gain = Sf / ((f * Sf).sum(axis=2) + self._level_variance + 0.01)[..., None]
        mean = mean + gain * (level - (f * mean).sum(axis=2))[..., None]
        return mean, S - gain[..., :, None] * Sf[..., None, :]

    def _credit(self, densities: Array, belief: Bowls) -> float:
        """Probability that a sample is no false measurement; a second odd one in a row clears both."""
        if self.slots.steps < FALSE_FROM:
            return 1.0
        odds = FALSE_ODDS if float(belief.similar().max()) > FAMILIAR else NEWS_ODDS
        odd = math.log(odds / (10.0 * max(self._largest, belief.a)))
        honest = 1.0 / (1.0 + math.exp(min(odd - log_mean(densities, belief.weights), 100.0)))
        if honest >= 0.5:
            self._suspect = False
            return honest
        if self._suspect:
            self._suspect = False
            self.slots.pardon()
            self.moving.pardon()
            return 1.0
        self._suspect = True
        return honest

    def _doubt(self) -> None:
        """Look again at the first samples: a few false ones among them would bend all that is shared."""
        n, d, y = self.slots.count, self.dim, self.targets()
        may = np.zeros(n, dtype=bool)
        for i in suspects(y).tolist():
            may[i] = self._early[i] != FAILED and self.slots.seen_before(i)
        phi = features(self.slots.prompts[:, 1 : 1 + d])
        out, a = unlikely(phi, y, self._blank.mean, self._blank_covariance, may, FALSE_ODDS)
        was = self._early[:n] == FALSE
        for rows, trust in ((was & ~out, 1.0), (out, DISTRUST)):
            self.slots.trust[:, rows] = trust
            self.moving.trust(rows, trust)
        self._early[:n][was] = 0.0
        self._early[:n][out] = FALSE
        if self._curvature and (out & ~was).any():
            self._curvature, self._largest = min(self._curvature, a), 0.0
            self._prior = self._make_prior()

    def _track(self, belief: Bowls) -> None:
        """Move what all situations share slowly towards what the leading expert sees."""
        self._judged += self.slots.steps >= 3
        if self._judged < YOUNG:
            return
        curvatures, least = belief.summary(self.evidence.leader)
        if belief.a < FLATTEST:
            return  # nothing has moved y yet: its curvature is still to be seen
        if not self._curvature:
            self._curvature, self._level = belief.a, least
        gap = least - self._level
        self._level += 0.1 * gap
        self._level_variance += 0.1 * (min(abs(gap) / self._curvature, 1e6) ** 2 - self._level_variance)
        mean = float(curvatures.sum()) / self.dim
        self._shape += 0.1 * (np.minimum(np.maximum(curvatures / mean, 0.2), 4.0) - self._shape)
        self._shape /= float(self._shape.sum()) / self.dim
        self._curvature *= min(max(mean / self._curvature, 0.3), 3.0) ** 0.3
        self._largest *= 0.995
        if self._due():
            self._largest = max(self._spread(), self._largest)
        if self._largest > 0.0:
            self._curvature = min(max(self._curvature, 0.1 * self._largest), 100.0 * self._largest)

    def _spread(self) -> float:
        """Deviation of y over the slots that are trusted."""
        y, trust = self.targets(), self.slots.trust[0] + 1e-9
        total = float(trust.sum())
        return math.sqrt(max(float(trust @ y**2) / total - (float(trust @ y) / total) ** 2, 0.0))

    def _judge(self, belief: Bowls) -> None:
        """Trust each slot by how far it lies from what its expert makes of it, so that outliers count little."""
        n = self.slots.count
        if n < 4:
            return
        rows = np.arange(len(LOCAL))
        lead = self.evidence.scores.reshape(-1, R)[:-1].argmax(axis=1)
        form = np.concatenate(
            [belief.mean[rows, lead], np.broadcast_to(-self.weights, (len(LOCAL), self.metrics))], axis=1
        )
        form[:, 0] += belief.offset
        form = (form[:, :, None] * form[:, None]).reshape(len(LOCAL), -1)
        squares = np.maximum(form @ self.slots.prompts.T, 0.0) / self.slots.counts  # mean squared residuals
        order = np.argsort(squares, axis=1)
        mass = np.cumsum(np.take_along_axis(belief.kernels, order, 1), axis=1)
        middle = order[rows, (mass >= 0.5 * mass[:, -1:]).argmax(axis=1)]
        scale = np.maximum(NOISES[lead] * belief.a**2, squares[rows, middle] / 0.455)  # as in linear.py
        far = np.minimum(squares, FARTHEST * scale[:, None]) / (OUTLYING**2 * scale[:, None])
        fresh = 1.0 / (1.0 + far) ** 2
        self.slots.trust[:] = np.where(belief.kernels > 0.3, fresh, self.slots.trust)

    def _due(self) -> bool:
        """Whether to spend time on what changes little: always while young, then now and then."""
        return self.slots.steps < SETTLED or self.slots.steps % SELDOM == 0

    def _awake(self) -> bool:
        """Whether the moving optimum has a say now; while it has none, it is scored like the blind expert."""
        return self._due() or float(self.evidence.scores[-R:].max()) > ASLEEP

    def _fit_moving(self, belief: Bowls, extra: int = 0) -> None:
        d, prior, a = self.dim, self._prior, belief.a
        level, curvatures = self._centred_level(belief.offset, a), slice(1 + d, None)
        shared = Shared(
            a,
            level,
            prior.level_variance,
            prior.mean[curvatures],
            prior.precision[curvatures, curvatures],
            LOCATION,
            NOISES,
        )
        self.moving.fit(self.weights, belief.offset, shared, int(self.evidence.scores[-R:].argmax()), extra)


@dataclass(frozen=True, slots=True)
class Prior:
    """Of the coefficients, in units of a, level left out."""

    mean: Array  # [p]
    precision: Array  # [p, p]
    pull: Array  # [p] their product
    level_variance: float


def _likeliest_curvature(n: float, b: Array, rest: float, by_data: Array, by_prior: Array, rho: float) -> float:
    """The a under which `n` samples are likeliest, plus a little: too steep is safer than too flat."""
    square = max((rest - float(b @ by_data)) / rho, 1e-20 * abs(rest) / rho, TINY**2)
    linear = float(b @ by_prior) / rho
    root = float(np.sqrt(linear**2 + 4.0 * n * square))
    a = 2.0 * square / (root + linear) if linear >= 0.0 else (root - linear) / (2.0 * n)
    return max(float(a * np.exp(min(0.5 / max(2.0 * square / a**2 - linear / a, 0.5), 1.0))), TINY)
