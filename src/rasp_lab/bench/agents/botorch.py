"""A contextual GP by BoTorch: SingleTaskGP over [theta; context], LogEI over theta in the current context."""

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim.optimize import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from threadpoolctl import ThreadpoolController

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_lab.bench.agents.gp_ucb import INITIAL, RESTARTS, WINDOW, Window
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array

RAW_SAMPLES = 64
THREADS = ThreadpoolController()  # torch's own among them: matrices this small are faster on one thread


class BoTorch(ScalarAgent):
    """BoTorch's default model (kernel, priors scaled by dimension, noise) and its default fit, at every answer.

    Not its defaults: the search starts at the best RESTARTS of RAW_SAMPLES uniform points, which the agent's own
    generator draws, and a fit is tried once, from the last one. BoTorch's own starts and second attempts draw from
    torch's global generator. Losses are standardised here, over the last WINDOW runs.

    The best observed loss may belong to a luckier context, where nothing could improve on it here; so improvement is
    counted from the best posterior mean that the window's points have in the current context.
    """

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self.window = Window(WINDOW)
        self._model: SingleTaskGP | None = None

    def suggest(self, context: Array) -> Array:
        if self._model is None:
            return self.rng.uniform(size=self.dim) if self.asked else self.task.default
        tail = self.window.to_unit(context)
        starts = self._rows(self.rng.uniform(size=(RAW_SAMPLES, self.dim)), tail)
        box = np.hstack([np.tile([[0.0], [1.0]], self.dim), [tail, tail]])
        with THREADS.limit(limits=1):
            with torch.no_grad():
                incumbent = self._model.posterior(self._rows(self.window.points, tail)).mean.max()
                improvement = LogExpectedImprovement(self._model, best_f=incumbent)
                promising = improvement(starts[:, None]).topk(RESTARTS).indices
            best, _ = optimize_acqf(
                improvement,
                bounds=torch.from_numpy(box),
                q=1,
                num_restarts=RESTARTS,
                batch_initial_conditions=starts[promising][:, None],
                fixed_features={self.dim + i: value for i, value in enumerate(tail.tolist())},
                retry_on_optimization_warning=False,  # it would draw new starts from torch's global generator
            )
        point: Array = best[0, : self.dim].numpy()
        return point

    def learn(self, run: Run, loss: float) -> None:
        self.window.add(run, loss)
        losses = self.window.losses
        spread = losses.std(ddof=1) if len(losses) >= INITIAL else 0.0
        if spread == 0.0:
            return  # nothing to be learned yet
        gains = (losses.mean() - losses) / spread  # BoTorch maximises
        x = np.hstack([self.window.points, self.window.to_unit(self.window.contexts)])
        model = SingleTaskGP(torch.from_numpy(x), torch.from_numpy(gains[:, None]), outcome_transform=None)
        if self._model is not None:
            model.load_state_dict(self._model.state_dict())  # the last fit is a good start
        with THREADS.limit(limits=1):
            try:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), max_attempts=1)
            except ModelFittingError:
                return  # a second attempt would draw from torch's global generator; the last model serves on
        self._model = model

    def _rows(self, points: Array, tail: Array) -> torch.Tensor:
        """Points [n, d] with the same scaled context [d_c] behind each."""
        return torch.from_numpy(np.hstack([points, np.tile(tail, (len(points), 1))]))
