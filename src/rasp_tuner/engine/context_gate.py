"""Screened: a tuner that sees contexts and one that does not, side by side; contexts must earn their say.

Both learn from every sample. The evidence sums how much likelier each answer was to the one that sees; once it exceeds
`TRUSTED`, contexts are used for good. For good, since evidence ends with success: where each situation gets what is
best in it, answers are as good as answers get, and that is what the blind one expects as well.

If both models were true, exp(evidence) would be an e-process: contexts that say nothing would lift it above 20 = exp(3)
in one stream of twenty at most (Ville's inequality). Models are not; docs/CONTEXT.md has the measured rate.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rasp_tuner.core.numerics import Array, under
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.evidence import log_mean
from rasp_tuner.paper.composer import RescoringComposer
from rasp_tuner.types import Proposal, Samples, Slots, Told, Verdict

TRUSTED = 3.0  # nats: odds of twenty to one
LEAST = -3.0  # evidence: a context may become useful late
STEP = 6.0  # the most that one sample adds or takes
UNTRUSTED = "whatever the context, which has not shown yet that it helps"  # in explanations
GREEN = 3  # samples more than knobs, before which forecasts are not compared


class Screened:
    """Two engines that differ only in whether they see the context [d_c]."""

    def __init__(self, seeing: Engine, blind: Engine) -> None:
        self.seeing, self.blind = seeing, blind
        self.evidence = 0.0
        self.trusted = False  # whether contexts have a say

    @property
    def composer(self) -> RescoringComposer:
        return self.seeing.composer

    @property
    def experts(self) -> tuple[str, ...]:
        return self.seeing.experts

    def propose(self, context: Array, point: Array, rng: np.random.Generator) -> Proposal:
        proposal = self._chosen.propose(self._seen(context), point, rng)
        if self.trusted:
            return proposal
        return replace(proposal, why=replace(proposal.why, source=f"{proposal.why.source} ({UNTRUSTED})"))

    def tell(self, context: Array, point: Array, metrics: Mapping[str, float], rng: np.random.Generator) -> Told:
        turned = self.composer.turn(metrics)
        self._weigh(context, point, float(turned @ self.composer.weights))
        self.blind.tell(context[:0], point, metrics, rng)
        return self.seeing.tell(context, point, metrics, rng)

    def learn(self, context: Array, point: Array, error: float, failed: bool, rng: np.random.Generator) -> Verdict:
        if not failed:
            self._weigh(context, point, error * float(self.composer.weights.sum()))
        self.blind.learn(context[:0], point, error, failed, rng)
        return self.seeing.learn(context, point, error, failed, rng)

    def best_known(self, context: Array) -> Array | None:
        return self._chosen.best_known(self._seen(context))

    def expect(self, context: Array, point: Array) -> float | None:
        return self._chosen.expect(self._seen(context), point)

    def slots(self) -> Slots:
        return self.seeing.slots()

    def recent(self) -> Samples:
        return self.seeing.recent()

    def reweigh(self, weights: Mapping[str, float]) -> None:
        for engine in (self.seeing, self.blind):
            engine.reweigh(weights)

    def state(self) -> dict[str, Array]:
        seeing = {f"seeing/{name}": array for name, array in self.seeing.state().items()}
        blind = {f"blind/{name}": array for name, array in self.blind.state().items()}
        return {**seeing, **blind, "evidence": np.array([self.evidence, self.trusted], dtype=np.float64)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.seeing.restore(under("seeing/", state))
        self.blind.restore(under("blind/", state))
        evidence, trusted = state["evidence"].tolist()
        self.evidence, self.trusted = evidence, trusted > 0.0

    @property
    def _chosen(self) -> Engine:
        return self.seeing if self.trusted else self.blind

    def _seen(self, context: Array) -> Array:
        return context if self.trusted else context[:0]

    def _weigh(self, context: Array, point: Array, y: float) -> None:
        """Add how much likelier y was to the engine that sees."""
        if self.trusted or self.composer.seen < len(point) + GREEN:
            return
        logs = []
        for engine, seen in ((self.seeing, context), (self.blind, context[:0])):
            mixture = engine.gate.believe(seen)
            logs.append(log_mean(mixture.log_densities(point, y), mixture.shares))
        step = min(max(logs[0] - logs[1], -STEP), STEP)
        self.evidence = max(self.evidence + step, LEAST)
        self.trusted = self.evidence > TRUSTED
