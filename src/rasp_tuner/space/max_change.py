"""MaxChange: how far knobs may move in one step, from what ran to what is wanted.

0.1        a tenth of the range, on the knob's scale: of logarithms where it has log=True
"20%"      of the value that ran
"2 steps"  of a knob with steps: whole numbers, powers of two, choices in an order
A knob with steps may always move by one of them, or it could never move. Choices without an order and switches are
free, for a change of them has no size; so is a number that did not exist before, as after the word of an `Auto`.
"""

import math
import re
from collections.abc import Mapping
from typing import TypeAlias, cast

from rasp_tuner.base.checks import number, show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space.auto import Auto
from rasp_tuner.space.choices import Categorical
from rasp_tuner.space.numbers import Float, Int, PowerOfTwo
from rasp_tuner.space.rules import Axis, Knob
from rasp_tuner.space.space import Space
from rasp_tuner.space.values import Params, Value

Limit: TypeAlias = float | str
Given: TypeAlias = Limit | Mapping[str, Limit]

HINT = 'a share of the range as 0.1, "20%" of the value, or "2 steps"'
SHORTER = (0.75, 0.5, 0.25, 0.1)  # of a way that breaks a constraint
ROUNDING = 1e-9


class MaxChange:
    """Limits of some knobs of a space, or of all that have a size."""

    def __init__(self, space: Space, given: Given) -> None:
        """`given`: one limit for all knobs, or limits by name; knobs that it leaves out are free."""
        self._space = space
        named = isinstance(given, Mapping)
        wanted = dict(given) if isinstance(given, Mapping) else dict.fromkeys(space.knobs, given)
        self._limits: dict[str, tuple[str, float]] = {}
        for name, limit in wanted.items():
            if name not in space.knobs:
                raise InvalidSpace(f"max_change names {show(name)}, which is no knob; there are {list(space.knobs)}")
            field = f"max_change[{name!r}]" if named else "max_change"
            parsed = _parsed(field, limit)
            axis = _axis(space.knobs[name])
            if not _has_size(axis):
                if named:
                    raise InvalidSpace(f"{field}: choices without an order have no size to limit; leave it out")
                continue
            _check_fits(field, name, axis, parsed[0])
            self._limits[name] = parsed
        if not self._limits:
            raise InvalidSpace("max_change limits no knob: all are choices without an order, or none is named")
        self.given: Given = wanted if named else given  # as JSON has it

    def towards(self, ran: Array, wanted: Array) -> Array:
        """The point [d] of the legal settings on the way from what ran to what is wanted that are within the limits.

        `wanted` itself if it is; the default if all on the way break a constraint.
        """
        before, after = self._space.from_unit(ran), self._space.from_unit(wanted)
        near = self._clipped(before, after)
        if near == after:
            return wanted
        goal = self._space.to_unit(near)
        for share in (1.0, *SHORTER):
            params, point = self._space.nearest(ran + share * (goal - ran))
            if self._clipped(before, params) == params:
                return point
        return self._space.default

    def _clipped(self, before: Params, after: Params) -> Params:
        """`after`, with every knob as near to what it was as its limit says."""
        return {name: self._near(name, before, value) for name, value in after.items()}

    def _near(self, name: str, before: Params, value: Value) -> Value:
        knob = self._space.knobs[name]
        words = [] if not isinstance(knob, Auto) else [one for one in (before.get(name), value) if knob.is_word(one)]
        if name not in self._limits or name not in before or words:
            return value
        return _within(_axis(knob), *self._limits[name], before[name], value)


def _parsed(field: str, limit: object) -> tuple[str, float]:
    """The kind of a limit, and its size."""
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|steps?)\s*", limit)
        size = 0.0 if found is None else float(found[1])
        kind = "" if found is None else "value" if found[2] == "%" else "steps"
        if size <= 0.0 or (kind == "steps" and not size.is_integer()):
            raise InvalidSpace(f"{field} must be {HINT}, got {show(limit)}")
        return kind, size / 100.0 if kind == "value" else size
    share = number(field, limit, InvalidSpace)
    if not 0.0 < share <= 1.0 or isinstance(limit, bool):
        raise InvalidSpace(f"{field} must be {HINT}, got {show(limit)}")
    return "range", share


def _check_fits(field: str, name: str, axis: Axis, kind: str) -> None:
    if kind == "steps" and axis.levels is None:
        raise InvalidSpace(f"{field}: knob {name!r} has no steps; give a share of its range, as 0.1")
    if kind == "value" and (isinstance(axis, Categorical) or axis.low < 0 or (axis.levels is None and axis.low == 0)):
        raise InvalidSpace(
            f"{field}: a percentage is of values above 0, which those of {name!r} are not all; give a share of its"
            " range, as 0.1, for each knob by name if need be"
        )


def _axis(knob: Knob) -> Axis:
    return knob.knob if isinstance(knob, Auto) else knob


def _has_size(axis: Axis) -> bool:
    return not isinstance(axis, Categorical) or axis.ordered


def _within(axis: Axis, kind: str, size: float, before: Value, wanted: Value) -> Value:
    """The legal value nearest to the wanted one that a knob may have after `before`."""
    if before == wanted:
        return wanted
    if axis.levels is None:
        return _within_range(axis, kind, size, cast(float, before), cast(float, wanted))
    start, way = _index(axis, before), _index(axis, wanted) - _index(axis, before)
    step, low, high = (1 if way > 0 else -1), 1, abs(way)  # at least one step
    while low < high:  # the last one within the limit, by bisection: there may be millions
        middle = (low + high + 1) // 2
        far = middle if kind == "steps" else _moved(axis, kind, before, _value(axis, start + step * middle))
        low, high = (middle, high) if far <= size + ROUNDING else (low, middle - 1)
    return _value(axis, start + step * low)


def _within_range(axis: Float, kind: str, size: float, before: float, wanted: float) -> float:
    """Of a continuum; by its last digit at least."""
    sign, end = (1.0 if wanted > before else -1.0), before
    while end == before:
        if _moved(axis, kind, before, wanted) <= size + ROUNDING:
            return wanted
        by_value = axis.place(min(max(before * (1.0 + sign * size), axis.low), axis.high))
        end = axis.from_unit(by_value if kind == "value" else axis.place(before) + sign * size)
        size *= 2.0
    return min(end, wanted) if sign > 0.0 else max(end, wanted)


def _moved(axis: Axis, kind: str, before: Value, after: Value) -> float:
    """How far a knob has moved, in what its limit is in."""
    if kind == "value":
        was, now = cast(float, before), cast(float, after)
        return abs(now - was) / abs(was) if was else math.inf
    return abs(axis.place(cast(float, after)) - axis.place(cast(float, before)))


def _index(axis: Axis, value: Value) -> int:
    """Which of the steps of a knob a legal value is."""
    if isinstance(axis, Categorical):
        return axis.choices.index(value)
    if isinstance(axis, PowerOfTwo):
        return int(cast(int, value)).bit_length() - axis.low.bit_length()
    if isinstance(axis, Int):
        return (int(cast(int, value)) - axis.low) // axis.step
    return round(axis.place(cast(float, value)) * ((axis.levels or 2) - 1))


def _value(axis: Axis, index: int) -> Value:
    if isinstance(axis, Categorical):
        return axis.choices[index]
    if isinstance(axis, PowerOfTwo):
        return axis.low << index
    if isinstance(axis, Int):
        return axis.low + axis.step * index
    return axis.from_unit(index / ((axis.levels or 2) - 1))
