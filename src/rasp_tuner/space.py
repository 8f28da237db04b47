"""Knobs and their unit box: the only file that knows units.

Every knob maps its legal values to [0, 1] (`to_unit`) and any number in [0, 1] back to a legal value (`from_unit`);
`from_unit(to_unit(x)) == x` for every legal x. A float knob without a step has twelve digits, counted from its range
(on a log scale: from the value); other floats are taken and rounded, so 0.3 never becomes 0.30000000000000004.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from types import NoneType
from typing import Any, TypeAlias, cast

import numpy as np

from rasp_tuner.core.checks import number, same_names, show, whole
from rasp_tuner.core.numerics import Array
from rasp_tuner.errors import InvalidSpace, InvalidValue

Value: TypeAlias = str | int | float | bool | None
Params: TypeAlias = dict[str, Value]

DIGITS = 12  # of a float knob: coarser than rounding error, finer than any knob needs
LARGEST_FLOAT = 1e300  # a bound; leaves room for high - low
MOST_LEVELS = 64  # a knob with more is as good as continuous
LARGEST_INT = 2**44  # up to here integers survive the trip through a logarithm


@dataclass(frozen=True)
class Float:
    """A real knob in [low, high], optionally on a log scale or on the grid low, low + step, ...

    Without a step its legal values have twelve digits of the range (of the value, on a log scale); a value with more is
    taken and rounded to those.

    >>> Float(0.1, 10.0, log=True).from_unit(0.5)
    1.0
    >>> Float(0.0, 1.0, step=0.25).from_unit(0.6)
    0.5
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        for field in ("low", "high"):
            value = number(f"Float {field}", getattr(self, field), InvalidSpace)
            if abs(value) > LARGEST_FLOAT:
                raise InvalidSpace(f"Float {field} must lie within +-{LARGEST_FLOAT:g}, got {value!r}")
            object.__setattr__(self, field, value)
        check_box("Float", self.low, self.high)
        _check_scale("Float", self.low, self.high, self.log, self.step)
        if self.step is not None:
            step = number("Float step", self.step, InvalidSpace)
            object.__setattr__(self, "step", step)
            if not 0.0 < step <= self.high - self.low:
                raise InvalidSpace(f"Float step must lie in (0, high - low], got {step=} on [{self.low}, {self.high}]")
            if (self.high - self.low) / step > LARGEST_INT:
                raise InvalidSpace(f"Float step is too fine for its range, got {step=} on [{self.low}, {self.high}]")

    @cached_property
    def levels(self) -> int | None:
        """How many legal values there are; None for a continuum."""
        if self.step is None:
            return None
        return int((_exact(self.high) - _exact(self.low)) / _exact(self.step) + _SLACK) + 1

    def to_unit(self, value: object) -> float:
        x = number("value", value)
        _check_inside(x, self.low, self.high)
        if self.step is not None and (levels := self.levels):
            index = self._index(x)
            if index >= levels or not math.isclose(self._grid(index), x, rel_tol=1e-15, abs_tol=1e-6 * self.step):
                raise InvalidValue(f"value must lie on the grid {self.low} + k * {self.step}, got {x!r}")
        return self.place(x)

    def place(self, value: float) -> float:
        """Where a legal value lies in [0, 1]; `to_unit` without its checks."""
        if self.step is not None and (levels := self.levels):
            return self._index(value) / (levels - 1)
        return _fraction(value, self.low, self.high, self.log)

    def nearest(self, unit: float) -> tuple[float, float]:
        """`from_unit`, and where that value lies in [0, 1]."""
        linear = self._linear
        if linear is None or not 0.0 < unit < 1.0:
            value = self.from_unit(unit)
            return value, self.place(value)
        low, high, width, digits, near = linear  # the usual case: a continuum, inside of its range
        x = round(low + unit * width, digits) + 0.0  # never -0.0
        if x - low < near:
            x = low
        elif high - x < near:
            x = high
        return x, (x - low) / width

    def from_unit(self, unit: float) -> float:
        if self.step is not None and (levels := self.levels):
            return self._grid(round(_clamp(unit) * (levels - 1)))
        unit = _clamp(unit)
        if self._linear is not None and 0.0 < unit < 1.0:
            return self.nearest(unit)[0]
        if unit in (0.0, 1.0):
            return self.high if unit else self.low  # also where the range is narrower than the digits
        x = _mix(unit, self.low, self.high, True)
        digits = self._digits(x)
        x, near = round(x, digits), 0.75 * 10.0**-digits
        if x - self.low < near:
            return self.low  # the ends are legal with all their digits, and own what rounds next to them
        return self.high if self.high - x < near else x

    def _digits(self, x: float) -> int:
        """Decimals of a value about `x`."""
        width = self.high - self.low
        fine = DIGITS - 1 - _magnitude(min(x, width) if self.log else width)
        return min(fine, 14 - _magnitude(x if self.log else max(abs(self.low), abs(self.high))))  # a double has 15

    @cached_property
    def _linear(self) -> tuple[float, float, float, int, float] | None:
        """Of a continuum that is not logarithmic: ends, width, decimals, and how near an end counts as that end."""
        if self.log or self.step is not None:
            return None
        digits = self._digits(self.high)
        return self.low, self.high, self.high - self.low, digits, 0.75 * 10.0**-digits

    def _index(self, x: float) -> int:
        return round((_exact(x) - _exact(self.low)) / _exact(self.step or 0.0))

    def _grid(self, index: int) -> float:
        """low + index * step in decimal arithmetic: 273.15 + 3 * 0.01 is 273.18."""
        return min(float(_exact(self.low) + index * _exact(self.step or 0.0)), self.high)


@dataclass(frozen=True)
class Int:
    """A whole-number knob in [low, high], both legal, optionally on a log scale or in steps.

    >>> Int(1, 64, log=True).from_unit(0.5)
    8
    """

    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        for field in ("low", "high", "step"):
            least = 1 if field == "step" else -LARGEST_INT
            value = whole(f"Int {field}", getattr(self, field), least, LARGEST_INT, InvalidSpace)
            object.__setattr__(self, field, value)
        check_box("Int", self.low, self.high)
        _check_scale("Int", self.low, self.high, self.log, None if self.step == 1 else self.step)
        if self.step > self.high - self.low:
            raise InvalidSpace(f"Int step must be <= high - low, got step={self.step} on [{self.low}, {self.high}]")

    @property
    def levels(self) -> int:
        """How many legal values there are."""
        return (self.high - self.low) // self.step + 1

    def to_unit(self, value: object) -> float:
        x = number("value", value)
        if isinstance(value, (bool, np.bool_)) or not x.is_integer():
            raise InvalidValue(f"value must be a whole number, got {show(value)}")
        _check_inside(int(x), self.low, self.high)
        if (int(x) - self.low) % self.step:
            raise InvalidValue(f"value must lie on the grid {self.low} + k * {self.step}, got {show(value)}")
        return self.place(x)

    def place(self, value: float) -> float:
        """Where a legal value lies in [0, 1]; `to_unit` without its checks."""
        if self.log:
            return _fraction(value, self.low, self.high, True)
        return (int(value) - self.low) // self.step / (self.levels - 1)

    def nearest(self, unit: float) -> tuple[int, float]:
        """`from_unit`, and where that value lies in [0, 1]."""
        if self.log:
            value = min(max(round(_mix(_clamp(unit), self.low, self.high, True)), self.low), self.high)
            return value, self.place(value)
        last = (self.high - self.low) // self.step
        index = round(_clamp(unit) * last)
        return self.low + self.step * index, index / last

    def from_unit(self, unit: float) -> int:
        return self.nearest(unit)[0]


@dataclass(frozen=True, init=False)
class Categorical:
    """One of a few unordered choices; each owns an equal share of [0, 1].

    >>> Categorical(["lz4", "zstd"]).from_unit(0.7)
    'zstd'
    """

    choices: tuple[Value, ...]

    def __init__(self, choices: Sequence[Value]) -> None:
        if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence):
            raise InvalidSpace(f"Categorical choices must be a list, got {show(choices)}")
        object.__setattr__(self, "choices", tuple(_check_choice(choice) for choice in choices))
        if len(self.choices) < 2:
            raise InvalidSpace(f"Categorical needs at least two choices, got {show(choices)}")
        for i, choice in enumerate(self.choices):
            if choice in self.choices[:i]:
                raise InvalidSpace(f"Categorical choices must differ, got {show(choices)} with {show(choice)} again")

    @property
    def levels(self) -> int:
        """How many choices there are."""
        return len(self.choices)

    def to_unit(self, value: object) -> float:
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, (str, int, float, NoneType)) or plain not in self.choices:
            raise InvalidValue(f"value must be one of {list(self.choices)}, got {show(value)}")
        return self.place(plain)

    def place(self, value: Value) -> float:
        """Where a legal value lies in [0, 1]; `to_unit` without its checks."""
        return (self.choices.index(value) + 0.5) / len(self.choices)

    def nearest(self, unit: float) -> tuple[Value, float]:
        """`from_unit`, and where that value lies in [0, 1]."""
        count = len(self.choices)
        index = min(int(_clamp(unit) * count), count - 1)
        return self.choices[index], (index + 0.5) / count

    def from_unit(self, unit: float) -> Value:
        return self.nearest(unit)[0]


Knob: TypeAlias = Float | Int | Categorical
KINDS: dict[str, type[Knob]] = {"float": Float, "int": Int, "categorical": Categorical}


@dataclass(frozen=True, slots=True)
class Layout:
    """The unit box as models see it: where its legal values lie, and where one starts."""

    levels: tuple[Array | None, ...]  # [n_i] ascending positions of knob i's values; None for (nearly) a continuum
    unordered: tuple[bool, ...]  # choices without an order
    default: Array  # [d]

    @classmethod
    def continuous(cls, dim: int) -> "Layout":
        return cls((None,) * dim, (False,) * dim, np.full(dim, 0.5))


class Space:
    """Named knobs in a fixed order <-> points of the unit box [d]."""

    def __init__(self, knobs: Mapping[str, Knob]) -> None:
        if not isinstance(knobs, Mapping) or not knobs:
            raise InvalidSpace(f"space must map at least one name to a Float, Int or Categorical, got {show(knobs)}")
        for name, knob in knobs.items():
            if not isinstance(name, str) or not name:
                raise InvalidSpace(f"space names must be non-empty strings, got {show(name)}")
            if type(knob) not in KINDS.values():
                raise InvalidSpace(f"space[{name!r}] must be a Float, Int or Categorical, got {show(knob)}")
        self.knobs = dict(knobs)

    @property
    def dim(self) -> int:
        return len(self.knobs)

    def to_unit(self, params: object, field: str = "params") -> Array:
        """The point [d] of a full set of legal parameter values; errors call it `field`."""
        given = same_names(field, params, self.knobs)
        point = np.empty(self.dim)
        for i, (name, knob) in enumerate(self.knobs.items()):
            try:
                point[i] = knob.to_unit(given[name])
            except InvalidValue as reason:
                raise InvalidValue(f"{field}[{name!r}]: {reason}") from None
        return point

    def from_unit(self, point: Array) -> Params:
        """The legal parameter values nearest to a point of the unit box."""
        return {name: knob.from_unit(float(u)) for (name, knob), u in zip(self.knobs.items(), point, strict=True)}

    def nearest(self, point: Array) -> tuple[Params, Array]:
        """The legal parameter values nearest to `point`, and their own point: what will really run."""
        params: Params = {}
        legal = []
        for (name, knob), u in zip(self.knobs.items(), point.tolist(), strict=True):
            params[name], place = knob.nearest(u)
            legal.append(place)
        return params, np.array(legal)

    def snap(self, point: Array) -> Array:
        """The point of the legal values nearest to `point`."""
        return self.nearest(point)[1]

    def layout(self, default: Array) -> Layout:
        """What a model may know of this space; `default` [d] is a legal point."""
        levels = tuple(_positions(knob) for knob in self.knobs.values())
        unordered = tuple(isinstance(knob, Categorical) and knob.levels > 2 for knob in self.knobs.values())
        return Layout(levels, unordered, default)

    def to_json(self) -> dict[str, Any]:
        kinds = {kind: name for name, kind in KINDS.items()}
        return {name: {"type": kinds[type(knob)], **asdict(knob)} for name, knob in self.knobs.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Space":
        """A space from `{"pool": {"type": "int", "low": 1, "high": 64, "log": true}, ...}`."""
        knobs = {}
        for name, fields in data.items():
            settings = dict(fields)
            kind = settings.pop("type", None)
            if kind not in KINDS:
                raise InvalidSpace(f"space[{name!r}] needs a type among {list(KINDS)}, got {show(kind)}")
            try:
                knobs[name] = KINDS[kind](**settings)
            except TypeError as reason:
                raise InvalidSpace(f"space[{name!r}] of type {kind!r} takes other fields: {reason}") from reason
        return cls(knobs)


def _positions(knob: Knob) -> Array | None:
    """Where the legal values of a knob lie in [0, 1], if they are few."""
    if knob.levels is None or knob.levels > MOST_LEVELS:
        return None
    if isinstance(knob, Categorical):
        return np.array([knob.to_unit(choice) for choice in knob.choices])
    if isinstance(knob, Int) and knob.log:
        return np.array([knob.to_unit(value) for value in range(knob.low, knob.high + 1)])
    return np.linspace(0.0, 1.0, knob.levels)


def check_box(kind: str, low: float, high: float) -> None:
    if not low < high:
        hint = "; a knob with one value is a constant, leave it out" if low == high else ""
        raise InvalidSpace(f"{kind} needs low < high, got {low=} {high=}{hint}")
    if not 1e-300 <= high - low <= 2 * LARGEST_FLOAT:
        raise InvalidSpace(f"{kind} needs high - low from 1e-300 to {2 * LARGEST_FLOAT:g}, got {low=} {high=}")


def _check_scale(kind: str, low: float, high: float, log: object, step: object) -> None:
    if not isinstance(log, bool):
        raise InvalidSpace(f"{kind} log must be True or False, got {show(log)}")
    if log and not (low > 0 and math.isfinite(high / low)):
        raise InvalidSpace(f"{kind} with log=True needs low > 0 and a finite high / low, got {low=} {high=}")
    if log and step is not None:
        raise InvalidSpace(f"{kind} takes log=True or a step, not both, got {step=}")


def _check_inside(value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidValue(f"value must lie in [{low}, {high}], got {value!r}")


def _check_choice(choice: object) -> Value:
    value = choice.item() if isinstance(choice, np.generic) else choice
    if value is None or type(value) in (str, bool):  # not an Enum that is also a string: it would not survive a save
        return cast(Value, value)
    if type(value) in (int, float) and abs(cast(float, value)) <= sys.float_info.max:
        return cast(Value, value)
    raise InvalidSpace(f"Categorical choices must be strings, finite numbers, booleans or None, got {show(choice)}")


_SLACK = Decimal("1e-9")  # of a step: a range that misses its last step by rounding still has it


def _exact(x: float) -> Decimal:
    """The decimal a person would write for `x`."""
    return Decimal(repr(x))


def _magnitude(x: float) -> int:
    return math.floor(math.log10(x))


def _clamp(unit: float) -> float:
    if not unit == unit:
        raise InvalidValue("a unit coordinate must be a number from 0 to 1, got nan")
    return min(max(unit, 0.0), 1.0)


def _fraction(x: float, low: float, high: float, log: bool) -> float:
    if log:
        return math.log(x / low) / math.log(high / low)
    return (x - low) / (high - low)


def _mix(unit: float, low: float, high: float, log: bool) -> float:
    if log:
        return low * math.exp(unit * math.log(high / low))
    return low + unit * (high - low)
