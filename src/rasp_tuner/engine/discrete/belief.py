"""DiscreteBelief: what the discrete family holds true in one context; its candidates, and the choice among them.

symbol     shape      meaning
n, d, d_c  scalar     stored rows, knobs, context dimensions
kc         [n]        closeness of this context to each row's
share      [n]        how much of a row's difference between points holds here
base       [n]        the part of the kernel that knows contexts only
target     [n]        y shifted, scaled, and compressed above the level of its context: what is bad need not be known
                      exactly
offset     scalar     level of this context: the mean y of similar rows, shifted and scaled as the target
alpha      [n]        inverse @ target
phi, steps            features of points (knobs.py)
"""

import math
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.distance import mean_squares
from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.engine.discrete.kernel import JITTER, Kernel, root
from rasp_tuner.engine.discrete.knobs import Knobs
from rasp_tuner.engine.discrete.target import levels, unwarped, warped
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice, Comparison, Forecast, compared

SETTLED = "best known; exploring would cost more than it finds"
ALIKE = 0.5  # kc from which on what failed, or could not be had, there is not asked for here
BASELINE = "default, which did not run here yet"
BASELINE_STEPS, BASELINE_SAMPLES = 10, 30  # between two of these; in a context, after which it is tried no more
LEVEL_CHANCE = 0.3  # of trying a new level of a knob where nothing else seems worth a look
LOOKS = (1.0, 5.0, 25.0)  # at one point, that the value of information is averaged over: under noise one tells little


@dataclass(frozen=True)
class DiscreteConstants:
    """Where experiments ended."""

    capacity: int = 200
    horizon: float = 50.0  # steps in which knowledge pays: weight of its value against the price of a look
    elites: int = 5
    mutants: int = 40
    crossovers: int = 8
    full: int = 4  # minimisers of drawn main effects
    sparse: int = 6  # the same, with only the strongest knobs moved
    few: float = 0.5  # changes of a mutant are geometric with this parameter
    home: float = 0.2  # chance that a change goes back to the default
    spread: float = 0.5  # scale of drawn main effects
    warp: float = 2.0  # the compression: linear up to about this many deviations above the level of a context
    memory: float = 60.0
    kept: float = 2.0  # best rows of each context that are not forgotten
    similar: float = 0.85  # kc above which equal points share a row
    freedom: float = 4.0  # of the Student-t noise
    va: float = 0.3  # where theta starts, see kernel.py
    vp: float = 0.5
    length: float = 0.3
    width: float = 0.4
    noise: float = 0.1
    vc: float = 0.3
    rho: float = 0.7
    rate: float = 0.1  # first step of theta
    loose: float = 1.0  # how far theta's prior lets it go


@dataclass(frozen=True)
class Fit:
    """All that a belief needs; never changed once made, so a belief outlives later learning."""

    constants: DiscreteConstants
    knobs: Knobs
    kernel: Kernel
    points: Array
    phi: Array
    steps: Array
    contexts: Array
    failed: Array
    tried: Array  # which levels were tried (knobs.py)
    counts: Array
    since_default: int  # samples since the default ran or was asked for
    reached: float  # share of new points that ran as they were asked for
    unreached: Array  # [., d] the latest that did not, and never ran: asking for them again tells nothing
    unreached_in: Array  # [., d_c] raw contexts of these
    gram: Array
    inverse: Array
    alpha: Array
    values: Array  # [n] y of the rows
    center: float  # y = center + scale * (offset + what the compression left of the target)
    scale: float
    middle: Array  # contexts are standardised by (context - middle) / width
    width: Array

    def closeness(self, context: Array) -> Array:
        """kc [n] between a raw context and the rows'."""
        return self.kernel.closeness(mean_squares(self.contexts, standard(context, self.middle, self.width)))


class DiscreteBelief:
    """What the family holds true in one context."""

    def __init__(self, fit: Fit, context: Array) -> None:
        self._fit, self._context = fit, context
        self._kc = kc = fit.closeness(context)
        self._share = fit.kernel.blend(kc)
        self._base = fit.kernel.base(kc)
        self._offset = (float(levels(kc[None], fit.values, fit.center)[0]) - fit.center) / fit.scale
        self._barred = fit.points[(fit.failed > 0.0) & (kc > ALIKE)]  # they failed in a context like this

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of the noise-free y at points [n, d]."""
        return self._in_units_of_y(*self._marginal(points))

    def _in_units_of_y(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of the target as those of y."""
        fit, warp = self._fit, self._fit.constants.warp
        mean = mean - self._offset
        slope = fit.scale * np.exp(np.clip(mean, 0.0, 100.0) / warp)  # of the unwarping
        return fit.center + fit.scale * (self._offset + unwarped(mean, warp)), variance * slope**2

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        """Mean and variance of y at `point` less y at `other`."""
        mean, covariance = self._joint(np.stack([point, other]))
        y, variances = self._in_units_of_y(mean, np.maximum(covariance.diagonal(), JITTER))
        both = math.sqrt(variances[0]) * math.sqrt(variances[1])  # of huge y, the product of variances overflows
        alike = float(covariance[0, 1]) / math.sqrt(max(covariance[0, 0], JITTER) * max(covariance[1, 1], JITTER))
        return float(y[0] - y[1]), max(float(variances.sum()) - 2.0 * min(alike, 1.0) * both, 0.0)

    def against(self, point: Array, default: Array) -> Comparison:
        return compared(self, point, default)

    @property
    def weights(self) -> Array:
        return np.ones(1)

    def similar(self) -> Array:
        """[n] closeness of this context to each row's."""
        return self._kc

    @property
    def noise(self) -> float:
        """Variance of one observation of y around its mean, where y is no worse than the level of its context."""
        return float(self._fit.kernel.noise * self._fit.scale**2)

    def forecast(self, point: Array, y: float) -> Forecast:
        """Mean and variance of y, and the log density [1] of the observed one.

        The density is Student's t of the compressed target, with the Jacobian of the compression.
        """
        fit, warp = self._fit, self._fit.constants.warp
        mean, variance = self._marginal(point[None])
        z = np.clip((y - fit.center) / fit.scale - self._offset, -LARGEST, LARGEST)
        log = log_student(self._offset + warped(z, warp) - mean, variance + fit.kernel.noise, fit.constants.freedom)
        log -= math.log(fit.scale) + math.log1p(max(float(z), 0.0) / warp)
        means, variances = self._in_units_of_y(mean, variance)
        return Forecast(float(means[0]), float(variances[0]), log)

    def best(self) -> Array | None:
        """The point [d] tried and not failed whose posterior mean is least; None if there is none."""
        found = self._elites(1)
        return found[0].copy() if len(found) else None

    def choose(self, rng: np.random.Generator) -> Choice:
        """A first look at a knob never moved, if there is one; else the candidate of least price, less its value.

        The price is the expected target. The value is what one look lowers the best known by, times the horizon. Where
        nothing seems worth a look, now and then a level is tried that no run ever had: what little was seen of a knob
        says nothing about it.
        """
        unmoved = self._fit.knobs.unmoved(self._fit.tried)
        if len(unmoved):
            point = self._first_look(int(unmoved[rng.integers(len(unmoved))]), rng)
            if point is not None:
                return self._choice(point, "first look at a knob")
        points, sources = self._allowed(*self._candidates(rng))
        chance, place = rng.random(2)  # drawn at every choice, so that the generator moves alike in every context
        if self._baseline_due():
            return self._choice(self._fit.knobs.default, BASELINE)
        mean, covariance = self._joint(points)
        value = knowledge_gradient(mean, covariance, self._fit.kernel.noise)
        if self._fit.reached < 1.0:  # a look at a new point may turn out to be one at another
            known = {point.tobytes() for point in self._fit.points}
            value *= [1.0 if point.tobytes() in known else self._fit.reached for point in points]
        score = mean - self._fit.constants.horizon * value
        chosen = int(score.argmin())
        if chosen != int(mean.argmin()):
            return self._choice(points[chosen], sources[chosen])
        level = self._new_level(place) if chance < LEVEL_CHANCE else None
        return self._choice(points[chosen], SETTLED) if level is None else self._choice(level, "first look at a level")

    def _baseline_due(self) -> bool:
        """Whether the default did not run in a context like this: what it costs elsewhere may mislead here."""
        fit, here = self._fit, self._kc > ALIKE
        ran = (fit.points[here] == fit.knobs.default).all(axis=1).any()
        new = float(fit.counts[here].sum()) < BASELINE_SAMPLES  # else it cannot be had, or a change costs too much
        return fit.since_default >= BASELINE_STEPS and new and not ran

    def _first_look(self, knob: int, rng: np.random.Generator) -> Array | None:
        """The best known point with this knob moved; None if that failed here."""
        best = self.best()
        point = self._fit.knobs.moved(self._fit.knobs.default if best is None else best, knob, rng)
        return None if (self._barred == point).all(axis=1).any() else point

    def _new_level(self, place: float) -> Array | None:
        """The best known point with one knob at a level never tried, of all such at `place` in [0, 1); None without."""
        best, untried = self.best(), self._fit.knobs.untried(self._fit.tried)
        if best is None or not untried:
            return None
        knob, level = untried[int(place * len(untried))]
        best[knob] = level
        return None if (self._barred == best).all(axis=1).any() else best

    def _allowed(self, points: Array, sources: list[str]) -> tuple[Array, list[str]]:
        """The candidates that did not fail, and can be had, in a context like this; the default if there is none."""
        fit, context = self._fit, self._context
        alike = fit.kernel.closeness(
            mean_squares(standard(fit.unreached_in, fit.middle, fit.width), standard(context, fit.middle, fit.width))
        )
        barred = {point.tobytes() for point in [*self._barred, *fit.unreached[alike > ALIKE]]}
        if not barred:
            return points, sources
        kept = [i for i, point in enumerate(points) if point.tobytes() not in barred]
        return (points[kept], [sources[i] for i in kept]) if kept else (fit.knobs.default[None], ["default"])

    def _choice(self, point: Array, source: str) -> Choice:
        mean, variance = self.predict(point[None])
        return Choice(point.copy(), source, float(mean[0]), float(variance[0]))

    def _candidates(self, rng: np.random.Generator) -> tuple[Array, list[str]]:
        fit, c, knobs = self._fit, self._fit.constants, self._fit.knobs
        elites = self._elites(c.elites)
        if len(elites) == 0:
            elites = knobs.default[None]
        shared = fit.kernel.va * (self._share[:, None] * fit.phi)  # [n, p] kernel between main effects and rows
        effects = knobs.prior + fit.alpha @ shared  # [p] their posterior mean
        parents = np.concatenate([elites[:1], elites[:1], elites[:1], elites])  # half of the mutants are the best's
        first, second = rng.integers(len(elites), size=(2, c.crossovers))
        found = {
            "elite": elites,
            "default": knobs.default[None],
            "mutation": knobs.mutate(parents, knobs.importance(effects), rng, c.mutants, c.few, c.home),
            "crossover": np.where(rng.random((c.crossovers, knobs.dim)) < 0.5, elites[first], elites[second]),
            "main effects": self._additive(effects, shared, elites[0], rng),
        }
        return np.concatenate(list(found.values())), [name for name, points in found.items() for _ in points]

    def _additive(self, effects: Array, shared: Array, elite: Array, rng: np.random.Generator) -> Array:
        """Minimisers of the main effects: of their mean, of draws, and of draws with only the strongest knobs moved."""
        fit, c, knobs = self._fit, self._fit.constants, self._fit.knobs
        covariance = -(shared.T @ (fit.inverse @ shared))
        covariance[np.diag_indices(len(covariance))] += fit.kernel.va
        draws = c.spread * rng.normal(size=(1 + c.full + c.sparse, len(covariance)))
        draws[0] = 0.0
        points, gains = knobs.optimum(effects + draws @ root(covariance).T)
        taken = np.exp(rng.uniform(0.0, math.log(knobs.dim + 1), c.sparse)).astype(np.intp)
        rank = gains[-c.sparse :].argsort(axis=1).argsort(axis=1)
        base = np.where((np.arange(c.sparse) % 2 > 0)[:, None], elite, knobs.default)
        points[-c.sparse :] = np.where(rank < taken[:, None], points[-c.sparse :], base)
        return points

    def _elites(self, count: int) -> Array:
        """Up to `count` different points [., d], best posterior mean first; none that failed here."""
        fit = self._fit
        means = fit.gram @ (self._share * fit.alpha) + fit.knobs.expected(fit.phi)  # up to a constant
        means = np.where(fit.failed > 0.0, np.inf, means)
        seen = {point.tobytes() for point in self._barred}
        rows: list[int] = []
        for row in means.argsort().tolist():
            if len(rows) == count or means[row] == np.inf:
                break
            key = fit.points[row].tobytes()
            if key not in seen:
                seen.add(key)
                rows.append(row)
        return fit.points[rows]

    def _cross(self, points: Array) -> tuple[Array, Array, Array]:
        """Kernel [m, n] between points in this context and the stored rows; phi and steps of the points."""
        fit = self._fit
        phi, steps = fit.knobs.main_effects(points), fit.knobs.steps(points)
        return self._base + fit.kernel.gram(phi, steps, fit.phi, fit.steps) * self._share, phi, steps

    def _marginal(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m] of the target."""
        fit, kernel = self._fit, self._fit.kernel
        cross, phi, _ = self._cross(points)
        prior = kernel.level * (1.0 + kernel.vc) + kernel.va * (phi * phi).sum(axis=1) + kernel.vp
        variance = prior - ((cross @ fit.inverse) * cross).sum(axis=1)
        return cross @ fit.alpha + fit.knobs.expected(phi), np.maximum(variance, JITTER)

    def _joint(self, points: Array) -> tuple[Array, Array]:
        """Mean [m] and covariance [m, m] of the target."""
        fit, kernel = self._fit, self._fit.kernel
        cross, phi, steps = self._cross(points)
        prior = kernel.level * (1.0 + kernel.vc) + kernel.gram(phi, steps, phi, steps)
        return cross @ fit.alpha + fit.knobs.expected(phi), prior - (cross @ fit.inverse) @ cross.T


def knowledge_gradient(mean: Array, covariance: Array, noise: float) -> Array:
    """[m] how far a noisy look at each of m candidates is expected to lower the least mean of them all.

    For each look x the best alternative j alone is counted: max over j of E[(best - (mean_j + s_j Z))+], where s_j is
    how far that look moves j against the best. Several looks at x may be worth more than as many times one.
    """
    best = int(mean.argmin())
    variance = np.maximum(covariance.diagonal(), JITTER)
    gap = (mean - mean[best])[:, None]
    apart = np.abs(covariance - covariance[best])  # [j, x]
    value = np.zeros(len(mean))
    for looks in LOOKS:
        spread = np.maximum(apart / np.sqrt(variance + noise / looks), 1e-12)
        value = np.maximum(value, (spread * expected_excess(gap / spread)).max(axis=0) / looks)
    return value


def expected_excess(gap: Array) -> Array:
    """E[(Z - gap)+] of a standard normal Z, for gap >= 0: density - gap * tail."""
    density = np.exp(-0.5 * np.minimum(gap, 40.0) ** 2) / math.sqrt(2.0 * math.pi)
    t = 1.0 / (1.0 + 0.2316419 * gap)  # the tail by Abramowitz and Stegun 26.2.17, to 7.5e-8 of the density at 0
    a, b, c, d, e = 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429
    tail = density * t * (a + t * (b + t * (c + t * (d + t * e))))
    excess: Array = np.maximum(density - gap * tail, 0.0)
    return excess


def standard(contexts: Array, middle: Array, width: Array) -> Array:
    return np.minimum(np.maximum((contexts - middle) / width, -1e4), 1e4)
