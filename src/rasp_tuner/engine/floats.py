"""The functions of the Python array API standard that the bookkeeping needs, for plain floats and bools (numbers.py).

A module, since Python calls a module's functions faster than an object's.
"""

from math import exp, expm1, log, sqrt
from typing import TypeVar

T = TypeVar("T")

__all__ = ["abs", "all", "any", "clip", "exp", "expm1", "log", "logical_not", "maximum", "minimum", "sqrt", "where"]

abs = abs
all = any = bool


def minimum(a: float, b: float) -> float:
    return a if a < b else b


def maximum(a: float, b: float) -> float:
    return a if a > b else b


def clip(x: float, low: float | None, high: float | None) -> float:
    if low is not None and x < low:
        return low
    return high if high is not None and x > high else x


def where(condition: bool, a: T, b: T) -> T:
    return a if condition else b


def logical_not(condition: bool) -> bool:
    return not condition
