"""Recovery: how many steps it takes until values are as good as they get, and stay near it. Less is better.

symbol   meaning
level    the median of the later half of the values: what they settled at
noise    1.4826 times the median distance of that half from the level: a standard deviation without its outliers
limit    level + the larger of 2 noise and a tenth of the way down to it from the worst median of three
took     steps before the first three values in a row whose median is within the limit; 0: at once
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

LEAST_STEPS_TO_SETTLE = 12  # from which a level is taken
IN_A_ROW = 3  # whose median must be within the limit: one value may be far off
NOISE_DEVIATIONS = 2.0
SHARE = 0.1  # of the way from the worst to the level
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
FAILED = 1e300  # the value of a run that failed: worse than any other


class Settled(NamedTuple):
    """What some values settled at, which of them are as good, and how many steps it took."""

    level: float
    limit: float
    took: int


def settled(values: Sequence[float]) -> Settled | None:
    """Where values settled; None of fewer than `LEAST_STEPS_TO_SETTLE`, or where most of the later half failed."""
    later = values[len(values) // 2 :]
    if len(values) < LEAST_STEPS_TO_SETTLE or (level := median(later)) >= FAILED:
        return None
    noise = MAD_TO_DEVIATION * median(abs(value - level) for value in later)
    worst = max((value for value in _medians(values) if value < FAILED), default=level)
    limit = level + max(NOISE_DEVIATIONS * noise, SHARE * max(worst - level, 0.0))
    took = steps_to_recover(values, limit)
    return None if took is None else Settled(level, limit, took)


def steps_to_recover(values: Sequence[float], limit: float) -> int | None:
    """Steps before the first values in a row whose median is within the limit; None if there are none."""
    return next((step for step, value in enumerate(_medians(values)) if value <= limit), None)


def _medians(values: Sequence[float]) -> list[float]:
    """Of every `IN_A_ROW` values in a row."""
    return [median(values[i : i + IN_A_ROW]) for i in range(len(values) - IN_A_ROW + 1)]
