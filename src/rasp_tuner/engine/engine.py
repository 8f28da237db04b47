"""Engine: the stages of preset `default`, joined.

ask    context -> believe -> choose -> guard, cost of switching -> point
tell   metrics -> losses -> intake -> forecast of this sample -> calibrate, book -> the family learns
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import numpy as np

from rasp_tuner.base.common_constants import FEWEST_SAMPLES
from rasp_tuner.base.numerics import LARGEST, SMALLEST, Array
from rasp_tuner.base.state_checks import Field, broken, checked, under
from rasp_tuner.base.threads import one_thread
from rasp_tuner.base.trusted_range import SHORT
from rasp_tuner.contexts.context_bounds import ContextBounds
from rasp_tuner.contexts.context_metric import ALIKE, ContextMetric, squared_gaps
from rasp_tuner.engine import intake, safety, stops
from rasp_tuner.engine.account import Account
from rasp_tuner.engine.family import Belief, ByExpert, Choice, Family, RunOutcome, SearchBelief, predict_one
from rasp_tuner.engine.intake_notes import PUT_ASIDE, SAYS_NOTHING, IntakeNotes
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Dims, Places
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.objective import UNKNOWN_HARM, Objective
from rasp_tuner.engine.reasons import Reasons
from rasp_tuner.engine.scale import FIRST_LOOK, due
from rasp_tuner.engine.settings import EngineSettings
from rasp_tuner.engine.trials import Trials, trials_of
from rasp_tuner.engine.unit_watch import SURPRISING_DEVIATIONS, UnitWatch, described_changes
from rasp_tuner.optimizer.optimizer import (
    ANY,
    FAILED_ERROR,
    Asked,
    Expected,
    LatestSamples,
    LearnResult,
    Proposal,
    Repeats,
    Room,
    Scope,
    Stateful,
)
from rasp_tuner.space import Layout
from rasp_tuner.types import Budget, Explanation, Margin, Metric, Slots, Why

log = logging.getLogger("rasp_tuner")
FORECAST_FROM_SAMPLES = 3  # on, an explanation gives a forecast; more than knobs, and forecasts are compared
SCALE_SAMPLES = 64  # the latest, by which a metric's scale is chosen
NEAREST = 3  # earlier samples of the most similar situation, beside which a new unit is looked for
EARLY_FAILURES = 64  # kept until the first success says what bad means
Harmless = Callable[[Belief, Array], bool]
ONE = np.zeros(1, dtype=np.int64)  # the place of the one tuner
IGNORED = 1e-12  # weight of a metric that does not count, beside 1


class Engine:
    """A family of experts, with a budget, a guard and a cost of switching around its choice."""

    def __init__(
        self, objective: Objective, family: Family[Any], layout: Layout, context_dim: int, settings: EngineSettings
    ) -> None:
        self.objective, self.family, self.settings = objective, family, settings
        self.default: Array = layout.default
        self._rules = layout.rules  # what ties knobs together, if anything does
        self._first_looks = len(self.default) + 1
        self._context_dim = context_dim
        self._account, self._calibration = Account(objective, family, layout.default, settings), safety.Calibration()
        self.dims = Dims(len(self.default), context_dim, objective.columns)
        self.contexts, self.losses = ContextBounds(context_dim, 1), LossBounds(objective.logs, 1)
        self.watch, self.notes = UnitWatch(self.dims, len(objective.metrics), 1), IntakeNotes.blank(self.dims, 1)
        self._result: LearnResult | None = None  # of the latest trial that was learned
        self._told: RunOutcome | None = None  # the latest that was told
        self._restated = ""  # how a metric has just changed, in words
        self._early: list[Array] = []  # points, then contexts, of what failed before anything succeeded
        self._latest: tuple[Array, Belief] | None = None  # context and belief, until something is learned
        self._expected: tuple[Belief, Array, float, ByExpert] | None = None  # of a point and its target, by a belief
        self._compared: dict[bytes, safety.Against] = {}  # points beside the default, by that belief
        family.reweigh(objective.weights)

    @property
    def model(self) -> "Engine":
        return self

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self.objective.metrics

    @property
    def scales(self) -> dict[str, str]:
        return self.objective.scales

    @property
    def own_metric(self) -> str | None:
        names = list(self.metrics)
        return names[0] if len(names) == 1 else None

    @property
    def experts(self) -> tuple[str, ...]:
        return self.family.experts

    def believe(self, context: Array) -> Belief:
        """What the family holds true in this context; the belief of an ask serves its tell, too."""
        latest = self._latest
        if latest is not None and (latest[0] is context or np.array_equal(latest[0], context)):
            return latest[1]
        belief: Belief = self.family.believe(context)
        self._latest, self._compared = (context, belief), {}
        self._account.forget_bill()
        return belief

    @property
    def uses_blas(self) -> bool:
        return self.family.uses_blas

    def propose(self, context: Array, current: Array, rng: np.random.Generator, scope: Scope = ANY) -> Proposal | None:
        """What the family would try, unless guard, budget or the cost of leaving `current` forbid it."""
        if self.objective.seen == 0:
            why = Explanation(source="a random point: all so far failed")
            return Proposal(rng.random(len(self.default)), why) if self._early else None
        belief = self.believe(context)
        if self.watch.count[0]:
            return self._check_of_unit(belief, current)
        if self.settings.find:
            found = safety.legal_choice(self._rules, belief, cast("SearchBelief", belief).search(rng, scope))
            return Proposal(found.point, self._reasons(belief, found, scope.room))
        waiting = scope.waiting
        bounded = scope.within and cast("SearchBelief", belief).choose_within(rng, scope.within, waiting)
        choice = safety.legal_choice(self._rules, belief, bounded or belief.choose(rng, waiting))
        if self._account.is_stopped:
            choice = Choice(self.default, stops.STOPPED, *predict_one(belief, self.default))
        elif self.objective.seen + waiting.total > self._first_looks:  # before, standing still teaches nothing
            if self.settings.guard is not None:
                choice = self._replaced(belief, choice, self._within_guard, "guard")
            choice = self._worth_switching(belief, choice, current)
            if self._account.is_kept:
                within = partial(self._within_budget, waiting.staked)
                choice = self._replaced(belief, choice, within, "the budget is spent")
                choice = self._account.audited(belief, choice, self.wider, waiting)
        return Proposal(choice.point, self._reasons(belief, choice, waits=waiting.total > 0.0))

    def reasons_at(self, context: Array, point: Array, source: str) -> Why:
        if not self.objective.seen:
            return Explanation(source=source)
        belief = self.believe(context)
        return self._reasons(belief, Choice(point, source, *predict_one(belief, point)))

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
        del rng  # nothing here is left to chance
        if repeats is not None:
            losses, scatter = self.objective.of_repeats(metrics, repeats.variances)
            trial = RunOutcome(point, context, losses, False, asked, None, repeats.runs, scatter, repeats.ago)
        else:
            trial = RunOutcome(point, context, self.objective.to_minimise(metrics), False, asked)
        if stopped:
            return self._learn_bound(trial)
        outcome = self._tell(trial)
        self._learn_early_failures()
        return outcome

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        del rng
        return self._tell(RunOutcome(point, context, self.objective.of_error(error), False))

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Asked | None = None
    ) -> LearnResult:
        del rng
        if self.objective.seen:
            return self._learn_failure(point, context, asked)
        self._early = [*self._early, np.concatenate([point, context])][-EARLY_FAILURES:]
        return LearnResult(
            FAILED_ERROR, reason="failed before anything succeeded: kept until it is known what bad means"
        )

    def best_known(self, context: Array) -> Array | None:
        if not self.objective.seen:
            return None
        belief = self.believe(context)
        best = belief.best() if self.settings.find else None
        return self._proven(belief) if best is None else safety.legal_point(self._rules, belief, best)

    def expect(self, context: Array, point: Array) -> Expected | None:
        if not self.objective.seen:
            return None
        mean, variance = predict_one(self.believe(context), point)
        half = safety.NORMAL_90 * self.wider * math.sqrt(max(variance, 0.0))
        return Expected(*(self.objective.own_units(y) for y in (mean, mean - half, mean + half)))

    def knows(self, context: Array, point: Array) -> bool:
        if not self.objective.seen:
            return False
        belief = self.believe(context)
        return predict_one(belief, point)[1] <= belief.noise

    def forecast_metric(self, name: str, context: Array, point: Array) -> Expected | None:
        if self.own_metric is None:
            self.reweigh({other: 1.0 if other == name else IGNORED for other in self.metrics})
        expected, objective = self.expect(context, point), self.objective
        if expected is None or self.own_metric is not None:
            return expected
        return Expected(*(objective.own_units_of(name, y) for y in expected))

    def similar_runs(self, context: Array) -> tuple[float, float] | None:
        if not self.objective.seen:
            return 0.0, math.nan
        slots = self.slots()
        metric = ContextMetric.of(self.contexts.clipped(slots.contexts), float(self.family.samples))
        alike = metric.likeness(context, slots.contexts, self.relevance()) >= ALIKE
        return float(slots.visits[alike].sum()), float(slots.last[alike].min(initial=math.inf)) + 1.0

    def relevance(self) -> Array | None:
        return self.family.relevance

    def predicted_targets(self, context: Array, points: Array) -> Array:
        """[n] the target expected at points [n, d]; something must have been learned."""
        return self.believe(context).predict(points)[0]

    def versus(self, context: Array, point: Array) -> safety.Against:
        """A point compared with the default in this context; something must have been learned."""
        return self.beside(self.believe(context), point)

    def probability_better(self, context: Array, point: Array) -> float:
        return float(self.versus(context, point).better)

    def stake(self, context: Array, point: Array) -> float:
        if not self.objective.seen:
            return 0.0
        offer = self.beside(self.believe(context), point)
        worse = float(self.objective.relative(offer.mean + offer.deviation, offer.level))
        return max(worse, UNKNOWN_HARM) if self._is_harm_unknown(offer) else worse

    def _is_harm_unknown(self, offer: safety.Against) -> bool:
        """Whether hardly anything but the default ran as yet."""
        if offer.deviation == 0.0:
            return False
        ran = self.recent().points
        looks = int((ran != self.default).any(axis=1).sum()) if len(ran) else self.objective.seen
        return looks < self._first_looks

    @property
    def factor(self) -> float:
        """How much wider than believed intervals must be to hold nine outcomes in ten."""
        return float(self._calibration.factor)

    @property
    def wider(self) -> float:
        """The same, at least 1."""
        return max(float(self._calibration.factor), 1.0)

    def margins(self, context: Array, point: Array) -> dict[str, Margin]:
        del context, point
        return {}

    def budget(self) -> Budget | None:
        return self._account.report(self.wider)

    def reweigh(self, weights: Mapping[str, float]) -> None:
        self.objective.reweigh(weights)
        self._reweigh_family()

    def merge(self, other: "Engine", first: bool) -> None:
        n, m = self.objective.seen, other.objective.seen
        self._calibration.merge(other._calibration, m / max(n + m, 1))
        self._account.merge(other._account)
        self.objective.merge(other.objective)
        self.family.merge(other.family, self.objective.weights, first)
        if n and m and self.objective.may_rescale and n + m >= FIRST_LOOK and self._scale_changes():
            self.family.reweigh(self.objective.weights)
        self._merge_intake(other)
        early = [*self._early, *other._early] if first else [*other._early, *self._early]
        self._early, self._latest = early[-EARLY_FAILURES:], None
        if self.objective.seen:
            self._learn_early_failures()

    def slots(self) -> Slots:
        return self.family.remembered()

    def recent(self) -> LatestSamples:
        return self.family.recent()

    def state(self) -> dict[str, Array]:
        parts = {f"{name}/{key}": array for name, part in self._parts() for key, array in part.state().items()}
        return {"early": np.array(self._early).reshape(-1, len(self.default) + self._context_dim), **parts}

    def restore(self, state: Mapping[str, Array]) -> None:
        d, c = len(self.default), self._context_dim
        points = Field(("n", d + c), (*[0.0] * d, *[-LARGEST] * c), (*[1.0] * d, *[LARGEST] * c))
        early = checked(state, {"early": points}, {"n": range(EARLY_FAILURES + 1)})["early"]
        for name, part in self._parts():
            part.restore(under(f"{name}/", state))
        if self.objective.seen > self.family.samples:
            raise broken(state, "objective/seen", f"be at most {self.family.samples}, all samples", self.objective.seen)
        own = state["family/weights"]
        if not np.array_equal(own, self.objective.weights):
            raise broken(state, "family/weights", f"be those of the metrics, {self.objective.weights}", own.tolist())
        self._early = list(early)
        self.bound_contexts(ONE, ONE[:0])
        self._latest = None

    def _parts(self) -> Iterator[tuple[str, Stateful]]:
        yield "objective", self.objective
        yield "family", self.family
        parts: dict[str, Stateful]
        parts = {"contexts": self.contexts, "losses": self.losses, "watch": self.watch, "notes": self.notes}
        yield from ((f"intake/{name}", part) for name, part in parts.items())
        yield "calibration", self._calibration
        yield from self._account.parts()

    def beside(self, belief: Belief, point: Array) -> safety.Against:
        """A point compared with the default by the latest belief, with a deviation as wide as calibration asks for."""
        key = point.tobytes()
        found = self._compared.get(key)
        if found is None:  # what was compared is forgotten when the factor changes
            found = self._compared[key] = safety.against(belief, point, self.default, self.wider)
        return found

    def _proven(self, belief: Belief) -> Array:
        """The best point known if that is proven to be better than the default in this situation; else the best of the
        latest that ran, if that is; else the default."""
        best = belief.best()
        if best is not None:
            best = safety.legal_point(self._rules, belief, best)
            if self.beside(belief, best).proven:
                return best
        ran = self.recent().points
        if not len(ran):
            return self.default
        best = ran[int(belief.predict(ran)[0].argmin())]
        return best if self.beside(belief, best).proven else self.default

    def _replaced(self, belief: Belief, choice: Choice, harmless: Harmless, why: str) -> Choice:
        """The choice if it is harmless beside the default; else the best known if that is, and better; else that."""
        if harmless(belief, choice.point):
            return choice
        best = self._proven(belief)
        point = best if best is self.default or harmless(belief, best) else self.default
        source = f"{'default' if point is self.default else 'best known'} ({why})"
        return Choice(point, source, *predict_one(belief, point))

    def _within_guard(self, belief: Belief, point: Array) -> bool:
        guard = self.settings.guard
        return guard is None or bool(safety.within_guard(self.objective, guard, self.beside(belief, point)))

    def _within_budget(self, staked: float, belief: Belief, point: Array) -> bool:
        return self._account.allows(belief, point, self.beside(belief, point), self.wider, staked)

    def _check_of_unit(self, belief: Belief, current: Array) -> Proposal:
        """What shows whether a metric has changed its unit: the best known, and the default; both are known well."""
        own, others = (int(count[0]) for count in self.watch.at_default(self.default))
        point = self.default if others > 1 and not own and not belief.lacks_default else self._proven(belief)
        if own > 1 and not others and point is self.default:
            recent = self.recent()
            tried = (recent.points != self.default).any(axis=1)
            point = recent.points[tried][int(recent.errors[tried].argmin())] if tried.any() else point
        name = "default" if point is self.default else "best known"
        choice = Choice(point, f"{name} (has the metric changed?)", *predict_one(belief, point))
        choice = self._worth_switching(belief, choice, current)
        return Proposal(choice.point, self._reasons(belief, choice))

    def _worth_switching(self, belief: Belief, choice: Choice, current: Array) -> Choice:
        cost = self.settings.switching_cost
        return safety.worth_switching(belief, choice, current, cost, self.objective.own_units) if cost > 0.0 else choice

    def _learn_early_failures(self) -> None:
        while self._early:
            failed_at, failed_in = np.split(self._early.pop(0), [len(self.default)])
            self._learn_failure(failed_at, failed_in)

    def _learn_failure(self, point: Array, context: Array, asked: Asked | None = None) -> LearnResult:
        """Learn that a run failed, by what the default is expected to come to there; it is no value, too."""
        level, _ = predict_one(self.believe(context), self.default)
        losses = self.losses.bounded(self.objective.of_failure(level)[None])[0]
        return self._see_and_learn(RunOutcome(point, context, losses, True, asked))

    def _surprise(self, trial: RunOutcome, y: float) -> tuple[float, float]:
        """How far y lies from what was expected of a trial, and the deviation of that, calibrated."""
        belief = self.believe(trial.context)
        forecast = self._forecast(belief, trial.point, y)
        self._expected = belief, trial.point, y, forecast
        unsure = math.sqrt(max(forecast.variance + belief.noise, SMALLEST))
        return y - forecast.mean, unsure * self.wider

    def _learn_bound(self, trial: RunOutcome) -> LearnResult:
        """Learn that a run was ended: what is expected of it beyond that. It is no value: no range or scale moves."""
        if not self.objective.seen:
            return self._tell(trial)._replace(reason=stops.NOTHING_BESIDE)
        belief, ended = self.believe(trial.context), float(self.objective.target(trial.losses))
        mean, variance = predict_one(belief, trial.point)
        losses = stops.losses_from(self.objective, trial.losses, mean, variance + belief.noise)
        losses = self.losses.bounded(losses[None])[0]
        self._see_and_learn(trial._replace(losses=losses, ended=ended))
        return LearnResult(self.objective.own_units(ended), reason=stops.ENDED)

    def _learn(self, trial: RunOutcome, again: bool = False) -> LearnResult:
        """Book, score and learn a trial; what is learned again was booked before."""
        point, context, losses, failed, asked, ended, runs, *_ = trial
        measured = not failed and ended is None
        error: float = self.objective.target(losses)
        told = self.objective.own_units(error)  # before the scale may change
        samples = self.family.samples
        belief = self.believe(context) if samples else None
        forecast = self._forecast(belief, point, error) if belief is not None and samples >= 2 else None
        if not again:
            self._account.note_end(trial, told)
        if asked is not None and self._account.is_kept:
            offer = None if belief is None else self.beside(belief, point)
            self._account.book(trial, error, belief, offer, self.wider)
        if belief is not None and forecast is not None and self.objective.seen >= 2 and measured and runs == 1:
            self._calibration.observe(error - forecast.mean, True, forecast.variance + belief.noise)
        self.family.learn(trial, belief, forecast)
        changed = measured and self.objective.observe(losses)
        if belief is not None and measured and self.objective.may_rescale:
            surprise = 0.0 if forecast is None else error - forecast.mean  # levels are what came
            self.objective.observe_level(self.beside(belief, point).level + surprise)
            changed |= self._scale_is_due() and self._scale_changes()
        if changed:
            self.family.reweigh(self.objective.weights)
        self._latest = None
        return LearnResult(told)

    def _forecast(self, belief: Belief, point: Array, y: float) -> ByExpert:
        """What was expected at a point where y came out; it was looked at before, as a rule."""
        known, self._expected = self._expected, None
        if known is not None and known[0] is belief and known[2] == y and known[1] is point:
            return known[3]
        return belief.forecast(point, y)

    @one_thread()
    def _scale_changes(self) -> bool:
        """Whether a metric changes its scale: by evidence, or by its latest samples, where those are all there is.

        In NumPy also where families are compiled.
        """
        gain = None if self.objective.logs_first else self.family.logs_gain(self.objective.sign)
        if gain is not None:
            changes, why = self.objective.follow(gain), "it is explained better on this one"
        elif self.objective.seen < FIRST_LOOK:  # too few to tell levels of situations apart
            return False
        else:
            recent, latest = self.recent(), slice(-SCALE_SAMPLES, None)
            contexts, relevance = recent.contexts[latest], self.relevance()
            counts = np.ones(contexts.shape[1]) if relevance is None else relevance
            z = ContextMetric.of(contexts, float(len(contexts))).z(contexts, counts)
            changes = bool(self.objective.choose_scale(z, recent.losses[latest]))
            why = "levels differ by factors between situations"
        if changes:
            self._log_scales(why)
        return changes

    def _scale_is_due(self) -> bool:
        seen = self.objective.seen
        return bool(due(seen)) or FEWEST_SAMPLES <= seen < FIRST_LOOK

    def _log_scales(self, why: str) -> None:
        scales = ", ".join(f"{name} {scale}" for name, scale in self.scales.items())
        log.info("the scale of a metric has changed (%s); now: %s", why, scales)

    def _reasons(self, belief: Belief, choice: Choice, room: Room | None = None, waits: bool = False) -> Reasons:
        """Why this choice: copies, since a belief is large."""
        offer, objective = self.beside(belief, choice.point), self.objective
        beside = offer if objective.seen >= FORECAST_FROM_SAMPLES else None
        units, factor = (objective.is_log, objective.sign), self._calibration.factor
        similar, weights = belief.similar().copy(), belief.weights.copy()
        stake = self._account.stake(offer, waits and self._is_harm_unknown(offer))
        return Reasons(
            choice, self.default, beside, similar, weights, self.family.experts, belief.noise, factor, *units,
            self._account.stop(belief, choice.point, offer, self.wider, room), stake,
        )  # fmt: skip

    def _tell(self, trial: RunOutcome) -> LearnResult:
        """Learn from a trial as it came; or put it aside, if a metric may have changed its unit."""
        y = float(self.objective.target(trial.losses))
        self._result, self._restated, self._told = None, "", trial
        if self.family.samples < 2 or not self.objective.seen or not self._may_be_restated(trial, y):  # as a rule
            if not self.notes.open[0] and self.losses.usual(trial.losses):
                return self._see_and_learn(trial)
            intake.learn_losses(self, Trials.of(trial))
        else:
            intake.tell(self, Trials.of(trial))
        aside = PUT_ASIDE if self.watch.count[0] else SAYS_NOTHING
        result = self._result or LearnResult(self.objective.own_units(y), reason=aside)
        return result._replace(path="restated", reason=self._restated) if self._restated else result

    def _may_be_restated(self, trial: RunOutcome, y: float) -> bool:
        """Whether a target is so far from what was expected that a metric may have changed its unit, or just has."""
        gap, deviation = self._surprise(trial, y)
        least = min(SURPRISING_DEVIATIONS * deviation, 4.0 * abs(y)) if self.objective.one else deviation
        return abs(gap) > least or bool(self.watch.count[0])

    def _see_and_learn(self, trial: RunOutcome) -> LearnResult:
        """Learn a trial that is as usual, or failed."""
        usual = not self.notes.open[0] and len(trial.context) <= SHORT and self.contexts.usual(trial.context)
        if not usual:  # of many numbers some are unusual
            intake.see(self, Trials.of(trial), keep=trial.ended is None)
        return self._learn(trial)

    def _merge_intake(self, other: "Engine") -> None:
        """Take in what another one was told; of two, nobody knows what came first."""
        aside = [one.watch.trials[:, i].copy() for one in (self, other) for i in range(int(one.watch.count[0]))]
        self.watch.clear(ONE == 0)
        self.contexts.merge(other.contexts)
        self.losses.merge(other.losses)
        self.notes.close()
        self.bound_contexts(ONE, ONE)
        for row in aside:
            intake.learn_losses(self, trials_of(row, self.dims))

    # What the intake asks for: as one of its Learners.

    def some(self, places: Places) -> "Engine":
        del places  # the only one
        return self

    def put(self, places: Places, part: "Engine") -> None:
        """It is this one."""

    def samples(self) -> Array:
        return np.array([float(self.family.samples)])

    def surprise(self, trials: Trials) -> tuple[Array, Array]:
        trial = trials.one()
        gap, deviation = self._surprise(trial, float(self.objective.target(trial.losses)))
        return np.array([gap]), np.array([deviation])

    def likeness(self, contexts: Array) -> Array:
        return np.array([self.believe(contexts[0]).similar().max()])

    def met(self) -> list[Array]:
        return [self.slots().contexts]

    def differs(self, aside: Array) -> Flags:
        trials = trials_of(aside[0], self.dims)
        return np.array([self._knew_any(trials) and not self._are_as_before(trials)])

    def _knew_any(self, trials: Trials) -> bool:
        """Whether any ran at a setting that had run, or of which enough was known: others may just be so."""
        known = np.array([self.default, *self.recent().points])
        if (trials.points[:, None] == known).all(axis=2).any():
            return True
        return any(self.knows(context, point) for context, point in zip(trials.contexts, trials.points, strict=True))

    def _are_as_before(self, trials: Trials) -> bool:
        """Whether most are like earlier samples of the nearest contexts: a model took two situations for one."""
        recent = self.recent()
        if not recent.contexts.size:
            return False
        metric = ContextMetric.of(recent.contexts, float(len(recent.contexts)))
        apart = squared_gaps(metric.bounded(trials.contexts), metric.bounded(recent.contexts[::-1]))  # latest first
        before = np.median(recent.errors[::-1][apart.argsort(axis=1, kind="stable")[:, :NEAREST]], axis=1)
        now = np.array([self.objective.target(losses) for losses in trials.losses])
        told = zip(trials.contexts, trials.points, strict=True)
        expected = np.array([predict_one(self.believe(context), point)[0] for context, point in told])
        return bool(2 * (np.abs(now - before) < 0.5 * np.abs(now - expected)).sum() > len(now))

    def learn_trials(self, trials: Trials, again: bool) -> None:
        trial, told = trials.one(), self._told
        if told is not None and np.array_equal(told.point, trial.point) and np.array_equal(told.context, trial.context):
            trial = trial._replace(runs=told.runs, scatter=told.scatter, ago=told.ago)
            # what was put aside counts as one run, whose stop is not known
        result = self._learn(trial, again)
        self._result = self._result if again else result

    def rescaled(self, changed: Flags, again: bool) -> None:
        del changed
        if not again:  # else it was told
            self._log_scales("values far beyond all before them")
        self._reweigh_family()

    def restate(self, factors: Array, shifts: Array) -> None:
        self.family.restate(factors[0], shifts[0], self.objective.weights)
        self._account.forget_level()
        self._latest = None
        words = described_changes(self.metrics, *(changed[0] for changed in self.watch.change()))
        self._restated = f"{words}, whatever the settings: all that was learned is seen in the new unit"
        log.warning("a metric has changed: %s", self._restated)

    def forget(self) -> None:
        self.objective.forget()
        self.family.forget()
        self._reweigh_family()

    def bound_contexts(self, moved: Places, mend: Places) -> None:
        if len(moved) or len(mend):
            self.family.bound_contexts(self.contexts.least[0], self.contexts.most[0], bool(len(mend)))
        if len(mend):
            self._latest = None

    def _reweigh_family(self) -> None:
        self.family.reweigh(self.objective.weights)
        self._latest = None
