"""Knobs as words: `threads=int:1..32:log`, `ratio=float:0..1`, `codec=cat:lz4,zstd`. One row of KINDS for each kind.

Also `effort=ordered:low,mid,high`, `fsync=bool`, `page=pow2:512..65536`, and "auto" or none beside a number, as in
`threads=auto:int:1..32:log` and `limit=optional:float:0.1..10`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space import (
    Auto,
    Bool,
    Categorical,
    Float,
    Int,
    Knob,
    Optional,
    PowerOfTwo,
    Value,
    knob_from_json,
)

EXAMPLES = "threads=int:1..32:log, ratio=float:0..1:step=0.1 or codec=cat:lz4,zstd"

_RANGE = re.compile(r"(?P<low>[^.:][^:]*?)\.\.(?P<high>[^:]+)")
_NAME = re.compile(r"[A-Za-z_]\w*")


def knob_of(name: str, spec: object) -> Knob:
    """A knob from words such as `int:1..32:log`, or from a table such as {type = "int", low = 1, high = 32}.

    >>> knob_of("threads", "int:1..32:log")
    Int(low=1, high=32, log=True, step=1, when=None)
    >>> knob_of("codec", "cat:lz4,zstd")
    Categorical(choices=('lz4', 'zstd'), ordered=False, when=None)
    """
    if not _NAME.fullmatch(name):
        raise InvalidSpace(f"a knob's name must be a word, for it is a {{placeholder}}, got {show(name)}")
    if isinstance(spec, Knob | Mapping):
        return knob_from_json(f"knob {name!r}", spec) if isinstance(spec, Mapping) else spec
    if not isinstance(spec, str):
        raise InvalidSpace(f"knob {name!r} must look like {EXAMPLES}, got {show(spec)}")
    kind, _, rest = spec.partition(":")
    if kind not in KINDS:
        raise InvalidSpace(f"knob {name!r} must be of a kind among {', '.join(KINDS)}, as in {EXAMPLES}, got {kind!r}")
    try:
        return KINDS[kind](rest)
    except (InvalidSpace, ValueError, TypeError) as reason:
        raise InvalidSpace(f"knob {name!r}, given as {spec!r}: {reason}") from reason


def parse_value(name: str, knob: Knob, text: str) -> Value:
    """A value of a knob, written as a word.

    >>> parse_value("threads", Int(1, 8), "4")
    4
    """
    try:
        return knob.check(knob.from_text(text))
    except InvalidValue as reason:
        raise InvalidValue(f"{text!r} is no value of knob {name!r}: {reason}") from None


def _numeric(make: Callable[..., Knob], read: Callable[[str], Any]) -> Callable[[str], Knob]:
    """Reads `1..32`, and after it `log`, `step=2` and `digits=4`."""

    def parse(rest: str) -> Knob:
        span, *options = rest.split(":")
        match = _RANGE.fullmatch(span)
        if match is None:
            raise ValueError(f"the range must look like 1..32, got {span!r}")
        fields: dict[str, Any] = {"low": _read(read, match["low"]), "high": _read(read, match["high"])}
        for option in options:
            field, equals, value = option.partition("=")
            fields[field] = _read(int if field == "digits" else read, value) if equals else True
        return make(**fields)

    return parse


def _read(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as reason:
        kind = "whole number" if read is int else "number"
        raise ValueError(f"{text!r} must be a {kind} without a unit") from reason


def _choices(ordered: bool) -> Callable[[str], Knob]:
    return lambda rest: Categorical([choice.strip() for choice in rest.split(",")], ordered)


def _bool(rest: str) -> Knob:
    if rest:
        raise ValueError(f"bool takes nothing more, got {rest!r}")
    return Bool()


def _beside_a_number(make: Callable[[Any], Knob]) -> Callable[[str], Knob]:
    """Reads a number after it, as in `auto:int:1..32`."""

    def parse(rest: str) -> Knob:
        kind, _, more = rest.partition(":")
        return make(KINDS[kind](more) if kind in KINDS else rest)

    return parse


KINDS: dict[str, Callable[[str], Knob]] = {
    "int": _numeric(Int, int),
    "float": _numeric(Float, float),
    "cat": _choices(ordered=False),
    "pow2": _numeric(PowerOfTwo, int),
    "ordered": _choices(ordered=True),
    "bool": _bool,
    "auto": _beside_a_number(Auto),
    "optional": _beside_a_number(Optional),
}
