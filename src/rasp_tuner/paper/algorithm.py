"""PaperOptimizer: the paper's stages joined as its Algorithm 1 joins them.

context -> retrieve -> candidates -> surrogate -> choose -> (the world answers) -> compose -> update
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import under
from rasp_tuner.errors import InvalidValue
from rasp_tuner.optimizer.optimizer import (
    ANY,
    FAILED_ERROR,
    Asked,
    Expected,
    LatestSamples,
    LearnResult,
    Proposal,
    Repeats,
    Scope,
    Stateful,
)
from rasp_tuner.paper.adaptation import HybridAdaptation, ReplayBuffer
from rasp_tuner.paper.candidates import CandidatePolicy
from rasp_tuner.paper.composer import RealErrorComposer
from rasp_tuner.paper.memory import PromptMemory
from rasp_tuner.paper.surrogate import Surrogate, TrainingBatch
from rasp_tuner.types import Explanation, Margin, Metric, Slots


@dataclass(frozen=True, slots=True)
class PaperOptimizer:
    """One of each stage."""

    composer: RealErrorComposer
    memory: PromptMemory
    surrogate: Surrogate
    policy: CandidatePolicy
    adaptation: HybridAdaptation
    replay: ReplayBuffer
    batch_size: int

    @property
    def model(self) -> "PaperOptimizer":
        return self

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self.composer.metrics

    @property
    def uses_blas(self) -> bool:
        return True

    def propose(self, context: Array, current: Array, rng: np.random.Generator, scope: Scope = ANY) -> Proposal:
        """The candidate with the smallest LCB around `current`."""
        del scope  # it does not search
        seen = self.memory.retrieve(context)
        base = self.policy.center(current, seen.hint)
        doubt = self.adaptation.doubt(float(self.surrogate.predict(base[None], seen).variance[0]))
        candidates = self.policy.propose(base, self.surrogate.gradient(base, seen), seen.hint, rng)
        prediction = self.surrogate.predict(candidates.points, seen, doubt)
        best = self.policy.select(prediction)
        why = Explanation(
            source=candidates.sources[best],
            slots=seen.slots,
            weights=tuple(seen.weights.tolist()),
            gate=tuple(prediction.gate[best].tolist()),
            predicted=float(prediction.mean[best]),
            deviation=float(np.sqrt(prediction.variance[best])),
            novelty=seen.novelty,
            confidence=seen.confidence,
            entropy=seen.entropy,
        )
        return Proposal(np.clip(candidates.points[best], 0.0, 1.0), why)

    def reasons_at(self, context: Array, point: Array, source: str) -> Explanation:
        """The paper forecasts its own candidates only."""
        del context, point
        return Explanation(source=source)

    @property
    def scales(self) -> dict[str, str]:
        return dict.fromkeys(self.composer.metrics, "linear")

    def margins(self, context: Array, point: Array) -> dict[str, Margin]:
        del context, point
        return {}

    def budget(self) -> None:
        """The paper has none."""

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
        del asked  # there is no budget
        if repeats is not None:
            raise InvalidValue("preset 'paper' learns run by run: it cannot learn sums of runs")
        if stopped:
            raise InvalidValue("preset 'paper' learns what a run came to: tell one that was ended with tell_failed")
        return self.tell_error(context, point, self.composer.compose(metrics), rng)

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        return self._learn(context, point, error, False, rng)

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Asked | None = None
    ) -> LearnResult:
        del asked
        return self._learn(context, point, FAILED_ERROR, True, rng)

    def _learn(self, context: Array, point: Array, error: float, failed: bool, rng: np.random.Generator) -> LearnResult:
        """Take in one sample; a failed one teaches the surrogate but is never remembered as a best."""
        seen = self.memory.retrieve(context)
        variance = float(self.surrogate.predict(point[None], seen).variance[0])
        self.replay.add(point, context, error)
        if not failed:
            self.memory.write(seen, point, error)
        seen = self.memory.retrieve(context)
        decision = self.adaptation.judge(self.composer.anomaly(error), variance)
        if decision.path == "slow":
            self.surrogate.update_full_emergency(self._batch(rng))
        elif seen.slots:
            self.memory.write_prompts(seen, self.surrogate.update_prompts_only(point, seen, error))
        return LearnResult(error, decision.path, decision.reason)

    def best_known(self, context: Array) -> Array | None:
        """The best parameters tried in the most similar context; None while nothing is known."""
        return self.memory.best_known(self.memory.retrieve(context))

    @property
    def experts(self) -> tuple[str, ...]:
        return tuple(f"network {i + 1}" for i in range(self.surrogate.experts))

    def expect(self, context: Array, point: Array) -> Expected | None:
        del context, point
        return None  # errors are relative to their time here: a forecast for today says little about another

    def knows(self, context: Array, point: Array) -> bool:
        del context, point
        return False

    def forecast_metric(self, name: str, context: Array, point: Array) -> Expected | None:
        del name
        return self.expect(context, point)

    def probability_better(self, context: Array, point: Array) -> None:
        """Not known, as `expect` is not."""
        del context, point

    def stake(self, context: Array, point: Array) -> float:
        """Not known."""
        del context, point
        return 0.0

    @property
    def own_metric(self) -> None:
        """Errors are composed, also of one metric."""

    def similar_runs(self, context: Array) -> tuple[float, float] | None:
        del context
        return None if len(self.memory) else (0.0, math.nan)  # memory here does not count runs

    def relevance(self) -> None:
        return None

    def reweigh(self, weights: Mapping[str, float]) -> None:
        del weights
        raise InvalidValue("preset 'paper' cannot change weights; preset 'default' can")

    def merge(self, other: "PaperOptimizer", first: bool) -> None:
        del other, first
        raise InvalidValue("tuners of preset 'paper' cannot be merged: networks do not add; those of 'default' can be")

    def slots(self) -> Slots:
        keys = self.memory.keys[: len(self.memory)].copy()
        return Slots(keys, np.ones(len(keys)), np.full(len(keys), np.nan))

    def recent(self) -> LatestSamples:
        contexts, points, errors = self.replay.recent()
        return LatestSamples(contexts, points, errors, errors[:, None])

    def state(self) -> dict[str, Array]:
        return {f"{stage}/{name}": array for stage, part in self._stages() for name, array in part.state().items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        for stage, part in self._stages():
            part.restore(under(f"{stage}/", state))

    def _stages(self) -> Iterator[tuple[str, Stateful]]:
        yield "composer", self.composer
        yield "memory", self.memory
        yield "surrogate", self.surrogate
        yield "adaptation", self.adaptation
        yield "replay", self.replay

    def _batch(self, rng: np.random.Generator) -> TrainingBatch:
        """The newest sample and some random older ones, each with the prompt its context retrieves today."""
        rows = self.replay.draw(self.batch_size, rng)
        contexts = self.replay.contexts[rows]
        prompts = [self.memory.retrieve(context).prompt for context in contexts]
        return TrainingBatch(self.replay.points[rows], contexts, np.array(prompts), self.replay.errors[rows])
