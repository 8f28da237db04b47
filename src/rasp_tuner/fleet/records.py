"""Records: which suggestions of B tuners wait for an answer, and what failed early, as arrays [B, ...].

symbol   meaning
B        tuners
d, c     knobs; context dimensions
"""

from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array

GIVEN, LOCATED = 1.0, 2.0  # of `guided`: a start was given; and it says where optima lie


@dataclass
class Records:
    """Every array is of float64; flags are 0 or 1."""

    number: Array  # [B] of the tuner in this fleet, for its draws: never used again
    asks: Array  # [B] suggestions made
    learned: Array  # [B] samples told or observed
    waiting: Array  # [B] whether a suggestion waits for its answer
    point: Array  # [B, d] that suggestion, in the unit box
    context: Array  # [B, c] what it was made for
    current: Array  # [B, d] the latest suggestion that was answered
    guided: Array  # [B] whether it began with what the fleet knew: 0, GIVEN or LOCATED
    failures: Array  # [B] that came before anything succeeded
    failed_at: Array  # [B, F, d + c] their points and contexts; F grows with the most that any tuner has


def blank(size: int, default: Array, context: int, first: int) -> Records:
    """Of tuners that know nothing, numbered from `first` on; `default` [d]."""
    d, zeros = len(default), np.zeros
    return Records(
        number=np.arange(first, first + size, dtype=np.float64),
        asks=zeros(size),
        learned=zeros(size),
        waiting=zeros(size),
        point=np.tile(default, (size, 1)),
        context=zeros((size, context)),
        current=np.tile(default, (size, 1)),
        guided=zeros(size),
        failures=zeros(size),
        failed_at=zeros((size, 0, d + context)),
    )
