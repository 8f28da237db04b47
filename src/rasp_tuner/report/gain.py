"""Gain against the default: what it would have come to, by the forecasts of the time, less what came.

What came is known; what the default would have given is not. Its forecast may err in the same way at every step, so
those errors add up; noise of single runs cancels, so that its squares do. The interval is cautious for that.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from rasp_tuner.report.history import Row

WIDTH_95 = 1.96  # deviations on either side that hold 95%
SETTLED = 10  # steps, after which the scales of several metrics, and so the units of their sum, hardly change
SUREST = 1e-9  # probability that is told apart from none


@dataclass(frozen=True, slots=True)
class Gain:
    """Up to one step, in units of the target."""

    step: int
    total: float
    half: float  # width of the 95% interval to either side
    steps: int  # that it is summed over
    default: float | None  # what the default would have come to, summed up without its sign; None if that changed

    @property
    def share(self) -> tuple[float, float, float] | None:
        """Of what the default would have come to: the gain, and the ends of its interval; None if that says nothing."""
        if not self.default:
            return None
        unit = self.default
        return self.total / unit, (self.total - self.half) / unit, (self.total + self.half) / unit


def running_gain(rows: Iterable[Row], sign: float, first: int = 0) -> list[Gain]:
    """After each own suggestion from step `first` on that did not fail and has a forecast.

    `sign` is -1 if more is better.
    """
    gains: list[Gain] = []
    total = shared = squares = size = 0.0
    signs: set[float] = set()
    for row in rows:
        level, came, expected = row["expected_default"], row["target"], row["expected"]
        if level is None or came is None or expected is None or row["id"] is None or row["step"] < first:
            continue
        size += abs(level)
        signs.add(math.copysign(1.0, level))
        if not row["default"]:
            total += sign * (level - came)
            shared += _deviation(sign * (level - expected), row["better"], row["deviation"])
            squares += row["deviation"] * row["deviation"]
        half, default = WIDTH_95 * (shared + math.sqrt(squares)), size if len(signs) == 1 else None
        gains.append(Gain(row["step"], total, half, len(gains) + 1, default))
    return [gain for gain in gains if all(map(math.isfinite, (gain.total, gain.half)))]


def _deviation(difference: float, better: float | None, otherwise: float) -> float:
    """Of a believed difference, from the probability that it is above zero."""
    apart = 0.0 if better is None else NormalDist().inv_cdf(min(max(better, SUREST), 1.0 - SUREST))
    return abs(difference / apart) if abs(apart) > 1e-6 else otherwise
