"""Knobs of many tuners at once: points of the unit box [n, d] <-> values in the knobs' own units, array by array.

The same rules as in the room `space`, to rounding. The default's values are legal with all their digits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import MOST_DIGITS, MOST_LEVELS, Float, Int, Knob, Space

DOUBLE_DIGITS = 14  # that a float64 surely holds, after the first
SAME_POINT = 1e-12  # as near to the default's coordinate is the default
MOST_DECIMALS = 300  # before or after the point
_POWERS = np.array([float(f"1e{k}") for k in range(-MOST_DECIMALS, MOST_DECIMALS + 1)])  # 10.0**k may be an ulp off


def is_continuous(knob: object) -> bool:
    """Whether it always exists and has no steps, or so many that they do not matter."""
    fine = knob.step is None if isinstance(knob, Float) else isinstance(knob, Int) and knob.levels > MOST_LEVELS
    return fine and isinstance(knob, Float | Int) and knob.when is None


@dataclass(frozen=True)
class ContinuousKnobs:
    """The knobs of a space that is as good as continuous."""

    space: Space

    def __post_init__(self) -> None:
        if self.space.constraints:
            raise InvalidSpace(
                f"a RayFleet takes no constraints, got {self.space.constraints}; a Fleet or a Tuner does"
            )
        for name, knob in self.space.knobs.items():
            if not is_continuous(knob):
                raise InvalidSpace(
                    "a RayFleet takes knobs that always exist: Float without a step, and Int of more than"
                    f" {MOST_LEVELS} values; space[{name!r}] is {knob!r}: use a Fleet, which takes any knob"
                )

    def values(self, points: Array) -> tuple[dict[str, Array], Array]:
        """The legal values nearest to points [n, d], by name, and their own points: what will really run."""
        if self._ranges is not None:
            low, high, scale = self._ranges
            unit = np.clip(points, 0.0, 1.0)
            table = _rounded(unit, low + unit * (high - low), low, high, scale)
            return {name: table[:, i] for i, name in enumerate(self.space.knobs)}, (table - low) / (high - low)
        columns = [_value(knob, points[:, i]) for i, knob in enumerate(self.space.knobs.values())]
        for i, (value, place) in self._exact.items():
            columns[i] = np.where(np.abs(points[:, i] - place) < SAME_POINT, value, columns[i])
        own = [_place(knob, x) for knob, x in zip(self.space.knobs.values(), columns, strict=True)]
        places, default = np.stack(own, axis=1), self.space.default
        places = np.where(np.abs(places - default) < SAME_POINT, default, places)  # whose logarithm may round otherwise
        return dict(zip(self.space.knobs, columns, strict=True)), places

    @cached_property
    def _ranges(self) -> Array | None:
        """[3, d] lowest and highest values and what they are rounded by, if all knobs are floats on linear scales."""
        linear = [knob for knob in self.space.knobs.values() if isinstance(knob, Float) and not knob.log]
        if len(linear) < len(self.space.knobs) or self._exact:
            return None
        return np.array([(knob.low, knob.high, _linear_scale(knob)) for knob in linear]).T.copy()

    @cached_property
    def _exact(self) -> dict[int, tuple[float, float]]:
        """By position, value and coordinate of knobs whose default has more digits than their other values."""
        default, places = self.space.from_unit(self.space.default), self.space.default.tolist()
        return {
            i: (float(default[name]), places[i])  # type: ignore[arg-type]  # a number: its knob is a Float
            for i, (name, knob) in enumerate(self.space.knobs.items())
            if isinstance(knob, Float) and knob.from_unit(places[i]) != default[name]
        }

    def points(self, params: Mapping[str, Array]) -> Array:
        """Points [n, d] of legal values."""
        arrays = [params[name] for name in self.space.knobs]
        knobs = self.space.knobs.values()
        return np.stack([_place(knob, x) for knob, x in zip(knobs, arrays, strict=True)], axis=1)

    def illegal(self, params: Mapping[str, Array]) -> tuple[str, int, str] | None:
        """Name, position and rule of the first value that breaks one; None if all are legal."""
        for name, knob in self.space.knobs.items():
            assert isinstance(knob, Float | Int)  # noqa: S101 - checked at birth
            x = params[name]
            rules = [(f"must be a finite number from {knob.low} to {knob.high}", (x >= knob.low) & (x <= knob.high))]
            if isinstance(knob, Int):
                whole = np.round((x - knob.low) / knob.step) * knob.step + knob.low == x
                rules.append((f"must be {knob.low} plus a multiple of {knob.step}", whole))
            for rule, fine in rules:
                if not fine.all():
                    return name, int(fine.argmin()), rule
        return None


def _value(knob: Knob, unit: Array) -> Array:
    """Legal values nearest to positions [n]."""
    unit = np.clip(unit, 0.0, 1.0)
    if isinstance(knob, Int):
        if knob.log:
            x = np.round(_mix(unit, knob.low + knob.shift, knob.high + knob.shift)) - knob.shift
            return np.clip(x, float(knob.low), float(knob.high))
        return knob.low + knob.step * np.round(unit * (knob.levels - 1))
    assert isinstance(knob, Float)  # noqa: S101 - checked at birth
    width = knob.high - knob.low
    if knob.log:
        x = _mix(unit, knob.low, knob.high)
        fine = (knob.digits or MOST_DIGITS) - 1 - np.floor(np.log10(np.clip(x, None, width)))
        digits = np.clip(np.minimum(fine, DOUBLE_DIGITS - np.floor(np.log10(x))), -MOST_DECIMALS, MOST_DECIMALS)
        scale = _POWERS[digits.astype(np.int64) + MOST_DECIMALS]
    else:
        x, scale = knob.low + unit * width, _linear_scale(knob)
    return _rounded(unit, x, knob.low, knob.high, scale)


def _linear_scale(knob: Float) -> float:
    """What a value on a linear scale is multiplied by to be rounded."""
    double = math.floor(math.log10(max(abs(knob.low), abs(knob.high))))
    digits = min(
        (knob.digits or MOST_DIGITS) - 1 - math.floor(math.log10(knob.high - knob.low)), DOUBLE_DIGITS - double
    )
    return float(_POWERS[min(max(digits, -MOST_DECIMALS), MOST_DECIMALS) + MOST_DECIMALS])


def _rounded(unit: Array, x: Array, low: Array | float, high: Array | float, scale: Array | float) -> Array:
    """Values x at positions `unit`, to the digits that `scale` leaves."""
    x, near = np.round(x * scale) / scale + 0.0, 0.75 / scale  # + 0.0: never -0.0
    x = np.where((x - low < near) | (unit == 0.0), low, x)  # the ends are legal with all their digits
    return np.where(((high - x < near) | (unit == 1.0)) & (unit > 0.0), high, x)


def _place(knob: Knob, x: Array) -> Array:
    """Where legal values [n] lie in [0, 1]."""
    if isinstance(knob, Int) and not knob.log:
        return np.round((x - knob.low) / knob.step) / (knob.levels - 1)
    assert isinstance(knob, Float | Int)  # noqa: S101 - checked at birth
    if knob.log:
        shift = knob.shift if isinstance(knob, Int) else 0
        return np.log((x + shift) / (knob.low + shift)) / math.log((knob.high + shift) / (knob.low + shift))
    return (x - knob.low) / (knob.high - knob.low)


def _mix(unit: Array, low: float, high: float) -> Array:
    return low * np.exp(unit * math.log(high / low))
