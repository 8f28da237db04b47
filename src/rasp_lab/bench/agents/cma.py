"""CMA-ES by the package cmaes: one search over the whole stream, blind to context."""

import cmaes
import numpy as np

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array

SIGMA = 0.2  # Table hyperparams: 0.2 of the box width


class Search:
    """CMA-ES in the unit box that is told one point at a time: it moves whenever a population is complete.

    A point that was drawn before the last move still counts: answers may be late, and none is thrown away.
    """

    def __init__(self, start: Array, sigma: float) -> None:
        self.sigma = sigma
        self._finished: list[tuple[Array, float]] = []
        self._cma = self._begin(start)

    def ask(self, seed: int) -> Array:
        """A point [d] drawn with this seed; nothing else moves."""
        self._cma.reseed_rng(seed)
        point: Array = self._cma.ask()
        return point

    def tell(self, drawn: Array, loss: float) -> None:
        """Take in one point; a search that has converged starts again where it ended, since the world may move."""
        self._finished.append((drawn, loss))
        if len(self._finished) == self._cma.population_size:
            self._cma.tell(self._finished)
            self._finished = []
            if self._cma.should_stop():
                self._cma = self._begin(self._cma.mean)

    def _begin(self, start: Array) -> cmaes.CMA:
        box = np.tile([0.0, 1.0], (len(start), 1))
        # the seed does not matter: each ask brings its own
        return cmaes.CMA(mean=np.clip(start, 0.0, 1.0), sigma=self.sigma, bounds=box, seed=0)


class CmaEs(ScalarAgent):
    def __init__(self, task: Task, seed: int, *, composed: float = 0.0) -> None:
        super().__init__(task, seed, composed=composed)
        self._search = Search(task.default, SIGMA)

    def suggest(self, context: Array) -> Array:
        del context
        return self._search.ask(new_seed(self.rng))

    def learn(self, run: Run, loss: float) -> None:
        self._search.tell(run.drawn, loss)


def new_seed(rng: np.random.Generator) -> int:
    """A seed for a library that takes 32 bits."""
    return int(rng.integers(2**32))
