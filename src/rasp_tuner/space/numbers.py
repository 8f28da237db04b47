"""Knobs of numbers: `Float`, `Int`, `PowerOfTwo`.

Every knob maps its legal values to [0, 1] (`to_unit`) and any number in [0, 1] back to a legal value (`from_unit`);
`from_unit(to_unit(x)) == x` for every legal x. The legal values of a float knob without a step have few digits, so that
a suggestion is 4.0 and not 3.99999999999. A value with more digits is taken as it is: it is what ran.
"""

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property

from rasp_tuner.base.checks import flag, number, show, whole
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space.values import Value, When, checked_when, number_from

DIGITS = 3  # of the values that a float knob suggests: as good as all of them, and easy to read
MOST_DIGITS = 12  # coarser than rounding error; all that knobs had before version 0.2, and that defaults keep
LARGEST_FLOAT = 1e300  # a bound; leaves room for high - low
MOST_LEVELS = 64  # a knob with more is as good as continuous
LARGEST_INT = 2**44  # up to here integers survive the trip through a logarithm


@dataclass(frozen=True)
class Float:
    """A real knob in [low, high], optionally on a log scale or on the grid low, low + step, ...

    Without a step its values have so many digits of the range (of the value, on a log scale), and its ends are as
    given.

    >>> Float(0.1, 10.0, log=True).from_unit(0.5)
    1.0
    >>> Float(0.0, 100.0, digits=3).from_unit(1 / 3)
    33.0
    >>> Float(0.0, 1.0, step=0.25).from_unit(0.6)
    0.5
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    digits: int | None = field(default=None, kw_only=True)  # None becomes the usual number of digits; with a step: none
    when: When | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            value = number(f"Float {end}", getattr(self, end), InvalidSpace)
            if abs(value) > LARGEST_FLOAT:
                raise InvalidSpace(f"Float {end} must lie within +-{LARGEST_FLOAT:g}, got {value!r}")
            object.__setattr__(self, end, value)
        check_box("Float", self.low, self.high)
        _check_scale("Float", self.log, self.step)
        if self.log and not (self.low > 0 and math.isfinite(self.high / self.low)):
            hint = "; for zero or a number: Auto(Float(low, high, log=True), word=0)" if self.low == 0.0 else ""
            raise InvalidSpace(
                f"Float with log=True needs low > 0, the smallest value that matters, as {1e-4 * self.high:g} may be,"
                f" and a finite high / low, got low={self.low} high={self.high}{hint}"
            )
        if self.step is None:
            given = DIGITS if self.digits is None else self.digits
            object.__setattr__(self, "digits", whole("Float digits", given, 1, MOST_DIGITS, InvalidSpace))
        elif self.digits is not None:
            raise InvalidSpace(f"Float takes a step or digits, not both, got step={self.step} digits={self.digits}")
        object.__setattr__(self, "when", checked_when("Float", self.when))
        if self.step is not None:
            step = number("Float step", self.step, InvalidSpace)
            object.__setattr__(self, "step", step)
            width = max(self.high - self.low, float(_exact(self.high) - _exact(self.low)))  # 0.35 - 0.1 is 0.25
            if not 0.0 < step <= width:
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
        return self.place(self._inside(value))

    def check(self, value: object) -> float:
        """`value` with all its digits, but for rounding errors; an InvalidValue if it is not in the range."""
        return self._exactly.from_unit(self.to_unit(value))

    def _inside(self, value: object) -> float:
        x = number("value", value)
        _check_inside(x, self.low, self.high)
        if self.step is not None and (levels := self.levels):
            index = self._index(x)
            if index >= levels or not math.isclose(self._grid(index), x, rel_tol=1e-15, abs_tol=1e-6 * self.step):
                raise InvalidValue(f"value must lie on the grid {self.low} + k * {self.step}, got {x!r}")
        return x

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
            return self._grid(round(clamp(unit) * (levels - 1)))
        unit = clamp(unit)
        if self._linear is not None and 0.0 < unit < 1.0:
            return self.nearest(unit)[0]
        if unit in (0.0, 1.0):
            return self.high if unit else self.low  # also where the range is narrower than the digits
        x = _mix(unit, self.low, self.high, True)
        digits = self._decimals(x)
        x, near = round(x, digits), 0.75 * 10.0**-digits
        if x - self.low < near:
            return self.low  # the ends are legal with all their digits, and own what rounds next to them
        return self.high if self.high - x < near else x

    def from_text(self, text: str) -> Value:
        """The value that a person or a file wrote."""
        return number_from(text)

    @cached_property
    def _exactly(self) -> "Float":
        """The same knob with all digits."""
        return self if self.digits in (None, MOST_DIGITS) else replace(self, digits=MOST_DIGITS)

    def _decimals(self, x: float) -> int:
        """Of a value about `x`."""
        width = self.high - self.low
        fine = (self.digits or MOST_DIGITS) - 1 - _magnitude(min(x, width) if self.log else width)
        return min(fine, 14 - _magnitude(x if self.log else max(abs(self.low), abs(self.high))))  # a double has 15

    @cached_property
    def _linear(self) -> tuple[float, float, float, int, float] | None:
        """Of a continuum that is not logarithmic: ends, width, decimals, and how near an end counts as that end."""
        if self.log or self.step is not None:
            return None
        digits = self._decimals(self.high)
        return self.low, self.high, self.high - self.low, digits, 0.75 * 10.0**-digits

    def _index(self, x: float) -> int:
        return round((_exact(x) - _exact(self.low)) / _exact(self.step or 0.0))

    def _grid(self, index: int) -> float:
        """low + index * step in decimal arithmetic: 273.15 + 3 * 0.01 is 273.18."""
        return min(float(_exact(self.low) + index * _exact(self.step or 0.0)), self.high)


@dataclass(frozen=True)
class Int:
    """A whole-number knob in [low, high], both legal, optionally in steps or on a log scale, which may start at 0.

    >>> Int(1, 64, log=True).from_unit(0.5)
    8
    """

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: When | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for end in ("low", "high", "step"):
            least = 1 if end == "step" else -LARGEST_INT
            value = whole(f"Int {end}", getattr(self, end), least, LARGEST_INT, InvalidSpace)
            object.__setattr__(self, end, value)
        check_box("Int", self.low, self.high)
        _check_scale("Int", self.log, None if self.step == 1 else self.step)
        if self.log and self.low < 0:
            hint = f"for {self.low} or a number: Auto(Int(0, {self.high}, log=True), word={self.low})"
            raise InvalidSpace(f"Int with log=True needs low >= 0, got low={self.low} high={self.high}; {hint}")
        object.__setattr__(self, "when", checked_when("Int", self.when))
        if self.step > self.high - self.low:
            raise InvalidSpace(f"Int step must be <= high - low, got step={self.step} on [{self.low}, {self.high}]")

    @property
    def levels(self) -> int:
        """How many legal values there are."""
        return (self.high - self.low) // self.step + 1

    @property
    def shift(self) -> int:
        """What is added before the logarithm is taken: 1 where the range starts at 0."""
        return int(self.low == 0)

    def check(self, value: object) -> int:
        """`value` as an int; an InvalidValue if it is not legal."""
        x = _whole_number(value)
        _check_inside(x, self.low, self.high)
        if (x - self.low) % self.step:
            raise InvalidValue(f"value must lie on the grid {self.low} + k * {self.step}, got {show(value)}")
        return x

    def to_unit(self, value: object) -> float:
        return self.place(self.check(value))

    def place(self, value: float) -> float:
        """Where a legal value lies in [0, 1]; `to_unit` without its checks."""
        if self.log:
            shift = self.shift
            return _fraction(value + shift, self.low + shift, self.high + shift, True)
        return (int(value) - self.low) // self.step / (self.levels - 1)

    def nearest(self, unit: float) -> tuple[int, float]:
        """`from_unit`, and where that value lies in [0, 1]."""
        if self.log:
            shift = self.shift
            x = round(_mix(clamp(unit), self.low + shift, self.high + shift, True)) - shift
            value = min(max(x, self.low), self.high)
            return value, self.place(value)
        last = (self.high - self.low) // self.step
        index = round(clamp(unit) * last)
        return self.low + self.step * index, index / last

    def from_unit(self, unit: float) -> int:
        return self.nearest(unit)[0]

    def from_text(self, text: str) -> Value:
        """The value that a person or a file wrote."""
        return number_from(text, whole=True)


@dataclass(frozen=True)
class PowerOfTwo:
    """A whole number among low, 2 low, 4 low, ..., high, all powers of two and all alike apart.

    >>> [PowerOfTwo(1, 8).from_unit(k / 3) for k in range(4)]
    [1, 2, 4, 8]
    """

    low: int
    high: int
    when: When | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            value = whole(f"PowerOfTwo {end}", getattr(self, end), 1, LARGEST_INT, InvalidSpace)
            if value & (value - 1):
                near = 1 << (value.bit_length() - 1)
                raise InvalidSpace(f"PowerOfTwo {end} must be a power of two, as {near} or {2 * near}, got {value}")
            object.__setattr__(self, end, value)
        check_box("PowerOfTwo", self.low, self.high)
        object.__setattr__(self, "when", checked_when("PowerOfTwo", self.when))

    @property
    def levels(self) -> int:
        """How many legal values there are."""
        return self.high.bit_length() - self.low.bit_length() + 1

    def check(self, value: object) -> int:
        """`value` as an int; an InvalidValue if it is not legal."""
        x = _whole_number(value)
        _check_inside(x, self.low, self.high)
        if x & (x - 1):
            raise InvalidValue(f"value must be a power of two, got {show(value)}")
        return x

    def to_unit(self, value: object) -> float:
        return self.place(self.check(value))

    def place(self, value: float) -> float:
        """Where a legal value lies in [0, 1]; `to_unit` without its checks."""
        return (int(value).bit_length() - self.low.bit_length()) / (self.levels - 1)

    def nearest(self, unit: float) -> tuple[int, float]:
        """`from_unit`, and where that value lies in [0, 1]."""
        value = self.from_unit(unit)
        return value, self.place(value)

    def from_unit(self, unit: float) -> int:
        return self.low << round(clamp(unit) * (self.levels - 1))

    def from_text(self, text: str) -> Value:
        """The value that a person or a file wrote."""
        return number_from(text, whole=True)


def check_box(kind: str, low: float, high: float) -> None:
    if not low < high:
        hint = "; a knob with one value is a constant, leave it out" if low == high else ""
        raise InvalidSpace(f"{kind} needs low < high, got {low=} {high=}{hint}")
    if not 1e-300 <= high - low <= 2 * LARGEST_FLOAT:
        raise InvalidSpace(f"{kind} needs high - low from 1e-300 to {2 * LARGEST_FLOAT:g}, got {low=} {high=}")


def _check_scale(kind: str, log: object, step: object) -> None:
    flag(f"{kind} log", log, InvalidSpace)
    if log and step is not None:
        raise InvalidSpace(f"{kind} takes log=True or a step, not both, got {step=}")


def _whole_number(value: object) -> int:
    x = number("value", value)
    if not x.is_integer():
        raise InvalidValue(f"value must be a whole number, got {show(value)}")
    return int(x)


def _check_inside(value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidValue(f"value must lie in [{low}, {high}], got {value!r}")


_SLACK = Decimal("1e-9")  # of a step: a range that misses its last step by rounding still has it


def _exact(x: float) -> Decimal:
    """The decimal a person would write for `x`."""
    return Decimal(repr(x))


def _magnitude(x: float) -> int:
    return math.floor(math.log10(x))


def clamp(unit: float) -> float:
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
