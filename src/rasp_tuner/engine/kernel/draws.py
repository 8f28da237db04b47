"""Random numbers of many tuners: a function of the seed, the tuner's number and how often it was asked.

No generator is kept. A tuner's draws do not depend on which others are asked, and are the same bits on a CPU and on a
GPU (native/draws.c). The function is SplitMix64 (Steele, Lea, Flood 2014), on integers that wrap around.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array

Bits = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15  # the step of SplitMix64
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # its multipliers
UNIT = 2.0**-53  # a draw has the 53 bits of a float64


class DrawKeys(NamedTuple):
    """What the draws of n tuners are a function of."""

    seed: int
    numbers: Array  # [n] of the tuners
    asks: Array  # [n] how often each was asked before

    @property
    def mixed_seed(self) -> int:
        """Below 2^64; seeds that are neighbours give unrelated draws."""
        x, mask = (self.seed + GOLDEN) & (2**64 - 1), 2**64 - 1
        x = ((x ^ (x >> 30)) * FIRST) & mask
        x = ((x ^ (x >> 27)) * SECOND) & mask
        return x ^ (x >> 31)


def draws(keys: DrawKeys, count: int) -> Array:
    """[n, count] uniform in [0, 1)."""
    golden, place = np.uint64(GOLDEN), np.arange(1, count + 1, dtype=np.uint64)
    key = _mix(keys.numbers.astype(np.uint64) * golden + np.uint64(keys.mixed_seed))
    key = _mix(key + keys.asks.astype(np.uint64) * golden)
    bits = _mix(key[:, None] + place * golden)
    return (bits >> np.uint64(11)).astype(np.float64) * UNIT


def _mix(x: Bits) -> Bits:
    """The output function of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return x ^ (x >> np.uint64(31))
