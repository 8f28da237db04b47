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
SUREST = 1e-9  # probability that is told apart from none


@dataclass(frozen=True, slots=True)
class Gain:
    """Up to one step, in units of the target."""

    step: int
    total: float
    half: float  # width of the 95% interval to either side
    default: float  # what the default would have come to, summed as sizes

    @property
    def share(self) -> tuple[float, float, float]:
        """Of what the default would have come to: the gain, and the ends of its interval."""
        unit = max(self.default, 1e-300)
        return self.total / unit, (self.total - self.half) / unit, (self.total + self.half) / unit


def running_gain(rows: Iterable[Row], sign: float) -> list[Gain]:
    """After each own suggestion that did not fail and has a forecast; `sign` is -1 if more is better."""
    gains: list[Gain] = []
    total = shared = squares = default = 0.0
    for row in rows:
        level, came, expected = row["expected_default"], row["target"], row["expected"]
        if level is None or came is None or row["id"] is None:
            continue
        default += abs(level)
        if not row["default"]:
            total += sign * (level - came)
            shared += _deviation(sign * (level - expected), row["better"], row["deviation"])
            squares += row["deviation"] ** 2
        gains.append(Gain(row["step"], total, WIDTH_95 * (shared + math.sqrt(squares)), default))
    return [gain for gain in gains if all(map(math.isfinite, (gain.total, gain.half, gain.default)))]


def _deviation(difference: float, better: float | None, otherwise: float) -> float:
    """Of a believed difference, from the probability that it is above zero."""
    apart = 0.0 if better is None else NormalDist().inv_cdf(min(max(better, SUREST), 1.0 - SUREST))
    return abs(difference / apart) if abs(apart) > 1e-6 else otherwise
