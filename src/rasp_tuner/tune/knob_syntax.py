"""Knobs as words: `threads=int:1..32:log`, `ratio=float:0..1`, `codec=cat:lz4,zstd`. One row of KINDS for each kind."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from rasp_tuner.core.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space import Categorical, Float, Int, Knob, Space, Value

EXAMPLES = "threads=int:1..32:log, ratio=float:0..1:step=0.1 or codec=cat:lz4,zstd"

_RANGE = re.compile(r"(?P<low>[^.:][^:]*?)\.\.(?P<high>[^:]+)")
_NAME = re.compile(r"[A-Za-z_]\w*")


def knob_of(name: str, spec: object) -> Knob:
    """A knob from words such as `int:1..32:log`, or from a table such as {type = "int", low = 1, high = 32}.

    >>> knob_of("threads", "int:1..32:log")
    Int(low=1, high=32, log=True, step=1)
    >>> knob_of("codec", "cat:lz4,zstd")
    Categorical(choices=('lz4', 'zstd'))
    """
    if not _NAME.fullmatch(name):
        raise InvalidSpace(f"a knob's name must be a word, for it is a {{placeholder}}, got {show(name)}")
    if isinstance(spec, Knob):
        return spec
    if isinstance(spec, Mapping):
        return Space.from_json({name: spec}).knobs[name]
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
    readers: tuple[Callable[[str], Value], ...] = (_choice(knob), int, float, str)
    for read in readers:
        try:
            value = read(text)
            knob.to_unit(value)
        except (ValueError, InvalidValue):
            continue
        return value
    raise InvalidValue(f"{text!r} is no value of knob {name!r}, {knob}")


def _choice(knob: Knob) -> Callable[[str], Value]:
    """Reads the choice that is written this way: "4" may be the number 4."""
    choices: tuple[Value, ...] = getattr(knob, "choices", ())
    written = {str(choice): choice for choice in choices}

    def read(text: str) -> Value:
        if text not in written:
            raise ValueError(text)
        return written[text]

    return read


def _numeric(make: Callable[..., Knob], read: Callable[[str], Any]) -> Callable[[str], Knob]:
    """Reads `1..32`, and after it `log` and `step=2`."""

    def parse(rest: str) -> Knob:
        span, *options = rest.split(":")
        match = _RANGE.fullmatch(span)
        if match is None:
            raise ValueError(f"the range must look like 1..32, got {span!r}")
        fields: dict[str, Any] = {"low": read(match["low"]), "high": read(match["high"])}
        for option in options:
            field, equals, value = option.partition("=")
            fields[field] = read(value) if equals else True
        return make(**fields)

    return parse


def _categorical(rest: str) -> Knob:
    return Categorical([choice.strip() for choice in rest.split(",")])


KINDS: dict[str, Callable[[str], Knob]] = {
    "int": _numeric(Int, int),
    "float": _numeric(Float, float),
    "cat": _categorical,
}
