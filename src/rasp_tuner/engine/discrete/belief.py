"""DiscreteBelief: what the discrete family holds true in one context, and what it would try next.

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
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.engine.discrete.here import Here, Pair
from rasp_tuner.engine.discrete.kernel import JITTER
from rasp_tuner.engine.discrete.target import unwarped
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice, Comparison, Forecast, compared

SETTLED = "best known; exploring would cost more than it finds"
BASELINE = "default, which did not run here yet"
BASELINE_STEPS, BASELINE_SAMPLES = 10, 30  # between two of these; in a context, after which it is tried no more
LEVEL_CHANCE = 0.3  # of trying a new level of a knob where nothing else seems worth a look


class Look(NamedTuple):
    """A point beside another: all that an explanation and a forecast need of it."""

    pair: Pair  # of the target
    y: tuple[float, float]  # mean of y at the two
    variances: tuple[float, float]  # of y

    def at_second(self) -> "Look":
        """The second point beside itself: to the last digit the same from every look."""
        _, mean = self.pair.mean
        _, variance = self.pair.variance
        pair = Pair((mean, mean), (variance, variance), variance)
        return Look(pair, (self.y[1], self.y[1]), (self.variances[1], self.variances[1]))


class DiscreteBelief:
    """What the family holds true in one context."""

    def __init__(self, here: Here) -> None:
        self.fit, self._here = here.fit, here
        self._looks: dict[bytes, Look] = {}  # the same point is asked for by ask and by tell
        self._offset = (here.level - here.fit.center) / here.fit.scale

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of the noise-free y at points [n, d]."""
        if len(points) == 1 or (len(points) == 2 and points[1].tobytes() == self.fit.knobs.default_key):
            look = self.look(points[0])
            return np.array(look.y[: len(points)]), np.array(look.variances[: len(points)])
        both = (array.tolist() for array in self._here.marginal(points))
        y, variances = np.array([self._in_units_of_y(*one) for one in zip(*both, strict=True)]).reshape(-1, 2).T
        return y, variances

    def look(self, point: Array) -> Look:
        """One point [d] beside the default; computed once, and to the last digit alike whatever was asked before."""
        key, default = point.tobytes(), self.fit.knobs.default_key
        found = self._looks.get(key)
        if found is None and key == default and self._looks:
            found = self._looks[key] = next(iter(self._looks.values())).at_second()
        elif found is None:
            found = self._look(point, self.fit.knobs.default)
            found = self._looks[key] = found.at_second() if key == default else found
        return found

    def _look(self, point: Array, other: Array) -> Look:
        pair = self._here.pair(point, other)
        (y, first), (others, second) = map(self._in_units_of_y, pair.mean, pair.variance)
        return Look(pair, (y, others), (first, second))

    def _in_units_of_y(self, mean: float, variance: float) -> tuple[float, float]:
        """Mean and variance of the target as those of y."""
        fit, warp, z = self.fit, self.fit.constants.warp, mean - self._offset
        slope = fit.scale * math.exp(min(max(z, 0.0), 100.0) / warp)  # of the unwarping
        y = fit.center + fit.scale * (self._offset + unwarped(z, warp))
        return y, max(variance, JITTER) * slope * slope

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        """Mean and variance of y at `point` less y at `other`."""
        default = other.tobytes() == self.fit.knobs.default_key
        pair, y, variances = self.look(point) if default else self._look(point, other)
        own, others = pair.variance
        both = math.sqrt(variances[0]) * math.sqrt(variances[1])  # of huge y, the product of variances overflows
        alike = pair.covariance / math.sqrt(max(own, JITTER) * max(others, JITTER))
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
        return self._here.kc

    def nearest(self, point: Array) -> int:
        """The row of this point [d] in the context most like this one; -1 if it has none."""
        return self._here.nearest(point)

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
        variance = max(look.pair.variance[0], JITTER) + fit.kernel.noise
        z = min(max((y - fit.center) / fit.scale - self._offset, -LARGEST), LARGEST)
        slope = math.log1p(max(z, 0.0) / warp)
        gap = self._offset + (warp * slope if z > 0.0 else z) - look.pair.mean[0]
        log = log_student(gap, variance, fit.constants.freedom) - math.log(fit.scale) - slope
        return Forecast(look.y[0], look.variances[0], np.array([log]))

    def best(self) -> Array | None:
        """The point [d] tried and not failed whose posterior mean is least; None if there is none."""
        found = self._here.elites
        return found[0].copy() if len(found) else None

    def choose(self, rng: np.random.Generator) -> Choice:
        """A first look at a knob never moved, if there is one; else the candidate of least price, less its value.

        Where nothing seems worth a look, now and then a level is tried that no run ever had: what little was seen of a
        knob says nothing about it.
        """
        unmoved = self.fit.knobs.unmoved(self.fit.tried)
        if len(unmoved):
            point = self._first_look(int(unmoved[rng.integers(len(unmoved))]), rng)
            if point is not None:
                return self._choice(point, "first look at a knob")
        candidates = self._here.candidates(rng)
        chance, place = rng.random(2).tolist()  # at every choice, so that the generator moves alike in every context
        if self._baseline_due():
            return self._choice(self.fit.knobs.default, BASELINE)
        chosen, least = self._here.ranked(candidates)
        if chosen != least:
            return self._choice(candidates.points[chosen], candidates.source(chosen))
        level = self._new_level(place) if chance < LEVEL_CHANCE else None
        if level is not None:
            return self._choice(level, "first look at a level")
        return self._choice(candidates.points[chosen], SETTLED)

    def _baseline_due(self) -> bool:
        """Whether the default did not run in a context like this: what it costs elsewhere may mislead here."""
        if self.fit.since_default < BASELINE_STEPS:
            return False
        samples, default = self._here.known
        return samples < BASELINE_SAMPLES and not default  # else it cannot be had, or a change costs too much

    def _first_look(self, knob: int, rng: np.random.Generator) -> Array | None:
        """The best known point with this knob moved; None if that failed here."""
        best = self.best()
        point = self.fit.knobs.moved(self.fit.knobs.default if best is None else best, knob, rng)
        return None if (self._here.failed == point).all(axis=1).any() else point

    def _new_level(self, place: float) -> Array | None:
        """The best known point with one knob at a level never tried, of all such at `place` in [0, 1); None without."""
        best, untried = self.best(), self.fit.knobs.untried(self.fit.tried)
        if best is None or not untried:
            return None
        knob, level = untried[int(place * len(untried))]
        best[knob] = level
        best = self.fit.knobs.enabled(best, knob)
        return None if (self._here.failed == best).all(axis=1).any() else best

    def _choice(self, point: Array, source: str) -> Choice:
        look = self.look(point)
        return Choice(point.copy(), source, look.y[0], look.variances[0])
