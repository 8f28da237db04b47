"""Pieces that streams are made of: schedules of regimes, the random numbers behind them, checks of their settings."""

from collections.abc import Sequence

import numpy as np

from rasp_tuner.base.checks import number, whole
from rasp_tuner.errors import InvalidValue

MAX_HORIZON_STEPS = 10**7  # steps; more is a typing error
STREAM = 0x57EA  # keeps the stream's random numbers apart from those of an agent with the same seed


def segments(order: Sequence[int], horizon: int) -> list[int]:
    """The regime of each step when the horizon is cut into equal parts, one for each entry of `order`."""
    return [order[step * len(order) // horizon] for step in range(horizon)]


def recurring(horizon: int, regimes: int, shortest: int, longest: int, rng: np.random.Generator) -> list[int]:
    """The regime of each step when regimes follow each other at random, in blocks of random length."""
    steps: list[int] = []
    now = int(rng.integers(regimes))
    while len(steps) < horizon:
        steps += [now] * int(rng.integers(shortest, longest + 1))
        if regimes > 1:
            now = (now + int(rng.integers(1, regimes))) % regimes  # always another one
    return steps[:horizon]


def generator(seed: int) -> np.random.Generator:
    """The random numbers of a stream."""
    return np.random.default_rng([whole("seed", seed, 0, 2**63), STREAM])


def check_horizon(horizon: int) -> int:
    return whole("horizon", horizon, 1, MAX_HORIZON_STEPS)


def not_negative(field: str, value: float) -> float:
    checked = number(field, value)
    if checked < 0.0:
        raise InvalidValue(f"{field} must not be negative, got {checked!r}")
    return checked
