"""QuadraticFamily: a small Bayesian regression for each expert; experts differ in which samples count.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
prompt    [q q]         sums of psi psi' over samples, psi = [phi, v] with losses v [K]; q = p + K; y = v @ weights
W         [L, N]        retrieval weight of each slot for each of L local experts
G, b      [L, p, p]     pooled sums of phi phi'; [L, p] of phi y
a         scalar        the curvature all situations share
rho       [E]           variance of one observation, in units of a^2, as each expert sees it
S, mean   [L, p, p]     posterior covariance in units of a^2; [L, p] posterior mean
E         scalar        L + 1 experts: the last is an optimum that moves with the context
"""

import math
from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array, assign, softmax, under
from rasp_tuner.core.optimizer import Samples, Stateful
from rasp_tuner.engine.evidence import Evidence, log_mean
from rasp_tuner.engine.family import Forecast, Trial
from rasp_tuner.engine.memory import SlotMemory
from rasp_tuner.engine.outliers import CHI2_MEDIAN, early_outliers, residual_trust, suspects
from rasp_tuner.engine.quadratic.belief import Box, QuadraticBelief, Sums, features, minimisers
from rasp_tuner.engine.quadratic.moving_optimum import MovingOptimum, Shared
from rasp_tuner.engine.quadratic.noise import TrackedNoise
from rasp_tuner.engine.quadratic.prior import OPTIMUM_VARIANCE, SharedShape
from rasp_tuner.engine.quadratic.upgrade import upgraded
from rasp_tuner.types import Slots

LOCAL_EXPERTS = ("all history", "recent history", "situations like this one", "the most similar situations")
MOVING_EXPERT = "an optimum that moves with the context"
L = len(LOCAL_EXPERTS)
LOCAL_ODDS = 3.0  # nats against every local expert but the blind one
RECENT_STEPS = 20.0  # that the short memory lasts
NARROW_WIDTH = 0.3  # of the narrow kernel, in deviations of the context
SLOTS = 192
TRACK_FROM_SAMPLES = 5  # on, the curvature is tracked instead of estimated
LEAST_TRACKED_CURVATURE = 1e-95  # below, nothing has moved y yet
OUTLIERS_FROM_SAMPLES = 8  # on, a single sample may be called false
OUTLIER_ODDS = 1e-2  # prior odds of a false measurement
OUTLIER_ODDS_NEW_SITUATION = 1e-5  # the same in a situation never seen before: it may well be unlike all others
FAMILIAR = 0.5  # of the wide kernel: likeness from which on a situation was seen before
OUTLIER_TRUST = 1e-6  # how much a false measurement counts
EARLY_SAMPLES = 40  # in which the worst few are looked at again with every sample
OUTLIER, FAILED = 1.0, 2.0  # what is known of an early sample; a failure is no false measurement
SETTLED_SAMPLES, REFRESH_EVERY_STEPS = 100, 4  # after so many, what changes little is looked at one step in so many
MOVING_IDLE_NATS = -7.0  # behind the leader: from there on the moving optimum is idle


class QuadraticFamily:
    """Bounded slots of sufficient statistics; every belief is one weighted regression, solved exactly."""

    experts: tuple[str, ...] = (*LOCAL_EXPERTS, MOVING_EXPERT)

    def __init__(self, default: Array, context_dim: int, metrics: int) -> None:
        d = len(default)
        self.dim, self.default, self.metrics, self.p, self.q = d, default, metrics, 1 + 2 * d, 1 + 2 * d + metrics
        self.box = Box(default)
        self.slots = SlotMemory(context_dim, self.q**2, L, SLOTS)
        self.moving = MovingOptimum(d, context_dim, metrics)
        self.shared = SharedShape(d)
        self.noise = TrackedNoise(L + 1)
        prior = np.zeros(L + 1)
        prior[1:L] = -LOCAL_ODDS
        self.evidence = Evidence(prior)
        self.weights = np.ones(metrics)
        self._first = np.zeros(metrics)  # losses of the first sample; all are kept relative to them
        self._suspected = False  # whether the latest sample looked false
        self._early = np.zeros(EARLY_SAMPLES)  # what is known of the first samples: 0, OUTLIER or FAILED

    @property
    def samples(self) -> int:
        return self.slots.steps

    @property
    def origin(self) -> float:
        """y of the first sample."""
        return float(self._first @ self.weights)

    def believe(self, context: Array) -> QuadraticBelief:
        kernels, shared = self._kernels(context), self.shared
        sums, offset = self._pool(kernels * self.slots.trust)
        G, b, rest = sums
        a = shared.curvature or shared.estimate(G[0], b[0], float(rest[0]), 0.0)
        prior, level = shared.prior, a * shared.centred_level(offset, a)
        noises = self.noise.variances
        S = np.asarray(np.linalg.inv(G / noises[:L, None, None] + prior.precision), dtype=np.float64)
        pull = a * prior.pull
        pull[0] += level * prior.precision[0, 0]
        mean = (S @ (b / noises[:L, None] + pull)[..., None])[..., 0]
        if shared.curvature:
            mean, S = self._pin(mean, S, level)
        moving = self.moving.believe(context, offset, a) if self.moving.ready and self._moving_has_weight() else None
        scores = self.evidence.scores
        weights = softmax(scores if moving is not None else np.append(scores[:-1], -np.inf))
        targets = self.targets()
        return QuadraticBelief(
            box=self.box,
            weights=weights,
            noises=noises,
            noise=float(weights @ noises) * a**2,
            kernels=kernels,
            tried=self.slots.prompts[:, 1 : 1 + self.dim] / self.slots.counts[:, None],
            targets=targets,
            spread=shared.largest or float(targets.std()) or 1.0,
            origin=self.origin,
            offset=offset,
            a=a,
            S=S,
            mean=mean,
            moving=moving,
            sums=sums,
        )

    def learn(self, trial: Trial, belief: QuadraticBelief | None, forecast: Forecast | None) -> None:
        """Score the experts, then take the trial in; a failed one counts like any other, but is never an outlier."""
        point, context, losses, failed, _ = trial
        if self.slots.steps == 0:
            self._first = losses.copy()
        v = np.minimum(np.maximum(losses - self._first, -LARGEST), LARGEST)
        u = 2.0 * (point - self.default)
        trust = 1.0
        if belief is not None and forecast is not None:
            trust = self._trust_in_sample(forecast.log_densities, belief)
            if trust >= 0.5:
                self.evidence.observe(forecast.log_densities)
                means, variances = (x[:, 0] / belief.a for x in belief.each(point[None]))
                self.noise.observe(float(losses @ self.weights) / belief.a - means, variances / belief.a)
                self._track(belief)
            if self._refresh_now():
                self._update_trust(belief)
        if self.slots.steps < EARLY_SAMPLES:
            trust = 1.0  # these are judged together, and again with every one that comes
        psi = np.concatenate([features(u), v])
        self.slots.write(context, (psi[:, None] * psi).ravel(), trust)
        self.moving.observe(u, context, v, trust)
        if self.slots.steps <= EARLY_SAMPLES:
            self._early[self.slots.steps - 1] = FAILED * failed
            self._recheck_early_samples()
        if belief is not None and self.slots.steps >= 3 and self._refresh_now():
            self._fit_moving(belief)

    def reweigh(self, weights: Array) -> None:
        self.weights = weights.copy()
        self.shared.reset()
        self.moving.forget_fit()

    def remembered(self) -> Slots:
        return Slots(self.slots.contexts, self.slots.counts.copy(), self.slots.ages)

    def recent(self) -> Samples:
        u, contexts, losses = self.moving.recent()
        return Samples(contexts, self.default + u / 2.0, losses @ self.weights + self.origin, losses + self._first)

    def targets(self) -> Array:
        """[N] mean y of each slot, relative to the first sample."""
        y: Array = self.slots.prompts[:, self.p : self.q] @ self.weights / self.slots.counts
        return y

    def state(self) -> dict[str, Array]:
        s = self.shared
        numbers = [s.curvature, s.level, s.level_variance, s.largest, s.tracked, self._suspected]
        return {
            "numbers": np.array(numbers, dtype=np.float64),
            "weights": self.weights,
            "first": self._first,
            "shape": s.shape,
            "early": self._early,
            **{f"{part}/{name}": array for part, its in self._parts().items() for name, array in its.state().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        s, state = self.shared, upgraded(state)
        *numbers, tracked, suspected = (float(x) for x in state["numbers"])
        s.curvature, s.level, s.level_variance, s.largest = numbers
        s.tracked, self._suspected = int(tracked), suspected > 0.0
        own = {"weights": self.weights, "first": self._first, "shape": s.shape, "early": self._early}
        for name, target in own.items():
            assign(target, state[name])
        for name, part in self._parts().items():
            part.restore(under(f"{name}/", state))
        s.refresh()

    def _parts(self) -> dict[str, Stateful]:
        return {"evidence": self.evidence, "slots": self.slots, "moving": self.moving, "noise": self.noise}

    def _kernels(self, context: Array) -> Array:
        """[L, N] how much each slot counts for each local expert."""
        far = np.zeros((L, self.slots.count))
        np.divide(self.slots.ages, -RECENT_STEPS, out=far[1])
        gaps = self.slots.gaps(context)
        gaps[0] /= self.slots.reach
        gaps[1] /= 2.0 * NARROW_WIDTH**2
        np.minimum(gaps, 26.0, out=gaps)
        np.multiply(gaps, -gaps, out=far[2:])
        return np.exp(far, out=far)

    def _pool(self, W: Array) -> tuple[Sums, float]:
        """Sums of y less an offset, and that offset: the blind mean, so that numbers stay small."""
        p, w = self.p, self.weights
        sums = (W @ self.slots.prompts).reshape(-1, self.q, self.q)
        G, b = sums[:, :p, :p], sums[:, :p, p:] @ w
        offset = float(b[0, 0]) / float(G[0, 0, 0])
        rest = sums[:, p:, p:] @ w @ w - offset * (2.0 * b[:, 0] - offset * G[:, 0, 0])
        return Sums(G, b - offset * G[:, :, 0], rest), offset

    def _pin(self, mean: Array, S: Array, level: float) -> tuple[Array, Array]:
        """Add what a quadratic cannot say by itself: its least value is about the level all situations share."""
        u = minimisers(self.box, mean, self.shared.curvature)
        f = features(u)
        Sf = (S @ f[..., None])[..., 0]
        gain = Sf / ((f * Sf).sum(axis=1) + self.shared.level_variance + 0.01)[..., None]
        mean = mean + gain * (level - (f * mean).sum(axis=1))[..., None]
        return mean, S - gain[..., :, None] * Sf[..., None, :]

    def _track(self, belief: QuadraticBelief) -> None:
        """Move what all situations share slowly towards what the leading expert sees."""
        shared = self.shared
        shared.tracked += self.slots.steps >= 3
        if shared.tracked >= TRACK_FROM_SAMPLES and belief.a >= LEAST_TRACKED_CURVATURE:
            leader, likeliest, spread = self.evidence.leader, shared.curvature, None
            if self._refresh_now() or not shared.curvature:
                G, b, rest = (x[min(leader, L - 1)] for x in belief.sums)
                level = belief.a * shared.centred_level(belief.offset, belief.a)
                likeliest, spread = shared.estimate(G, b, float(rest), level), self._spread()
            shared.track(*belief.summary(leader), likeliest, spread)
        shared.refresh()

    def _spread(self) -> float:
        """Deviation of y over the slots that are trusted."""
        y, trust = self.targets(), self.slots.trust[0] + 1e-9
        total = float(trust.sum())
        return math.sqrt(max(float(trust @ y**2) / total - (float(trust @ y) / total) ** 2, 0.0))

    def _trust_in_sample(self, log_densities: Array, belief: QuadraticBelief) -> float:
        """Probability that a sample is no false measurement; a second odd one in a row clears both."""
        if self.slots.steps < OUTLIERS_FROM_SAMPLES:
            return 1.0
        odds = OUTLIER_ODDS if float(belief.similar().max()) > FAMILIAR else OUTLIER_ODDS_NEW_SITUATION
        if_outlier = math.log(odds / (10.0 * max(self.shared.largest, belief.a)))
        trust = 1.0 / (1.0 + math.exp(min(if_outlier - log_mean(log_densities, belief.weights), 100.0)))
        if trust >= 0.5:
            self._suspected = False
            return trust
        if self._suspected:
            self._suspected = False
            self.slots.restore_trust()
            self.moving.restore_trust()
            return 1.0
        self._suspected = True
        return trust

    def _recheck_early_samples(self) -> None:
        """Look again at the first samples: a few false ones among them would bend all that is shared."""
        n, d, y = self.slots.count, self.dim, self.targets()
        may = np.zeros(n, dtype=bool)
        for i in suspects(y).tolist():
            may[i] = self._early[i] != FAILED and self.slots.seen_before(i)
        phi = features(self.slots.prompts[:, 1 : 1 + d])
        shared = self.shared
        out, a = early_outliers(phi, y, shared.blank.mean, shared.blank_covariance, may, OUTLIER_ODDS)
        was = self._early[:n] == OUTLIER
        for rows, trust in ((was & ~out, 1.0), (out, OUTLIER_TRUST)):
            self.slots.trust[:, rows] = trust
            self.moving.trust(rows, trust)
        self._early[:n][was] = 0.0
        self._early[:n][out] = OUTLIER
        if (out & ~was).any():
            shared.outliers_found(a)
            self.noise = TrackedNoise(L + 1)  # they were taken for noise when they came

    def _update_trust(self, belief: QuadraticBelief) -> None:
        """Trust each slot by how far it lies from what its expert makes of it, so that outliers count little."""
        if self.slots.count < 4:
            return
        rows = np.arange(L)
        form = np.concatenate([belief.mean, np.broadcast_to(-self.weights, (L, self.metrics))], axis=1)
        form[:, 0] += belief.offset
        form = (form[:, :, None] * form[:, None]).reshape(L, -1)
        squares = np.maximum(form @ self.slots.prompts.T, 0.0) / self.slots.counts  # mean squared residuals
        order = np.argsort(squares, axis=1)
        mass = np.cumsum(np.take_along_axis(belief.kernels, order, 1), axis=1)
        middle = order[rows, (mass >= 0.5 * mass[:, -1:]).argmax(axis=1)]
        scale = np.maximum(belief.noises[:L] * belief.a**2, squares[rows, middle] / CHI2_MEDIAN)
        trust = residual_trust(squares, scale[:, None])
        self.slots.trust[:] = np.where(belief.kernels > 0.3, trust, self.slots.trust)

    def _refresh_now(self) -> bool:
        """Whether to spend time on what changes little: always while young, then now and then."""
        return self.slots.steps < SETTLED_SAMPLES or self.slots.steps % REFRESH_EVERY_STEPS == 0

    def _moving_has_weight(self) -> bool:
        """Whether the moving optimum counts now; while it does not, it is scored like the blind expert."""
        return self._refresh_now() or float(self.evidence.scores[-1]) > MOVING_IDLE_NATS

    def _fit_moving(self, belief: QuadraticBelief) -> None:
        d, prior, a = self.dim, self.shared.prior, belief.a
        level, curvatures = self.shared.centred_level(belief.offset, a), slice(1 + d, None)
        shared = Shared(
            a,
            level,
            prior.level_variance,
            prior.mean[curvatures],
            prior.precision[curvatures, curvatures],
            OPTIMUM_VARIANCE,
            float(self.noise.variances[-1]),
        )
        self.moving.fit(self.weights, belief.offset, shared)
