"""Vowpal Wabbit CATS: a contextual bandit with continuous actions, one tree per knob.

CATS chooses one number, so every knob has a CATS of its own; all see the same context and are charged the same cost.
VW wants costs in [0, 1]: here 0 is the least loss seen so far and 1 the greatest. Good actions must cost nearly zero:
on a quadratic loss with two regimes, z-scores around 0.5 ended at twice the loss.
"""

import numpy as np
import vowpalwabbit

from rasp_lab.bench.agents.base import MAX_PENDING, Run, ScalarAgent
from rasp_lab.bench.agents.cma import new_seed
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array

ACTIONS = 8  # leaves of a tree, a power of two; on that loss 16 and 32 were behind after 3,000 steps
BANDWIDTH = 1.0 / ACTIONS  # actions are smoothed over their neighbours


class VwCats(ScalarAgent):
    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        options = f"--cats_pdf {ACTIONS} --bandwidth {BANDWIDTH} --min_value 0 --max_value 1 --quiet"
        self._trees = [
            vowpalwabbit.Workspace(f"{options} --random_seed {new_seed(self.rng) // 2}") for _ in range(self.dim)
        ]
        self._densities: dict[str, Array] = {}  # of what was drawn: the propensities that learning needs
        self._least, self._greatest = np.inf, -np.inf

    def suggest(self, context: Array) -> Array:
        line = f"ca {_features(context)}"
        draws = [_draw(tree.predict(line), self.rng.uniform()) for tree in self._trees]
        if self.asked == 0:
            draws = [(start, 1.0) for start in self.task.default]  # as if drawn from the uniform density
        point: Array
        point, density = np.array(draws).T
        self._densities[self.next_id] = density
        if len(self._densities) > MAX_PENDING:
            del self._densities[next(iter(self._densities))]
        return point

    def learn(self, run: Run, loss: float) -> None:
        self._least, self._greatest = min(self._least, loss), max(self._greatest, loss)
        width = self._greatest - self._least
        cost = (loss - self._least) / width if width > 0.0 else 0.5
        for tree, action, density in zip(self._trees, run.drawn, self._densities.pop(run.id), strict=True):
            tree.learn(f"ca {action}:{cost}:{density} {_features(run.context)}")


def _features(context: Array) -> str:
    return "| " + " ".join(f"c{i}:{value}" for i, value in enumerate(context))


def _draw(density: list[tuple[float, float, float]], quantile: float) -> tuple[float, float]:
    """The number at `quantile` of a piecewise constant density [(left, right, height)], and the height there."""
    for left, right, height in density:
        mass = height * (right - left)
        if quantile < mass:
            return left + quantile / height, height
        quantile -= mass
    _, right, height = density[-1]  # what single-precision heights leave over
    return right, height
