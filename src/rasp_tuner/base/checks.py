"""Checks of what comes in from outside: each names the field, the rule and the value."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue, RaspError

BLANKS = ("", "na", "n/a", "nan", "null", "none")  # what a file writes for a missing value, in any case

STUDY_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}"  # a pattern; other texts would be other paths of a server


def show(value: object) -> str:
    """A short printable form of anything, even of objects whose repr is long or broken."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a caller's broken __repr__ must not hide the message
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def printable(text: str) -> str:
    """The same on one line, without escape sequences: names and reasons come from others."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def number(field: str, value: object, error: type[RaspError] = InvalidValue) -> float:
    """`value` as a finite float; True and False are none."""
    if type(value) is float and math.isfinite(value):
        return value  # the usual case
    if isinstance(value, (bool, np.bool_)):
        raise error(f"{field} must be a finite number, got {show(value)}; if you mean 1 or 0, give that")
    if not isinstance(value, Real):
        raise error(f"{field} must be a finite number, got {show(value)}")
    try:
        result = float(value)
    except (OverflowError, TypeError, ValueError) as reason:
        raise error(f"{field} must be a finite number, got {show(value)}") from reason
    if not math.isfinite(result):
        raise error(f"{field} must be a finite number, got {show(value)}")
    return result


def vector(field: str, values: object, length: int, error: type[RaspError] = InvalidValue) -> Array:
    """`values` as a new float array [length] of finite numbers."""
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise error(f"{field} must be one-dimensional, got an array of shape {values.shape}")
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, (str, bytes)):
        raise error(f"{field} must be a sequence of {length} numbers, got {show(values)}")
    if len(values) != length:
        raise error(f"{field} must hold {length} numbers, got {len(values)}: {show(values)}")
    if (isinstance(values, np.ndarray) and values.dtype == np.float64) or all(type(value) is float for value in values):
        result = np.array(values, dtype=np.float64)
        if np.isfinite(result).all():
            return result  # the usual case, without a look at each
    return np.array([number(f"{field}[{i}]", value, error) for i, value in enumerate(values)], dtype=np.float64)


def same_names(field: str, given: object, expected: Iterable[str]) -> Mapping[str, object]:
    """`given` as a mapping with exactly the `expected` names."""
    if isinstance(given, dict) and isinstance(expected, dict) and given.keys() == expected.keys():
        return given  # the usual case
    wanted = list(expected)
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{field} must be a mapping with the names {show(wanted)}, got {show(given)}")
    missing = [name for name in wanted if name not in given]
    if missing:
        raise InvalidValue(f"{field} lacks {show(missing)}; it needs exactly {show(wanted)}, got {show(list(given))}")
    known = set(wanted)
    extra = [name for name in given if name not in known]
    if extra:
        raise InvalidValue(f"{field} has unknown names {show(extra)}; it takes exactly {show(wanted)}")
    return given


def whole(field: str, value: object, low: int, high: int, error: type[RaspError] = InvalidValue) -> int:
    """`value` as an int in [low, high]; bools and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise error(f"{field} must be a whole number from {low} to {high}, got {show(value)}")
    return int(value)


def flag(field: str, value: object, error: type[RaspError] = InvalidValue) -> bool:
    """`value` as a bool; 0 and 1 are refused."""
    if not isinstance(value, bool):
        raise error(f"{field} must be True or False, got {show(value)}")
    return value


def one_of(field: str, value: object, words: Collection[str], error: type[RaspError] = InvalidValue) -> Any:
    """`value`, if it is one of these words."""
    if value not in tuple(words):
        raise error(f"{field} must be one of {', '.join(words)}, got {show(value)}")
    return value
