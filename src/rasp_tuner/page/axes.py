"""Axes of hand-drawn SVG: where values lie, which of them are named, and the frame around a picture."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import cast

import numpy as np

from rasp_tuner.page.words import value_words
from rasp_tuner.space import Auto, Categorical, Knob, PowerOfTwo, Value

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 40
LEVEL_LABELS, MOST_LABELS = 4, 16  # choices that are named side by side; at a slant


@dataclass(frozen=True)
class Axis:
    """Values -> pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # only whole numbers are named

    def __call__(self, value: float) -> float:
        place = self._warp(value) - self._warp(self.low)
        return self.start + (self.end - self.start) * place / (self._warp(self.high) - self._warp(self.low))

    def ticks(self, count: int = 5) -> list[float]:
        """Round values on the axis."""
        if self.log and self.high / self.low > 4.0:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if self.high / self.low > 1000.0 else (1, 2, 5)
            found = [step * 10.0**power for power in powers for step in steps]
            inside = [tick for tick in found if self.low <= tick <= self.high]
            if len(inside) >= 2:
                return inside
        rough = (self.high - self.low) / count
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough)
        step = max(step, 1.0) if self.whole else step
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _warp(self, value: float) -> float:
        return math.log(value) if self.log else value


def axis_for(
    values: Sequence[float], start: float, end: float, log: bool = False, within: Sequence[float] = ()
) -> Axis:
    """An axis with a little room around the values and `within`."""
    low, high = min([*values, *within]), max([*values, *within])
    if log:
        low, high = low / 1.04, high * 1.04
    else:
        room = 0.05 * (high - low) or abs(high) or 1.0
        low, high = low - room, high + room
    return Axis(low, high, start, end, log)


@dataclass(frozen=True)
class Places:
    """Where a knob's values lie on an axis: numbers at themselves, choices side by side."""

    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    word: str = ""  # what a value may be instead of a number

    def axis(self, start: float, end: float) -> Axis:
        if self.choices:
            return Axis(-0.6, len(self.choices) - 0.4, start, end)
        return axis_for([self.low, self.high], start, end, self.log)

    def ticks(self, axis: Axis) -> list[tuple[float, str]]:
        if self.choices:
            every = math.ceil(len(self.choices) / MOST_LABELS)
            return [(float(i), shortened(c, 9)) for i, c in enumerate(self.choices) if i % every == 0]
        return [(tick, tick_words(tick)) for tick in axis.ticks(4)]


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, without its middle: names of files differ at their ends.

    >>> shortened("a-very-long-name-7.txt", 12)
    'a-ver…-7.txt'
    """
    if len(text) <= most:
        return text
    end = most // 2
    return f"{text[: most - end - 1]}…{text[-end:]}"


def places_of(knob: Knob) -> Places:
    """Where a knob's values lie in a picture."""
    if isinstance(knob, Categorical):
        return Places(tuple(value_words(choice) for choice in knob.choices))
    axis = knob.knob if isinstance(knob, Auto) else knob
    low, log = float(axis.low), isinstance(axis, PowerOfTwo) or axis.log
    word = value_words(knob.word) if isinstance(knob, Auto) else ""
    return Places((), 0.5 if log and low == 0.0 else low, float(axis.high), log, word)


def place_of(knob: Knob, value: Value) -> float:
    """Where one value lies in a picture."""
    if isinstance(knob, Categorical):
        return float(knob.choices.index(value))
    if isinstance(knob, Auto):  # a word is drawn at the lower end
        return place_of(knob.knob, knob.knob.low if knob.is_word(value) else value)
    return max(float(cast(float, value)), places_of(knob).low)


def jitter(knob: Knob, step: int) -> float:
    """Runs with the same choice side by side, in a pattern that shows no order."""
    return 0.36 * (step * 0.618034 % 1.0) - 0.18 if isinstance(knob, Categorical) else 0.0


def tick_words(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e7 else f"{value:.4g}"


def spread_is_wide(values: Sequence[float], times: float = 4.0) -> bool:
    return min(values) > 0.0 and max(values) / min(values) > times


def without_far(values: Sequence[float], log: bool) -> list[float]:
    """Without the few that would squeeze all others into a corner; those are drawn at the edge."""
    ordered = np.sort(np.log(values) if log else np.array(values))
    q1, q3 = np.quantile(ordered, [0.1, 0.9])
    width = max(q3 - q1, 1e-12 + 0.02 * abs(q3))
    kept = ordered[(ordered >= q1 - 1.5 * width) & (ordered <= q3 + 1.5 * width)]
    return [float(v) for v in (np.exp(kept) if log else kept)]


def across(kind: str, width: float, y: float) -> str:
    """A line of this kind from the left end of a picture to the right one."""
    return f'<line class="{kind}" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def y_axis(y: Axis, width: float) -> str:
    def line(tick: float) -> str:
        label = f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick_words(tick)}</text>'
        return across("axis", width, y(tick)) + label

    return _each(y.ticks(), line)


def x_axis(x: Axis, height: float, label: str) -> str:
    floor = height - BOTTOM

    def tick_at(tick: float) -> str:
        return f'<text x="{x(tick):.1f}" y="{floor + 16}" text-anchor="middle">{tick_words(tick)}</text>'

    middle = 0.5 * (x.start + x.end)
    return (
        f'<line class="axis" x1="{x.start}" x2="{x.end}" y1="{floor}" y2="{floor}"/>'
        + _each(x.ticks(), tick_at)
        + f'<text x="{middle:.0f}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>'
    )


def _each(ticks: Sequence[float], draw: Callable[[float], str]) -> str:
    return "".join(draw(tick) for tick in ticks)


def svg(width: float, height: float, body: Sequence[str], title: str, y_label: str = "") -> str:
    side = f'<text class="name" x="{LEFT - 50}" y="{TOP - 2}">{escape(y_label)}</text>' if y_label else ""
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{side}{''.join(body)}</svg>"
    )
