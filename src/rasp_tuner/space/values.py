"""Values of knobs, and the conditions under which a knob exists."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from rasp_tuner.base.checks import BLANKS, show
from rasp_tuner.errors import InvalidSpace, InvalidValue

Value: TypeAlias = str | int | float | bool | None
Params: TypeAlias = dict[str, Value]
When: TypeAlias = Mapping[str, Any]  # names of other knobs -> a value, or a list of values


def plain_value(field: str, given: object) -> Value:
    """`given` as a value that JSON knows; an InvalidSpace about `field` for anything else."""
    value = given.item() if isinstance(given, np.generic) else given
    if value is None or type(value) in (str, bool):  # not an Enum that is also a string: it would not survive a save
        return cast(Value, value)
    if type(value) in (int, float) and abs(cast(float, value)) <= sys.float_info.max:
        return cast(Value, value)
    raise InvalidSpace(f"{field} must be strings, finite numbers, booleans or None, got {show(given)}")


def checked_when(kind: str, when: object) -> dict[str, tuple[Value, ...]] | None:
    """A condition with a tuple of values for each name; None for a knob that always exists."""
    if when is None:
        return None
    if not isinstance(when, Mapping) or not when:
        raise InvalidSpace(f"{kind} when must map names of knobs to a value or a list of values, got {show(when)}")
    checked = {}
    for name, given in when.items():
        several = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
        values = tuple(plain_value(f"{kind} when[{name!r}]", value) for value in (given if several else [given]))
        if not isinstance(name, str) or not values:
            raise InvalidSpace(
                f"{kind} when[{show(name)}] needs a knob's name and at least one value, got {show(given)}"
            )
        checked[name] = values
    return checked


def number_from(text: str, whole: bool = False) -> Value:
    """The number that a person or a file wrote, None for a blank; an InvalidValue for anything else."""
    if text.strip().lower() in BLANKS:
        return None
    try:
        value = float(text)
    except ValueError:
        raise InvalidValue(f"value must be a number, got {show(text)}") from None
    return int(value) if whole and value.is_integer() else value
