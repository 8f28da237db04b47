"""Optimizer: what both stacks are to the public face. Points [d] live in the unit box; d_c context dimensions.

Also the nouns that pass between an optimizer and its caller.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.gain.versus_default import NORMAL_90
from rasp_tuner.types import Budget, Margin, Metric, Slots, Why

# [m] how far settings [m, d] are expected to stay within the limit they are closest to, in deviations of one run
Room = Callable[[Array], Array]

FAILED_ERROR = 1.0  # the error on record of a run that failed: as bad as errors get


class Stateful(Protocol):
    """A part that learns: what it knows can be taken out as arrays and put back."""

    def state(self) -> dict[str, Array]:
        """Everything learned, by name; the arrays may be views."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take back what `state` gave."""


class Proposal(NamedTuple):
    """Where to go next, and why."""

    point: Array  # [d]
    why: Why


class Asked(NamedTuple):
    """A suggestion that a run answers."""

    point: Array  # [d] what ran may differ
    stop: float | None = None  # the cost from which on the run should have been ended


class LearnResult(NamedTuple):
    """What a sample came to, and how it was learned."""

    error: float  # composed of the metrics; lower is better
    path: Literal["fast", "slow", "restated"] = "fast"  # the last: a metric has changed its unit
    reason: str = ""  # why this path, where there is a choice


@dataclass(frozen=True, slots=True)
class LatestSamples:
    """The latest samples, oldest first."""

    contexts: Array  # [n, d_c]; of a long context a fixed random projection
    points: Array  # [n, d]
    errors: Array  # [n] lower is better
    losses: Array  # [n, C] what the errors are composed of


class Expected(NamedTuple):
    """An error that is expected on average, and the interval that holds it nine times in ten."""

    mean: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        """Of the error that is expected, if it is normal."""
        return 0.5 * (self.high - self.low) / NORMAL_90


class Repeats(NamedTuple):
    """That metrics are means of so many runs of one point in one situation, and how far these scattered."""

    runs: int
    variances: Mapping[str, float]  # of the runs around the mean, by metric
    ago: int = 0  # samples learned since they ran: those that ran at the same time


class Model(Protocol):
    """What an optimizer knows of the errors that it minimises."""

    @property
    def own_metric(self) -> str | None:
        """The metric in whose units errors are, negative if more of it is better; None of a sum."""

    @property
    def experts(self) -> tuple[str, ...]:
        """Whose weights an explanation's gate holds, in words."""

    def expect(self, context: Array, point: Array) -> Expected | None:
        """The error expected at a point; None where that is not known."""

    def knows(self, context: Array, point: Array) -> bool:
        """Whether the error expected at a point is known in this context at least as well as one run would tell."""

    def probability_better(self, context: Array, point: Array) -> float | None:
        """Probability that a point beats the default in this context; None where nobody forecasts.

        Something must have been learned.
        """

    def stake(self, context: Array, point: Array) -> float:
        """By what share of the default's loss a run of a point may be worse than the default; 0 where nothing is known.

        That is what is expected, and one deviation; at least 0.
        """

    def similar_runs(self, context: Array) -> tuple[float, float] | None:
        """How many earlier runs were in a situation like this, and how many runs ago the latest was; not finite where
        memory does not say. None where it counts no runs.
        """

    def relevance(self) -> Array | None:
        """[d_c] how much each dimension of a context counts in the likeness of two; None where none is learned."""

    def budget(self) -> Budget | None:
        """What own suggestions have cost against the default; None without a budget."""

    def slots(self) -> Slots:
        """The situations in memory, as copies."""

    def recent(self) -> LatestSamples:
        """The latest samples, as copies; none where their order is not kept."""


class Within(NamedTuple):
    """Ground that keeps the limits, and how likely other settings are to keep them."""

    ground: Array  # [k, d] the best that is known to keep them first
    chance: Callable[[Array], Array]  # [n] of points [n, d]; 0 where they may not run


class Waiting(NamedTuple):
    """Suggestions without an answer yet, in all contexts."""

    latest: Sequence[tuple[Array, Array]]  # context [d_c] and point [d] of some, other than the default
    total: float  # those that are likely lost count less
    defaults: float  # of these are of the default
    staked: float  # what they may cost more than the default, in steps of its loss


NOTHING = Waiting((), 0.0, 0.0, 0.0)


class Scope(NamedTuple):
    """What may be chosen, and what was chosen already."""

    among: Array | None = None  # [m, d] settings that can run; None: all that are legal
    pending: Array | None = None  # [k, d] settings that run in this context now, without an answer yet
    room: Room | None = None  # of limits that are to be kept in the end; None: there are none
    within: Within | None = None  # where a choice must stay; None: anywhere
    waiting: Waiting = NOTHING


ANY = Scope()


class Optimizer(Stateful, Protocol):
    """The stages of one preset, joined: identify, predict, choose; then learn."""

    @property
    def model(self) -> Model: ...

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The declared metrics, with the weights they have now."""

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric is compared now: "linear" or "log"."""

    @property
    def uses_blas(self) -> bool:
        """Whether `propose` and `tell` may call BLAS and leave it to their caller to keep that on one thread."""

    def propose(self, context: Array, current: Array, rng: np.random.Generator, scope: Scope = ANY) -> Proposal | None:
        """The next point in this context, where `current` runs now; None while nothing is known.

        Only the generator moves. A search (goal "find") keeps to what `scope` lists.
        """

    def reasons_at(self, context: Array, point: Array, source: str) -> Why:
        """What is known of a point that somebody else chose, as `source` says: its forecast, and its stop."""

    def tell(
        self,
        context: Array,
        point: Array,
        metrics: Mapping[str, float],
        rng: np.random.Generator,
        asked: Asked | None = None,
        stopped: bool = False,
        repeats: Repeats | None = None,
    ) -> LearnResult:
        """Learn from metrics, which are checked first.

        `asked` is the suggestion that ran as `point`; None if nobody asked, so that no budget counts it.
        `stopped`: the run was ended; it would have come to these metrics or worse.
        `repeats`: the metrics are means of many runs, which count as many.
        """

    def tell_error(self, context: Array, point: Array, error: float, rng: np.random.Generator) -> LearnResult:
        """Learn from an error in [0, 1] that was composed elsewhere."""

    def tell_failed(
        self, context: Array, point: Array, rng: np.random.Generator, asked: Asked | None = None
    ) -> LearnResult:
        """Learn that a run failed; it is never remembered as a best."""

    def best_known(self, context: Array) -> Array | None:
        """The best point for this context without exploring; None while nothing is known."""

    def forecast_metric(self, name: str, context: Array, point: Array) -> Expected | None:
        """The loss expected of one metric in its own units. It may change weights: to be asked of a copy."""

    def margins(self, context: Array, point: Array) -> dict[str, Margin]:
        """How far a point stays from each metric's limit; empty without limits, and while nothing is known."""

    def reweigh(self, weights: Mapping[str, float]) -> None:
        """Other weights of some metrics, for all of history at once; an InvalidValue where that cannot be."""

    def merge(self, other: Self, first: bool) -> None:
        """Take in all that another one of the same kind learned, which is not changed; an InvalidValue if it cannot.

        Its samples are others than these. `first`: whether these come first, where order makes a difference.
        """
