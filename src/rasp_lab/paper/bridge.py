"""From preset `paper` to preset `default`, one component at a time; each agent has all that those before it have.

one_scale    composer: losses in units of their deviation over all samples, old ones scored again, instead of z-scores
             under moments that move
all_samples  memory: every sample is kept, contexts are compared as the engine compares them, and the hint is the best
             sample of a like situation
quadratics   prompts and experts, which cannot be swapped apart: the engine's sums and quadratics have no prompts, and
             networks cannot read sums. All experts weigh the same
gate         experts weigh by how well they forecast
choice       the engine's own candidates and score; no budget yet

`rasp`, which adds the budget, is the end.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import numpy as np

from rasp_lab.bench.agents.paper_repaired import RescoredOptimizer
from rasp_lab.bench.agents.rasp import Rasp
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import EPSILON, Array, entropy
from rasp_tuner.contexts.context_metric import ALIKE, ContextMetric
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.kernel import learn, native
from rasp_tuner.engine.kernel.state import Dims, E, State
from rasp_tuner.optimizer import preset as presets
from rasp_tuner.optimizer.preset import Metrics, PresetKind, Settings
from rasp_tuner.paper import PAPER
from rasp_tuner.paper.algorithm import PaperOptimizer
from rasp_tuner.paper.candidates import CandidatePolicy
from rasp_tuner.paper.memory import PromptMemory
from rasp_tuner.paper.preset import KIND as PAPER_KIND
from rasp_tuner.paper.surrogate import Prediction, Retrieval
from rasp_tuner.space import Layout

NAME = "paper-bridge"
_track = learn._track
SLOPE_STEP = 1e-3  # of the unit box, for the slope of what the engine believes


@dataclass(frozen=True, slots=True)
class OneScale(RescoredOptimizer):
    """Losses are compared as they are, in units of their deviation so far; 0.5 is their mean."""

    def scores(self, values: Array) -> Array:
        known = self.values[: max(1, min(self.replay.added + 1, len(self.values)))]
        spread = known.std(axis=0) + EPSILON
        signs = [1.0 if metric.direction == "min" else -1.0 for metric in self.composer.metrics.values()]
        weights = np.array([metric.weight for metric in self.composer.metrics.values()])
        z = np.array(signs) * (values - known.mean(axis=0)) / spread
        scores: Array = 0.5 + 0.25 * (z @ weights) / weights.sum()  # the slope of the composer's logistic at its middle
        return scores


class AllSamples(PromptMemory):
    """Every sample has a slot; likeness and the best of what is alike are the engine's."""

    def retrieve(self, context: Array) -> Retrieval:
        seen = super().retrieve(context)
        count = len(self)
        if not count or not len(context):
            return replace(seen, novelty=1.0)
        keys = self.keys[:count]
        alike = ContextMetric.of(keys, float(count)).likeness(context, keys, None)
        slots = np.argsort(-alike, kind="stable")[: self.top_k]
        weights = np.maximum(alike[slots], EPSILON)
        weights /= weights.sum()
        like = np.flatnonzero(alike >= min(ALIKE, float(alike.max())))
        return replace(
            seen,
            slots=tuple(slots.tolist()),
            weights=weights,
            prompts=self.prompts[slots],
            prompt=weights @ self.prompts[slots],
            hint=self.best[like[self.errors[like].argmin()]].copy(),
            novelty=1.0,  # so that it opens a slot
            confidence=float(weights.max()),
            entropy=entropy(weights),
        )


def _build(
    settings: Settings, layout: Layout, context_dim: int, metrics: Metrics, rng: np.random.Generator
) -> OneScale:
    k = {name: settings[name] for name in PAPER}
    built = cast("PaperOptimizer", PAPER_KIND.build(k, layout, context_dim, metrics, rng))
    if settings["all_samples"]:
        memory = AllSamples(
            len(layout.default),
            context_dim,
            built.memory.prompts.shape[1],
            size=built.memory.size,
            top_k=built.memory.top_k,
        )
        built = replace(built, memory=memory)
    return OneScale.of(built)


presets.register(
    NAME,
    lambda: PresetKind(
        {**PAPER, "all_samples": False},
        lambda key, value: bool(value) if key == "all_samples" else PAPER_KIND.check(key, value),
        _build,
        PAPER_KIND.least_numbers,
    ),
)


class PaperChoice(Rasp):
    """The engine's belief, without a budget, under the paper's candidates and LCB."""

    def __init__(self, task: Task, seed: int, *, uniform: bool) -> None:
        self._uniform = uniform
        constants = {**PAPER, **task.paper_constants}
        self._policy = CandidatePolicy(
            base_step=constants["base_step"],
            kappa=constants["kappa"],
            stay=constants["stay"],
            perturbations=int(constants["perturbations"]),
        )
        self._rng = np.random.default_rng(seed)
        self._current, self._asked = task.default, dict[str, Array]()
        with self._gate():
            super().__init__(task, seed, budget=None)

    def ask(self, context: Array) -> tuple[str, Array]:
        with self._gate():
            params = self.task.space.from_unit(self._choose(context))
            suggestion = self.tuner.ask_for(self._seen(context), params)
            point = self.task.space.to_unit(suggestion.params)
        self._asked[suggestion.id] = point
        return suggestion.id, point

    def recommend(self, context: Array) -> Array:
        with self._gate():
            return super().recommend(context)

    def tell(self, id: str, metrics: Mapping[str, float]) -> None:
        with self._gate():
            super().tell(id, metrics)
        self._current = self._asked.pop(id)

    def tell_failed(self, id: str) -> None:
        with self._gate():
            super().tell_failed(id)
        del self._asked[id]

    def _choose(self, context: Array) -> Array:
        engine = cast("Engine", self.tuner._optimizer)
        if not engine.objective.seen:
            return self.task.default
        belief = engine.believe(np.asarray(context, dtype=float))
        hint = belief.best()
        base = self._policy.center(self._current, hint)
        steps = base + SLOPE_STEP * np.vstack([np.zeros(len(base)), np.eye(len(base))])
        means, _ = belief.predict(steps)
        found = self._policy.propose(base, (means[1:] - means[0]) / SLOPE_STEP, hint, self._rng)
        points = np.clip(found.points, 0.0, 1.0)
        mean, variance = belief.predict(points)
        believed = Prediction(mean, np.maximum(variance, 0.0), np.zeros((len(mean), 0)))
        point: Array = points[self._policy.select(believed)]
        return point

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """The engine as it is, or with a gate that never learns."""
        with ExitStack() as stack:
            if self._uniform:
                stack.enter_context(patch.object(native, "available", lambda: False))
                stack.enter_context(patch.object(learn, "EXPERT_PRIOR", np.zeros(E)))
                stack.enter_context(patch.object(learn, "_track", _track_with_equal_scores))
            yield


def _track_with_equal_scores(dims: Dims, state: State, *arguments: Any) -> None:
    """Scores stay zero: they are moved just before what is shared is tracked."""
    state.scores[:] = 0.0
    _track(dims, state, *arguments)


one_scale = partial(Rasp, preset=NAME)
all_samples = partial(Rasp, preset=NAME, settings={"all_samples": 1.0})
quadratics = partial(PaperChoice, uniform=True)
gate = partial(PaperChoice, uniform=False)
choice = partial(Rasp, budget=None)
