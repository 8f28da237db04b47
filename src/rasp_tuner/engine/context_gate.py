"""ContextGate: an engine that sees the context and one that does not; the context is ignored until it helps.

Both learn from every sample. The evidence sums how much likelier each answer was to the engine that sees the context.
Once it exceeds `TRUSTED_NATS`, the context is used for good: when every situation gets its best settings, the blind
engine predicts as well, and no more evidence comes.

If both models were true, exp(evidence) would be an e-process: an uninformative context would lift it above
20 = exp(3) in one stream of twenty at most (Ville's inequality). Models are not true; docs/CONTEXT.md has the measured
rate.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.optimizer import Expected, LearnResult, Proposal, Samples
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked, under
from rasp_tuner.engine.engine import Engine
from rasp_tuner.types import Budget, Explanation, Margin, Metric, Slots, Why

log = logging.getLogger("rasp_tuner")
TRUSTED_NATS = 3.0  # odds of twenty to one
LEAST_NATS = -3.0  # a context may become useful late
MOST_NATS_A_SAMPLE = 6.0  # that one sample adds or takes
COMPARE_FROM_SAMPLES = 3  # more than knobs: before, forecasts are not compared
FIELDS = {
    "evidence": Field((), LEAST_NATS, MOST_NATS_A_SAMPLE * MOST_SAMPLES),
    "trusted": Field((), 0.0, 1.0, whole=True),
}
NOT_TRUSTED = "whatever the context, which has not shown yet that it helps"  # in explanations


class NotTrusted(NamedTuple):
    """Reasons that leave the context out."""

    why: Why

    def explanation(self) -> Explanation:
        made = self.why.explanation()
        return replace(made, source=f"{made.source} ({NOT_TRUSTED})", in_context=False)


class ContextGate:
    """Two engines that differ only in whether they see the context [d_c]."""

    def __init__(self, seeing: Engine, blind: Engine) -> None:
        self.seeing, self.blind = seeing, blind
        self.evidence = 0.0
        self.trusted = False  # whether the context is used

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self.seeing.metrics

    @property
    def own_metric(self) -> str | None:
        return self.seeing.own_metric

    @property
    def experts(self) -> tuple[str, ...]:
        return self.seeing.experts

    @property
    def uses_blas(self) -> bool:
        return self.seeing.uses_blas or self.blind.uses_blas

    def propose(self, context: Array, current: Array, rng: np.random.Generator) -> Proposal | None:
        if self.trusted:
            return self.seeing.propose(context, current, rng)
        proposal = self.blind.propose(context[:0], current, rng)
        return None if proposal is None else Proposal(proposal.point, NotTrusted(proposal.why))

    def tell(
        self,
        context: Array,
        point: Array,
        metrics: Mapping[str, float],
        rng: np.random.Generator,
        asked: Array | None = None,
    ) -> LearnResult:
        compare = self._comparable(point)
        seen = self.seeing.tell(context, point, metrics, rng, asked)
        return self._scored(compare, seen, self.blind.tell(context[:0], point, metrics, rng, asked))

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        compare = self._comparable(point)
        seen = self.seeing.tell_error(context, point, error, rng)
        return self._scored(compare, seen, self.blind.tell_error(context[:0], point, error, rng))

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Array | None = None
    ) -> LearnResult:
        self.blind.tell_failed(context[:0], point, rng, asked)
        return self.seeing.tell_failed(context, point, rng, asked)

    def best_known(self, context: Array) -> Array | None:
        return self.seeing.best_known(context) if self.trusted else self.blind.best_known(context[:0])

    def expect(self, context: Array, point: Array) -> Expected | None:
        return self.seeing.expect(context, point) if self.trusted else self.blind.expect(context[:0], point)

    def expect_alone(self, name: str, context: Array, point: Array) -> Expected | None:
        if self.trusted:
            return self.seeing.expect_alone(name, context, point)
        return self.blind.expect_alone(name, context[:0], point)

    def alike(self, context: Array) -> tuple[float, float] | None:
        return self.seeing.alike(context) if self.trusted else None

    def relevance(self) -> Array | None:
        return self.seeing.relevance()

    def outlook(self, context: Array, points: Array) -> Array:
        return self.seeing.outlook(context, points) if self.trusted else self.blind.outlook(context[:0], points)

    def better(self, context: Array, point: Array) -> float:
        return self.seeing.better(context, point) if self.trusted else self.blind.better(context[:0], point)

    def margins(self, context: Array, point: Array) -> dict[str, Margin]:
        del context, point
        return {}

    def budget(self) -> Budget | None:
        return (self.seeing if self.trusted else self.blind).budget()

    @property
    def scales(self) -> dict[str, str]:
        return self.seeing.scales

    def reweigh(self, weights: Mapping[str, float]) -> None:
        for engine in (self.seeing, self.blind):
            engine.reweigh(weights)

    def merge(self, other: "ContextGate", first: bool) -> None:
        self.seeing.merge(other.seeing, first)
        self.blind.merge(other.blind, first)
        self.evidence = max(self.evidence + other.evidence, LEAST_NATS)
        self.trusted = self.trusted or other.trusted or self.evidence > TRUSTED_NATS

    def slots(self) -> Slots:
        return self.seeing.slots()

    def recent(self) -> Samples:
        return self.seeing.recent()

    def state(self) -> dict[str, Array]:
        seeing = {f"seeing/{name}": array for name, array in self.seeing.state().items()}
        blind = {f"blind/{name}": array for name, array in self.blind.state().items()}
        own = {"evidence": np.array(self.evidence), "trusted": np.array(float(self.trusted))}
        return {**seeing, **blind, **own}

    def restore(self, state: Mapping[str, Array]) -> None:
        own = checked(state, FIELDS, {})
        self.seeing.restore(under("seeing/", state))
        self.blind.restore(under("blind/", state))
        self.evidence, self.trusted = float(own["evidence"]), bool(own["trusted"])

    def _comparable(self, point: Array) -> bool:
        """Whether the next sample will count as evidence."""
        return not self.trusted and self.seeing.objective.seen >= len(point) + COMPARE_FROM_SAMPLES

    def _scored(self, compare: bool, seen: LearnResult, blind: LearnResult) -> LearnResult:
        """Add how much likelier the answer was to the engine that sees the context."""
        if compare and seen.log_density is not None and blind.log_density is not None:
            step = seen.log_density - blind.log_density
            step = min(max(step, -MOST_NATS_A_SAMPLE), MOST_NATS_A_SAMPLE)
            self.evidence = max(self.evidence + step, LEAST_NATS)
            self.trusted = self.evidence > TRUSTED_NATS
            if self.trusted:
                log.info("the context is used from now on: it improves predictions")
        return seen
