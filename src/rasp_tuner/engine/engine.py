"""Engine: the stages of preset `default`, joined.

ask    context -> believe -> choose -> guard, cost of switching -> point
tell   metrics -> losses -> intake -> forecast of this sample -> calibrate, book -> the family learns
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rasp_tuner.core.context_metric import ALIKE, ContextMetric
from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.optimizer import FAILED_ERROR, Expected, LearnResult, Proposal, Samples, Stateful
from rasp_tuner.core.state_checks import Field, broken, checked, under
from rasp_tuner.core.threads import one_thread
from rasp_tuner.engine.budget import BudgetLedger
from rasp_tuner.engine.evidence import log_mean
from rasp_tuner.engine.family import Belief, Choice, Family, Forecast, Trial, predict_one
from rasp_tuner.engine.intake import Intake
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.reasons import Reasons
from rasp_tuner.engine.safety import (
    GUARD_DEVIATIONS,
    LEAST_VARIANCE,
    NORMAL_90,
    PROVEN,
    Against,
    Calibration,
    against,
    worth_switching,
)
from rasp_tuner.engine.scale import FIRST_LOOK, due
from rasp_tuner.space import Rules
from rasp_tuner.types import Budget, Explanation, Margin, Metric, Slots

log = logging.getLogger("rasp_tuner")
FORECAST_FROM_SAMPLES = 3  # on, an explanation gives a forecast
SCALE_SAMPLES = 64  # the latest, by which a metric's scale is chosen
EARLY_FAILURES = 64  # kept until the first success says what bad means
IGNORED = 1e-12  # weight of a metric that does not count, beside 1
MOST_DEVIATIONS = 1e6  # of a surprise


class Engine:
    """A family of experts, with a budget, a guard and a cost of switching around its choice."""

    def __init__(
        self,
        objective: Objective,
        family: Family[Any],
        default: Array,
        context_dim: int,
        *,
        switching_cost: float = 0.0,
        guard: float | None = None,
        budget: float | None = None,
        densities: bool = False,
        rules: Rules | None = None,
    ) -> None:
        self.objective, self.family, self.default = objective, family, default
        self.switching_cost, self.guard = switching_cost, guard
        self.densities = densities  # whether results say how likely each answer was
        self._rules = rules  # what ties knobs together, if anything does
        self._first_looks = len(default) + 1
        self._context_dim = context_dim
        self._budget = None if budget is None else BudgetLedger(budget)
        self._calibration = Calibration()
        self._intake = Intake(default, context_dim, objective)
        self._early: list[Array] = []  # points, then contexts, of what failed before anything succeeded
        self._latest: tuple[Array, Belief] | None = None  # context and belief, until something is learned
        self._expected: tuple[Array, float, Forecast] | None = None  # of a point and its target, by that belief
        self._compared: dict[bytes, Against] = {}  # points beside the default, by that belief
        family.reweigh(objective.weights)

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
        return belief

    @property
    def uses_blas(self) -> bool:
        return self.family.uses_blas

    def propose(self, context: Array, current: Array, rng: np.random.Generator) -> Proposal | None:
        """What the family would try, unless guard, budget or the cost of leaving `current` forbid it."""
        if self.objective.seen == 0 and not self._early:
            return None
        if self.objective.seen == 0:
            return Proposal(rng.random(len(self.default)), Explanation(source="a random point: all so far failed"))
        belief = self.believe(context)
        if self._intake.watch.count[0]:
            return self._check_of_unit(belief, current)
        choice = self._legal_choice(belief, belief.choose(rng))
        if self.objective.seen > self._first_looks:  # before, nothing could be learned by standing still
            if self.guard is not None:
                choice = self._replaced(belief, choice, self._within_guard, "guard")
            if self.switching_cost > 0.0:
                choice = worth_switching(belief, choice, current, self.switching_cost, self.objective.own_units)
            if self._budget is not None:
                choice = self._replaced(belief, choice, self._within_budget, "the budget is spent")
        return Proposal(choice.point, self._reasons(belief, choice))

    def tell(
        self,
        context: Array,
        point: Array,
        metrics: Mapping[str, float],
        rng: np.random.Generator,
        asked: Array | None = None,
    ) -> LearnResult:
        del rng  # nothing here is left to chance
        outcome = self._intake.tell(self, Trial(point, context, self.objective.to_minimise(metrics), False, asked))
        self._learn_early_failures()
        return outcome

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        del rng
        return self._intake.tell(self, Trial(point, context, self.objective.of_error(error), False))

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Array | None = None
    ) -> LearnResult:
        del rng
        if self.objective.seen:
            return self.learn(Trial(point, context, self.objective.worst(), True, asked))
        self._early = [*self._early, np.concatenate([point, context])][-EARLY_FAILURES:]
        return LearnResult(
            FAILED_ERROR, reason="failed before anything succeeded: kept until it is known what bad means"
        )

    def best_known(self, context: Array) -> Array | None:
        return self._proven(self.believe(context), PROVEN) if self.objective.seen else None

    def expect(self, context: Array, point: Array) -> Expected | None:
        if not self.objective.seen:
            return None
        mean, variance = predict_one(self.believe(context), point)
        half = NORMAL_90 * max(self.factor, 1.0) * math.sqrt(max(variance, 0.0))
        return Expected(*(self.objective.own_units(y) for y in (mean, mean - half, mean + half)))

    def expect_alone(self, name: str, context: Array, point: Array) -> Expected | None:
        if self.own_metric is None:
            self.reweigh({other: 1.0 if other == name else IGNORED for other in self.metrics})
        expected = self.expect(context, point)
        if expected is None or self.own_metric is not None:
            return expected
        return Expected(*(self.objective.own_units_of(name, y) for y in expected))

    def alike(self, context: Array) -> tuple[float, float] | None:
        if not self.objective.seen:
            return 0.0, math.nan
        slots = self.slots()
        metric = ContextMetric.of(self._intake.contexts.clipped(slots.contexts), float(self.family.samples))
        alike = metric.likeness(context, slots.contexts, self.relevance()) >= ALIKE
        return float(slots.visits[alike].sum()), float(slots.last[alike].min(initial=math.inf)) + 1.0

    def relevance(self) -> Array | None:
        return self.family.relevance

    def outlook(self, context: Array, points: Array) -> Array:
        """[n] the target expected at points [n, d]; something must have been learned."""
        return self.believe(context).predict(points)[0]

    def better(self, context: Array, point: Array) -> float:
        """Probability that a point beats the default in this context; something must have been learned."""
        return float(self.beside(self.believe(context), point).better)

    @property
    def factor(self) -> float:
        """How much wider than believed intervals must be to hold nine outcomes in ten."""
        return float(self._calibration.factor)

    def margins(self, context: Array, point: Array) -> dict[str, Margin]:
        del context, point
        return {}

    def budget(self) -> Budget | None:
        return None if self._budget is None else self._budget.report()

    def reweigh(self, weights: Mapping[str, float]) -> None:
        self.objective.reweigh(weights)
        self.family.reweigh(self.objective.weights)
        self._latest = None

    def merge(self, other: "Engine", first: bool) -> None:
        n, m = self.objective.seen, other.objective.seen
        self._calibration.merge(other._calibration, m / max(n + m, 1))
        if self._budget is not None and other._budget is not None:
            self._budget.merge(other._budget)
        self.objective.merge(other.objective)
        self.family.merge(other.family, self.objective.weights, first)
        if n and m and self.objective.may_rescale and n + m >= FIRST_LOOK and self._scale_changes():
            self.family.reweigh(self.objective.weights)
        self._intake.merge(self, other._intake)
        early = [*self._early, *other._early] if first else [*other._early, *self._early]
        self._early, self._latest = early[-EARLY_FAILURES:], None
        if self.objective.seen:
            self._learn_early_failures()

    def slots(self) -> Slots:
        return self.family.remembered()

    def recent(self) -> Samples:
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
        self._intake.bound_contexts(self, mend=False)
        self._latest = None

    def _parts(self) -> Iterator[tuple[str, Stateful]]:
        yield "objective", self.objective
        yield "family", self.family
        yield "intake", self._intake
        yield "calibration", self._calibration
        if self._budget is not None:
            yield "budget", self._budget

    def beside(self, belief: Belief, point: Array) -> Against:
        """A point compared with the default by the latest belief, with a deviation as wide as calibration asks for."""
        key = point.tobytes()
        found = self._compared.get(key)
        if found is None:  # what was compared is forgotten when the factor changes
            wider = max(self._calibration.factor, 1.0)
            found = self._compared[key] = against(belief, point, self.default, wider)
        return found

    def _proven(self, belief: Belief, probability: float) -> Array:
        """The best point known if it is so likely better than the default in this situation; else the default."""
        best = belief.best()
        if best is None:
            return self.default
        best = self._legal(belief, best)
        return self.default if self.beside(belief, best).better < probability else best

    def _legal(self, belief: Belief, point: Array) -> Array:
        """The point, if it keeps the rules of its space; else the best of those near it that do."""
        if self._rules is None:
            return point
        offers = self._rules.offers(point)
        best: Array = offers[0 if len(offers) == 1 else int(belief.predict(offers)[0].argmin())]
        return best

    def _legal_choice(self, belief: Belief, choice: Choice) -> Choice:
        point = self._legal(belief, choice.point)
        if point is choice.point:
            return choice
        mean, variance = predict_one(belief, point)
        return choice._replace(point=point, mean=mean, variance=variance)

    def _replaced(self, belief: Belief, choice: Choice, harmless: Callable[[Against], bool], why: str) -> Choice:
        """The choice if it is harmless beside the default; else the best known if that is better; else the default."""
        if harmless(self.beside(belief, choice.point)):
            return choice
        point = self._proven(belief, PROVEN)
        mean, variance = predict_one(belief, point)
        return Choice(point, f"{'default' if point is self.default else 'best known'} ({why})", mean, variance)

    def _within_guard(self, offer: Against) -> bool:
        worst = offer.mean + GUARD_DEVIATIONS * offer.deviation
        return self.guard is None or self.objective.relative(worst, offer.level) <= self.guard

    def _within_budget(self, offer: Against) -> bool:
        price, worse = self.objective.shares(offer.level, offer.mean, offer.mean + offer.deviation)
        return self._budget is None or self._budget.allows(price, worse - price)

    def _account(self, belief: Belief, point: Array, y: float, failed: bool) -> None:
        """Book what an own suggestion cost against the default, as it is known after it ran."""
        if self._budget is None or self.objective.seen <= self._first_looks:  # those are free
            return
        offer = self.beside(belief, point)
        gap = y - offer.level if failed else offer.after(y, belief.noise)
        self._budget.record(self.objective.relative(gap, offer.level))

    def _check_of_unit(self, belief: Belief, current: Array) -> Proposal:
        """What shows whether a metric has changed its unit: the best known, and the default; both are known well."""
        own, others = (int(count[0]) for count in self._intake.watch.at_default(self.default))
        point = self.default if others > 1 and not own else self._proven(belief, PROVEN)
        if own > 1 and not others and point is self.default:
            recent = self.recent()
            tried = (recent.points != self.default).any(axis=1)
            point = recent.points[tried][int(recent.errors[tried].argmin())] if tried.any() else point
        name = "default" if point is self.default else "best known"
        choice = Choice(point, f"{name} (has the metric changed?)", *predict_one(belief, point))
        if self.switching_cost > 0.0:
            choice = worth_switching(belief, choice, current, self.switching_cost, self.objective.own_units)
        return Proposal(choice.point, self._reasons(belief, choice))

    def _learn_early_failures(self) -> None:
        while self._early:
            failed_at, failed_in = np.split(self._early.pop(0), [len(self.default)])
            self.learn(Trial(failed_at, failed_in, self.objective.worst(), True))

    def surprise(self, trial: Trial, y: float) -> tuple[float, float]:
        """How far y lies from what was expected of a trial, and the deviation of that, calibrated."""
        belief = self.believe(trial.context)
        forecast = belief.forecast(trial.point, y)
        self._expected = trial.point, y, forecast
        unsure = math.sqrt(max(forecast.variance + belief.noise, LEAST_VARIANCE))
        return y - forecast.mean, unsure * max(self._calibration.factor, 1.0)

    def stale(self) -> None:
        self._latest = self._expected = None

    def learn(self, trial: Trial) -> LearnResult:
        """Book, score and learn a trial."""
        self._intake.see(self, trial)
        point, context, losses, failed, asked = trial
        error: float = self.objective.target(losses)
        told = self.objective.own_units(error)  # before the scale may change
        samples = self.family.samples
        belief = self.believe(context) if samples else None
        forecast = self._forecast(belief, point, error) if belief is not None and samples >= 2 else None
        if belief is not None and asked is not None:
            self._account(belief, point, error, failed)
        if belief is not None and forecast is not None and self.objective.seen >= 2 and not failed:
            unsure = max(forecast.variance + belief.noise, LEAST_VARIANCE)
            self._calibration.observe(min(abs(error - forecast.mean) / math.sqrt(unsure), MOST_DEVIATIONS))
        self.family.learn(trial, belief, forecast)
        changed = not failed and self.objective.observe(losses)
        if belief is not None and not failed and self.objective.may_rescale:
            self.objective.observe_level(error, self.beside(belief, point).level)
            changed |= self._rescaled()
        if changed:
            self.family.reweigh(self.objective.weights)
        self._latest = None
        if belief is None or forecast is None or not self.densities:
            return LearnResult(told)
        return LearnResult(told, log_density=log_mean(forecast.log_densities, belief.weights))

    def _forecast(self, belief: Belief, point: Array, y: float) -> Forecast:
        """What was expected at a point where y came out; it was looked at before, as a rule."""
        known, self._expected = self._expected, None
        if known is not None and known[0] is point and known[1] == y:
            return known[2]
        return belief.forecast(point, y)

    def _rescaled(self) -> bool:
        """Whether the metric changed its scale."""
        if not due(self.objective.seen):
            return False
        return self._scale_changes()

    @one_thread()
    def _scale_changes(self) -> bool:
        """The same, by a look at the latest samples; in NumPy also where families are compiled."""
        recent, latest = self.recent(), slice(-SCALE_SAMPLES, None)
        points, contexts, relevance = recent.points[latest], recent.contexts[latest], self.relevance()
        counts = np.ones(contexts.shape[1]) if relevance is None else relevance
        z = ContextMetric.of(contexts, float(len(contexts))).z(contexts, counts)
        changes = self.objective.choose_scale(z, points, recent.losses[latest])
        if changes:
            self._log_scales("it predicts the latest runs better")
        return bool(changes)

    def _log_scales(self, why: str) -> None:
        scales = ", ".join(f"{name} {scale}" for name, scale in self.scales.items())
        log.info("the scale of a metric has changed (%s); now: %s", why, scales)

    def _reasons(self, belief: Belief, choice: Choice) -> Reasons:
        """Why this choice: copies, since a belief is large."""
        beside, objective = None, self.objective
        if objective.seen >= FORECAST_FROM_SAMPLES:
            beside = self.beside(belief, choice.point)
        units, factor = (objective.is_log, objective.sign), self._calibration.factor
        similar, weights = belief.similar().copy(), belief.weights.copy()
        return Reasons(
            choice, self.default, beside, similar, weights, self.family.experts, belief.noise, factor, *units
        )
