"""Made-up systems with a positive cost in two situations, and how a tuner runs on one."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rasp_tuner import Bool, Categorical, Float, Int
from rasp_tuner.space import Knob, Params, Value

NOISE = 0.1  # deviation of the logarithm of a measured cost
TURN = 15  # steps that a situation lasts
GRID = 101  # values of a Float that are looked at
LOG_GRID = 600  # values of a wide whole number that are looked at


@dataclass(frozen=True, slots=True)
class System:
    """Knobs, the settings in use, and what a run costs without noise in situation 0 or 1."""

    space: dict[str, Knob]
    default: Params
    cost: Callable[[Params, int], float]

    def best(self, situation: int) -> Params:
        """The cheapest of all settings, by looking at each of them."""
        every = itertools.product(*map(values_of, self.space.values()))
        return min(
            (dict(zip(self.space, values, strict=True)) for values in every), key=lambda p: self.cost(p, situation)
        )


def situations(steps: int, first: int = 0) -> list[int]:
    """0 or 1 for each step, in turns."""
    return [(first + step // TURN) % 2 for step in range(steps)]


def noisy(cost: float, seed: int, step: int) -> float:
    """A measurement of this cost; the same noise at this step whatever the tuner does."""
    return cost * float(np.exp(NOISE * np.random.default_rng([seed, step, 2]).normal()))


def number(value: Value) -> float:
    """The value of a knob that has numbers."""
    return float(value)  # type: ignore[arg-type]


def values_of(knob: Knob) -> Iterable[Value]:
    """All values of a knob; of a Float, or a wide whole number, some over its range."""
    if isinstance(knob, Bool):
        return (False, True)
    if isinstance(knob, Categorical):
        return knob.choices
    if isinstance(knob, Int):
        if knob.high - knob.low < LOG_GRID:
            return range(knob.low, knob.high + 1)
        return [int(value) for value in np.unique(np.geomspace(knob.low, knob.high, LOG_GRID).round())]
    if isinstance(knob, Float):
        return [float(value) for value in np.linspace(knob.low, knob.high, GRID)]
    raise TypeError(f"no values of a {type(knob).__name__} are listed here")
