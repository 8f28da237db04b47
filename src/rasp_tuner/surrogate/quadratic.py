"""Family Q: conjugate quadratic bowls over smooth knobs; rival experts pool prompts by context in rival ways.

symbol    shape         meaning
u         [n, d]        points relative to the default: 2 (point - default), in [-2, 2]
phi       [n, p]        [1, u, u^2]; p = 1 + 2 d
prompt    [P]           sums of phi phi', phi v', v v' over samples with metrics v [K]; y = v @ weights
W         [L, N]        retrieval weight of each slot for each of L local experts
G, b      [L, p, p]     pooled sums of phi phi'; [L, p] of phi y
a         scalar        the curvature all situations share; rho a^2 are the R rival noise variances
S, mean   [L, R, p, p]  posterior covariance in units of a^2; [L, R, p] posterior mean
E         scalar        (L + 1) R hypotheses: the last R are those of an optimum that moves with the context
"""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.numerics import LARGEST, Array, assign, under
from rasp_tuner.slots import SlotMemory
from rasp_tuner.surrogate.bowls import Bowls, Box, features, minimisers
from rasp_tuner.surrogate.evidence import Evidence
from rasp_tuner.surrogate.linear import MovingOptimum, Shared

LOCAL = ("all history", "recent history", "situations like this one", "the most similar situations")
MOVING = "an optimum that moves with the context"
NOISES = np.array([1e-4, 1e-2, 1e-1])  # rho
R = len(NOISES)
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
FALSE_ODDS, FALSE_FROM = 1e-5, 8  # prior odds of a false measurement; from this many samples on
SETTLED, OFTEN, SELDOM = 40, 2, 4  # samples; then one step in so many, while an expert counts or does not
SECOND = -7.0  # nats behind the leader at which it does not
TINY, FLATTEST = 1e-100, 1e-95  # a curvature where y is constant, so that no logarithm sees a zero; and one where not
FARTHEST = 1e60  # mean squared residual, in units of the usual one, at which a slot is not trusted at all


class Quadratic:
    """Bounded slots of sufficient statistics; every belief is one weighted regression, solved exactly."""

    experts = tuple(f"{name}{noise}" for name in (*LOCAL, MOVING) for noise in ("", " (noisy)", " (very noisy)"))

    def __init__(self, default: Array, context_dim: int, metrics: int) -> None:
        d = len(default)
        self.dim, self.default, self.metrics, self.p = d, default, metrics, 1 + 2 * d
        self.box = Box(default)
        self.slots = SlotMemory(context_dim, self.p**2 + self.p * metrics + metrics**2, len(LOCAL), SLOTS)
        self.moving = MovingOptimum(d, context_dim, metrics, R)
        prior = np.zeros((len(LOCAL) + 1, R))
        prior -= NOISE_ODDS * np.arange(R)
        prior[1 : len(LOCAL)] -= LOCAL_ODDS
        self.evidence = Evidence(prior.ravel())
        self.weights = np.ones(metrics)
        self._prior_mean = np.concatenate([[d * LOCATION], np.zeros(d), np.ones(d)])
        self._prior_precision = np.diag(np.concatenate([[1.0 / LEVEL], np.full(d, 0.25 / LOCATION), np.zeros(d)]))
        self._prior_precision[1 + d :, 1 + d :] = _precision(d, OWN)
        self._first = np.zeros(metrics)  # metrics of the first sample; all are kept relative to them
        self._shape = np.ones(d)  # curvature of each knob beside the others
        self._curvature = 0.0  # 0 until it is known
        self._level, self._level_variance = 0.0, 4.0  # of the least y; its variance in units of a
        self._largest = 0.0  # deviation of y, slowly forgotten
        self._judged = 0  # samples the curvature was tracked by
        self._suspect = False  # whether the latest sample looked false
        self._cache: tuple[bytes, Bowls] | None = None

    def believe(self, context: Array) -> Bowls:
        key = context.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = key, self._believe(context)
        return self._cache[1]

    def learn(self, point: Array, context: Array, values: Array, failed: bool) -> None:
        """Score the experts, then take the sample in; a failed one counts like any other here."""
        del failed
        if self.slots.steps == 0:
            self._first = values.copy()
        belief = self.believe(context) if self.slots.steps else None
        v = np.minimum(np.maximum(values - self._first, -LARGEST), LARGEST)
        u = 2.0 * (point - self.default)
        trust = 1.0
        if belief is not None and self.slots.steps >= 2:
            densities = belief.log_density(point, float(values @ self.weights))
            trust = self._credit(densities, belief.a)
            if trust >= 0.5:
                self.evidence.observe(densities)
                self._track(belief)
            if self._due(often=False):
                self._judge(belief)
        f = features(u[None])[0]
        prompt = np.concatenate([np.outer(f, f).ravel(), np.outer(f, v).ravel(), np.outer(v, v).ravel()])
        self.slots.write(context, prompt, trust)
        self.moving.observe(u, context, v, trust)
        if belief is not None and self.slots.steps >= 3 and self._due(often=self.evidence.scores[-R:].max() > SECOND):
            self._fit_moving(belief)
        self._cache = None

    def relearn(self) -> None:
        """More steps for the moving optimum; and a curvature that lost its way is estimated anew."""
        if self.slots.steps < 3 or self._cache is not None:
            return
        belief = self._believe(self.slots.latest)
        if self._curvature and not 0.2 < belief.blind_curvature / self._curvature < 5.0 and self.evidence.leader < R:
            self._curvature = belief.blind_curvature
        self._fit_moving(belief, extra=2)

    def reweigh(self, weights: Array) -> None:
        self.weights = weights.copy()
        self._curvature, self._judged, self._largest, self._level_variance = 0.0, 0, 0.0, 4.0
        self.moving.forget_fit()
        self._cache = None

    def targets(self) -> Array:
        """[N] mean y of each slot, relative to the first sample."""
        p, k = self.p, self.metrics
        y: Array = self.slots.prompts[:, p * p : p * p + k] @ self.weights / self.slots.counts
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
            **{f"evidence/{name}": array for name, array in self.evidence.state().items()},
            **{f"slots/{name}": array for name, array in self.slots.state().items()},
            **{f"moving/{name}": array for name, array in self.moving.state().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        *numbers, judged, suspect = (float(x) for x in state["numbers"])
        self._curvature, self._level, self._level_variance, self._largest = numbers
        self._judged, self._suspect = int(judged), suspect > 0.0
        for target, name in ((self.weights, "weights"), (self._first, "first"), (self._shape, "shape")):
            assign(target, state[name])
        for part, prefix in ((self.evidence, "evidence/"), (self.slots, "slots/"), (self.moving, "moving/")):
            part.restore(under(prefix, state))
        self._cache = None

    def _believe(self, context: Array) -> Bowls:
        kernels = self._kernels(context)
        G, b, yy = self._pool(kernels * self.slots.trust)
        offset = float(b[0, 0] / G[0, 0, 0])  # blind mean: numbers stay small
        b = b - offset * G[:, :, 0]
        prior, precision, level, level_variance = self._prior(offset)
        S = np.linalg.inv(G[:, None] / NOISES[:, None, None] + precision)
        by_data = (S @ b[:, None, :, None])[..., 0] / NOISES[:, None]
        by_prior = S @ (precision @ prior)
        rest = float(yy[0]) - offset**2 * float(G[0, 0, 0])
        blind = _likeliest_curvature(float(G[0, 0, 0]), b[0], rest, by_data[0, 1], by_prior[0, 1], float(NOISES[1]))
        a = self._curvature or blind
        mean = by_data + a * by_prior
        if self._curvature:
            mean, S = self._pin(mean, S, level)
        d = self.dim
        shared = Shared(a, level / a, level_variance, prior[1 + d :], precision[1 + d :, 1 + d :], LOCATION, NOISES)
        moving = self.moving.believe(context, offset, a) if self.moving.ready else None
        targets = self.targets()
        return Bowls(
            box=self.box,
            scores=self.evidence.scores,
            kernels=kernels,
            tried=self.slots.prompts[:, 1 : 1 + d] / self.slots.counts[:, None],
            targets=targets,
            spread=self._largest or float(targets.std()) or 1.0,
            origin=self.origin,
            offset=offset,
            a=a,
            blind_curvature=blind,
            S=S,
            mean=mean,
            moving=moving,
            shared=shared,
        )

    def _kernels(self, context: Array) -> Array:
        wobbles, spreads = self.slots.gaps(context)
        kernels = np.ones((len(LOCAL), self.slots.count))
        kernels[1] = np.exp(-self.slots.ages / RECENT)
        kernels[2] = np.exp(-(np.minimum(wobbles / self.slots.reach, 26.0) ** 2))
        kernels[3] = np.exp(-(np.minimum(spreads / (2.0 * NEAR**2), 26.0) ** 2))
        return kernels

    def _pool(self, W: Array) -> tuple[Array, Array, Array]:
        p, k, w = self.p, self.metrics, self.weights
        sums = W @ self.slots.prompts
        b = sums[:, p * p : p * (p + k)].reshape(-1, p, k) @ w
        return sums[:, : p * p].reshape(-1, p, p), b, sums[:, p * (p + k) :].reshape(-1, k, k) @ w @ w

    def _prior(self, offset: float) -> tuple[Array, Array, float, float]:
        """Mean and precision of the coefficients in units of a; level of the least y and its variance."""
        if not self._curvature:
            return self._prior_mean, self._prior_precision, 0.0, LEVEL
        most = FARTHEST**0.5 * self._curvature  # a metric that jumps must not overflow
        d, level = self.dim, min(max(self._level - offset, -most), most)
        variance = min(LEVEL, max(4.0 * self._level_variance, 0.01))
        mean, precision = self._prior_mean.copy(), self._prior_precision.copy()
        mean[0] += level / self._curvature
        mean[1 + d :] = self._shape
        precision[0, 0] = 1.0 / (variance + 0.1 * d)
        precision[1 + d :, 1 + d :] = _precision(d, max(OWN_LEAST, OWN / np.sqrt(1.0 + self._judged / 20.0)))
        return mean, precision, level, variance

    def _pin(self, mean: Array, S: Array, level: float) -> tuple[Array, Array]:
        """Add what a quadratic cannot say by itself: its least value is about the level all situations share."""
        u = minimisers(self.box, mean, self._curvature)
        f = np.concatenate([np.ones((*u.shape[:2], 1)), u, u**2], axis=2)
        Sf = (S @ f[..., None])[..., 0]
        gain = Sf / ((f * Sf).sum(axis=2) + self._level_variance + 0.01)[..., None]
        mean = mean + gain * (level - (f * mean).sum(axis=2))[..., None]
        return mean, S - gain[..., :, None] * Sf[..., None, :]

    def _credit(self, densities: Array, a: float) -> float:
        """Probability that a sample is no false measurement; a second odd one in a row clears both."""
        if self.slots.steps < FALSE_FROM:
            return 1.0
        top = float(densities.max())
        usual = float(np.log(self.evidence.weights @ np.exp(densities - top))) + top
        odd = float(np.log(FALSE_ODDS / (10.0 * max(self._largest, a))))
        honest = 1.0 / (1.0 + float(np.exp(min(odd - usual, 100.0))))
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
        mean = float(curvatures.mean())
        self._shape += 0.1 * (np.clip(curvatures / mean, 0.2, 4.0) - self._shape)
        self._shape /= self._shape.mean()
        self._curvature *= min(max(mean / self._curvature, 0.3), 3.0) ** 0.3
        y, trust = self.targets(), self.slots.trust[0] + 1e-9
        spread = float(np.sqrt(max(trust @ y**2 / trust.sum() - (trust @ y / trust.sum()) ** 2, 0.0)))
        self._largest = max(spread, 0.995 * self._largest)
        if self._largest > 0.0:
            self._curvature = min(max(self._curvature, 0.1 * self._largest), 100.0 * self._largest)

    def _judge(self, belief: Bowls) -> None:
        """Trust each slot by how far it lies from what its expert makes of it, so that outliers count little."""
        n = self.slots.count
        if n < 4:
            return
        L, w = len(LOCAL), self.weights
        rows = np.arange(L)
        lead = self.evidence.scores.reshape(-1, R)[:L].argmax(axis=1)
        c = belief.mean[rows, lead].copy()
        c[:, 0] += belief.offset
        form = np.concatenate(
            [
                (c[:, :, None] * c[:, None]).reshape(L, -1),
                -2.0 * (c[:, :, None] * w).reshape(L, -1),
                np.broadcast_to(np.outer(w, w).ravel(), (L, w.size**2)),
            ],
            axis=1,
        )
        squares = np.maximum(form @ self.slots.prompts.T, 0.0) / self.slots.counts  # mean squared residuals
        order = np.argsort(squares, axis=1)
        mass = np.cumsum(np.take_along_axis(belief.kernels, order, 1), axis=1)
        middle = order[rows, (mass >= 0.5 * mass[:, -1:]).argmax(axis=1)]
        scale = np.maximum(NOISES[lead] * belief.a**2, squares[rows, middle] / 0.455)  # as in linear.py
        far = np.minimum(squares, FARTHEST * scale[:, None]) / (OUTLYING**2 * scale[:, None])
        fresh = 1.0 / (1.0 + far) ** 2
        self.slots.trust[:] = np.where(belief.kernels > 0.3, fresh, self.slots.trust)

    def _due(self, often: bool) -> bool:
        """Whether to spend time on what changes little: always while young, then now and then."""
        n = self.slots.steps
        return n < SETTLED or n % (OFTEN if often else SELDOM) == 0

    def _fit_moving(self, belief: Bowls, extra: int = 0) -> None:
        rival = int(self.evidence.scores[-R:].argmax())
        self.moving.fit(self.weights, belief.offset, belief.shared, rival, extra)


def _precision(d: int, own: float) -> Array:
    """Inverse of own^2 I + COMMON^2 11'."""
    inverse: Array = (np.eye(d) - COMMON**2 / (own**2 + d * COMMON**2)) / own**2
    return inverse


def _likeliest_curvature(n: float, b: Array, rest: float, by_data: Array, by_prior: Array, rho: float) -> float:
    """The a under which `n` samples are likeliest, plus a little: too steep is safer than too flat."""
    square = max((rest - float(b @ by_data)) / rho, 1e-20 * abs(rest) / rho, TINY**2)
    linear = float(b @ by_prior) / rho
    root = float(np.sqrt(linear**2 + 4.0 * n * square))
    a = 2.0 * square / (root + linear) if linear >= 0.0 else (root - linear) / (2.0 * n)
    return max(float(a * np.exp(min(0.5 / max(2.0 * square / a**2 - linear / a, 0.5), 1.0))), TINY)
