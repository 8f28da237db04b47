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
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked, under
from rasp_tuner.engine.engine import FORECAST_FROM_SAMPLES, Engine
from rasp_tuner.engine.family import Family
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.settings import EngineSettings
from rasp_tuner.optimizer.optimizer import ANY, Asked, LearnResult, Proposal, Repeats, Scope
from rasp_tuner.space import Layout
from rasp_tuner.types import Explanation, Outlook, Why

log = logging.getLogger("rasp_tuner")
TRUSTED_NATS = 3.0  # odds of twenty to one
LEAST_NATS = -TRUSTED_NATS  # a context may become useful late
MOST_NATS_A_SAMPLE = 2.0 * TRUSTED_NATS  # that one sample adds or takes
FIELDS = {
    "evidence": Field((), LEAST_NATS, MOST_NATS_A_SAMPLE * MOST_SAMPLES),
    "trusted": Field((), 0.0, 1.0, whole=True),
}
NOT_TRUSTED = "whatever the context, which has not shown yet that it helps"  # in explanations


class NotTrusted(NamedTuple):
    """Reasons that leave the context out."""

    why: Why

    @property
    def stop(self) -> float | None:
        return self.why.stop

    def outlook(self) -> Outlook | None:
        return self.why.outlook()

    def explanation(self) -> Explanation:
        made = self.why.explanation()
        return replace(made, source=f"{made.source} ({NOT_TRUSTED})", in_context=False)


class ContextGate(Engine):
    """The engine that sees the context, with one beside it that does not, and answers while the context is ignored."""

    def __init__(
        self, objective: Objective, family: Family[Any], layout: Layout, context_dim: int, settings: EngineSettings,
        blind: Engine,
    ) -> None:  # fmt: skip
        super().__init__(objective, family, layout, context_dim, settings)
        self.blind = blind
        self.evidence = 0.0
        self.trusted = False  # whether the context is used

    def answers(self, context: Array) -> tuple[Engine, Array]:
        return (self, context) if self.trusted else (self.blind, context[:0])

    def propose(self, context: Array, current: Array, rng: np.random.Generator, scope: Scope = ANY) -> Proposal | None:
        if self.trusted:
            return super().propose(context, current, rng, scope)
        proposal = self.blind.propose(context[:0], current, rng, scope)
        return None if proposal is None else Proposal(proposal.point, NotTrusted(proposal.why))

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
        compare = self._comparable(point)
        seen = super().tell(context, point, metrics, rng, asked, stopped, repeats)
        return self._scored(compare, seen, self.blind.tell(context[:0], point, metrics, rng, asked, stopped, repeats))

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        compare = self._comparable(point)
        seen = super().tell_error(context, point, error, rng)
        return self._scored(compare, seen, self.blind.tell_error(context[:0], point, error, rng))

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Asked | None = None
    ) -> LearnResult:
        self.blind.tell_failed(context[:0], point, rng, asked)
        return super().tell_failed(context, point, rng, asked)

    def alike(self, context: Array) -> tuple[float, float] | None:
        return super().alike(context) if self.trusted else None

    def reweigh(self, weights: Mapping[str, float]) -> None:
        super().reweigh(weights)
        self.blind.reweigh(weights)

    def merge(self, other: Engine, first: bool) -> None:
        assert isinstance(other, ContextGate)  # noqa: S101 - of the same kind, as the caller checked
        super().merge(other, first)
        self.blind.merge(other.blind, first)
        self.evidence = max(self.evidence + other.evidence, LEAST_NATS)
        self.trusted = self.trusted or other.trusted or self.evidence > TRUSTED_NATS

    def state(self) -> dict[str, Array]:
        seeing = {f"seeing/{name}": array for name, array in super().state().items()}
        blind = {f"blind/{name}": array for name, array in self.blind.state().items()}
        own = {"evidence": np.array(self.evidence), "trusted": np.array(float(self.trusted))}
        return {**seeing, **blind, **own}

    def restore(self, state: Mapping[str, Array]) -> None:
        own = checked(state, FIELDS, {})
        super().restore(under("seeing/", state))
        self.blind.restore(under("blind/", state))
        self.evidence, self.trusted = float(own["evidence"]), bool(own["trusted"])

    def _comparable(self, point: Array) -> bool:
        """Whether the next sample will count as evidence."""
        return not self.trusted and self.objective.seen >= len(point) + FORECAST_FROM_SAMPLES

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
