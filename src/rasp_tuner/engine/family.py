"""The surrogate protocols: what the loop needs from any model of the error. One model, one file beside this one.

`Surrogate` is the paper's: one network that reads prompts from memory. `Family` is a kind of expert for the evidence
gate (gate.py): it holds its own conjugate prompts, and whoever adds a third one touches no other file but presets.py.
"""

from typing import NamedTuple, Protocol

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.types import Batch, Prediction, Retrieval, Samples, Slots, Stateful


class Surrogate(Stateful, Protocol):
    """Predicts the error at points of the unit box, given what memory retrieved for the context.

    Prompts belong to memory: a surrogate reads them from the `Retrieval` and answers with new ones, and only the stack
    writes them back. So what a surrogate keeps for itself is what all regimes share.
    """

    experts: int

    def predict(self, points: Array, seen: Retrieval, doubt: float | None = None) -> Prediction:
        """Belief at `points` [n, d]; `doubt` in [0, 1] may save work when low; None asks for everything it has."""

    def gradient(self, point: Array, seen: Retrieval) -> Array:
        """Slope [d] of the predicted mean at `point` [d]."""

    def update_prompts_only(self, point: Array, seen: Retrieval, error: float) -> Array:
        """Fast path: better prompts [K, d_p] for the retrieved slots; shared state does not move."""

    def update_full_emergency(self, batch: Batch) -> None:
        """Slow path: move shared state to fit `batch`; prompts do not move."""


class Choice(NamedTuple):
    """A point to try, and what is expected of it."""

    point: Array  # [d]
    source: str  # where it came from, in a word or two
    mean: float  # of y there
    variance: float  # of that mean


class Belief(Protocol):
    """What a family of E experts holds true in one context; y is the target, lower is better. Pure."""

    @property
    def weights(self) -> Array:
        """[E] how much each expert counts, summing to one."""

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of y, noise left out, at points [n, d] of the unit box; all experts weighed."""

    @property
    def noise(self) -> float:
        """Variance of one observation around that."""

    def choose(self, rng: np.random.Generator) -> Choice:
        """What this family would try next."""

    def best(self) -> Array | None:
        """The best point [d] known here, without exploring; None while nothing is."""

    def log_density(self, point: Array, y: float) -> Array:
        """[E] log p(y) for an observation at `point` [d]."""

    def similar(self) -> Array:
        """[N] from 0 to 1: how much each remembered situation is like this one."""


class Family(Stateful, Protocol):
    """A kind of model: proposes, predicts, and learns from every sample whoever proposed it."""

    experts: tuple[str, ...]  # names of its E hypotheses, in words

    def believe(self, context: Array) -> Belief:
        """Everything it knows about a context [d_c]; learns nothing, draws nothing."""

    def learn(self, point: Array, context: Array, values: Array, failed: bool) -> None:
        """Fast path: take in metrics [K], turned so that lower is better; in closed form."""

    def relearn(self) -> None:
        """Slow path: estimate anew what all situations share."""

    def reweigh(self, weights: Array) -> None:
        """From now on y = values @ weights [K], for everything ever learned."""

    def remembered(self) -> Slots:
        """The situations in memory, as copies."""

    def recent(self) -> Samples:
        """The latest samples, as copies; none where their order is not kept."""
