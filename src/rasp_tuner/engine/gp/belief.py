"""GpBelief: what the Gaussian-process family holds true in one context, and what it would try next."""

from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import LIKELY
from rasp_tuner.base.numerics import SMALLEST, Array
from rasp_tuner.contexts.context_metric import ALIKE
from rasp_tuner.engine.evidence import log_student
from rasp_tuner.engine.family import ByExpert, Choice, Comparison
from rasp_tuner.engine.gp.bill import HindsightBill
from rasp_tuner.engine.gp.model import Fit
from rasp_tuner.engine.gp.posterior import LEAST_VARIANCE, ContextPosterior
from rasp_tuner.engine.gp.rows import StoredRows
from rasp_tuner.engine.gp.search import SOURCES, Draws, around, best_point, candidates, joined_keys
from rasp_tuner.engine.gp.trust import FREEDOM
from rasp_tuner.engine.gp.value import knowledge_gradient, weighted_nodes
from rasp_tuner.optimizer.optimizer import NOTHING, Waiting, Within

BASELINE = "default, which did not run here yet"
FIRST_HORIZON, MOST_HORIZON = 5.0, 50.0  # visits to come: as many as there were (Lindy) and a few; at most so many
GOOD_NEWS = "far better than was expected"
AT_ONCE = 256  # points that are predicted together


class Recalled(NamedTuple):
    """Rows of which some came back for a belief; the family takes them over when it learns."""

    stored: StoredRows
    away: StoredRows  # rows that are not in the fit
    fit: Fit  # to those stored
    origin: Fit  # the family's own


class PointAndDefault(NamedTuple):
    """What is expected of a point and of the default, in units of a."""

    mean: float
    variance: float
    level: float  # of the default
    level_variance: float
    covariance: float


class GpBelief:
    """y = center + a f, lower is better. Pure, and good until its family has learned twice."""

    weights: Array = np.ones(1)  # one expert

    def __init__(
        self,
        here: ContextPosterior,
        barred: set[bytes],
        reached: Array,
        unknown: bool,
        lacks_default: bool = False,
        similar: Array | None = None,
        recalled: Recalled | None = None,
    ) -> None:
        self._here, self.fit, self.lacks_default = here, here.fit, lacks_default
        self.recalled = recalled  # None: the family's own rows
        self._similar = here.kc if similar is None else similar  # of all rows, those put away first
        self._barred = barred  # points that failed or could not be had in a context like this
        self._reached = reached  # [d] share of each knob's moves that ran as they were asked for
        self._unknown = unknown  # whether the default should run here first
        self._looked_at: tuple[bytes, PointAndDefault] | None = None
        self.noise: float = self.fit.noise * self.fit.scale**2

    @property
    def knows_default(self) -> bool:
        return self._here.default_runs()[0] >= ALIKE

    def predict(self, points: Array) -> tuple[Array, Array]:
        if len(points) > AT_ONCE:  # covariances grow with the square
            parts = [self.predict(points[at : at + AT_ONCE]) for at in range(0, len(points), AT_ONCE)]
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        mean, covariance = self._here.joint(points)
        return self._y(mean), self.fit.scale**2 * np.maximum(covariance.diagonal(), LEAST_VARIANCE)

    def against(self, point: Array, default: Array) -> Comparison:
        del default  # it is the tuner's own
        pair, (center, scale), unit = self._pair(point), (self.fit.center, self.fit.scale), self.fit.scale**2
        own, other = max(pair.variance, LEAST_VARIANCE) * unit, max(pair.level_variance, LEAST_VARIANCE) * unit
        variance = max(pair.variance + pair.level_variance - 2.0 * pair.covariance, 0.0) * unit
        expected, level = center + scale * pair.mean, center + scale * pair.level
        if self.lacks_default:  # what fails is dearer than anything that runs
            level, variance = max(expected, center + scale * float(self.fit.targets().max())), 0.0
        return Comparison(level, expected - level, variance, expected, (own, other))

    def billed(self, bill: HindsightBill, point: Array) -> float:
        return bill.covariance(self._here, point) * self.fit.scale

    def forecast(self, point: Array, y: float) -> ByExpert:
        pair = self._pair(point)
        mean = self.fit.center + self.fit.scale * pair.mean
        variance = max(pair.variance, LEAST_VARIANCE) * self.fit.scale**2
        log = log_student(y - mean, max(variance + self.noise, SMALLEST), FREEDOM)
        return ByExpert(mean, variance, np.array([log]))

    def choose(self, rng: np.random.Generator, waiting: Waiting = NOTHING) -> Choice:
        """The candidate of least expected loss, less what knowing it is worth over the visits to come.

        What never ran in a situation like this, and waits for an answer of one, is none: one look is enough.
        """
        return self._chosen(rng, None, self._awaited(waiting))

    def _awaited(self, waiting: Waiting) -> set[bytes]:
        """Settings that wait for the answer of their first run in a situation like this one."""
        here, fit, found = self._here, self.fit, set[bytes]()
        if not waiting.latest:
            return found
        known = {row.tobytes() for row in fit.of_rows("points")[here.kc >= ALIKE]} | {fit.knobs.default_key}
        for context, point in waiting.latest:
            key = point.tobytes()
            if key not in known and key not in found:
                alike = fit.metric.likeness(context, here.context[None], fit.weights.relevance)
                found |= {key} if alike[0] >= ALIKE else set()
        return found

    def choose_within(self, rng: np.random.Generator, within: Within, waiting: Waiting) -> Choice:
        """The same among what may keep the limits; a gain counts as far as it is likely to keep them."""
        return self._chosen(rng, within, self._awaited(waiting))

    def _chosen(self, rng: np.random.Generator, within: Within | None, awaited: set[bytes]) -> Choice:
        fit = self.fit
        draws = Draws.of(fit.knobs, rng)  # in any case: the generator moves alike in every context
        if self._unknown:
            return self._expected(fit.knobs.default, BASELINE)
        barred = self._barred | awaited
        news = None if within is not None else self._good_news(barred)
        if news is not None:
            return self._expected(news, GOOD_NEWS)
        if self._here.native is not None and within is None:
            point, source, pair = self._compiled_choice(draws, barred)
        else:
            point, source, pair = self._choice(draws, within, barred)
        self._looked_at = point.tobytes(), pair
        variance = max(pair.variance, LEAST_VARIANCE) * fit.scale**2
        return Choice(point, SOURCES[source], fit.center + fit.scale * pair.mean, variance)

    def _choice(self, draws: Draws, within: Within | None, barred: set[bytes]) -> tuple[Array, int, PointAndDefault]:
        """The point, where in SOURCES it comes from, and what is expected of it."""
        here, fit, default = self._here, self.fit, self.fit.knobs.default
        chance = np.ones(1)
        if within is None:
            found = candidates(here, barred, draws)
        else:
            found = around(fit.knobs, within.ground[0], within.ground, draws)
            chance = within.chance(found.points)
            chance[0] = max(chance[0], SMALLEST)  # nothing better is known
            found, chance = found.only(chance > 0.0), chance[chance > 0.0]
        mean, covariance = here.joint(found.points)
        value = knowledge_gradient(fit.knobs, found, mean, covariance, fit.noise, len(fit.alpha))
        if (self._reached < 1.0).any():
            known = {row.tobytes() for row in fit.rows.points}
            had = np.where(found.points != found.points[0], self._reached, 1.0).prod(axis=1)
            value *= [
                1.0 if point.tobytes() in known else share for point, share in zip(found.points, had, strict=True)
            ]
        score = mean - self.horizon * value
        if within is not None:
            score = chance * (score - mean[0])
        if barred:
            score[[point.tobytes() in barred for point in found.points]] = np.inf
        best = int(score.argmin())
        return found.points[best].copy(), int(found.source[best]), self._both(found.points[best], default)

    def _compiled_choice(self, draws: Draws, barred: set[bytes]) -> tuple[Array, int, PointAndDefault]:
        """The same in one call."""
        here, d = self._here.native, self.fit.knobs.dim
        if here is None:
            raise RuntimeError("there is no compiled code")
        none = joined_keys(barred, d)
        reached = self._reached if (self._reached < 1.0).any() else None
        nodes = weighted_nodes(len(self.fit.alpha))
        out = here.choose(*draws, none, reached, nodes, self.horizon)
        source, mean, variance, level, level_variance, covariance = out[d:].tolist()
        return out[:d].copy(), int(source), PointAndDefault(mean, variance, level, level_variance, covariance)

    def _good_news(self, barred: set[bytes]) -> Array | None:
        """The best that ran here, if it came out so well that it is taken for false, and ran only then.

        Hiccups are bad news, as a rule. Once more, and it is known.
        """
        fit, kc = self.fit, self._here.kc
        trust = fit.of_rows("trust")
        doubted = trust < LIKELY
        if not doubted.any():
            return None
        y, here = fit.targets(), kc >= ALIKE
        better = np.flatnonzero(doubted & here & (y < y[~doubted & here].min(initial=np.inf)))
        if not len(better):  # as a rule
            return None
        points = fit.of_rows("points")
        sure = {row.tobytes() for row in points[~doubted & here]}
        for i in better[::-1]:
            if (key := points[i].tobytes()) not in sure and key not in barred:
                news: Array = points[i].copy()
                return news
        return None

    def _pair(self, point: Array) -> PointAndDefault:
        """A point beside the default; what was chosen was looked at before."""
        if self._looked_at is None or self._looked_at[0] != point.tobytes():
            self._looked_at = point.tobytes(), self._both(point, self.fit.knobs.default)
        return self._looked_at[1]

    def _both(self, point: Array, default: Array) -> PointAndDefault:
        mean, covariance = self._here.joint(np.array([point, default]))
        (own, shared), (_, other) = covariance.tolist()
        expected, level = mean.tolist()
        return PointAndDefault(expected, own, level, other, shared)

    def _expected(self, point: Array, source: str) -> Choice:
        known = self.against(point, point)
        return Choice(point.copy(), source, known.expected, known.variances[0])

    @property
    def horizon(self) -> float:
        """How many visits to situations like this one are expected."""
        return min(self._here.visits + FIRST_HORIZON, MOST_HORIZON)

    def best(self) -> Array | None:
        return best_point(self._here, self._barred)

    def similar(self) -> Array:
        return self._similar

    @property
    def kc(self) -> Array:
        """[n] how alike this context is to each row of the fit."""
        return self._here.kc

    def _y(self, f: Array) -> Array:
        y: Array = self.fit.center + self.fit.scale * f
        return y
