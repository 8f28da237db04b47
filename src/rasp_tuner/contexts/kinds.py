"""Kinds of context: what a caller may say about the situation, each with the few numbers that models see of it.

kind        numbers                                                     where a value is missing
Number      itself, or its logarithm                                    the stated usual value, and a one
Flag        0 or 1; missing                                             0.5, and a one
Category    8 from a hash of the text; missing                          zeros, and a one
  of values   0 or 1 for each value; other; missing                     zeros, and a one
Name        as many from a hash of the text as `width` says; missing    zeros, and a one
TimeOfDay   a point on a circle, 2; missing                             its centre, and a one
Weekday     a point on a circle, 2; missing                             its centre, and a one

The numbers of a value are the same in every process and, up to rounding, on every machine. They do not depend on what
came before. So a category that was never seen is no error: it is a situation of its own, which starts from what all
have in common. Models divide every dimension by its spread, so only the number of dimensions says how much a feature
counts beside others.
"""

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, time
from typing import Any, ClassVar, TypeAlias

import numpy as np

from rasp_tuner.base.checks import flag, number, show, whole
from rasp_tuner.base.numerics import LARGEST
from rasp_tuner.errors import InvalidSpace, InvalidValue

HASHED_WIDTH = 8  # numbers of a hashed text: docs/CONTEXT.md has what fewer and more would do
MAX_HASHED_WIDTH = 64
MAX_VALUES = 64  # of a category that names them
DAY_S = 86_400.0
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OTHER = "other"  # what any text is that a category does not name
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; `log` for sizes and rates that span decades.

    missing   a usual value, which stands for a missing one; None: a missing value is an error
    """

    word: ClassVar[str] = "number"
    log: bool = False
    missing: float | None = None

    def __post_init__(self) -> None:
        flag("log", self.log, InvalidSpace)
        if self.missing is not None:
            object.__setattr__(self, "missing", number("missing", self.missing, InvalidSpace))

    @property
    def dim(self) -> int:
        return 1 if self.missing is None else 2

    @property
    def may_be_missing(self) -> bool:
        return self.missing is not None

    def encode(self, value: object) -> list[float]:
        if _is_missing(value):
            if self.missing is None:
                raise InvalidValue("is missing; Number(missing=...) with a usual value would allow that")
            return [self._scaled(self.missing), 1.0]
        try:
            scaled = self._scaled(number("value", value))
        except InvalidValue:
            raise InvalidValue(f"must be a finite number, got {show(value)}") from None
        return [scaled] if self.missing is None else [scaled, 0.0]

    def decode(self, numbers: Sequence[float]) -> float | None:
        """The value, on a log scale but for rounding; None if it was missing."""
        if len(numbers) == 2 and numbers[1]:
            return None
        value = numbers[0]
        return float(f"{math.copysign(math.expm1(abs(value)), value):.12g}") if self.log else value

    def _scaled(self, value: float) -> float:
        value = min(max(value, -LARGEST), LARGEST)
        return math.copysign(math.log1p(abs(value)), value) if self.log else value


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; also 1 or 0, and the words true, yes, on, false, no, off."""

    word: ClassVar[str] = "flag"
    dim: ClassVar[int] = 2
    may_be_missing: ClassVar[bool] = True

    def encode(self, value: object) -> list[float]:
        if _is_missing(value):
            return [0.5, 1.0]
        text = _text_of(value).lower() if isinstance(value, str | bool | np.bool_ | int | float | np.number) else ""
        if text not in YES + NO:
            raise InvalidValue(f"must be True or False, got {show(value)}")
        return [float(text in YES), 0.0]

    def decode(self, numbers: Sequence[float]) -> bool | None:
        """The value; None if it was missing."""
        return None if numbers[1] else numbers[0] == 1.0


@dataclass(frozen=True, slots=True)
class Category:
    """One of several texts; whole numbers and booleans count as their text.

    values   the usual ones, if they are known beforehand; any other is "other". None: any text is its own category
    """

    word: ClassVar[str] = "category"
    may_be_missing: ClassVar[bool] = True
    values: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.values is None:
            return
        if isinstance(self.values, str | bytes) or not isinstance(self.values, Sequence):
            raise InvalidSpace(f"values must be a list of texts, got {show(self.values)}")
        texts = tuple(_text_or(InvalidSpace, "values must hold texts", value) for value in self.values)
        if not 1 <= len(texts) <= MAX_VALUES or len(set(texts)) < len(texts):
            raise InvalidSpace(f"values must be 1 to {MAX_VALUES} different texts, got {show(self.values)}")
        object.__setattr__(self, "values", texts)

    @property
    def dim(self) -> int:
        return 1 + (HASHED_WIDTH if self.values is None else len(self.values) + 1)

    def encode(self, value: object) -> list[float]:
        if _is_missing(value):
            return [*[0.0] * (self.dim - 1), 1.0]
        text = _text_or(InvalidValue, "must be a text", value)
        if self.values is None:
            return [*_direction(text, HASHED_WIDTH), 0.0]
        known = [float(text == own) for own in self.values]
        return [*known, float(text not in self.values), 0.0]

    def decode(self, numbers: Sequence[float]) -> str | None:
        """The text if it is one of the usual ones, else "other"; of a hash a mark. None if it was missing."""
        if numbers[-1] or self.values is None:
            return _mark(numbers)
        return [*self.values, OTHER][list(numbers).index(1.0)]


@dataclass(frozen=True, slots=True)
class Name:
    """A text out of very many, such as a user, a table or a host: `width` numbers from its hash."""

    word: ClassVar[str] = "name"
    may_be_missing: ClassVar[bool] = True
    width: int = HASHED_WIDTH

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", whole("width", self.width, 2, MAX_HASHED_WIDTH, InvalidSpace))

    @property
    def dim(self) -> int:
        return self.width + 1

    def encode(self, value: object) -> list[float]:
        if _is_missing(value):
            return [*[0.0] * self.width, 1.0]
        return [*_direction(_text_or(InvalidValue, "must be a text", value), self.width), 0.0]

    def decode(self, numbers: Sequence[float]) -> str | None:
        """A mark in the place of the text, of which only a hash is known; None if it was missing."""
        return _mark(numbers)


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """A datetime, a time, their text in ISO 8601, "13:45", or seconds since midnight; the zone is the one given."""

    word: ClassVar[str] = "time of day"
    dim: ClassVar[int] = 3
    may_be_missing: ClassVar[bool] = True

    def encode(self, value: object) -> list[float]:
        return [0.0, 0.0, 1.0] if _is_missing(value) else [*_on_circle(_seconds(value) / DAY_S), 0.0]

    def decode(self, numbers: Sequence[float]) -> str | None:
        """As in "13:45:00"; None if it was missing."""
        if numbers[2]:
            return None
        minutes, seconds = divmod(round(_turn(numbers) * DAY_S) % int(DAY_S), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


@dataclass(frozen=True, slots=True)
class Weekday:
    """A datetime, a date, their text in ISO 8601, "Mon" or "Monday", or 0 (Monday) to 6; the zone is the one given."""

    word: ClassVar[str] = "weekday"
    dim: ClassVar[int] = 3
    may_be_missing: ClassVar[bool] = True

    def encode(self, value: object) -> list[float]:
        return [0.0, 0.0, 1.0] if _is_missing(value) else [*_on_circle(_day(value) / len(DAYS)), 0.0]

    def decode(self, numbers: Sequence[float]) -> str | None:
        """As in "Monday"; None if it was missing."""
        return None if numbers[2] else DAYS[round(_turn(numbers) * len(DAYS)) % len(DAYS)].capitalize()


ContextKind: TypeAlias = Number | Flag | Category | Name | TimeOfDay | Weekday
KINDS: dict[str, type[ContextKind]] = {kind.word: kind for kind in (Number, Flag, Category, Name, TimeOfDay, Weekday)}


def now() -> datetime:
    """This moment in the local time zone, for `TimeOfDay` and `Weekday`."""
    return datetime.now().astimezone()


def kind_of(field: str, given: object) -> ContextKind:
    """The kind that an object, a word or JSON as of `kind_json` describes."""
    if isinstance(given, ContextKind):
        return given
    fields: dict[str, Any] = {"kind": given} if isinstance(given, str) else {}
    if isinstance(given, Mapping):
        fields = dict(given)
    word = fields.pop("kind", None)
    if not isinstance(word, str) or word not in KINDS:
        raise InvalidSpace(
            f"{field} must be a kind of context, as in Category(), or one of the words {list(KINDS)}, got {show(given)}"
        )
    try:
        return KINDS[word](**fields)
    except TypeError:
        raise InvalidSpace(f"{field}: {word!r} has no such fields, got {show(given)}") from None
    except InvalidSpace as reason:
        raise InvalidSpace(f"{field}: {reason}") from None


def kind_json(kind: ContextKind) -> dict[str, Any]:
    """As JSON: the word and the fields that are set."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(kind).items()}
    return {"kind": kind.word, **{name: value for name, value in plain.items() if value is not None}}


def value_json(field: str, value: object) -> str | bool | float | None:
    """A value of a context as JSON has it; moments as their text in ISO 8601."""
    if _is_missing(value):
        return None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return value if isinstance(value, str) else number(field, value)


def same_text(one: object, other: object) -> bool:
    """Whether two values of a context are one category: both missing, or equal as texts."""
    return _is_missing(one) == _is_missing(other) and (_is_missing(one) or _text_of(one) == _text_of(other))


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _text_of(value: object) -> str:
    """A text, or that of a whole number or a boolean, whatever type it came in."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _text_or(error: type[InvalidSpace] | type[InvalidValue], rule: str, value: object) -> str:
    if not isinstance(value, str | bool | np.bool_ | int | float | np.number):
        raise error(f"{rule}, got {show(value)}")
    return _text_of(value)


def _direction(text: str, width: int) -> list[float]:
    """A point on the unit sphere [width] by the hash of a text; only exact arithmetic, so the same everywhere."""
    raw = text.encode("utf-8", "surrogatepass")
    digest = b"".join(
        hashlib.blake2b(raw, digest_size=64, salt=struct.pack("<Q", block)).digest()
        for block in range((4 * width + 63) // 64)
    )
    numbers = [(2 * one + 1) / 2.0**32 - 1.0 for one in struct.unpack_from(f"<{width}I", digest)]
    length = math.sqrt(math.fsum(one * one for one in numbers))
    return [one / length for one in numbers]


def _mark(numbers: Sequence[float]) -> str | None:
    """The same for equal texts, and nearly always another for others; None if there was none."""
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    return None if numbers[-1] else f"#{hashlib.blake2b(packed, digest_size=3).hexdigest()}"


def _on_circle(turn: float) -> list[float]:
    return [math.cos(2.0 * math.pi * turn), math.sin(2.0 * math.pi * turn)]


def _turn(numbers: Sequence[float]) -> float:
    """Where a point lies on the circle: from 0 to 1."""
    return math.atan2(numbers[1], numbers[0]) / (2.0 * math.pi) % 1.0


def _seconds(value: object) -> float:
    """Since midnight."""
    if isinstance(value, str):
        value = _moment(value, time.fromisoformat)
    if isinstance(value, datetime | time):
        return value.hour * 3600.0 + value.minute * 60.0 + value.second + value.microsecond * 1e-6
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0.0 <= value <= DAY_S:
        return float(value)
    raise InvalidValue(
        f'must be a datetime, a time, "13:45", an ISO 8601 time or seconds from 0 to {DAY_S:.0f}, got {show(value)}'
    )


def _day(value: object) -> float:
    """0 for Monday."""
    if isinstance(value, str):
        named = [i for i, day in enumerate(DAYS) if len(value) >= 3 and day.startswith(value.lower())]
        value = named[0] if named else _moment(value, date.fromisoformat)
    if isinstance(value, date):
        return float(value.weekday())
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and value in range(len(DAYS)):
        return float(value)
    raise InvalidValue(
        f'must be a datetime, a date, "Mon", an ISO 8601 date or a number from 0 to 6, got {show(value)}'
    )


def _moment(text: str, otherwise: Any) -> object:
    """A text as a datetime or else as `otherwise` reads it; the text itself if it is neither."""
    for read in (otherwise, datetime.fromisoformat):
        try:
            read_as: object = read(text)
            return read_as
        except ValueError:
            continue
    return text
