"""Warm-started CMA-ES: one search for each regime of the context, taken up again whenever the regime comes back."""

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_lab.bench.agents.cma import SIGMA, Search, new_seed
from rasp_lab.bench.agents.context_regimes import ContextRegimes
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array

WARM_SIGMA = 0.1  # half the cold one, for all searches but the first: a regime may be short


class WarmCmaEs(ScalarAgent):
    """A new regime begins at the default: where the nearest known one did best was a worse start on the nine domains.

    Regimes differ, and the default lies between them.
    """

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self.regimes = ContextRegimes(task.context_dim)
        self._searches = [Search(task.default, SIGMA)]

    def suggest(self, context: Array) -> Array:
        index, new = self.regimes.nearest(context) if len(self.regimes) else (0, False)
        return (self._begin() if new else self._searches[index]).ask(new_seed(self.rng))

    def learn(self, run: Run, loss: float) -> None:
        index, gone = self.regimes.add(run.context)
        if index == len(self._searches):
            self._searches.append(self._begin())
        self._searches[index].tell(run.drawn, loss)
        if gone is not None:
            del self._searches[gone]

    def _begin(self) -> Search:
        return Search(self.task.default, WARM_SIGMA)
