"""Warm-started CMA-ES: one search per recurring context, each begun where the nearest known one did best."""

from collections import deque

import numpy as np

from rasp_tuner.bench.agents.base import Run, ScalarAgent
from rasp_tuner.bench.agents.cma import SIGMA, Search, new_seed
from rasp_tuner.bench.domains.base import Task
from rasp_tuner.numerics import Array, distances

WARM_SIGMA = 0.1  # half the cold one: the start is a good point already
REACH = 10.0  # lower quartiles: a context is new when it is this far from all known ones; noise: 3 deviations
SETTLING = 4  # contexts that are taken for one regime, to learn what a usual deviation is
RECENT = 64  # deviations to take the quartile of
MAX_REGIMES = 32  # beyond that the nearest one serves


class Regimes:
    """Online clustering of contexts, each coordinate in units of its usual deviation from the context stored for it.

    Usual is the lower quartile of recent ones, so it stays right when some regimes were wrongly joined. The radius
    adapts: contexts that repeat exactly are told apart however near they are, and pure noise stays one regime.
    """

    def __init__(self, dim: int) -> None:
        self._stored = np.zeros((0, dim))
        self._deviations: deque[Array] = deque(maxlen=RECENT)

    def __len__(self) -> int:
        return len(self._stored)

    def nearest(self, context: Array) -> tuple[int, bool]:
        """The nearest regime, and whether the context is too far from it; there must be one already."""
        usual = 1e-6 * np.maximum(1.0, np.abs(self._stored).max(axis=0))  # equal up to rounding is equal
        if self._deviations:
            usual = np.maximum(usual, np.quantile(np.array(self._deviations), 0.25, axis=0))
        away = distances(self._stored / usual, context / usual)
        index = int(away.argmin())
        far = float(away[index]) > REACH * np.sqrt(len(context))
        return index, far and len(self._deviations) >= SETTLING and len(self) < MAX_REGIMES

    def add(self, context: Array) -> int:
        """The regime the context belongs to, opened for it if need be."""
        index, new = self.nearest(context) if len(self) else (0, True)
        if new:
            self._stored = np.vstack([self._stored, context])
            return len(self) - 1
        self._deviations.append(np.abs(context - self._stored[index]))
        return index


class WarmCmaEs(ScalarAgent):
    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self.regimes = Regimes(task.context_dim)
        self._searches: list[Search] = []
        self._best: list[tuple[float, Array]] = []
        self._first = Search(task.default, SIGMA)

    def suggest(self, context: Array) -> Array:
        seed = new_seed(self.rng)
        if not self._searches:
            return self._first.ask(seed)
        index, new = self.regimes.nearest(context)
        return (self._warm(index) if new else self._searches[index]).ask(seed)

    def learn(self, run: Run, loss: float) -> None:
        parent = self.regimes.nearest(run.context)[0] if self._searches else 0
        index = self.regimes.add(run.context)
        if index == len(self._searches):
            self._searches.append(self._warm(parent) if self._searches else self._first)
            self._best.append((loss, run.point))
        elif loss < self._best[index][0]:
            self._best[index] = (loss, run.point)
        self._searches[index].tell(run.drawn, loss)

    def _warm(self, parent: int) -> Search:
        return Search(self._best[parent][1], WARM_SIGMA)
