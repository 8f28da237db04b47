"""The surrogate protocol: what the loop needs from any model of the error. One surrogate, one file beside this one."""

from typing import Protocol

from rasp_tuner.numerics import Array
from rasp_tuner.types import Batch, Prediction, Retrieval, Stateful


class Surrogate(Stateful, Protocol):
    """Predicts the error at points of the unit box, given what memory retrieved for the context.

    Prompts belong to memory: a surrogate reads them from the `Retrieval` and answers with new ones, and only hybrid.py
    writes them back. So what a surrogate keeps for itself is what all regimes share.
    """

    def predict(self, points: Array, seen: Retrieval, doubt: float | None = None) -> Prediction:
        """Belief at `points` [n, d]; `doubt` in [0, 1] may save work when low; None asks for everything it has."""

    def gradient(self, point: Array, seen: Retrieval) -> Array:
        """Slope [d] of the predicted mean at `point` [d]."""

    def update_prompts_only(self, point: Array, seen: Retrieval, error: float) -> Array:
        """Fast path: better prompts [K, d_p] for the retrieved slots; shared state does not move."""

    def update_full_emergency(self, batch: Batch) -> None:
        """Slow path: move shared state to fit `batch`; prompts do not move."""
