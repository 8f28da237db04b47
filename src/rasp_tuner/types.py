"""The nouns that travel between stages. All frozen; those a user builds check themselves at birth.

d parameters, d_c context dimensions, d_p prompt dimensions, K retrieved slots, E experts, n points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from rasp_tuner.core.checks import number, show
from rasp_tuner.core.numerics import Array
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Params

Direction = Literal["min", "max"]
Path = Literal["pending", "fast", "slow"]


class Stateful(Protocol):
    """A part that learns: what it knows can be taken out as arrays and put back."""

    def state(self) -> dict[str, Array]:
        """Everything learned, by name; the arrays may be views."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take back what `state` gave."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Which way a metric is better, and how much it weighs beside the others."""

    direction: Direction = "min"
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.direction, str) or self.direction not in ("min", "max"):
            raise InvalidSpace(f"Metric direction must be 'min' or 'max', got {show(self.direction)}")
        weight = number("Metric weight", self.weight, InvalidSpace)
        if not 1e-100 <= weight <= 1e100:
            raise InvalidSpace(f"Metric weight must be positive, from 1e-100 to 1e100, got {weight!r}")
        object.__setattr__(self, "weight", weight)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to run next, and the id to answer with."""

    id: str
    params: Params


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
class Batch:
    """n samples for a full update; each row has its own context and retrieved prompt."""

    points: Array  # [n, d] in the unit box
    contexts: Array  # [n, d_c]
    prompts: Array  # [n, d_p]
    errors: Array  # [n]


@dataclass(frozen=True, slots=True)
class Verdict:
    """By which path to learn from a sample, and the reason in words."""

    path: Literal["fast", "slow"]
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a suggestion was made, and what its answer led to.

    `str()` of it is a short paragraph in plain words.
    """

    source: str  # which kind of candidate won, in a word or two: "default", "hint", "predicted optimum", ...
    slots: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    gate: tuple[float, ...] = ()  # gate, predicted and deviation are of the candidate as ranked: before it was
    predicted: float | None = None  # clipped into the box and snapped to legal values
    deviation: float | None = None
    novelty: float = 1.0
    confidence: float = 0.0
    entropy: float = 0.0
    path: Path = "pending"
    reason: str = ""  # why this path
    error: float | None = None  # what came back: in [0, 1] under "paper", the target under "default"; 1 if it failed
    expert: str = ""  # the hypothesis that counted most, in words
    failure: str | None = None  # the reason told with tell_failed

    def __str__(self) -> str:
        known = (
            f"looks like past situation {self.slots[0]} (weight {self.weights[0]:.2f}"
            f" among {len(self.slots)}; novelty {self.novelty:.2f})"
            if self.slots
            else "is like nothing seen before (memory is empty)"
        )
        guess = ""
        if self.predicted is not None:
            led = f", led by: {self.expert}" if self.expert else ""
            guess = (
                f" Predicted error {self.predicted:.4g} +- {self.deviation:.2g}"
                f" ({sum(weight >= 0.005 for weight in self.gate)} of {len(self.gate)} experts count{led})."
            )
        if self.path == "pending":
            outcome = "Not answered yet."
        else:
            told = " ".join((self.failure or "").split())
            came = (
                f"Observed error {self.error:.4g}" if self.failure is None else f"Failed: {told or 'no reason given'}"
            )
            outcome = f"{came}. Learned by the {self.path} path: {self.reason}."
        return f"Chosen as {self.source}; the context {known}.{guess} {outcome}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where to go next [d], and why."""

    theta: Array
    why: Explanation


@dataclass(frozen=True, slots=True)
class Slots:
    """Situations in memory."""

    contexts: Array  # [N, d_c]
    visits: Array  # [N] samples in each, as far as memory counts them
    last: Array  # [N] how many samples ago each was met; NaN where memory does not say


@dataclass(frozen=True, slots=True)
class Samples:
    """The latest samples, oldest first."""

    contexts: Array  # [n, d_c]; of a long context a fixed random projection
    points: Array  # [n, d] in the unit box
    errors: Array  # [n] as `Explanation.error`


@dataclass(frozen=True, slots=True)
class Told:
    """What a sample came to: its composed error, and how it was learned."""

    error: float
    verdict: Verdict


class Stack(Stateful, Protocol):
    """The stages of one preset, joined: identify, predict, choose; then learn. Points [d] are in the unit box."""

    @property
    def composer(self) -> "Composer":
        """What knows the metrics."""

    def propose(self, context: Array, point: Array, rng: np.random.Generator) -> Proposal:
        """The next point after `point` in this context; only the generator moves."""

    def tell(self, context: Array, point: Array, metrics: Mapping[str, float], rng: np.random.Generator) -> Told:
        """Learn from metrics, which are checked first."""

    def learn(self, context: Array, point: Array, error: float, failed: bool, rng: np.random.Generator) -> Verdict:
        """Learn from an error in [0, 1] that was composed elsewhere, or from a failure."""

    def best_known(self, context: Array) -> Array | None:
        """The best point for this context without exploring; None while nothing is known."""

    @property
    def experts(self) -> tuple[str, ...]:
        """Whose weights an explanation's gate holds, in words."""

    def expect(self, context: Array, point: Array) -> float | None:
        """The error expected at a point; None where that is not known."""

    def slots(self) -> Slots:
        """The situations in memory, as copies."""

    def recent(self) -> Samples:
        """The latest samples, as copies; none where their order is not kept."""


class Composer(Protocol):
    """The declared metrics."""

    metrics: dict[str, Metric]

    def to_json(self) -> dict[str, dict[str, str | float]]:
        """Direction and weight of each."""
