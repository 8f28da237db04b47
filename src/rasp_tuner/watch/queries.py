"""Metrics and contexts as queries: what a study file says about each, checked. docs/WATCH.md has the fields."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rasp_tuner.base.checks import number, show
from rasp_tuner.contexts import ContextKind, TimeOfDay, Weekday
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.study_file.fields import CONTEXT_WORDS, check_fields, context_kind
from rasp_tuner.study_file.template import fill, placeholders
from rasp_tuner.types import Metric

WINDOW_SELECTOR = "[{window}]"
Missing: TypeAlias = float | Literal["skip", "wait", "ignore"]  # what to do without a value
TIME_KINDS: dict[str, type[TimeOfDay] | type[Weekday]] = {"time:hour": TimeOfDay, "time:weekday": Weekday}

METRIC_FIELDS = (
    *("goal", "max", "min", "at_most", "at_least", "weight", "scale"),
    *("samples", "min_samples", "newest", "missing", "canary", "control"),
)

_LABELS = r'\{(?:"(?:\\.|[^"\\])*"|[^"{}])*\}'
_SELECTOR = rf"(?:[A-Za-z_:][\w:]*(?:{_LABELS})?|{_LABELS})"
_ALONE = re.compile(rf"\s*({_SELECTOR})\s*")
_RANGED = re.compile(rf"({_SELECTOR})\s*\[\{{window\}}\]")
_RANGE = re.compile(r"\[((?:\d+(?:ms|[smhdwy]))+)[\]:]")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}


@dataclass(frozen=True)
class MetricQuery:
    """A metric, and where it comes from."""

    metric: Metric
    query: str
    canary: str | None = None  # of the instances that get the parameters, and
    control: str | None = None  # of those that keep the default: in mode canary
    samples: str | None = None  # gives how many samples there are in the window; None: the scrapes are counted
    min_samples: float = 1.0
    newest: str | None = None  # gives the time of the newest sample; None: found from the query, where that can be
    missing: Missing = "skip"


@dataclass(frozen=True)
class ContextQuery:
    """A context, and where it comes from."""

    kind: ContextKind
    query: str  # or one of TIME_KINDS
    label: str | None = None  # whose text is the value
    newest: str | None = None
    missing: Missing = "skip"


@dataclass(frozen=True)
class RunningQuery:
    """Where the value of a knob that runs comes from."""

    query: str
    label: str | None = None  # whose text is the value


def running_query(name: str, spec: object) -> RunningQuery:
    """From a query, or from a table {query, label} for a value that is a text."""
    where = f"running.{name}"
    query, fields = _fields(where, spec, ("label",))
    label = fields.get("label")
    if not isinstance(label, str | None):
        raise InvalidSpace(f"{where} takes a query and the name of a label, got {show(spec)}")
    return RunningQuery(query, label)


def metric_query(name: str, spec: object, min_samples: object, missing: Missing) -> MetricQuery:
    """A metric from a table {query, goal, ...} with fields of Metric; or from its query alone, to be minimised.

    >>> metric_query("p99", {"query": "p99_ms", "max": 200}, None, "skip").metric.limit
    Limit(value=200.0, relative=False)
    """
    where = f"metrics.{name}"
    query, fields = _fields(where, spec, METRIC_FIELDS)
    other = {key: fields.pop(key, None) for key in ("canary", "control", "samples", "newest")}
    texts = {key: None if text is None else check_query(f"{where}.{key}", text) for key, text in other.items()}
    if (texts["canary"] is None) != (texts["control"] is None):
        raise InvalidSpace(f"{where} must have both canary and control, or neither")
    given = fields.pop("min_samples", min_samples)
    if given is not None and (texts["samples"] or count_query(query)) is None:
        raise InvalidSpace(
            f"{where}.min_samples: how many samples the query saw cannot be told from it. Use a range such as"
            f" x{WINDOW_SELECTOR} in it, or add samples = 'sum(increase(requests_total{WINDOW_SELECTOR}))'"
        )
    least = 1.0 if given is None else number(f"{where}.min_samples", given, InvalidSpace)
    if least < 0.0:
        raise InvalidSpace(f"{where}.min_samples must not be below zero, got {show(given)}")
    own = check_missing(where, fields.pop("missing", missing), ("skip", "wait"))
    try:
        metric = Metric(fields.pop("goal", "min"), **fields)
    except InvalidSpace as reason:
        raise InvalidSpace(f"{where}: {reason}") from reason
    other_parts = texts["canary"], texts["control"], texts["samples"]
    return MetricQuery(metric, query, *other_parts, least, texts["newest"], own)


def context_query(name: str, spec: object, missing: Missing) -> ContextQuery:
    """A context from its query, from `time:hour` or `time:weekday`, or from a table {query, kind, label, ...}.

    >>> context_query("hour", "time:hour", "skip").kind
    TimeOfDay()
    """
    where = f"contexts.{name}"
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InvalidSpace(f"a context's name must be a word, got {show(name)}")
    if isinstance(spec, str) and spec in TIME_KINDS:
        return ContextQuery(TIME_KINDS[spec](), spec)
    query, fields = _fields(where, spec, ("kind", "label", "newest", "missing"))
    label, newest = fields.pop("label", None), fields.pop("newest", None)
    word = fields.pop("kind", "number" if label is None else "category")
    if label is not None and not isinstance(label, str):
        raise InvalidSpace(f"{where}.label must be the name of a label, got {show(label)}")
    if word not in CONTEXT_WORDS or (label is not None and word not in ("category", "name")):
        allowed = ("category", "name") if label is not None else CONTEXT_WORDS
        raise InvalidSpace(f"{where}.kind must be one of {', '.join(allowed)}, got {show(word)}")
    own = check_missing(where, fields.pop("missing", missing), ("skip", "wait", "ignore"))
    if own == "ignore" and word in ("number", "log"):
        raise InvalidSpace(f"{where}.missing of a number must be skip, wait, or a usual value to stand for it")
    checked = check_query(f"{where}.newest", newest) if newest is not None else None
    kind = context_kind(word, own if isinstance(own, float) else None)
    return ContextQuery(kind, query, label, checked, own)


def filled(query: str, window_s: float) -> str:
    """A query with the window's length in it.

    >>> filled('sum(rate(x{job="a"}[{window}]))', 1.5)
    'sum(rate(x{job="a"}[1500ms]))'
    """
    return fill(query, {"window": f"{max(1, round(window_s * 1000.0))}ms"})


def long_ranges(query: str, most_s: float) -> list[str]:
    """Ranges in a query that look back further than so many seconds.

    >>> long_ranges("rate(x[5m]) + rate(y[{window}]) + rate(z[10s])", 60.0)
    ['[5m]']
    """
    found = {text: sum(int(n) * _UNITS_S[u] for n, u in re.findall(r"(\d+)(ms|\w)", text)) for text in _ranges(query)}
    return [f"[{text}]" for text, seconds in found.items() if seconds > most_s]


def check_missing(where: str, given: object, words: tuple[str, ...]) -> Missing:
    """What to do without a value: one of these words, or a number that takes its place."""
    if isinstance(given, str) and given in words:
        return given  # type: ignore[return-value]
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return number(f"{where}.missing", given, InvalidSpace)
    raise InvalidSpace(f"{where}.missing must be one of {', '.join(words)}, or a number, got {show(given)}")


def check_query(where: str, text: object) -> str:
    """A query that is a text, with no placeholder but {window}."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidSpace(
            f"{where} must be a PromQL query, such as sum(rate(x_total{WINDOW_SELECTOR})), got {show(text)}"
        )
    for name in placeholders(text):
        if name != "window":
            raise InvalidSpace(f"{where} has the placeholder {{{name}}}; a query has only {{window}}")
    return text


def _ranges(query: str) -> list[str]:
    return [match[1] for match in _RANGE.finditer(query)]


def count_query(query: str) -> str | None:
    """A query for the scrapes in the window, of the first series that a query ranges over it.

    >>> count_query('sum(rate(x{job="a"}[{window}]))')
    'max(count_over_time(x{job="a"}[{window}]))'
    """
    found = _RANGED.search(query)
    return None if found is None else f"max(count_over_time({found[1]}{WINDOW_SELECTOR}))"


def newest_query(query: str) -> str | None:
    """A query for the time of the newest sample, of a query that is one series, or of the first ranged one.

    >>> newest_query("queue_length"), newest_query("sum(queue_length)")
    ('max(timestamp(queue_length))', None)
    """
    found = _ALONE.fullmatch(query) or _RANGED.search(query)
    return None if found is None else f"max(timestamp({found[1]}))"


def _fields(where: str, given: object, known: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The query, and the other fields of a table that has one; a query alone is such a table."""
    fields: object = {"query": given} if isinstance(given, str) else given
    if not isinstance(fields, Mapping):
        raise InvalidSpace(f"{where} must be a query or a table with one, got {show(given)}")
    check_fields(where, fields, ("query", *known))
    rest = dict(fields)
    return check_query(f"{where}.query", rest.pop("query", None)), rest
