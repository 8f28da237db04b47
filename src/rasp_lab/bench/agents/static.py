"""Static default: never moves. The baseline every operator already has."""

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_tuner.base.numerics import Array


class Static(ScalarAgent):
    def suggest(self, context: Array) -> Array:
        del context
        return self.task.default

    def learn(self, run: Run, loss: float) -> None:
        """Nothing is learned."""
