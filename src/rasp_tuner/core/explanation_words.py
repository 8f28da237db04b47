"""An explanation in words: three sentences, what, why and how sure; the rest as details."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rasp_tuner.space import Value

if TYPE_CHECKING:
    from rasp_tuner.types import Explanation

NEW = 0.7  # novelty above which a situation is called new, and the likeness above which it is known
SHOWN_CHANGES = 8  # knobs named
SHOWN_VALUES = 4  # of a context
NO_EFFECT = 0.02  # of the gain: less is said to be none
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
    "first probe": "it shows what one knob does",
    "several knobs moved": "it shows what several knobs do together",
    "a move nearby": "it may be better than the best known",
    "probe near it": "it may be better than the best known",
    "best known that keeps the limits": "it is the best known that keeps the limits",
    "a random point: all so far failed": "all runs so far failed, so it is drawn at random",
    "the current point: nothing is known yet": "nothing is known yet",
}


def sentences(why: "Explanation") -> list[str]:
    """What runs, why, and how sure that is; what came of it, once it was answered."""
    return [_what(why), _why(why), _how_sure(why)]


def details(why: "Explanation") -> list[str]:
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


def _what(why: "Explanation") -> str:
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
    more = len(changes) - SHOWN_CHANGES
    told = ", ".join(changes[:SHOWN_CHANGES]) + (f" and {more} more" if more > 0 else "")
    return f"Runs {told}{'; the rest as in the default' if len(changes) < len(names) else ''}."


def _why(why: "Explanation") -> str:
    if why.source == "default" and not why.slots:
        return "Chosen because nothing is known yet."
    return f"Chosen because {_reason(why.source)}{_forecast(why)}."


def _reason(source: str) -> str:
    """The reason behind a kind of candidate, with what was added to it in brackets or after a comma."""
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


def _forecast(why: "Explanation") -> str:
    if why.predicted is None or why.deviation is None:
        return ""
    told = f": {why.metric or 'the objective'} is expected to be {_own(why, why.predicted)} +- {why.deviation:.2g}"
    if why.level is None or why.better is None:
        return told
    if why.metric is not None and why.predicted * why.level > 0.0:  # of others a share says nothing
        share = why.predicted / why.level - 1.0
        return f"{told}, {abs(share):.0%} {'less' if share < 0.0 else 'more'} than the default's {_own(why, why.level)}"
    return f"{told}, where the default would give {_own(why, why.level)}"


def _how_sure(why: "Explanation") -> str:
    told = [] if why.better is None else [f"better than the default with a probability of {chance(why.better)}"]
    if why.runs:
        where = f" with {where}" if (where := context_values(why.context)) else ""
        told.append(f"known from {_runs(why.runs)} before{where}")
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


def _stop(why: "Explanation") -> str:
    if why.stop is None or why.path != "pending":
        return ""
    return f"The run should be ended if {why.metric or 'its metric'} reaches {why.stop:.4g}."


def _knobs(why: "Explanation") -> str:
    """Which knobs the expected gain comes from."""
    if len(why.knobs) < 2:
        return ""
    moved = [f"{name} {share:.0%}" for name, share in why.knobs.items() if abs(share) >= NO_EFFECT]
    idle = [name for name, share in why.knobs.items() if abs(share) < NO_EFFECT]
    parts = [*([f"from {', '.join(moved)}"] if moved else []), *([f"none from {', '.join(idle)}"] if idle else [])]
    return f"What it is expected to gain comes {'; '.join(parts)}."


def _situation(why: "Explanation") -> str:
    if not why.slots or not why.in_context:
        return ""
    known = "new" if why.novelty > NEW else "known" if why.novelty < 1.0 - NEW else "partly known"
    told = f"The situation{_where(why.context)} {'is' if why.path == 'pending' else 'was'} {known}"
    ago = "" if why.ago is None or not why.runs else f"; the latest run like it was {_runs(why.ago)} ago"
    return f"{told}{ago}."


def _where(context: Any) -> str:
    values = context_values(context)
    return f" ({values})" if values else ""


def _learned(why: "Explanation") -> str:
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


def _own(why: "Explanation", error: float | None) -> str:
    """An error as the user's metric has it."""
    return "unknown" if error is None else f"{error if why.direction == 'min' else -error:.4g}"


def _setting(item: tuple[str, Value]) -> str:
    return f"{item[0]}={_value(item[1])}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _runs(count: float) -> str:
    return "1 run" if round(count) == 1 else f"{count:.0f} runs"
