"""GpBelief: what the Gaussian-process family holds true in one context, and what it would try next."""

import numpy as np

from rasp_tuner.core.numerics import SMALLEST, Array
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import Choice, Comparison, Forecast
from rasp_tuner.engine.gp.bill import Bill
from rasp_tuner.engine.gp.model import FREEDOM
from rasp_tuner.engine.gp.posterior import LEAST_VARIANCE, ContextPosterior
from rasp_tuner.engine.gp.search import SOURCES, best_rows, candidates, descents
from rasp_tuner.engine.gp.value import knowledge_gradient

BASELINE = "default, which did not run here yet"
FIRST_HORIZON, MOST_HORIZON = 5.0, 50.0  # visits to come: as many as there were (Lindy) and a few; at most so many
AT_ONCE = 256  # points that are predicted together


class GpBelief:
    """y = center + a f, lower is better. Pure, and good for ever."""

    weights: Array = np.ones(1)  # one expert

    def __init__(self, here: ContextPosterior, barred: set[bytes], reached: Array, unknown: bool) -> None:
        self._here, self.fit = here, here.fit
        self._barred = barred  # points that failed or could not be had in a context like this
        self._reached = reached  # [d] share of each knob's moves that ran as they were asked for
        self._unknown = unknown  # whether the default should run here first

    @property
    def noise(self) -> float:
        return self.fit.noise * self.fit.scale**2

    def predict(self, points: Array) -> tuple[Array, Array]:
        if len(points) > AT_ONCE:  # covariances grow with the square
            parts = [self.predict(points[at : at + AT_ONCE]) for at in range(0, len(points), AT_ONCE)]
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        mean, covariance = self._here.joint(points)
        return self._y(mean), self.fit.scale**2 * np.maximum(covariance.diagonal(), LEAST_VARIANCE)

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        compared = self.against(point, other)
        return compared.mean, compared.variance

    def against(self, point: Array, default: Array) -> Comparison:
        mean, covariance = self._here.joint(np.stack([point, default]))
        unit = self.fit.scale**2
        (own, shared), (_, other) = covariance.tolist()
        expected, level = self._y(mean).tolist()
        variance = max(own + other - 2.0 * shared, 0.0)
        both = max(own, LEAST_VARIANCE) * unit, max(other, LEAST_VARIANCE) * unit
        return Comparison(level, expected - level, variance * unit, expected, both)

    def billed(self, bill: Bill, point: Array) -> float:
        return bill.covariance(self._here, point) * self.fit.scale

    def forecast(self, point: Array, y: float) -> Forecast:
        mean, variance = (float(part[0]) for part in self.predict(point[None]))
        log = log_student(y - mean, max(variance + self.noise, SMALLEST), FREEDOM)
        return Forecast(mean, variance, np.array([log]))

    def choose(self, rng: np.random.Generator) -> Choice:
        """The candidate of least expected loss, less what knowing it is worth over the visits to come."""
        here, fit = self._here, self.fit
        found = candidates(here, self._barred, rng)  # in any case: the generator moves alike in every context
        if self._unknown:
            return self._expected(fit.knobs.default, BASELINE)
        mean, covariance = here.joint(found.points)
        value = knowledge_gradient(fit.knobs, found, mean, covariance, fit.noise, len(fit.alpha))
        if (self._reached < 1.0).any():
            known = {row.tobytes() for row in fit.rows.points}
            had = np.where(found.points != found.points[0], self._reached, 1.0).prod(axis=1)
            value *= [
                1.0 if point.tobytes() in known else share for point, share in zip(found.points, had, strict=True)
            ]
        score = mean - self.horizon * value
        if self._barred:
            score[[point.tobytes() in self._barred for point in found.points]] = np.inf
        best = int(score.argmin())
        variance = max(float(covariance[best, best]), LEAST_VARIANCE)
        return Choice(
            found.points[best].copy(),
            SOURCES[int(found.source[best])],
            float(self._y(mean)[best]),
            variance * fit.scale**2,
        )

    def _expected(self, point: Array, source: str) -> Choice:
        mean, variance = (float(part[0]) for part in self.predict(point[None]))
        return Choice(point.copy(), source, mean, variance)

    @property
    def horizon(self) -> float:
        """How many visits to situations like this one are expected."""
        return min(self._here.visits + FIRST_HORIZON, MOST_HORIZON)

    def best(self) -> Array | None:
        """The least mean, by a descent from the best tried and from the default."""
        tried = best_rows(self._here, self._barred, 1)
        starts = [*tried, self.fit.knobs.default]
        ends = [end for end in descents(self._here, starts) if end[0].tobytes() not in self._barred]
        return min(ends, key=lambda end: end[1])[0] if ends else None

    def similar(self) -> Array:
        return self._here.kc

    def _y(self, f: Array) -> Array:
        y: Array = self.fit.center + self.fit.scale * f
        return y
