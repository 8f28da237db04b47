"""The nouns a user meets. All frozen; those a user builds check themselves at birth."""

import math
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Literal, NamedTuple, Protocol

from rasp_tuner.core import explanation_words
from rasp_tuner.core.checks import number, printable, show
from rasp_tuner.core.numerics import Array
from rasp_tuner.core.returns import Return as Return
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Params

Direction = Literal["min", "max"]
Goal = Literal["live", "find"]
Scale = Literal["auto", "linear", "log"]
Path = Literal["pending", "fast", "slow", "restated"]
KEPT = 0.9  # probability with which a limit is kept
_BEFORE_LIMITS = ("direction", "weight", "scale")


@dataclass(frozen=True, slots=True)
class Metric:
    """Which way a metric is better, how much it weighs beside the others, on which scale, and its limit if it has one.

    On a "log" scale differences are in percent, as of milliseconds that differ a thousandfold between workloads; all
    values must be positive. "auto" decides from the knobs and the data. Preset "paper" is linear.

    A limit is to be kept in nine runs of ten: `max=200`, or `at_most="1.05 default"` of what the default would come to
    in the same situation; of a metric that is better when higher, `min` and `at_least`. What has a limit is not
    minimised besides, unless it is given a weight.

    >>> Metric("min", max=200)
    Metric(direction='min', weight=0.0, scale='auto', max=200.0, min=None, at_most=None, at_least=None)
    """

    direction: Direction = "min"
    weight: float = None  # type: ignore[assignment]  # 1, or 0 of a metric with a limit; a number once this is made
    scale: Scale = "auto"
    max: float | None = None
    min: float | None = None
    at_most: str | None = None
    at_least: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.direction, str) or self.direction not in ("min", "max"):
            raise InvalidSpace(f"Metric direction must be 'min' or 'max', got {show(self.direction)}")
        if not isinstance(self.scale, str) or self.scale not in ("auto", "linear", "log"):
            raise InvalidSpace(f"Metric scale must be 'auto', 'linear' or 'log', got {show(self.scale)}")
        limited = self._check_limit()
        usual = 0.0 if limited else 1.0
        weight = usual if self.weight is None else number("Metric weight", self.weight, InvalidSpace)
        if not (1e-100 <= weight <= 1e100 or (limited and weight == 0.0)):
            zero = ", or 0 where it has a limit" if limited else ""
            raise InvalidSpace(f"Metric weight must be positive, from 1e-100 to 1e100{zero}; got {weight!r}")
        object.__setattr__(self, "weight", weight)

    def _check_limit(self) -> bool:
        """Whether there is a limit; a typed error if it makes no sense."""
        own, other = (("max", "at_most"), ("min", "at_least"))[:: 1 if self.direction == "min" else -1]
        for name in other:
            if getattr(self, name) is not None:
                raise InvalidSpace(
                    f"a Metric to {'minimise' if self.direction == 'min' else 'maximise'} has no {name}: give {own[0]}"
                    f" or {own[1]} instead, got {name}={show(getattr(self, name))}"
                )
        fixed, relative = (getattr(self, name) for name in own)
        if fixed is not None and relative is not None:
            raise InvalidSpace(f"a Metric has one limit: give either {own[0]} or {own[1]}, got both")
        if fixed is not None:
            object.__setattr__(self, own[0], number(f"Metric {own[0]}", fixed, InvalidSpace))
        if relative is not None:
            _share_of_default(own[1], relative, self.direction)
        return fixed is not None or relative is not None

    @property
    def limit(self) -> "Limit | None":
        """What must be kept, if anything."""
        low = self.direction == "min"
        fixed, relative = (self.max, self.at_most) if low else (self.min, self.at_least)
        if relative is not None:
            return Limit(_share_of_default("at_most" if low else "at_least", relative, self.direction), True)
        return None if fixed is None else Limit(fixed, False)

    def to_json(self) -> dict[str, Any]:
        """Its fields, as keywords of a Metric; limits only if there is one."""
        fields = asdict(self)
        return {name: value for name, value in fields.items() if value is not None or name in _BEFORE_LIMITS}


@dataclass(frozen=True, slots=True)
class Limit:
    """The value that a metric must not pass."""

    value: float  # in the metric's units; or a factor of what the default comes to
    relative: bool


@dataclass(frozen=True, slots=True)
class Margin:
    """How far some settings keep a metric from its limit, in one situation and in the metric's own units."""

    expected: float
    bound: float  # that nine runs of ten keep
    limit: float
    kept: float  # probability that a run keeps the limit

    @property
    def share(self) -> float:
        """From the bound to the limit, as a share of the limit: 0.1 is ten percent of room; below 0 there is none."""
        return abs(self.limit - self.bound) / max(abs(self.limit), 1e-300) * (1.0 if self.kept >= KEPT else -1.0)

    def __str__(self) -> str:
        room = f"{self.share:.0%} of room" if self.kept >= KEPT else "no room"
        return (
            f"expected {self.expected:.4g}, {self.bound:.4g} in nine runs of ten; limit {self.limit:.4g}: {room},"
            f" kept with a probability of {self.kept:.0%}"
        )


def _share_of_default(name: str, text: object, direction: str) -> float:
    """The factor that a text such as "1.05 default" names."""
    words = text.split() if isinstance(text, str) else []
    try:
        factor = float(words[0]) if len(words) == 2 and words[1] == "default" else math.nan
    except ValueError:
        factor = math.nan
    if not 1e-6 <= factor <= 1e6:
        example = "1.05 default" if direction == "min" else "0.95 default"
        raise InvalidSpace(f'Metric {name} must be a share of the default, as in "{example}", got {show(text)}')
    return factor


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to run next, and the id to answer with."""

    id: str
    params: Params
    stop: float | None = None  # value of the metric from which on the run should be ended; None: let it run


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a suggestion was made, and what its answer led to.

    `str()` of it is three sentences: what, why, how sure. `details` has the rest.
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
    path: Path = "pending"  # by which it was learned; only preset "paper" has a slow one; restated: a unit changed
    reason: str = ""  # why this path
    error: float | None = None  # what came back: in [0, 1] under "paper", the target under "default"; 1 if it failed
    expert: str = ""  # the hypothesis that counted most, in words
    failure: str | None = None  # the reason told with tell_failed
    better: float | None = None  # probability that it beats the default here; None for the default itself
    scale: str = "linear"  # on which a single metric was compared: "linear" or "log"
    ran: Params | None = None  # what ran, if it was told and is not what was suggested; the sample is of these
    level: float | None = None  # what the default was expected to come to, in units of `predicted`
    in_context: bool = True  # whether the context had a part in it
    stop: float | None = None  # value of the metric from which on the run should be ended
    propensity: float | None = None  # with which the holdout's draw chose what ran; None where nothing was drawn
    instead: float | None = None  # expected of the suggestion in whose place the default was drawn, if it was
    params: Params | None = None  # this and all below is added by `Tuner.explain`, which knows names
    default: Params | None = None
    metric: str | None = None  # in whose units predicted, level and error are; None: a sum of several, or an error
    direction: Direction = "min"  # of that metric: if more of it is better, those numbers have the other sign
    runs: float | None = None  # earlier runs in a situation like this one; known while the suggestion waits
    ago: float | None = None  # how many runs ago the latest of them was
    limits: tuple[str, ...] = ()  # how far it keeps each metric from its limit, in words; while it waits
    seen: Return | None = None  # earlier visits to this situation; None of a first one, and where steps are not kept
    context: dict[str, Any] | list[Any] | None = None  # that was asked for; None where it is not on record
    knobs: dict[str, float] = field(default_factory=dict)  # share of each in the expected gain; while it waits

    def explanation(self) -> "Explanation":
        """Itself: the reasons of a suggestion come to this when somebody asks."""
        return self

    def outlook(self) -> "Outlook | None":
        """What was expected, if anything was of both the suggestion and the default."""
        if self.predicted is None or self.deviation is None or self.level is None:
            return None
        return Outlook(self.predicted, self.deviation, self.level, self.better)

    def answered(
        self, error: float, path: Path, reason: str, ran: Params | None = None, failure: str | None = None
    ) -> "Explanation":
        """The same, with what came of it; as `dataclasses.replace`, at a fifth of its time."""
        return Explanation(
            self.source,
            self.slots,
            self.weights,
            self.gate,
            self.predicted,
            self.deviation,
            self.novelty,
            self.confidence,
            self.entropy,
            path,
            reason,
            error,
            self.expert,
            failure,
            self.better,
            self.scale,
            ran,
            self.level,
            self.in_context,
            self.stop,
            self.propensity,
            self.instead,
            self.params,
            self.default,
            self.metric,
            self.direction,
            self.runs,
            self.ago,
            self.limits,
            self.seen,
            self.context,
            self.knobs,
        )

    @property
    def details(self) -> tuple[str, ...]:
        """What `str()` leaves out, a sentence each: limits, stops, knobs, earlier visits, how it was learned."""
        return tuple(map(printable, explanation_words.details(self)))

    def __str__(self) -> str:
        return printable(" ".join(explanation_words.sentences(self)))

    def _repr_html_(self) -> str:
        """The same words, for notebooks."""
        return f"<p>{escape(str(self))}</p>"


class Outlook(NamedTuple):
    """What was expected of a suggestion before it ran, in units of the loss that is minimised."""

    predicted: float
    deviation: float  # of what will come
    level: float  # of the default
    better: float | None  # probability of being better than the default


class Why(Protocol):
    """What an explanation is made of when somebody asks for one; an `Explanation` is one itself."""

    @property
    def stop(self) -> float | None:
        """The value of the metric from which on the run should be ended."""

    def outlook(self) -> Outlook | None:
        """The forecast, faster than by `explanation`; None where there is none."""

    def explanation(self) -> Explanation: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """What own suggestions have cost and gained against the default, in steps of the default's loss.

    A run 30% worse than the default would have been spends 0.3; one that is 30% better earns 0.3.
    """

    share: float  # of the default's loss that may be spent at every step
    steps: int  # suggestions answered so far
    spent: float
    earned: float
    left: float  # what may still be spent
    allowed: float | None = None  # in all so far: the start-up allowance, and the share of every step
    measured: float | None = None  # the bill as runs of the default show it; None with several metrics
    error: float | None = None  # of that: one deviation

    @property
    def contract(self) -> str:
        """What the rule aims to keep at every step, where runs are ended at their stops; no proof (docs/STOPS.md)."""
        return (
            f"Own runs cost at most {self.share:.1%} more than the default would have, plus a start-up allowance, one"
            " stake, and the error to which the default's own cost was measured."
        )

    def __str__(self) -> str:
        text = (
            f"Exploring may cost {self.share:.1%} more than the default; in {self.steps:,} steps, counted in runs of"
            f" the default, it lost {self.spent:.3g} and surely won {self.earned:.3g}, and may still lose"
            f" {max(self.left, 0.0):.3g}."
        )
        if self.allowed is None or self.measured is None or self.error is None:
            return text
        bill = f"{self.measured:.2f} +- {self.error:.2f}, of {self.allowed:.2f} allowed"
        return f"{text} Measured against runs of the default: {bill}."


@dataclass(frozen=True, slots=True)
class Slots:
    """Situations in memory."""

    contexts: Array  # [N, d_c]
    visits: Array  # [N] samples in each, as far as memory counts them
    last: Array  # [N] how many samples ago each was met; NaN where memory does not say
