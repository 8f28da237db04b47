"""Random search: uniform in the box at every step."""

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_tuner.base.numerics import Array


class RandomSearch(ScalarAgent):
    def suggest(self, context: Array) -> Array:
        del context
        return self.rng.uniform(size=self.dim)

    def learn(self, run: Run, loss: float) -> None:
        """Nothing is learned."""
