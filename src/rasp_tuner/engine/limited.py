"""LimitedEngine: an engine whose suggestions keep limits: cost as low as can be, while p99 stays below 200 ms.

ask    what the engine would try -> is it likely to keep every limit? -> else as far towards it as is
tell   the engine learns what is minimised, every limit's model learns its own metric; a failure is learned by all

A search (goal "find") is told how far from the limits settings stay, and looks for the best that keeps them. Else
about one run in ten may break a limit, and two more at the start: without any risk nothing would be learned. A run
that breaks one is paid back by ten that do not. Where nothing is known to keep the limits, that is what is looked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.common_constants import LIKELY, NINE_IN_TEN
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import Field, checked, under
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.family import SearchBelief
from rasp_tuner.engine.limits import LimitModel
from rasp_tuner.errors import InvalidValue
from rasp_tuner.optimizer.metric_table import MetricTable
from rasp_tuner.optimizer.optimizer import ANY, Asked, Expected, LearnResult, Proposal, Repeats, Room, Scope, Within
from rasp_tuner.space import Layout
from rasp_tuner.types import LIMIT_KEPT, Margin, Metric, Why

MOST_CREDIT = 2.0  # broken limits that may be risked at once: at the start, and after a long time without any
MAY_BE_KEPT = 0.5 * LIKELY  # probability, below which not even a first step is tried; below LIKELY, only that
TRIED = 24  # of the latest points that are looked at as safe ground
FEW_LEVELS = 3  # of a knob that is switched, rather than moved
FRACTIONS = [0.75**i for i in range(1, 13)]  # of the way from safe ground to a proposal
FIELDS = {
    "limit/credit": Field((), -MOST_CREDIT, MOST_CREDIT),
    "limit/whole": Field(("limits",), 0.0, 1.0, whole=True),
}

Indices = NDArray[np.int64]


class LimitedEngine:
    """What is minimised, and a model of every metric with a limit."""

    def __init__(
        self,
        main: Engine,
        limits: Sequence[LimitModel],
        table: MetricTable,
        minimised: Sequence[str],
        layout: Layout,
    ) -> None:
        self.main, self.limits = main, tuple(limits)
        self._table, self._minimised = table, tuple(minimised)
        self._layout, self._default = layout, layout.default
        self._discrete = any(levels is not None for levels in layout.levels)
        few = [levels is not None and len(levels) <= FEW_LEVELS for levels in layout.levels]
        self._switches = np.array(few) | np.array(layout.unordered)  # no values lie between two of theirs
        self._credit = MOST_CREDIT  # broken limits that may be risked now; below 0, more were broken than should be

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {name: self.main.metrics.get(name, metric) for name, metric in self._table.metrics.items()}

    @property
    def model(self) -> Engine:
        return self.main

    @property
    def scales(self) -> dict[str, str]:
        own = {model.name: model.engine.scales[model.name] for model in self.limits}
        return {name: {**own, **self.main.scales}[name] for name in self._table.metrics}

    @property
    def uses_blas(self) -> bool:
        return self.main.uses_blas or any(model.engine.uses_blas for model in self.limits)

    def propose(self, context: Array, current: Array, rng: np.random.Generator, scope: Scope = ANY) -> Proposal | None:
        if self._finds:
            room = self._room(context) if self._know else None
            return self.main.propose(context, current, rng, scope._replace(room=room))
        wanted = self.main.propose(context, current, rng, scope)
        if wanted is None or not self._know:
            return wanted
        point = self._legal(wanted.point)
        if self._allowed(float(self._kept(context, point[None])[0])):
            return wanted
        ground = self._safe_ground(context)
        kept = self._kept(context, ground)
        if kept.max() < LIKELY:
            return self._towards_limits(context, current, rng) or wanted
        start = self._best_of(context, ground, kept)
        if self._discrete:
            others = ground[kept >= LIMIT_KEPT]
            within = Within(
                np.array([start, *self._way(start, point, rng.permutation(len(point))), *others]), self._chance(context)
            )
            found = self.main.propose(context, current, rng, scope._replace(within=within))
            if found is not None and within.chance(found.point[None])[0] > 0.0:
                return found  # else it is the default, which the budget or the guard prefers to what keeps the limits
        reached = self._reached(context, start, point, rng.permutation(len(point)))
        if reached is None:
            return self._instead(wanted, start, "best known that keeps the limits")
        return self._instead(wanted, reached, "on the way to the {}, as far as is safe")

    def reasons_at(self, context: Array, point: Array, source: str) -> Why:
        why = self.main.reasons_at(context, point, source)
        return replace(why.explanation(), stop=None) if self._finds else why  # the best may break a limit

    def tell(
        self,
        context: Array,
        point: Array,
        metrics: Mapping[str, float],
        rng: np.random.Generator,
        asked: Asked | None = None,
        stopped: bool = False,
        repeats: Repeats | None = None,
    ) -> LearnResult:
        given = self._table.check(metrics)
        for model in self.limits:
            model.engine.objective.to_minimise({model.name: given[model.name]})  # all are checked before any learns
        told = {name: given[name] for name in self._minimised}
        result = self.main.tell(
            context, point, told, rng, asked, stopped, repeats
        )  # or it refuses, and nothing has changed
        self._account(context, asked, given)
        for model in self.limits:
            model.see(given[model.name])
            alone = {model.name: given[model.name]}
            own = model.engine.tell(context, point, alone, rng, stopped=stopped, repeats=repeats)
            if own.path == "restated":
                result = result._replace(path=own.path, reason=own.reason)
        return result

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        del context, point, error, rng
        raise InvalidValue("an error alone says nothing about limits: tell the metrics")

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Asked | None = None
    ) -> LearnResult:
        self._account(context, asked, None)
        for model in self.limits:
            model.engine.tell_failed(context, point, rng)
        return self.main.tell_failed(context, point, rng, asked)

    def best_known(self, context: Array) -> Array | None:
        best = self.main.best_known(context)
        if best is None or not self._know:
            return best
        if self._finds:
            return self._found(context)
        ground = self._safe_ground(context, best)
        kept = self._kept(context, ground)
        start = self._best_of(context, ground, kept)
        order = np.arange(len(best))
        points = np.array([self._legal(best), *self._way(start, self._legal(best), order), start])
        kept = self._kept(context, points)
        safe = points[kept >= LIMIT_KEPT]
        if not len(safe):
            return start
        point: Array = safe[int(self.main.predicted_targets(context, safe).argmin())]
        if self._kept(context, self._default[None])[0] < LIMIT_KEPT:
            return point
        offer = self.main.versus(context, point)
        return point if offer.proven else self._default

    def margins(self, context: Array, point: Array) -> dict[str, Margin]:
        return {model.name: model.margin(context, point) for model in self.limits} if self._know else {}

    def forecast_metric(self, name: str, context: Array, point: Array) -> Expected | None:
        limited = {model.name: model for model in self.limits}
        if name in limited and name not in self._minimised:
            return limited[name].engine.expect(context, point)
        return self.main.forecast_metric(name, context, point)

    def reweigh(self, weights: Mapping[str, float]) -> None:
        for name in weights if isinstance(weights, Mapping) else ():
            if name in self._table.metrics and name not in self._minimised:
                raise InvalidValue(f"weights[{name!r}]: this metric has a limit and no weight from the start")
        self.main.reweigh(weights)

    def merge(self, other: "LimitedEngine", first: bool) -> None:
        self.main.merge(other.main, first)
        for own, theirs in zip(self.limits, other.limits, strict=True):
            own.engine.merge(theirs.engine, first)
            own.whole = own.whole and theirs.whole
        self._credit = min(self._credit, other._credit)

    def state(self) -> dict[str, Array]:
        parts = {
            f"limit/{i}/{key}": a for i, model in enumerate(self.limits) for key, a in model.engine.state().items()
        }
        whole = np.array([float(model.whole) for model in self.limits])
        return {**self.main.state(), **parts, "limit/credit": np.array(self._credit), "limit/whole": whole}

    def restore(self, state: Mapping[str, Array]) -> None:
        own = checked(state, FIELDS, {"limits": len(self.limits)})
        self.main.restore(state)
        for i, model in enumerate(self.limits):
            model.engine.restore(under(f"limit/{i}/", state))
            model.whole = bool(own["limit/whole"][i])
        self._credit = float(own["limit/credit"])

    @property
    def _know(self) -> bool:
        return all(model.knows for model in self.limits)

    @property
    def _finds(self) -> bool:
        return self.main.settings.find

    def _room(self, context: Array) -> Room:
        """How far settings stay within the limits here."""
        return lambda points: np.min([model.room(context, points) for model in self.limits], axis=0)

    def _found(self, context: Array) -> Array | None:
        """The best that was measured here and keeps the limits."""
        belief, room = cast("SearchBelief", self.main.believe(context)), self._room(context)
        best = belief.best_within(room)
        best = belief.best() if best is None else best
        if best is None or room(self._default[None])[0] < NINE_IN_TEN:
            return best
        return best if self.main.beside(belief, best).better >= LIKELY else self._default

    def _kept(self, context: Array, points: Array) -> Array:
        """[n] probability that a run keeps the limit it is most likely to break."""
        kept: Array = np.min([model.kept(context, points) for model in self.limits], axis=0)
        return kept

    def _reached(self, context: Array, start: Array, end: Array, order: Indices) -> Array | None:
        """The farthest point on the way that is allowed; else the first step, if it may keep the limits."""
        way = self._way(start, end, order)
        kept = self._kept(context, np.array(way)).tolist()
        for point, chance in zip(way, kept, strict=True):
            if self._allowed(chance):
                return point
        for point, chance in zip(way[::-1], kept[::-1], strict=True):
            if point.tolist() != start.tolist():  # small steps between few levels lead nowhere
                return point if chance >= MAY_BE_KEPT and 1.0 - chance <= self._credit else None
        return None

    def _allowed(self, kept: float) -> bool:
        """Whether a suggestion keeps the limits, or likely does and the risk may be taken."""
        return kept >= LIMIT_KEPT or (kept >= LIKELY and 1.0 - kept <= self._credit)

    def _chance(self, context: Array) -> Room:
        """How likely settings keep the limits here; 0 where that is too unlikely to be tried now."""

        def chance(points: Array) -> Array:
            kept = self._kept(context, points)
            found: Array = np.where(
                (kept >= LIMIT_KEPT) | ((kept >= MAY_BE_KEPT) & (1.0 - kept <= self._credit)), kept, 0.0
            )
            return found

        return chance

    def _account(self, context: Array, asked: Asked | None, metrics: Mapping[str, float] | None) -> None:
        """Book whether an own suggestion broke a limit; a failure did."""
        if asked is not None and self._know:
            broken = metrics is None or any(model.broken(context, metrics[model.name]) for model in self.limits)
            self._credit = min(max(self._credit + 1.0 - LIMIT_KEPT - broken, -MOST_CREDIT), MOST_CREDIT)

    def _safe_ground(self, context: Array, *more: Array) -> Array:
        """[n, d] the default, what was tried lately, and what keeps each limit best."""
        latest = self.main.recent().points[::-1][:TRIED]
        own = [model.engine.best_known(context) for model in self.limits]
        points = [self._default, *latest, *more, *(point for point in own if point is not None)]
        return np.unique(np.array([self._legal(point) for point in points]), axis=0)

    def _best_of(self, context: Array, points: Array, kept: Array) -> Array:
        """The best of those that keep the limits; of none such, the one that is likeliest to."""
        safe = kept >= LIMIT_KEPT
        if not safe.any():
            likeliest: Array = points[int(kept.argmax())]
            return likeliest
        best: Array = points[safe][int(self.main.predicted_targets(context, points[safe]).argmin())]
        return best

    def _way(self, start: Array, end: Array, order: Indices) -> list[Array]:
        """Points between two, farthest first: knobs on a scale go a part of the way, choices change one by one."""
        way = []
        for share in FRACTIONS:
            switched = np.where(order < share * len(order), end, start)
            moved = np.where(self._switches, switched, start + share * (end - start))
            way.append(self._legal(moved))
        return way

    def _legal(self, point: Array) -> Array:
        """The nearest point whose discrete knobs have legal values, and that keeps the rules of its space."""
        if self._layout.rules is not None:
            offer: Array = self._layout.rules.offers(point)[0]
            return offer
        if not self._discrete:
            return point
        legal = point.copy()
        for i, levels in enumerate(self._layout.levels):
            if levels is not None:
                legal[i] = levels[int(np.abs(levels - point[i]).argmin())]
        return legal

    def _towards_limits(self, context: Array, current: Array, rng: np.random.Generator) -> Proposal | None:
        """What may keep the limit that is farthest from being kept: nothing is known that does."""
        worst = min(self.limits, key=lambda model: float(model.kept(context, self._default[None])[0]))
        proposal = worst.engine.propose(context, current, rng)
        if proposal is None:
            return None
        instead = self._instead(proposal, proposal.point, f"{{}}, to keep the limit of {worst.name}")
        return Proposal(instead.point, replace(instead.why.explanation(), level=None))  # it was of that metric

    @staticmethod
    def _instead(wanted: Proposal, point: Array, source: str) -> Proposal:
        """Another point than was wanted; the forecast was of that one, but what the default comes to stays."""
        why = wanted.why.explanation()
        source = source.replace("{}", why.source)
        return Proposal(point, replace(why, source=source, predicted=None, deviation=None, better=None))
