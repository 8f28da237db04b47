"""AdaptiveHybridTuner: the paper's object, on plain vectors; the optimizer of its preset does the work."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from rasp_tuner.base.checks import number, show, vector, whole
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.threads import methods_on_one_thread
from rasp_tuner.contexts.context_encoder import LARGEST_CONTEXT
from rasp_tuner.errors import InvalidSpace, InvalidValue, SnapshotError
from rasp_tuner.optimizer.optimizer import LearnResult, Proposal
from rasp_tuner.optimizer.preset import Preset, resolved
from rasp_tuner.paper.param_bounds import ParamBounds
from rasp_tuner.space import Layout
from rasp_tuner.types import Direction, Explanation, Metric


@methods_on_one_thread
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
        self.preset = resolved(preset)
        self.seed = whole("seed", seed, 0, 2**64 - 1, InvalidSpace)
        self.rng = np.random.default_rng(self.seed)
        self.optimizer = self.preset.build(Layout.continuous(bounds.dim), self.context_dim, metrics, self.rng)
        self._context: Array | None = None  # in which the current theta runs
        self._proposed: Proposal | None = None  # the latest answer of `tune_one_step`

    def run(self, evaluate: Callable[[Array], Mapping[str, float]], steps: int) -> Iterator[tuple[Array, float]]:
        """Algorithm 1: from the middle of the box, yield each deployed theta and its composed error."""
        theta = self.bounds.center
        context = self._look()
        for _ in range(whole("steps", steps, 0, 2**63)):
            metrics = evaluate(theta)
            after = self._look()  # before anything is learned: a context that cannot be had changes nothing
            outcome = self.tell(context, theta, metrics)
            yield theta, outcome.error
            context = after
            theta = self.propose(context, theta).point

    def tune_one_step(self, theta: Sequence[float] | Array, error: float) -> tuple[Array, Explanation]:
        """(theta_{t+1}, info): learn that `theta` gave `error` in [0, 1], look at the new context, and move.

        `info` says why theta_{t+1} was chosen. Its gate, predicted, deviation and error are of `theta`: what it gave,
        and what was expected of it if the latest call proposed it.
        """
        point = self.bounds.clip(theta)
        score = number("error", error)
        if not 0.0 <= score <= 1.0:
            raise InvalidValue(f"error must lie in [0, 1], got {score!r}; compose metrics with RealErrorComposer")
        before = self._look() if self._context is None else self._context
        after = self._look()  # before anything is learned: a context that cannot be had changes nothing
        outcome = self.learn(before, point, score)
        self._context = after
        known = self._proposed
        expected = known.why.explanation() if known is not None and np.array_equal(known.point, point) else None
        proposal = self._proposed = self.propose(after, point)
        info = replace(
            proposal.why.explanation(),
            gate=expected.gate if expected else (),
            predicted=expected.predicted if expected else None,
            deviation=expected.deviation if expected else None,
            error=score,
            path=outcome.path,
            reason=outcome.reason,
        )
        return proposal.point, info

    def propose(self, context: Array, theta: Array) -> Proposal:
        """Where to go next from `theta`, which is kept while nothing is known; only the random generator moves."""
        proposal = self.optimizer.propose(context, self.bounds.normalize(theta), self.rng)
        if proposal is None:
            return Proposal(self.bounds.clip(theta), Explanation(source="the current point: nothing is known yet"))
        return Proposal(self.bounds.denormalize(proposal.point), proposal.why)

    def tell(self, context: Array, theta: Array, metrics: Mapping[str, float]) -> LearnResult:
        """Learn what `theta` led to in `context`."""
        return self.optimizer.tell(context, self.bounds.normalize(theta), metrics, self.rng)

    def learn(self, context: Array, theta: Array, error: float, failed: bool = False) -> LearnResult:
        """Learn from an error in [0, 1] composed elsewhere; a failed run is never remembered as a best."""
        point = self.bounds.normalize(theta)
        if failed:
            return self.optimizer.tell_failed(context, point, self.rng)
        return self.optimizer.tell_error(context, point, error, self.rng)

    def best_known(self, context: Array) -> Array | None:
        """The best parameters known for the context, without exploring; None while nothing is known."""
        best = self.optimizer.best_known(context)
        return None if best is None else self.bounds.denormalize(best)

    def state(self) -> dict[str, Array]:
        """Everything learned, as named arrays; the random generator is not part of it."""
        return self.optimizer.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take back what `state` gave; a SnapshotError, and nothing has changed, if it is not of such a tuner."""
        before = {name: array.copy() for name, array in self.state().items()}
        try:
            self.optimizer.restore(state)
        except SnapshotError:
            self.optimizer.restore(before)
            raise

    def _look(self) -> Array:
        values = () if self.context_fn is None else self.context_fn()
        return np.clip(vector("context", values, self.context_dim), -LARGEST, LARGEST)
