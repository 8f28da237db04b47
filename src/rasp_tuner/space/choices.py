"""Knobs of a few choices: `Categorical`, with or without an order, and `Bool`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType

import numpy as np

from rasp_tuner.base.checks import flag, show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space.numbers import clamp
from rasp_tuner.space.values import Value, When, checked_when, plain_value

TRUE_WORDS, FALSE_WORDS = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, init=False)
class Categorical:
    """One of a few choices; each owns an equal share of [0, 1].

    With `ordered`, neighbours in the list are expected to act alike, as of levels "low", "medium", "high".

    >>> Categorical(["lz4", "zstd"]).from_unit(0.7)
    'zstd'
    """

    choices: tuple[Value, ...]
    ordered: bool = False
    when: When | None = field(default=None, hash=False)

    def __init__(self, choices: Sequence[Value], ordered: bool = False, *, when: When | None = None) -> None:
        if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence):
            raise InvalidSpace(f"Categorical choices must be a list, got {show(choices)}")
        flag("Categorical ordered", ordered, InvalidSpace)
        checked = tuple(plain_value("Categorical choices", choice) for choice in choices)
        object.__setattr__(self, "choices", checked)
        object.__setattr__(self, "ordered", ordered)
        object.__setattr__(self, "when", checked_when("Categorical", when))
        if len(checked) < 2:
            raise InvalidSpace(f"Categorical needs at least two choices, got {show(choices)}")
        for i, choice in enumerate(checked):
            if choice in checked[:i]:
                raise InvalidSpace(f"Categorical choices must differ, got {show(choices)} with {show(choice)} again")

    @property
    def levels(self) -> int:
        """How many choices there are."""
        return len(self.choices)

    def check(self, value: object) -> Value:
        """The choice that `value` is; an InvalidValue if it is none."""
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, (str, int, float, NoneType)) or plain not in self.choices:
            raise InvalidValue(f"value must be one of {list(self.choices)}, got {show(value)}")
        return self.choices[self.choices.index(plain)]

    def to_unit(self, value: object) -> float:
        return self.place(self.check(value))

    def place(self, value: Value) -> float:
        """Where a legal value lies in [0, 1]; `to_unit` without its checks."""
        if self.ordered:
            return self.choices.index(value) / (len(self.choices) - 1)
        return (self.choices.index(value) + 0.5) / len(self.choices)

    def nearest(self, unit: float) -> tuple[Value, float]:
        """`from_unit`, and where that value lies in [0, 1]."""
        count = len(self.choices)
        if self.ordered:
            index = round(clamp(unit) * (count - 1))
            return self.choices[index], index / (count - 1)
        index = min(int(clamp(unit) * count), count - 1)
        return self.choices[index], (index + 0.5) / count

    def from_unit(self, unit: float) -> Value:
        return self.nearest(unit)[0]

    def from_text(self, text: str) -> Value:
        """The choice that a person or a file wrote."""
        for choice in self.choices:
            if text == choice or (not isinstance(choice, str) and text in (str(choice), json.dumps(choice))):
                return choice
        raise InvalidValue(f"value must be one of {', '.join(map(str, self.choices))}, got {show(text)}")


@dataclass(frozen=True, init=False)
class Bool(Categorical):
    """A switch: False or True.

    >>> Bool().from_text("on")
    True
    """

    def __init__(self, *, when: When | None = None) -> None:
        super().__init__([False, True], when=when)

    def check(self, value: object) -> Value:
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidValue(f"value must be True or False, got {show(value)}")
        return bool(value)

    def from_text(self, text: str) -> Value:
        word = text.strip().lower()
        if word not in TRUE_WORDS + FALSE_WORDS:
            raise InvalidValue(f"value must be true or false, got {show(text)}")
        return word in TRUE_WORDS
