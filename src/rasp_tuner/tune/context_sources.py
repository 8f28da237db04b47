"""Where contexts come from: `size_kb=stat -c %s {input}`, `hour=time:hour`. One row of KINDS for each kind."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rasp_tuner.base.checks import one_of, show
from rasp_tuner.contexts import Category, ContextKind, Name, Number, TimeOfDay, Weekday
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space import Value
from rasp_tuner.study_file.fields import CONTEXT_WORDS, context_kind
from rasp_tuner.study_file.template import fill
from rasp_tuner.tune.metric_sources import read_elsewhere

EXAMPLES = "size=size:{input}, host=env:HOSTNAME, hour=time:hour or 'load=cut -d\" \" -f1 /proc/loadavg'"
ContextValue: TypeAlias = float | str | None  # None: it could not be read this time

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class ContextReading:
    """What a context can be read from."""

    values: Mapping[str, Value]  # of placeholders
    output_of: Callable[[str], str]  # runs a command


@dataclass(frozen=True, slots=True)
class ContextSource:
    """Where one context value comes from, and what kind of value it is, if somebody said so."""

    kind: str
    detail: str
    declared: str = ""

    def read(self, reading: ContextReading) -> ContextValue:
        return KINDS[self.kind](self.detail, reading)

    def __str__(self) -> str:
        return f"{self.declared}{'=' if self.declared else ''}{self.kind}:{self.detail}"


def split_context(text: str) -> tuple[str, str]:
    """A context's name and what a study file has for it; the name may have a kind, as in `shard:category=...`.

    >>> split_context("shard:category=env:SHARD")
    ('shard', 'category=env:SHARD')
    """
    head, equals, source = text.partition("=")
    name, _, declared = head.partition(":")
    if not equals:
        raise InvalidSpace(f"a context must look like {EXAMPLES}, got {show(text)}")
    return name, f"{declared}={source}" if declared else source


def context_of(name: str, source: object) -> ContextSource:
    """A context from words such as `time:hour` or `category=env:SHARD`; what is none of our kinds is a command.

    >>> context_of("hour", "time:hour")
    ContextSource(kind='time', detail='hour', declared='')
    >>> context_of("size_kb", "stat -c %s {input}")
    ContextSource(kind='command', detail='stat -c %s {input}', declared='')
    """
    if not _NAME.fullmatch(name) or not isinstance(source, str) or not source.strip():
        raise InvalidSpace(f"context {name!r} must look like {EXAMPLES}, got {show(source)}")
    declared, equals, rest = source.partition("=")
    if equals and declared in CONTEXT_WORDS:
        source = rest
    else:
        declared = ""
    kind, colon, detail = source.partition(":")
    if not colon or kind not in KINDS:
        kind, detail = "command", source
    if kind == "time":
        one_of(f"context {name!r}: time", detail, TIME_PARTS, InvalidSpace)
    return ContextSource(kind, detail, declared)


def kind_for(source: ContextSource | None, first: ContextValue) -> ContextKind:
    """What kind of context a source gives, by what was declared, by the source, or by its first value."""
    if source is not None and source.declared:
        return context_kind(source.declared, _usual(first))
    if source is not None and source.kind == "size":
        return Number(log=True)
    if source is not None and source.kind == "time":
        return TimeOfDay() if source.detail == "hour" else Weekday()
    return context_kind("number" if isinstance(first, (int, float)) else "category", _usual(first))


def for_tuner(context: Mapping[str, ContextValue], kinds: Mapping[str, ContextKind]) -> dict[str, ContextValue] | None:
    """A context as the tuner takes it; a text in the place of a number is missing."""
    found = {name: _fitting(value, kinds[name]) for name, value in context.items()}
    return found or None


def _fitting(value: ContextValue, kind: ContextKind) -> ContextValue:
    if value is None:
        return None
    if isinstance(kind, TimeOfDay) and not isinstance(value, str):
        return value * 3600.0
    if isinstance(kind, (Category, Name)):
        return value if isinstance(value, str) else f"{value:g}"
    return None if isinstance(kind, Number) and isinstance(value, str) else value


def _usual(first: ContextValue) -> float:
    """What stands for a missing number: the first one."""
    return first if isinstance(first, (int, float)) else 0.0


def _as_value(text: str) -> ContextValue:
    """A number if it is one, else the text itself, on one line."""
    plain = " ".join(text.split())
    try:
        return float(plain)
    except ValueError:
        return plain


def _from_elsewhere(kind: str) -> Callable[[str, ContextReading], ContextValue]:
    return lambda detail, reading: _as_value(read_elsewhere(kind, detail, reading.values, reading.output_of))


def _from_environment(detail: str, _: ContextReading) -> ContextValue:
    if detail not in os.environ:
        raise InvalidValue(f"the environment variable {detail} is not set")
    return _as_value(os.environ[detail])


TIME_PARTS: dict[str, Callable[[time.struct_time], float]] = {
    "hour": lambda now: now.tm_hour + now.tm_min / 60.0,
    "weekday": lambda now: float(now.tm_wday),  # Monday is 0
}
KINDS: dict[str, Callable[[str, ContextReading], ContextValue]] = {
    **{kind: _from_elsewhere(kind) for kind in ("command", "file", "size")},
    "env": _from_environment,
    "time": lambda detail, _: TIME_PARTS[detail](time.localtime()),
    "text": lambda detail, reading: _as_value(fill(detail, reading.values)),
}
