"""QuadraticFamily: a small Bayesian regression for each expert; experts differ in which samples count.

The case of one tuner: the mathematics is in engine/kernel, which serves one tuner and a hundred thousand alike.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.threads import one_thread
from rasp_tuner.engine.family import ByExpert, Prices, RunOutcome
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.convert import from_family, to_family
from rasp_tuner.engine.kernel.learn import recent, remembered, reweigh, start
from rasp_tuner.engine.kernel.merge import merged
from rasp_tuner.engine.kernel.repeats import weigh
from rasp_tuner.engine.kernel.restate import mend_scales, restate
from rasp_tuner.engine.kernel.state import LOCAL_EXPERTS, MOVING_EXPERT, Dims, State, blank
from rasp_tuner.engine.quadratic.native_single import NativeSingle
from rasp_tuner.engine.quadratic.numpy_single import NumpySingle
from rasp_tuner.optimizer.optimizer import LatestSamples
from rasp_tuner.types import Slots

FIRST = np.zeros(1, dtype=np.int64)  # the place of the one tuner
PRIOR = ("location", "location_variance")  # what a fleet knew before the first sample
KEPT = ("weights", "context_least", "context_most", *PRIOR)  # by whoever learns the first trials again


class QuadraticFamily:
    """Bounded slots of sufficient statistics; every belief is one weighted regression, solved exactly."""

    experts: tuple[str, ...] = (*LOCAL_EXPERTS, MOVING_EXPERT)
    hindsight = False

    def __init__(self, default: Array, context_dim: int, metrics: int) -> None:
        self.default = default
        self.dims = Dims(len(default), context_dim, metrics)
        self._hold(blank(self.dims, 1, start(self.dims)))

    @property
    def uses_blas(self) -> bool:
        return isinstance(self.one, NumpySingle)

    @property
    def samples(self) -> int:
        return int(self.tuners.steps[0])

    def believe(self, context: Array) -> Any:
        return self.one.believe(context)

    def learn(self, trial: RunOutcome, belief: Any, forecast: ByExpert | None) -> None:
        """Score the experts, then take the trial in; a failed one counts like any other, but is never an outlier."""
        self.one.learn(trial, belief, forecast)
        if trial.scatter is not None and trial.runs > 1:
            with one_thread():
                weigh(self.dims, self.tuners, self.default, trial.point, trial.losses, trial.runs, trial.scatter)

    def bill(self, prices: Prices, belief: Any = None) -> None:
        del prices, belief  # booked once and for all: sums do not know which of them were suggested

    @one_thread()
    def reweigh(self, weights: Array) -> None:
        reweigh(self.tuners, weights[None], FIRST == 0)

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        """Exact: it keeps sums of products of losses."""
        restate(self.dims, self.tuners, FIRST, factors[None], shifts[None], weights[None])

    def forget(self) -> None:
        fresh = blank(self.dims, 1, start(self.dims))
        for name in KEPT:
            getattr(fresh, name)[:] = getattr(self.tuners, name)
        self._hold(fresh)

    @property
    def relevance(self) -> None:
        return None

    def bound_contexts(self, least: Array, most: Array, mend: bool) -> None:
        state = self.tuners
        state.context_least[0], state.context_most[0] = least, most
        if mend:
            with one_thread():
                mend_scales(self.dims, state, FIRST)

    def merge(self, other: "QuadraticFamily", weights: Array, first: bool) -> None:
        """Take in all that another one learned: prompts add."""
        if self.samples and other.samples:
            pair = (self.tuners, other.tuners) if first else (other.tuners, self.tuners)
            self._hold(merged(self.dims, self.default, *pair, weights))
            return
        if other.samples:
            self._hold(other.tuners.map(np.copy))
        if not np.array_equal(self.tuners.weights[0], weights):
            self.reweigh(weights)

    def logs_gain(self, sign: float) -> None:
        del sign  # sums of values say nothing about their logarithms

    def remembered(self) -> Slots:
        return Slots(*remembered(self.tuners, 0))

    def recent(self) -> LatestSamples:
        u, contexts, losses = recent(self.tuners, 0)
        losses = losses + self.tuners.first[0]
        return LatestSamples(contexts, self.default + u / 2.0, losses @ self.tuners.weights[0], losses)

    def state(self) -> dict[str, Array]:
        return to_family(self.dims, self.tuners, 0)

    def restore(self, state: Mapping[str, Array]) -> None:
        self._hold(from_family(self.dims, state))

    def _hold(self, tuners: State) -> None:
        """Take up a state of one tuner, with what computes on it."""
        self.tuners = tuners
        compiled = native.available() and native.serves(self.dims)
        self.one = (NativeSingle if compiled else NumpySingle)(self.dims, self.default, tuners)
