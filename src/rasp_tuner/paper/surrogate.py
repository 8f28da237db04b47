"""Surrogate: what the paper's loop needs from a model of the error, and the nouns it speaks in.

d parameters, d_c context dimensions, d_p prompt dimensions, K retrieved slots, E experts, n points.
"""

from dataclasses import dataclass
from typing import Protocol

from rasp_tuner.base.numerics import Array
from rasp_tuner.optimizer.optimizer import Stateful


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What memory says about a context: the regime proxy of the paper's *identify* stage."""

    context: Array  # [d_c] the context asked about
    slots: tuple[int, ...]  # K nearest slots, nearest first; empty while memory is
    weights: Array  # [K] alpha = softmax(-d / tau)
    prompts: Array  # [K, d_p] their soft prompts
    prompt: Array  # [d_p] p_t = sum_j alpha_j p_j; zero while memory is empty
    hint: Array | None  # [d] theta_hint = sum_j alpha_j theta*_j
    nearest: float  # d_min; infinite while memory is empty
    novelty: float  # nu_t in [0, 1]; 1 while memory is empty
    confidence: float  # max alpha
    entropy: float  # H(alpha)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A surrogate's belief about the error at n points."""

    mean: Array  # [n]
    variance: Array  # [n] disagreement between experts
    gate: Array  # [n, E] weight of each expert; an idle expert has zero


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """n samples for a full update; each row has its own context and retrieved prompt."""

    points: Array  # [n, d] in the unit box
    contexts: Array  # [n, d_c]
    prompts: Array  # [n, d_p]
    errors: Array  # [n]


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

    def update_full_emergency(self, batch: TrainingBatch) -> None:
        """Slow path: move shared state to fit `batch`; prompts do not move."""
