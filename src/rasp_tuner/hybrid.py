"""AdaptiveHybridTuner: Algorithm 1 of the paper, on plain vectors. The only file that joins the stages.

context -> retrieve -> candidates -> surrogate -> choose -> (the world answers) -> compose -> update
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from rasp_tuner.adaptation import Verdict
from rasp_tuner.checks import number, show, vector, whole
from rasp_tuner.encoder import LARGEST_CONTEXT
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.numerics import LARGEST, Array
from rasp_tuner.presets import Preset, named
from rasp_tuner.space import ParamBounds
from rasp_tuner.types import Batch, Direction, Explanation, Metric, Stateful

WORST = 1.0  # the error of a run that failed: as bad as errors get


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where to go next [d], in the units of the box, and why."""

    theta: Array
    why: Explanation


class AdaptiveHybridTuner:
    """Retrieve, predict, choose; then learn by the fast or the slow path.

    `context_fn` tells the context now in force; without one the tuner is context-free. `propose` never learns.
    """

    def __init__(
        self,
        bounds: ParamBounds,
        context_dim: int = 0,
        context_fn: Callable[[], Sequence[float] | Array] | None = None,
        *,
        metrics: Mapping[str, Metric | Direction] = MappingProxyType({"error": "min"}),
        preset: str | Preset = "paper",
        seed: int = 0,
    ) -> None:
        if not isinstance(bounds, ParamBounds):
            raise InvalidSpace(f"bounds must be a ParamBounds, got {show(bounds)}")
        self.bounds = bounds
        self.context_dim = whole("context_dim", context_dim, 0, LARGEST_CONTEXT, InvalidSpace)
        self.context_fn = context_fn
        self.preset = named(preset.name, preset.constants) if isinstance(preset, Preset) else named(preset)
        self.seed = whole("seed", seed, 0, 2**64 - 1, InvalidSpace)
        self.rng = np.random.default_rng(self.seed)
        self.parts = self.preset.build(bounds.dim, self.context_dim, metrics, self.rng)
        self._context: Array | None = None  # in which the current theta runs

    def run(self, evaluate: Callable[[Array], Mapping[str, float]], steps: int) -> Iterator[tuple[Array, float]]:
        """Algorithm 1: from the middle of the box, yield each deployed theta and its composed error."""
        theta = self.bounds.center
        self._context = self._look()
        for _ in range(whole("steps", steps, 0, 2**63)):
            error = self.parts.composer.compose(evaluate(theta))
            yield theta, error
            theta, _ = self.tune_one_step(theta, error)

    def tune_one_step(self, theta: Sequence[float] | Array, error: float) -> tuple[Array, Explanation]:
        """(theta_{t+1}, info): learn that `theta` gave `error` in [0, 1], look at the new context, and move."""
        point = self.bounds.clip(theta)
        score = number("error", error)
        if not 0.0 <= score <= 1.0:
            raise InvalidValue(f"error must lie in [0, 1], got {score!r}; compose metrics with RealErrorComposer")
        before = self._look() if self._context is None else self._context
        after = self._look()  # before anything is learned: a context that cannot be had changes nothing
        verdict = self.learn(before, point, score)
        self._context = after
        proposal = self.propose(after, point)
        return proposal.theta, replace(proposal.why, path=verdict.path, reason=verdict.reason, error=score)

    def propose(self, context: Array, theta: Array) -> Proposal:
        """The candidate with the smallest LCB around `theta`; only the random generator moves."""
        memory, surrogate, policy = self.parts.memory, self.parts.surrogate, self.parts.policy
        seen = memory.retrieve(context)
        base = policy.center(self.bounds.normalize(theta), seen.hint)
        doubt = self.parts.adaptation.doubt(float(surrogate.predict(base[None], seen).variance[0]))
        candidates = policy.propose(base, surrogate.gradient(base, seen), seen.hint, self.rng)
        prediction = surrogate.predict(candidates.points, seen, doubt)
        best = policy.select(prediction)
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
        return Proposal(self.bounds.denormalize(np.clip(candidates.points[best], 0.0, 1.0)), why)

    def learn(self, context: Array, theta: Array, error: float, failed: bool = False) -> Verdict:
        """Take in one sample; a failed one teaches the surrogate but is never remembered as a best."""
        parts, point = self.parts, self.bounds.normalize(theta)
        seen = parts.memory.retrieve(context)
        variance = float(parts.surrogate.predict(point[None], seen).variance[0])
        parts.replay.add(point, context, error)
        if not failed:
            parts.memory.write(seen, point, error)
        seen = parts.memory.retrieve(context)
        verdict = parts.adaptation.judge(parts.composer.anomaly(error), variance)
        if verdict.path == "slow":
            parts.surrogate.update_full_emergency(self._batch())
        elif seen.slots:
            parts.memory.write_prompts(seen, parts.surrogate.update_prompts_only(point, seen, error))
        return verdict

    def best_known(self, context: Array) -> Array | None:
        """The best parameters tried in the most similar context; None while nothing is known."""
        best = self.parts.memory.best_known(self.parts.memory.retrieve(context))
        return None if best is None else self.bounds.denormalize(best)

    def state(self) -> dict[str, Array]:
        """Everything learned, as named arrays; the random generator is not part of it."""
        return {f"{stage}/{name}": array for stage, part in self._stages() for name, array in part.state().items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        for stage, part in self._stages():
            prefix = f"{stage}/"
            part.restore({name.removeprefix(prefix): a for name, a in state.items() if name.startswith(prefix)})

    def _stages(self) -> Iterator[tuple[str, Stateful]]:
        yield "composer", self.parts.composer
        yield "memory", self.parts.memory
        yield "surrogate", self.parts.surrogate
        yield "adaptation", self.parts.adaptation
        yield "replay", self.parts.replay

    def _look(self) -> Array:
        values = () if self.context_fn is None else self.context_fn()
        return np.clip(vector("context", values, self.context_dim), -LARGEST, LARGEST)

    def _batch(self) -> Batch:
        """The newest sample and some random older ones, each with the prompt its context retrieves today."""
        replay = self.parts.replay
        rows = replay.draw(self.parts.batch_size, self.rng)
        prompts = [self.parts.memory.retrieve(context).prompt for context in replay.contexts[rows]]
        return Batch(replay.points[rows], replay.contexts[rows], np.array(prompts), replay.errors[rows])
