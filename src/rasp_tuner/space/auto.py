"""`Auto`: a number, or a word such as "auto" with which the system chooses for itself. `Optional`: a number or None."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space.numbers import Float, Int, PowerOfTwo
from rasp_tuner.space.values import Value, When, checked_when, plain_value

Number: TypeAlias = Float | Int | PowerOfTwo


@dataclass(frozen=True)
class Auto:
    """A value of the number knob, or the word: "auto", None, -1 for "no limit", 0 before a logarithmic range.

    To models it is two coordinates: a switch, and a number that exists only where the switch says so.

    >>> Auto(Int(1, 64)).check("auto")
    'auto'
    """

    knob: Number
    word: Value = "auto"
    when: When | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if type(self.knob) not in (Float, Int, PowerOfTwo):
            raise InvalidSpace(
                f"{kind} takes a Float, Int or PowerOfTwo, got {show(self.knob)}; to a Categorical add one more choice"
            )
        if self.knob.when is not None:
            raise InvalidSpace(f"{kind} has the condition, not its number: give when to {kind}, got {show(self.knob)}")
        object.__setattr__(self, "word", plain_value(f"{kind} word", self.word))
        object.__setattr__(self, "when", checked_when(kind, self.when))
        try:
            self.knob.check(self.word)
        except InvalidValue:
            return
        raise InvalidSpace(f"{kind} word must not be a value of its knob {self.knob}, got {show(self.word)}")

    @property
    def levels(self) -> int | None:
        """How many legal values there are; None for a continuum."""
        return None if self.knob.levels is None else self.knob.levels + 1

    def is_word(self, value: object) -> bool:
        plain = value.item() if isinstance(value, np.generic) else value
        return bool(plain == self.word) and isinstance(plain, bool) == isinstance(self.word, bool)

    def check(self, value: object) -> Value:
        """The legal value that `value` is; an InvalidValue if it is none."""
        if self.is_word(value):
            return self.word
        try:
            return self.knob.check(value)
        except InvalidValue as reason:
            raise InvalidValue(f"{reason}; {self.word!r} is legal, too") from None

    def from_text(self, text: str) -> Value:
        """The value that a person or a file wrote."""
        if text == str(self.word):
            return self.word
        try:
            return self.knob.from_text(text)
        except InvalidValue as reason:
            raise InvalidValue(f"{reason}; {self.word} is legal, too") from None


def Optional(knob: Number, *, when: When | None = None) -> Auto:
    """A value of the number knob, or None: `Auto` with None for its word.

    >>> Optional(Int(1, 64)).word is None
    True
    """
    return Auto(knob, None, when=when)
