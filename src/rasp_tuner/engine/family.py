"""Family and Belief: what the engine needs from a kind of model. Another family would touch preset.py only."""

from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.optimizer.optimizer import NOTHING, Asked, LatestSamples, Room, Scope, Stateful, Waiting, Within
from rasp_tuner.types import Slots


class RunOutcome(NamedTuple):
    """A point that ran in a context, and what came of it."""

    point: Array  # [d]
    context: Array  # [d_c]
    losses: Array  # [K] lower is better; of a failure twice the default's
    failed: bool
    asked: Asked | None = None  # the suggestion that it answers, if it is one
    ended: float | None = None  # y at which the run was ended; the losses are what is expected of it beyond that
    runs: int = 1  # that the losses are the mean of
    scatter: Array | None = None  # [C] variance of the losses of these runs; None of one run
    ago: int = 0  # samples learned since it ran


class Choice(NamedTuple):
    """A point to try, and what is expected of it."""

    point: Array  # [d]
    source: str  # where it came from, in a word or two
    mean: float  # of y there
    variance: float  # of that mean


class ByExpert(NamedTuple):
    """What a belief expects of one observation, and how likely the answer was to each of its E experts."""

    mean: float
    variance: float  # of the mean, noise left out
    log_densities: Array  # [E] log p(y)


class Comparison(NamedTuple):
    """What a belief expects of a point and of the default, and of their difference."""

    level: float  # y at the default
    mean: float  # of y at the point less that at the default
    variance: float
    expected: float  # y at the point
    variances: tuple[float, float]  # of y at the point, and at the default


class Bill(Protocol):
    """What own steps have cost against the default, as it is seen today; in steps of the default's loss."""

    spent: float
    earned: float
    variance: float  # of the difference


class Prices(NamedTuple):
    """How much worse than the default's a loss is, as a share of it."""

    is_log: bool  # whether y is the logarithm of the loss
    of_level: bool  # whether the share is of the default's loss, if that is more than a unit
    unit: float  # that a difference of losses is divided by, at least
    least_unit: float
    most_log: float  # of a difference of logarithms that is looked at
    most: float  # of a share, either way

    def shares(self, level: Array, gap: Array) -> Array:
        """[n] of y [n] at the default, and of how much more it is at a point."""
        if self.is_log:
            return np.clip(np.expm1(np.minimum(gap, self.most_log)), -self.most, self.most)
        unit = np.maximum(np.abs(level), self.unit) if self.of_level else self.unit
        return np.clip(gap / np.maximum(unit, self.least_unit), -self.most, self.most)


class Belief(Protocol):
    """What a family of E experts holds true in one context; y is the target, lower is better. Pure."""

    @property
    def weights(self) -> Array:
        """[E] how much weight each expert has, summing to one."""

    @property
    def noise(self) -> float:
        """Variance of one observation around its mean."""

    @property
    def knows_default(self) -> bool:
        """Whether the default ran in a situation like this one, as far as that is counted."""

    @property
    def lacks_default(self) -> bool:
        """Whether other settings ran in a situation like this one, where the default failed or could not be had."""

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of y, noise left out, at points [n, d] of the unit box; all experts weighted."""

    def against(self, point: Array, default: Array) -> Comparison:
        """`predict` at two points [d], and what is expected of their difference."""

    def billed(self, bill: Any, point: Array) -> float:
        """Covariance of the family's bill and of y at a point less that at the default, here."""

    def forecast(self, point: Array, y: float) -> ByExpert:
        """What was expected at `point` [d], where y came out."""

    def choose(self, rng: np.random.Generator, waiting: Waiting = NOTHING) -> Choice:
        """What this family would try next; no setting twice before it is known what it comes to."""

    def best(self) -> Array | None:
        """The best point [d] known here, without exploring; None while nothing is."""

    def similar(self) -> Array:
        """[N] from 0 to 1: how similar each remembered situation is to this one."""


class SearchBelief(Belief, Protocol):
    """A belief that looks for the best setting (goal "find"), or for the best within limits."""

    def choose_within(self, rng: np.random.Generator, within: Within, waiting: Waiting) -> Choice:
        """`choose` among what may keep the limits."""

    def search(self, rng: np.random.Generator, scope: Scope) -> Choice:
        """The next look, within the scope."""

    def best_within(self, room: Room) -> Array | None:
        """The best of what was measured here and keeps the limits; of none such the likeliest. None if nothing was."""


def predict_one(belief: Belief, point: Array) -> tuple[float, float]:
    """`Belief.predict` at one point [d], as numbers."""
    mean, variance = belief.predict(point[None])
    return float(mean[0]), float(variance[0])


B = TypeVar("B", bound=Belief)


class Family(Stateful, Protocol[B]):
    """A kind of model: proposes, predicts, and learns from every sample whoever proposed it."""

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of its E hypotheses, in words."""

    @property
    def hindsight(self) -> bool:
        """Whether it has a bill."""

    @property
    def uses_blas(self) -> bool:
        """Whether beliefs and `learn` may call BLAS; what else does keeps it on one thread by itself."""

    @property
    def samples(self) -> int:
        """How many it has learned from, failures included."""

    @property
    def relevance(self) -> Array | None:
        """[d_c] what each dimension counts in how alike two contexts are, as learned; None where it learns none."""

    def believe(self, context: Array) -> B:
        """Everything it knows about a context [d_c]; learns nothing, draws nothing."""

    def learn(self, trial: RunOutcome, belief: B | None, forecast: ByExpert | None) -> None:
        """Take in one trial, in closed form.

        `belief` is the one about its context (None for the first trial), `forecast` its forecast of this trial (None
        for the first two).
        """

    def bill(self, prices: Prices, belief: B | None = None) -> Bill | None:
        """What own trials in memory have cost; None where that is booked once and for all, or nothing ran.

        With a belief: by what it knows, for its own `billed`.
        """

    def reweigh(self, weights: Array) -> None:
        """From now on y = losses @ weights [K], for everything ever learned."""

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        """All losses ever learned become losses * factors + shifts, [K] each, in other units; y = losses @ weights.

        So are those of y: by one factor and one shift.
        """

    def forget(self) -> None:
        """Be as new: what was learned is about to be learned again, otherwise. What others told it stays."""

    def bound_contexts(self, least: Array, most: Array, mend: bool) -> None:
        """From now on no scale is moved by what a context has below `least` or above `most` [d_c].

        `mend`: some of the past may have been.
        """

    def merge(self, other: Self, weights: Array, first: bool) -> None:
        """Take in all that another family of its kind learned, which is not changed; from now on y = losses @ weights.

        `first`: whether this one comes first where order makes a difference; what comes out is the same for both.
        """

    def logs_gain(self, sign: float) -> float | None:
        """How much better the logarithms of the one metric are explained than its values: the logarithm of a ratio.

        Losses have both as columns, times `sign`. None where nobody can tell.
        """

    def remembered(self) -> Slots:
        """The situations in memory, as copies."""

    def recent(self) -> LatestSamples:
        """The latest samples, as copies; none where their order is not kept."""
