"""Engine: the stages of preset `default`, joined. The same loop as the paper's, with parts that win.

context -> believe -> choose -> (the world answers) -> turn metrics -> score experts -> learn
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array, under
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.gate import EvidenceGate, Mixture
from rasp_tuner.paper.adaptation import HybridAdaptation
from rasp_tuner.paper.composer import RescoringComposer
from rasp_tuner.types import Explanation, Proposal, Samples, Slots, Stateful, Told, Verdict

SHOWN = 3  # similar situations named in an explanation
PATIENCE = 10.0  # steps over which a change of settings must earn back what it costs
BELIEVED = 1.0  # deviations that the guard adds to an expected loss
SURE, STUNNED = 1e-300, 1e6  # least variance, and most deviations, that a surprise is reckoned with
RATE = 0.1  # of the calibration, in logarithms
FORECAST = 3  # samples from which on an explanation gives a forecast
EARLY = 64  # failures kept until the first success says what bad means


class Engine:
    """Families of experts under one evidence gate, with a guard and a cost of switching around their choice."""

    def __init__(
        self,
        composer: RescoringComposer,
        gate: EvidenceGate,
        adaptation: HybridAdaptation,
        default: Array,
        *,
        switching_cost: float = 0.0,
        guard: float | None = None,
    ) -> None:
        self.composer, self.gate, self.adaptation, self.default = composer, gate, adaptation, default
        self.switching_cost, self.guard = switching_cost, guard
        self._calibration = Calibration()
        self._early: list[Array] = []  # points, then contexts, of what failed before anything succeeded

    def propose(self, context: Array, point: Array, rng: np.random.Generator) -> Proposal:
        """What the gate's families would try, unless the guard or the cost of switching from `point` forbids it."""
        if self.composer.seen == 0 and self._early:
            return Proposal(rng.random(len(self.default)), Explanation(source="a random point: all so far failed"))
        if self.composer.seen == 0:
            return Proposal(self.default.copy(), Explanation(source="default"))
        mixture = self.gate.believe(context)
        choice = mixture.choose(rng)
        known = self.composer.seen > len(self.default) + 1  # before, nothing could be learned by standing still
        if known and self.guard is not None:
            choice = self._guarded(mixture, choice)
        if known and self.switching_cost > 0.0:
            choice = self._worth_it(mixture, choice, point)
        return Proposal(choice.point, self._explain(mixture, choice))

    def tell(self, context: Array, point: Array, metrics: Mapping[str, float], rng: np.random.Generator) -> Told:
        del rng  # nothing here is left to chance
        turned = self.composer.turn(metrics)
        error, verdict = self._learn(context, point, turned, False)
        while self._early:
            point, context = np.split(self._early.pop(0), [len(self.default)])
            self._learn(context, point, self.composer.worst(), True)
        return Told(error, verdict)

    def learn(self, context: Array, point: Array, error: float, failed: bool, rng: np.random.Generator) -> Verdict:
        del rng
        if not failed:
            return self._learn(context, point, np.full(len(self.composer.metrics), error), False)[1]
        if self.composer.seen == 0:
            self._early = [*self._early, np.concatenate([point, context])][-EARLY:]
            return Verdict("fast", "failed before anything succeeded: kept until it is known what bad means")
        return self._learn(context, point, self.composer.worst(), True)[1]

    def best_known(self, context: Array) -> Array | None:
        return self.gate.believe(context).best() if self.composer.seen else None

    @property
    def experts(self) -> tuple[str, ...]:
        return self.gate.experts

    def expect(self, context: Array, point: Array) -> float | None:
        return float(self.gate.believe(context).predict(point[None])[0][0]) if self.composer.seen else None

    def slots(self) -> Slots:
        return self.gate.families[0].remembered()

    def recent(self) -> Samples:
        return self.gate.families[0].recent()

    def reweigh(self, weights: Mapping[str, float]) -> None:
        """Other weights of the metrics, for all of history at once."""
        self.composer.reweigh(weights)
        self.gate.reweigh(self.composer.weights)

    def state(self) -> dict[str, Array]:
        parts = {f"{stage}/{name}": array for stage, part in self._stages() for name, array in part.state().items()}
        return {"early": np.array(self._early) if self._early else np.zeros((0, 0)), **parts}

    def restore(self, state: Mapping[str, Array]) -> None:
        for stage, part in self._stages():
            part.restore(under(f"{stage}/", state))
        self._early = list(state["early"])

    def _stages(self) -> Iterator[tuple[str, Stateful]]:
        yield "composer", self.composer
        yield "gate", self.gate
        yield "adaptation", self.adaptation
        yield "calibration", self._calibration

    def _learn(self, context: Array, point: Array, turned: Array, failed: bool) -> tuple[float, Verdict]:
        error = float(turned @ self.composer.weights)
        surprise = disagreement = 0.0
        densities = None
        if self.composer.seen >= 2:
            mixture = self.gate.believe(context)
            mean, variance = (float(a[0]) for a in mixture.predict(point[None]))
            unsure = max(variance + mixture.noise(), SURE)
            surprise = min(abs(error - mean) / math.sqrt(unsure), STUNNED)
            disagreement = variance / unsure
            densities = mixture.log_densities(point, error)
            if not failed:
                self._calibration.observe(surprise)
        verdict = self.adaptation.judge(surprise, disagreement)
        self.gate.learn(point, context, turned, failed, densities)
        if not failed and self.composer.observe(turned):
            self.gate.reweigh(self.composer.weights)
        if verdict.path == "slow":
            self.gate.relearn()
        return error, verdict

    def _guarded(self, mixture: Mixture, choice: Choice) -> Choice:
        """The choice if it is surely no worse than the default by more than the margin, else the safest known."""
        best = mixture.best()
        points = np.stack([self.default if best is None else best, self.default])
        means, variances = (a.tolist() for a in mixture.predict(points))
        limit = means[1] + (self.guard or 0.0) * abs(means[1])
        for offer in (choice, Choice(points[0], "best known (guard)", means[0], variances[0])):
            if offer.mean + BELIEVED * math.sqrt(offer.variance) <= limit:
                return offer
        return Choice(points[1], "default (guard)", means[1], variances[1])

    def _worth_it(self, mixture: Mixture, choice: Choice, point: Array) -> Choice:
        """The choice if what it may gain over a few steps exceeds the cost of leaving `point`, else `point`."""
        mean, variance = (float(a[0]) for a in mixture.predict(point[None]))
        hoped = mean - choice.mean + math.sqrt(choice.variance)
        if PATIENCE * hoped >= self.switching_cost or np.array_equal(choice.point, point):
            return choice
        return Choice(point.copy(), "stay: a change would cost more than it gains", mean, variance)

    def _explain(self, mixture: Mixture, choice: Choice) -> Explanation:
        similar = mixture.similar()
        nearest = np.argsort(-similar, kind="stable")[:SHOWN].tolist()
        likeness = similar[nearest].tolist()
        total = sum(likeness)
        weights = [like / total if total > 0.0 else 1.0 / len(nearest) for like in likeness]
        gate = mixture.weights
        sure = self.composer.seen >= FORECAST
        return Explanation(
            source=choice.source,
            slots=tuple(nearest),
            weights=tuple(weights),
            gate=tuple(gate.tolist()),
            predicted=choice.mean if sure else None,
            deviation=math.sqrt(choice.variance + mixture.noise()) * self._calibration.factor if sure else None,
            novelty=1.0 - likeness[0],
            confidence=max(weights),
            entropy=max(-sum(weight * math.log(weight) for weight in weights if weight > 0.0), 0.0),
            expert=self.gate.experts[int(gate.argmax())],
        )


@dataclass(slots=True)
class Calibration:
    """How much wider than believed intervals must be to hold nine outcomes in ten (adaptive conformal inference)."""

    factor: float = 1.0

    def observe(self, surprise: float) -> None:
        """One outcome, `surprise` believed deviations from the mean."""
        missed = surprise > 1.645 * self.factor
        self.factor = min(max(self.factor * math.exp(RATE * (missed - 0.1)), 0.2), 20.0)

    def state(self) -> dict[str, Array]:
        return {"factor": np.array(self.factor)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.factor = float(state["factor"])
