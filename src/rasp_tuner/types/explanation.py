"""Explanation: why a suggestion was made, in numbers and in words; Outlook: what was expected of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, NamedTuple, Protocol

from rasp_tuner.base.checks import printable
from rasp_tuner.history.revisits import Revisit
from rasp_tuner.page.words import TIMES_FROM, counted, listed, times_words
from rasp_tuner.space import Params, Value
from rasp_tuner.types.knob_shares import KnobShares
from rasp_tuner.types.metric import Direction

Path = Literal["pending", "fast", "slow", "restated"]
NEW = 0.7  # novelty above which a situation is called new, and the likeness above which it is known
SHOWN_CHANGES = 8  # knobs named
SHOWN_VALUES = 4  # of a context
REASONS = {  # by what an engine calls the kind of candidate that won
    "best known": "it is the best known here",
    "predicted optimum": "it is expected to be the best here",
    "best tried": "it is the best of what has run here",
    "default": "nothing better than the default is known here",
    "default, which did not run here yet": "the default has not run in a situation like this yet",
    "default (holdout)": "a draw put the default in the place of a suggestion, so that the gain can be measured",
    "default (frozen)": "the tuner is frozen at its default",
    "recommendation (frozen)": "the tuner is frozen: the best known runs, and nothing is tried",
    "default (the latest runs were stopped)": "the latest runs had to be stopped",
    "one knob moved": "it shows what one knob does",
    "a value that did not run here yet": "a knob has a value that did not run here yet",
    "one of few settings, which did not run here yet": "it did not run here yet, and there are few settings",
    "far better than was expected": "it came out far better than was expected, and another run shows whether it is",
    "far better elsewhere than was expected": "it came out far better elsewhere than was expected",
    "something new": "it did not run yet, and may be the best",
    "once more, to be sure": "it ran well, and another run makes that sure",
    "several knobs moved": "it shows what several knobs do together",
    "a move nearby": "it may be better than the best known",
    "best known that keeps the limits": "it is the best known that keeps the limits",
    "a random point: all so far failed": "all runs so far failed, so it is drawn at random",
    "the current point: nothing is known yet": "nothing is known yet",
}
PLAIN_SOURCES = {
    "first probe": "one knob moved",
    "probe near it": "a move nearby",
}  # engine: table


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
    stop: float | None = None  # value of the metric from which on the run should be ended
    propensity: float | None = None  # with which the holdout's draw chose what ran; None where nothing was drawn
    instead: float | None = None  # expected of the suggestion in whose place the default was drawn, if it was
    stake: float = 0.0  # what it may cost more than the default, as a share of its loss; where there is a budget
    params: Params | None = None  # this and all below is added by `Tuner.explain`, which knows names
    default: Params | None = None
    metric: str | None = None  # in whose units predicted, level and error are; None: a sum of several, or an error
    direction: Direction = "min"  # of that metric: if more of it is better, those numbers have the other sign
    runs: float | None = None  # earlier runs in a situation like this one; known while the suggestion waits
    ago: float | None = None  # how many runs ago the latest of them was
    limits: tuple[str, ...] = ()  # how far it keeps each metric from its limit, in words; while it waits
    seen: Revisit | None = None  # earlier visits to this situation; None of a first one, and where steps are not kept
    context: dict[str, Any] | list[Any] | None = None  # that was asked for; None where it is not on record
    knobs: KnobShares = field(default_factory=KnobShares)  # which knobs the expected gain comes from; while it waits
    in_context: bool = True  # whether there is a context

    def explanation(self) -> "Explanation":
        """Itself: the reasons of a suggestion come to this when somebody asks."""
        return self

    def outlook(self) -> "Outlook | None":
        """What was expected, if anything was of both the suggestion and the default."""
        if self.predicted is None or self.deviation is None or self.level is None:
            return None
        return Outlook(self.predicted, self.deviation, self.level, self.better)

    @property
    def details(self) -> tuple[str, ...]:
        """What `str()` leaves out, a sentence each: limits, stops, knobs, earlier visits, how it was learned."""
        return tuple(map(printable, _details(self)))

    def __str__(self) -> str:
        return printable(" ".join(_sentences(self)))

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

    @property
    def stake(self) -> float:
        """What it may cost more than the default, as a share of the default's loss; where there is a budget."""

    def outlook(self) -> Outlook | None:
        """The forecast, faster than by `explanation`; None where there is none."""

    def explanation(self) -> Explanation: ...


def _sentences(why: Explanation) -> list[str]:
    """What runs, why, and how sure that is; what came of it, once it was answered."""
    return [_what(why), _why(why), _how_sure(why)]


def _details(why: Explanation) -> list[str]:
    """Everything else that is known, a sentence each."""
    found = [
        *(f"Limit of {limit}." for limit in why.limits),
        _stop(why),
        _knobs(why),
        _situation(why),
        "" if why.seen is None else str(why.seen),
        f"The forecast rests mostly on {why.expert}." if why.predicted is not None and len(why.gate) > 1 else "",
        "The metric is compared by factors, not by differences." if why.scale == "log" else "",
        _learned(why),
    ]
    return [one for one in found if one]


def _what(why: Explanation) -> str:
    """Which knobs differ from the default, and what they are there."""
    own, default = why.params, why.default
    if own is None or default is None:
        return "Runs settings that are no longer on record."
    names = [*own, *(name for name in default if name not in own)]
    changes = [
        f"without {name}"
        if name not in own
        else f"{_setting((name, own[name]))} instead of {_value(default[name]) if name in default else 'none'}"
        for name in names
        if name not in own or name not in default or own[name] != default[name]
    ]
    if not changes:
        return "Runs the default."
    return (
        f"Runs {listed(changes, SHOWN_CHANGES)}{'; the rest as in the default' if len(changes) < len(names) else ''}."
    )


def _why(why: Explanation) -> str:
    if why.source == "default" and not why.slots:
        return "Chosen because nothing is known yet."
    alone = why.source == "several knobs moved" and len(why.params or {}) == 1
    reason = "it shows what is far from all that ran" if alone else _reason(why.source)
    return f"Chosen because {reason}{_forecast(why)}."


def chosen_by(source: str) -> str:
    """A kind of candidate as tables name it.

    >>> chosen_by("probe near it"), chosen_by("best known")
    ('a move nearby', 'best known')
    """
    for own, plain in PLAIN_SOURCES.items():
        source = source.replace(own, plain)
    return source


def _reason(source: str) -> str:
    """The reason behind a kind of candidate, with what was added to it in brackets or after a comma."""
    source = chosen_by(source)
    if source in REASONS:
        return REASONS[source]
    if source.startswith("stay: "):
        return source.removeprefix("stay: ")
    if source.startswith("on the way to the ") and source.endswith(", as far as is safe"):
        return "it is as far towards what may be best as is safe"
    for sign, close in ((" (", ")"), (", to keep the limit of ", "")):
        head, found, more = source.partition(sign)
        if found and head in REASONS:
            return f"{REASONS[head]} ({more.removesuffix(close)})" if close else f"{REASONS[head]}{found}{more}"
    return f"of its kind: {source}"


def _forecast(why: Explanation) -> str:
    if why.predicted is None or why.deviation is None:
        return ""
    told = f": {why.metric or 'the objective'} is expected to be {_own(why, why.predicted)} +- {why.deviation:.2g}"
    if why.level is None or why.better is None:
        return told
    if why.metric is not None and why.predicted * why.level > 0.0:  # of others a share says nothing
        share = why.predicted / why.level - 1.0
        if share + 1.0 >= TIMES_FROM:
            return f"{told}, {times_words(share + 1.0)} the default's {_own(why, why.level)}"
        return f"{told}, {abs(share):.0%} {'less' if share < 0.0 else 'more'} than the default's {_own(why, why.level)}"
    return f"{told}, where the default would give {_own(why, why.level)}"


def _how_sure(why: Explanation) -> str:
    told = [] if why.better is None else [f"better than the default with a probability of {chance(why.better)}"]
    if why.runs:
        where = f" with {where}" if (where := context_values(why.context)) else ""
        told.append(f"known from {counted(why.runs, 'run')} before{where}")
    elif why.slots and why.in_context and why.novelty > NEW:
        told.append("the situation is new")
    if why.failure is not None:
        told.append(f"it failed: {' '.join(why.failure.split()) or 'no reason given'}")
    elif why.path != "pending":
        ran = "" if why.ran is None else f" with other settings: {', '.join(map(_setting, why.ran.items()))}"
        told.append(f"it came to {why.metric or 'an objective of'} {_own(why, why.error)}{ran}")
    if not told:
        return "How good it is will be known once it has run."
    words = "; ".join(told)
    return f"{words[0].upper()}{words[1:]}."


def _stop(why: Explanation) -> str:
    if why.stop is None or why.path != "pending":
        return ""
    return f"The run should be ended if {why.metric or 'its metric'} reaches {why.stop:.4g}."


def _knobs(why: Explanation) -> str:
    """Which knobs the expected gain comes from."""
    if len(why.knobs.shares) + len(why.knobs.not_shown) < 2:
        return ""
    return f"What it is expected to gain comes {why.knobs}." if why.knobs.shares else f"Of its knobs {why.knobs}."


def _situation(why: Explanation) -> str:
    if not why.slots or not why.in_context:
        return ""
    known = "new" if why.novelty > NEW else "known" if why.novelty < 1.0 - NEW else "partly known"
    told = f"The situation{_where(why.context)} {'is' if why.path == 'pending' else 'was'} {known}"
    ago = "" if why.ago is None or not why.runs else f"; the latest run like it was {counted(why.ago, 'run')} ago"
    return f"{told}{ago}."


def _where(context: Any) -> str:
    values = context_values(context)
    return f" ({values})" if values else ""


def _learned(why: Explanation) -> str:
    if why.path == "restated":
        return f"The metric has changed: {why.reason}."
    return f"It was learned by the {why.path} path: {why.reason}." if why.reason and why.path != "pending" else ""


def context_values(context: Any) -> str:
    """A context on one line: "qps=900, codec=zstd"; empty where there is none.

    >>> context_values({"qps": 900.0, "codec": "zstd"}), context_values([1.5, 2]), context_values(None)
    ('qps=900, codec=zstd', '1.5, 2', '')
    """
    if isinstance(context, Mapping):
        shown = [f"{name}={_value(value)}" for name, value in list(context.items())[:SHOWN_VALUES]]
    else:
        shown = [_value(value) for value in list(context or ())[:SHOWN_VALUES]]
    return ", ".join(shown) + (", ..." if len(context or ()) > SHOWN_VALUES else "")


def chance(probability: float) -> str:
    """In percent, and never all or nothing.

    >>> [chance(p) for p in (0.0001, 0.93, 0.9999)]
    ['under 1%', '93%', 'over 99%']
    """
    return "under 1%" if probability < 0.005 else "over 99%" if probability > 0.995 else f"{probability:.0%}"


def _own(why: Explanation, error: float | None) -> str:
    """An error as the user's metric has it."""
    return "unknown" if error is None else f"{error if why.direction == 'min' else -error:.4g}"


def _setting(item: tuple[str, Value]) -> str:
    return f"{item[0]}={_value(item[1])}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
