"""Metric: which way a number is better, its weight and its limit; Margin: how far a limit is."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rasp_tuner.base.checks import number, show
from rasp_tuner.errors import InvalidSpace

Direction = Literal["min", "max"]
Scale = Literal["auto", "linear", "log"]
LIMIT_KEPT = 0.9  # probability with which a limit is kept
_BEFORE_LIMITS = ("direction", "weight", "scale")


@dataclass(frozen=True, slots=True)
class Metric:
    """Which way a metric is better, how much it weighs beside the others, on which scale, and its limit if it has one.

    On a "log" scale differences are in percent, as of milliseconds that differ a thousandfold between workloads; all
    values must be positive. "auto" decides from the knobs and the data. Preset "paper" is linear.

    A limit is to be kept in nine runs of ten: `max=200`, or `at_most="1.05 default"` of what the default would come to
    in the same situation; of a metric that is better when higher, `min` and `at_least`. What has a limit is not
    minimised besides, unless it is given a weight.

    >>> Metric("min", max=200)
    Metric(direction='min', weight=0.0, scale='auto', max=200.0, min=None, at_most=None, at_least=None)
    """

    direction: Direction = "min"
    weight: float = None  # type: ignore[assignment]  # 1, or 0 of a metric with a limit; a number once this is made
    scale: Scale = "auto"
    max: float | None = None
    min: float | None = None
    at_most: str | None = None
    at_least: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.direction, str) or self.direction not in ("min", "max"):
            raise InvalidSpace(f"Metric direction must be 'min' or 'max', got {show(self.direction)}")
        if not isinstance(self.scale, str) or self.scale not in ("auto", "linear", "log"):
            raise InvalidSpace(f"Metric scale must be 'auto', 'linear' or 'log', got {show(self.scale)}")
        limited = self._check_limit()
        usual = 0.0 if limited else 1.0
        weight = usual if self.weight is None else number("Metric weight", self.weight, InvalidSpace)
        if not (1e-100 <= weight <= 1e100 or (limited and weight == 0.0)):
            zero = ", or 0 where it has a limit" if limited else ""
            raise InvalidSpace(f"Metric weight must be positive, from 1e-100 to 1e100{zero}; got {weight!r}")
        object.__setattr__(self, "weight", weight)

    def _check_limit(self) -> bool:
        """Whether there is a limit; a typed error if it makes no sense."""
        own, other = (("max", "at_most"), ("min", "at_least"))[:: 1 if self.direction == "min" else -1]
        for name in other:
            if getattr(self, name) is not None:
                raise InvalidSpace(
                    f"a Metric to {'minimise' if self.direction == 'min' else 'maximise'} has no {name}: give {own[0]}"
                    f" or {own[1]} instead, got {name}={show(getattr(self, name))}"
                )
        fixed, relative = (getattr(self, name) for name in own)
        if fixed is not None and relative is not None:
            raise InvalidSpace(f"a Metric has one limit: give either {own[0]} or {own[1]}, got both")
        if fixed is not None:
            object.__setattr__(self, own[0], number(f"Metric {own[0]}", fixed, InvalidSpace))
        if relative is not None:
            _share_of_default(own[1], relative, self.direction)
        return fixed is not None or relative is not None

    @property
    def limit(self) -> "Limit | None":
        """What must be kept, if anything."""
        low = self.direction == "min"
        fixed, relative = (self.max, self.at_most) if low else (self.min, self.at_least)
        if relative is not None:
            return Limit(_share_of_default("at_most" if low else "at_least", relative, self.direction), True)
        return None if fixed is None else Limit(fixed, False)

    @property
    def sign(self) -> float:
        """1 where less is better, else -1."""
        return 1.0 if self.direction == "min" else -1.0

    def bound(self, default: float | None) -> float | None:
        """The value not to pass, where the default comes to this; None without a limit, or where that is not known."""
        limit = self.limit
        if limit is None or not limit.relative:
            return None if limit is None else limit.value
        return None if default is None else limit.value * default

    def breaks(self, value: float, default: float | None = None) -> bool:
        """Whether a value passes the limit, where the default comes to this."""
        bound = self.bound(default)
        return bound is not None and self.sign * value > self.sign * bound

    def to_json(self) -> dict[str, Any]:
        """Its fields, as keywords of a Metric; limits only if there is one."""
        fields = asdict(self)
        return {name: value for name, value in fields.items() if value is not None or name in _BEFORE_LIMITS}


@dataclass(frozen=True, slots=True)
class Limit:
    """The value that a metric must not pass."""

    value: float  # in the metric's units; or a factor of what the default comes to
    relative: bool


@dataclass(frozen=True, slots=True)
class Margin:
    """How far some settings keep a metric from its limit, in one situation and in the metric's own units."""

    expected: float
    bound: float  # that nine runs of ten keep
    limit: float
    kept: float  # probability that a run keeps the limit

    @property
    def share(self) -> float:
        """From the bound to the limit, as a share of the limit (of the bound, if that is larger): 0.1 is ten percent of
        room; below 0 there is none.
        """
        size = max(abs(self.limit), abs(self.bound), 1e-300)
        return abs(self.limit - self.bound) / size * (1.0 if self.kept >= LIMIT_KEPT else -1.0)

    def __str__(self) -> str:
        room = "kept" if self.limit == 0.0 else f"{self.share:.0%} of room"
        room = room if self.kept >= LIMIT_KEPT else "no room"
        return (
            f"expected {self.expected:.4g}, {self.bound:.4g} in nine runs of ten; limit {self.limit:.4g}: {room},"
            f" kept with a probability of {self.kept:.0%}"
        )


def _share_of_default(name: str, text: object, direction: str) -> float:
    """The factor that a text such as "1.05 default" names."""
    words = text.split() if isinstance(text, str) else []
    try:
        factor = float(words[0]) if len(words) == 2 and words[1] == "default" else math.nan
    except ValueError:
        factor = math.nan
    if not 1e-6 <= factor <= 1e6:
        example = "1.05 default" if direction == "min" else "0.95 default"
        raise InvalidSpace(f'Metric {name} must be a share of the default, as in "{example}", got {show(text)}')
    return factor
