"""Where contexts come from: `size_kb=stat -c %s {input}`, `hour=time:hour`. One row of KINDS for each kind."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rasp_tuner.core.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space import Value
from rasp_tuner.tune.template import fill

EXAMPLES = "size=size:{input}, host=env:HOSTNAME, hour=time:hour or 'load=cut -d\" \" -f1 /proc/loadavg'"
ContextValue: TypeAlias = float | str

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class ContextReading:
    """What a context can be read from."""

    values: Mapping[str, Value]  # of placeholders
    output_of: Callable[[str], str]  # runs a command


@dataclass(frozen=True, slots=True)
class ContextSource:
    """Where one context value comes from."""

    kind: str
    detail: str

    def read(self, reading: ContextReading) -> ContextValue:
        return KINDS[self.kind](self.detail, reading)

    def __str__(self) -> str:
        return f"{self.kind}:{self.detail}"


def parse_context(text: str) -> tuple[str, ContextSource]:
    """A context and its name; what is none of our kinds is a command.

    >>> parse_context("hour=time:hour")
    ('hour', ContextSource(kind='time', detail='hour'))
    >>> parse_context("size_kb=stat -c %s {input}")
    ('size_kb', ContextSource(kind='command', detail='stat -c %s {input}'))
    """
    name, equals, source = text.partition("=")
    if not equals:
        raise InvalidSpace(f"a context must look like {EXAMPLES}, got {show(text)}")
    return name, context_of(name, source)


def context_of(name: str, source: object) -> ContextSource:
    """A context from words such as `time:hour`, or from a command."""
    if not _NAME.fullmatch(name) or not isinstance(source, str) or not source.strip():
        raise InvalidSpace(f"context {name!r} must look like {EXAMPLES}, got {show(source)}")
    kind, colon, detail = source.partition(":")
    if not colon or kind not in KINDS:
        kind, detail = "command", source
    if kind == "time" and detail not in TIMES:
        raise InvalidSpace(f"context {name!r}: time must be one of {', '.join(TIMES)}, got {show(detail)}")
    return ContextSource(kind, detail)


def _as_value(text: str) -> ContextValue:
    """A number if it is one, else the text itself, on one line."""
    plain = " ".join(text.split())
    try:
        return float(plain)
    except ValueError:
        return plain


def _from_file(detail: str, reading: ContextReading) -> ContextValue:
    return _as_value(_opened(detail, reading).read_text())


def _from_size(detail: str, reading: ContextReading) -> ContextValue:
    return float(_opened(detail, reading).stat().st_size)


def _opened(detail: str, reading: ContextReading) -> Path:
    path = Path(fill(detail, reading.values))
    if not path.is_file():
        raise InvalidValue(f"there is no file {str(path)!r}")
    return path


def _from_environment(detail: str, _: ContextReading) -> ContextValue:
    if detail not in os.environ:
        raise InvalidValue(f"the environment variable {detail} is not set")
    return _as_value(os.environ[detail])


TIMES: dict[str, Callable[[time.struct_time], float]] = {
    "hour": lambda now: now.tm_hour + now.tm_min / 60.0,
    "weekday": lambda now: float(now.tm_wday),  # Monday is 0
}
KINDS: dict[str, Callable[[str, ContextReading], ContextValue]] = {
    "command": lambda detail, reading: _as_value(reading.output_of(detail)),
    "file": _from_file,
    "size": _from_size,
    "env": _from_environment,
    "time": lambda detail, _: TIMES[detail](time.localtime()),
}
