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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.distance import mean_squares
from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.engine.discrete import compiled
from rasp_tuner.engine.discrete.kernel import JITTER, Kernel, Rows, sampled_effects, standard
from rasp_tuner.engine.discrete.knobs import Knobs, keys_of
from rasp_tuner.engine.discrete.target import level_from, level_of, unwarped
from rasp_tuner.engine.discrete.value import knowledge_gradient
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice, Comparison, Forecast, compared

SETTLED = "best known; exploring would cost more than it finds"
ALIKE = 0.5  # kc from which on what failed, or could not be had, there is not asked for here
BASELINE = "default, which did not run here yet"
BASELINE_STEPS, BASELINE_SAMPLES = 10, 30  # between two of these; in a context, after which it is tried no more
LEVEL_CHANCE = 0.3  # of trying a new level of a knob where nothing else seems worth a look


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


class Fit(NamedTuple):
    """All that a belief needs; never changed once made, so a belief outlives later learning."""

    constants: DiscreteConstants
    knobs: Knobs
    kernel: Kernel
    points: Array
    rows: Rows  # features of the points
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


class Look(NamedTuple):
    """A point beside the default: all that an explanation, a forecast and a new row need of it."""

    rows: Rows  # features of the two
    gram: Array  # [2, n] between them and the stored points
    mean: Array  # [2] of the target
    covariance: Array  # [2, 2] of the target
    y: tuple[float, ...]  # [2] mean of y
    variances: tuple[float, ...]  # [2] of y

    def at_default(self) -> "Look":
        """The default beside itself: to the last digit the same from every look."""
        rows, both = Rows(*(part[[1, 1]] for part in self.rows)), [1, 1]
        covariance = np.full((2, 2), self.covariance[1, 1])
        return Look(rows, self.gram[both], self.mean[both], covariance, 2 * self.y[1:], 2 * self.variances[1:])


class DiscreteBelief:
    """What the family holds true in one context."""

    def __init__(self, fit: Fit, context: Array) -> None:
        self.fit, self._context = fit, context
        self._looks: dict[bytes, Look] = {}  # the same point is asked for by ask and by tell
        self._known: dict[bytes, int] = {}  # candidates, and where they stand in `_known_rows`
        self._known_rows: Rows | None = None
        tables = fit.knobs.tables
        self._here = here = None if tables is None else compiled.Here(fit, tables, context)
        if here is not None:
            self._kc, self._share, self._base = here.kc, here.share, here.base
            level = level_from(here.level, here.samples, fit.center)
        else:
            self._kc = fit.closeness(context)
            self._share, self._base = fit.kernel.blend(self._kc), fit.kernel.base(self._kc)
            level = level_of(self._kc, fit.values, fit.center)
        self._offset = (level - fit.center) / fit.scale
        failed = fit.failed > 0.0
        self._barred = fit.points[failed & (self._kc > ALIKE) if failed.any() else []]  # they failed in such a context

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of the noise-free y at points [n, d]."""
        if len(points) == 1 or (len(points) == 2 and points[1].tobytes() == self.fit.knobs.default_key):
            look = self.look(points[0])
            return np.array(look.y[: len(points)]), np.array(look.variances[: len(points)])
        y, variances = self._in_units_of_y(*self._marginal(points))
        return np.array(y), np.array(variances)

    def look(self, point: Array) -> Look:
        """One point [d] beside the default; computed once, and to the last digit alike whatever was asked before."""
        key, default = point.tobytes(), self.fit.knobs.default_key
        found = self._looks.get(key)
        if found is None and key == default and self._looks:
            found = self._looks[key] = next(iter(self._looks.values())).at_default()
        elif found is None:
            rows = self._known_rows
            if self._here is not None:
                parts, gram, mean, covariance = self._here.look(np.array([point, self.fit.knobs.default]))
                rows = Rows(*parts)
            else:
                if rows is not None and key in self._known and default in self._known:
                    both = [self._known[key], self._known[default]]
                    rows = Rows(*(part[both] for part in rows))
                else:
                    rows = self._rows(np.stack([point, self.fit.knobs.default]))
                gram, mean, covariance = self._joint(rows)
            units = self._in_units_of_y(mean, np.maximum(covariance.diagonal(), JITTER))
            found = Look(rows, gram, mean, covariance, *units)
            found = self._looks[key] = found.at_default() if key == default else found
        return found

    def _in_units_of_y(self, mean: Array, variance: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and variance [n] of the target as those of y."""
        fit, warp = self.fit, self.fit.constants.warp
        y, variances = [], []
        for own, unsure in zip(mean.tolist(), variance.tolist(), strict=True):
            z = own - self._offset
            slope = fit.scale * math.exp(min(max(z, 0.0), 100.0) / warp)  # of the unwarping
            y.append(fit.center + fit.scale * (self._offset + unwarped(z, warp)))
            variances.append(unsure * slope * slope)
        return tuple(y), tuple(variances)

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        """Mean and variance of y at `point` less y at `other`."""
        if other.tobytes() == self.fit.knobs.default_key:
            _, _, _, covariance, y, variances = self.look(point)
        else:
            _, mean, covariance = self._joint(self._rows(np.stack([point, other])))
            y, variances = self._in_units_of_y(mean, np.maximum(covariance.diagonal(), JITTER))
        (own, shared), (_, others) = covariance.tolist()
        both = math.sqrt(variances[0]) * math.sqrt(variances[1])  # of huge y, the product of variances overflows
        alike = shared / math.sqrt(max(own, JITTER) * max(others, JITTER))
        return y[0] - y[1], max(sum(variances) - 2.0 * min(alike, 1.0) * both, 0.0)

    def against(self, point: Array, default: Array) -> Comparison:
        if default.tobytes() != self.fit.knobs.default_key:
            return compared(self, point, default)
        look = self.look(point)
        (expected, level), (own, other) = look.y, look.variances
        return Comparison(level, *self.compare(point, default), expected, (own, other))

    @property
    def weights(self) -> Array:
        return np.ones(1)

    def similar(self) -> Array:
        """[n] closeness of this context to each row's."""
        return self._kc

    @property
    def noise(self) -> float:
        """Variance of one observation of y around its mean, where y is no worse than the level of its context."""
        return float(self.fit.kernel.noise * self.fit.scale**2)

    def forecast(self, point: Array, y: float) -> Forecast:
        """Mean and variance of y, and the log density [1] of the observed one.

        The density is Student's t of the compressed target, with the Jacobian of the compression.
        """
        fit, warp = self.fit, self.fit.constants.warp
        look = self.look(point)
        variance = max(float(look.covariance[0, 0]), JITTER) + fit.kernel.noise
        z = min(max((y - fit.center) / fit.scale - self._offset, -LARGEST), LARGEST)
        slope = math.log1p(max(z, 0.0) / warp)
        gap = self._offset + (warp * slope if z > 0.0 else z) - float(look.mean[0])
        log = log_student(gap, variance, fit.constants.freedom) - math.log(fit.scale) - slope
        return Forecast(look.y[0], look.variances[0], np.array([log]))

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
        unmoved = self.fit.knobs.unmoved(self.fit.tried)
        if len(unmoved):
            point = self._first_look(int(unmoved[rng.integers(len(unmoved))]), rng)
            if point is not None:
                return self._choice(point, "first look at a knob")
        found = self._candidates(rng)
        points, places = self._allowed(found)
        chance, place = rng.random(2)  # drawn at every choice, so that the generator moves alike in every context
        if self._baseline_due():
            return self._choice(self.fit.knobs.default, BASELINE)
        rows = self._rows(points)
        if self._here is None:
            self._known, self._known_rows = {key: place for place, key in enumerate(keys_of(points))}, rows
        _, mean, covariance = self._joint(rows)
        value = knowledge_gradient(mean, covariance, self.fit.kernel.noise)
        if self.fit.reached < 1.0:  # a look at a new point may turn out to be one at another
            known = set(keys_of(self.fit.points))
            value *= [1.0 if key in known else self.fit.reached for key in keys_of(points)]
        score = mean - self.fit.constants.horizon * value
        chosen = int(score.argmin())
        if chosen != int(mean.argmin()):
            sources = [name for name, own in found.items() for _ in range(len(own))]
            return self._choice(points[chosen], sources[places[chosen]])
        level = self._new_level(place) if chance < LEVEL_CHANCE else None
        return self._choice(points[chosen], SETTLED) if level is None else self._choice(level, "first look at a level")

    def _baseline_due(self) -> bool:
        """Whether the default did not run in a context like this: what it costs elsewhere may mislead here."""
        fit = self.fit
        if fit.since_default < BASELINE_STEPS:
            return False
        here = self._kc > ALIKE
        ran = (fit.points[here] == fit.knobs.default).all(axis=1).any()
        new = float(fit.counts[here].sum()) < BASELINE_SAMPLES  # else it cannot be had, or a change costs too much
        return bool(new and not ran)

    def _first_look(self, knob: int, rng: np.random.Generator) -> Array | None:
        """The best known point with this knob moved; None if that failed here."""
        best = self.best()
        point = self.fit.knobs.moved(self.fit.knobs.default if best is None else best, knob, rng)
        return None if (self._barred == point).all(axis=1).any() else point

    def _new_level(self, place: float) -> Array | None:
        """The best known point with one knob at a level never tried, of all such at `place` in [0, 1); None without."""
        best, untried = self.best(), self.fit.knobs.untried(self.fit.tried)
        if best is None or not untried:
            return None
        knob, level = untried[int(place * len(untried))]
        best[knob] = level
        best = self.fit.knobs.enabled(best, knob)
        return None if (self._barred == best).all(axis=1).any() else best

    def _allowed(self, found: dict[str, Array]) -> tuple[Array, Sequence[int]]:
        """The different candidates that did not fail, and can be had, in a context like this; the default if there is
        none. Where each came first among all."""
        fit, points, barred = self.fit, self.fit.knobs.lawful(np.concatenate(list(found.values()))), self._barred
        if len(fit.unreached):
            contexts, here = (standard(c, fit.middle, fit.width) for c in (fit.unreached_in, self._context))
            alike = fit.kernel.closeness(mean_squares(contexts, here))
            barred = np.concatenate([barred, fit.unreached[alike > ALIKE]])
        if self._here is not None:
            kept: Sequence[int] = compiled.distinct(points, barred).tolist()
        else:
            keys = keys_of(points)
            first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
            for key in keys_of(barred):
                first.pop(key, None)
            kept = sorted(first.values())
        kept = kept or [len(found["elite"])]  # the default comes next
        return points[kept], kept

    def _choice(self, point: Array, source: str) -> Choice:
        look = self.look(point)
        return Choice(point.copy(), source, look.y[0], look.variances[0])

    def _candidates(self, rng: np.random.Generator) -> dict[str, Array]:
        """Points by where they came from."""
        fit, c, knobs = self.fit, self.fit.constants, self.fit.knobs
        elites = self._elites(c.elites)
        if len(elites) == 0:
            elites = knobs.default[None]
        if self._here is not None:
            shared, effects, rates = self._here.effects()
        else:
            shared = (fit.kernel.va * self._share)[:, None] * fit.rows.phi  # [n, p] kernel of main effects and rows
            effects = knobs.prior + fit.alpha @ shared  # [p] their posterior mean
            rates = knobs.importance(effects)
        parents = np.concatenate([elites[:1], elites[:1], elites[:1], elites])  # half of the mutants are the best's
        first, second = rng.integers(len(elites), size=(2, c.crossovers))
        return {
            "elite": elites,
            "default": knobs.default[None],
            "mutation": knobs.mutate(parents, rates, rng, c.mutants, c.few, c.home),
            "crossover": np.where(rng.random((c.crossovers, knobs.dim)) < 0.5, elites[first], elites[second]),
            "main effects": self._additive(effects, shared, elites[0], rng),
        }

    def _additive(self, effects: Array, shared: Array, elite: Array, rng: np.random.Generator) -> Array:
        """Minimisers of the main effects: of their mean, of draws, and of draws with only the strongest knobs moved."""
        fit, c, knobs = self.fit, self.fit.constants, self.fit.knobs
        explained = shared.T @ (fit.inverse @ shared)
        draws = c.spread * rng.normal(size=(1 + c.full + c.sparse, len(explained)))
        draws[0] = 0.0
        taken = rng.uniform(0.0, math.log(knobs.dim + 1), c.sparse)
        drawn = sampled_effects(fit.kernel.va, np.negative(explained, out=explained), effects, draws)
        return knobs.optimum(drawn, taken, elite)

    def _elites(self, count: int) -> Array:
        """Up to `count` different points [., d], best posterior mean first; none that failed here."""
        fit = self.fit
        if self._here is not None:
            return self._here.elites(count, ALIKE)
        means = fit.gram @ (self._share * fit.alpha)  # up to a constant
        means += fit.knobs.expected(fit.rows.phi)
        means[fit.failed > 0.0] = np.inf
        seen = set(keys_of(self._barred))
        rows: list[int] = []
        for row in means.argsort().tolist():
            if len(rows) == count or means[row] == np.inf:
                break
            key = fit.points[row].tobytes()
            if key not in seen:
                seen.add(key)
                rows.append(row)
        return fit.points[rows]

    def _rows(self, points: Array) -> Rows:
        """Features of points [m, d]."""
        return self.fit.kernel.rows_of(self.fit.knobs, points)

    def _cross(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Between points and the stored rows [m, n]: their gram, and their kernel in this context. Means [m] of the
        target at the points."""
        fit = self.fit
        if self._here is not None:
            return self._here.cross(rows)
        gram = fit.kernel.gram(rows, fit.rows)
        cross = gram * self._share
        cross += self._base
        mean = cross @ fit.alpha
        mean += fit.knobs.expected(rows.phi)
        return gram, cross, mean

    def _marginal(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m] of the target."""
        rows = self._rows(points)
        _, cross, mean = self._cross(rows)
        variance = self.fit.kernel.variances(rows.phi) - ((cross @ self.fit.inverse) * cross).sum(axis=1)
        return mean, np.maximum(variance, JITTER)

    def _joint(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Gram of points with the stored ones; mean [m] and covariance [m, m] of the target."""
        kernel = self.fit.kernel
        gram, cross, mean = self._cross(rows)
        explained = (cross @ self.fit.inverse) @ cross.T
        if self._here is not None:
            return gram, mean, self._here.covariance(rows, explained)
        covariance = kernel.gram(rows, rows)
        covariance += kernel.level * (1.0 + kernel.vc)
        covariance -= explained
        return gram, mean, covariance
