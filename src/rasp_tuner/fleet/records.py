"""Records: which suggestions of B tuners wait for an answer, and what failed early, as arrays [B, ...].

symbol   meaning
B        tuners
d, c     knobs; context dimensions
"""

from dataclasses import dataclass

import numpy as np

from rasp_tuner.engine.kernel.state import Tensor

GIVEN, LOCATED = 1.0, 2.0  # of `guided`: a start was given; and it says where optima lie


@dataclass
class Records:
    """Every array is of float64; flags are 0 or 1."""

    number: Tensor  # [B] of the tuner in this fleet, for its draws: never used again
    asks: Tensor  # [B] suggestions made
    learned: Tensor  # [B] samples told or observed
    waiting: Tensor  # [B] whether a suggestion waits for its answer
    point: Tensor  # [B, d] that suggestion, in the unit box
    context: Tensor  # [B, c] what it was made for
    current: Tensor  # [B, d] the latest suggestion that was answered
    guided: Tensor  # [B] whether it began with what the fleet knew: 0, GIVEN or LOCATED
    failures: Tensor  # [B] that came before anything succeeded
    failed_at: Tensor  # [B, F, d + c] their points and contexts; F grows with the most that any tuner has


def blank(size: int, default: Tensor, context: int, first: int) -> Records:
    """Of tuners that know nothing, numbered from `first` on, in NumPy; `default` [d]."""
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
