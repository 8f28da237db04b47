"""Random numbers of many tuners: a function of the seed, the tuner's number and how often it was asked.

No generator is kept. A tuner's draws do not depend on which others are asked, and are the same bits in NumPy and in
torch, on the CPU and on a GPU. The function is SplitMix64 (Steele, Lea, Flood 2014), on integers that wrap around.
"""

from typing import Any

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Tensor

GOLDEN = 0x9E3779B97F4A7C15  # the step of SplitMix64
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # its multipliers
UNIT = 2.0**-53  # a draw has the 53 bits of a float64


def draws(seed: int, numbers: Tensor, asks: Tensor, count: int) -> Tensor:
    """[n, count] uniform in [0, 1), for tuners with these numbers [n] that were asked so often before [n]."""
    xp = namespace(numbers)
    place = xp.arange(1, count + 1, dtype=xp.int64, device=numbers.device)
    key = _mix(_whole(xp, numbers) * _signed(GOLDEN) + _signed(_mixed_seed(seed)))
    key = _mix(key + _whole(xp, asks) * _signed(GOLDEN))
    bits = _mix(key[:, None] + place * _signed(GOLDEN))
    return xp.astype(_shifted(bits, 11), xp.float64) * UNIT


def _whole(xp: Any, values: Tensor) -> Tensor:
    return xp.astype(values, xp.int64)


def _mix(x: Tensor) -> Tensor:
    """The output function of SplitMix64, of int64 that stand for uint64: torch cannot multiply the latter."""
    x = (x ^ _shifted(x, 30)) * _signed(FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(SECOND)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x >> bits with zeros from the left, which a signed shift does not give."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same bits as this uint64."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _mixed_seed(seed: int) -> int:
    """Seeds that are neighbours give unrelated draws."""
    x, mask = (seed + GOLDEN) & (2**64 - 1), 2**64 - 1
    x = ((x ^ (x >> 30)) * FIRST) & mask
    x = ((x ^ (x >> 27)) * SECOND) & mask
    return x ^ (x >> 31)
