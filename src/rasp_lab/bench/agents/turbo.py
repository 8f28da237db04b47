"""TuRBO-1 (Eriksson et al. 2019): Thompson sampling in one trust region, one point at a time, blind to context."""

import math
from collections.abc import Iterator
from itertools import cycle

import numpy as np
from scipy.stats import qmc

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_lab.bench.agents.cma import new_seed
from rasp_lab.bench.agents.gp import GaussianProcess
from rasp_lab.bench.agents.gp_ucb import WINDOW, Window
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array

FIRST_LENGTH, SHORTEST, LONGEST = 0.8, 0.5**7, 1.6  # of the trust region's side
SUCCESSES = 3  # in a row: double the side
GAIN = 1e-3  # relative to the best so far: what counts as a success
MOST_CANDIDATES = 5000


class Turbo(ScalarAgent):
    """The published constants for batches of one; the GP sees the newest WINDOW points of the current region.

    Unlike the published code, the point at which a region ends is the first of the next one, beside its 2 d new points:
    no answer is thrown away. Published regions share nothing.
    """

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self.failures = max(4, self.dim)  # in a row: halve the side
        self._gp: GaussianProcess | None
        self._best: tuple[float, Array]
        self._restart()

    def suggest(self, context: Array) -> Array:
        del context
        if self.asked == 0:
            return self.task.default
        return next(self._design) if self._gp is None else self._thompson(self._gp)

    def learn(self, run: Run, loss: float) -> None:
        if self._gp is not None:
            self._resize(loss < self._best[0] - GAIN * abs(self._best[0]))
        if self.length < SHORTEST:
            self._restart()
        self._window.add(Run(run.id, np.zeros(0), run.drawn, run.point), loss)
        if loss < self._best[0]:
            self._best = (loss, run.point)
        if len(self._window.losses) >= 2 * self.dim:
            self._gp = GaussianProcess(
                self._window.points,
                self._window.losses,
                self.dim,
                length=(5e-3, 2.0),
                signal=(5e-2, 20.0),
                noise=(5e-4, 0.1),
            )

    def _restart(self) -> None:
        """A fresh region, begun with 2 d points of a Latin hypercube."""
        self.length = FIRST_LENGTH
        self._row = 0  # successes in a row, or failures if negative
        self._window = Window(WINDOW)
        self._best = (math.inf, self.task.default)
        self._gp = None
        design = qmc.LatinHypercube(self.dim, rng=np.random.default_rng(new_seed(self.rng))).random(2 * self.dim)
        self._design: Iterator[Array] = cycle(design)

    def _resize(self, success: bool) -> None:
        self._row = max(self._row, 0) + 1 if success else min(self._row, 0) - 1
        if self._row == SUCCESSES:
            self.length, self._row = min(2.0 * self.length, LONGEST), 0
        elif self._row == -self.failures:
            self.length, self._row = self.length / 2.0, 0

    def _thompson(self, gp: GaussianProcess) -> Array:
        """The best of one posterior draw over candidates that differ from the best point in some coordinates."""
        count = min(100 * self.dim, MOST_CANDIDATES)
        sides = gp.lengths / np.exp(np.log(gp.lengths).mean())  # of volume one, long where the loss changes slowly
        best = self._best[1]
        low = np.clip(best - sides * self.length / 2.0, 0.0, 1.0)
        high = np.clip(best + sides * self.length / 2.0, 0.0, 1.0)
        moved = self.rng.uniform(size=(count, self.dim)) < min(20.0 / self.dim, 1.0)
        unmoved = np.flatnonzero(~moved.any(axis=1))
        moved[unmoved, self.rng.integers(self.dim, size=len(unmoved))] = True
        sobol = qmc.Sobol(self.dim, rng=np.random.default_rng(new_seed(self.rng)))
        spread = sobol.random_base2(math.ceil(math.log2(count)))[:count]
        candidates = np.where(moved, low + (high - low) * spread, best)
        drawn: Array = candidates[gp.draw(candidates, self.rng).argmin()]
        return drawn
