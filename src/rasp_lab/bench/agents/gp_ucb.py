"""GP-UCB as in the paper: Matern-5/2 with ARD over [theta; context] and white noise, on a sliding window."""

from functools import partial

import numpy as np
from scipy.optimize import minimize

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_lab.bench.agents.gp import THREADS, GaussianProcess
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array

WINDOW = 200  # Table hyperparams
RESTARTS = 5  # Table hyperparams
KAPPA = 2.0  # ours: the paper says that it is a constant, not which; 2 is the one it gives for its own LCB
INITIAL = 5  # the default, then uniform points: fewer leave the marginal likelihood without a maximum
MOST_SCALES = 32  # a longer context has one length scale for all its dimensions: 200 points cannot fit hundreds


class GpUcb(ScalarAgent):
    """Minimises mean - kappa deviation over theta in the current context; refitted at every answer.

    Contexts are standardised over the window, so that the fit starts at a sensible scale. Losses are too, by the GP.
    """

    def __init__(self, task: Task, seed: int, *, kappa: float = KAPPA, composed: float = 0.0) -> None:
        super().__init__(task, seed, composed=composed)
        self.kappa = kappa
        self.scales = self.dim + (task.context_dim if task.context_dim <= MOST_SCALES else 1)
        self.window = Window(WINDOW)
        self._gp: GaussianProcess | None = None

    def suggest(self, context: Array) -> Array:
        if self._gp is None:
            return self.rng.uniform(size=self.dim) if self.asked else self.task.default
        gp, tail = self._gp, self.window.standardise(context)

        def bound(theta: Array) -> tuple[float, Array]:
            return gp.lower_bound(np.concatenate([theta, tail]), self.kappa, self.dim)

        box = [(0.0, 1.0)] * self.dim
        starts = self.rng.uniform(size=(RESTARTS, self.dim))
        with THREADS.limit(limits=1):
            ends = [minimize(bound, start, jac=True, method="L-BFGS-B", bounds=box) for start in starts]
        best: Array = min(ends, key=lambda end: float(end.fun)).x
        return best

    def learn(self, run: Run, loss: float) -> None:
        self.window.add(run, loss)
        if len(self.window.losses) >= INITIAL:
            contexts = self.window.standardise(self.window.contexts)
            x = np.hstack([self.window.points, contexts])
            self._gp = GaussianProcess(x, self.window.losses, self.scales)


class Window:
    """The latest runs as arrays: points [n, d], contexts [n, d_c] and losses [n]."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: list[tuple[Array, Array, float]] = []

    def add(self, run: Run, loss: float) -> None:
        self._rows = [*self._rows, (run.point, run.context, loss)][-self._size :]
        self.points = np.array([row[0] for row in self._rows])
        self.contexts = np.array([row[1] for row in self._rows])
        self.losses = np.array([row[2] for row in self._rows])

    def standardise(self, contexts: Array) -> Array:
        """Contexts in units of the window's deviation; a coordinate that never changed is only centred."""
        spread = self.contexts.std(axis=0)
        spread[spread < 1e-12] = 1.0
        scaled: Array = (contexts - self.contexts.mean(axis=0)) / spread
        return scaled

    def to_unit(self, contexts: Array) -> Array:
        """Contexts such that the window's lie in [0, 1]; a coordinate that never changed is only moved."""
        low = self.contexts.min(axis=0)
        width = self.contexts.max(axis=0) - low
        width[width < 1e-12] = 1.0
        scaled: Array = (contexts - low) / width
        return scaled


gp_ucb_025 = partial(GpUcb, kappa=0.25)
gp_ucb_05 = partial(GpUcb, kappa=0.5)
gp_ucb_1 = partial(GpUcb, kappa=1.0)
