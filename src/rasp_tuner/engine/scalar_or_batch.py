"""Numbers: what the bookkeeping around the families is written in, once for one tuner and for many.

A number is a float, of one tuner, or an array [B], of B tuners; a condition is a bool, or an array [B] of them. The
same code serves both: it takes its functions from `numbers_of(x)`. For floats these are Python's own, since a call of
NumPy costs as much as twenty of them.

Written so that it holds for both: `&`, `|` and `logical_not` of conditions; `where` for a branch; `clip` for a bound
that is a constant, of which either may be None.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import Field, checked

T = TypeVar("T")
Number = Any  # a float, or an array [B]
Condition = Any  # a bool, or an array [B]
Tensor = NDArray[Any]  # [C] of one tuner, or [B, C]

BLOCK_TUNERS = 4096  # looked at together by what takes much memory for each


class Floats:
    """NumPy's functions that the bookkeeping needs, by their names, for plain floats and bools."""

    abs, exp, expm1, log, log1p, sqrt = abs, math.exp, math.expm1, math.log, math.log1p, math.sqrt
    all = any = bool

    @staticmethod
    def minimum(a: float, b: float) -> float:
        return a if a < b else b

    @staticmethod
    def maximum(a: float, b: float) -> float:
        return a if a > b else b

    @staticmethod
    def clip(x: float, low: float | None, high: float | None) -> float:
        if low is not None and x < low:
            return low
        return high if high is not None and x > high else x

    @staticmethod
    def where(condition: bool, a: T, b: T) -> T:
        return a if condition else b

    @staticmethod
    def logical_not(condition: bool) -> bool:
        return not condition


def numbers_of(x: Number) -> Any:
    """The functions for numbers of this kind: those of `Floats`, or NumPy's."""
    return Floats if isinstance(x, (float, int)) else np


def erfc(x: Number) -> Number:
    """1 - erf(x), accurate where that is tiny; NumPy has none."""
    return math.erfc(x) if isinstance(x, float) else np.array([math.erfc(value) for value in x.tolist()])


def columns_of(rows: Array) -> list[Number]:
    """The C columns of an array [C] of one tuner, or [B, C], as numbers."""
    if rows.ndim == 1:
        columns: list[Number] = rows.tolist()
        return columns
    return [rows[:, c] for c in range(rows.shape[1])]


def rows_of(columns: Sequence[Number]) -> Array:
    """[C], or [B, C]: the columns as one array."""
    return np.array(columns) if isinstance(columns[0], float) else np.stack(columns, axis=-1)


def saved(numbers: Sequence[Number]) -> Array:
    """Numbers as an array for a snapshot: [n], or [n, B]; one tuner's are one of the latter's last axis."""
    return np.array(numbers, dtype=np.float64)


def restored(state: Mapping[str, Array], fields: Mapping[str, Field], zero: Number) -> dict[str, list[Number]]:
    """The numbers that `saved` made arrays of, checked, of the kind of `zero`: a list for each field [n] or [].

    Of many tuners every array has a last axis of tuners.
    """
    if isinstance(zero, float):
        found = checked(state, fields, {})
        return {name: array.reshape(-1).tolist() for name, array in found.items()}
    many = {name: replace(field, shape=(*field.shape, "B")) for name, field in fields.items()}
    found = checked(state, many, {"B": len(zero)})
    return {name: [row.copy() for row in array.reshape(-1, len(zero))] for name, array in found.items()}


def chosen(condition: Condition, new: Number, old: Number) -> Number:
    """`new` where the condition holds, `old` elsewhere."""
    if isinstance(condition, bool):
        return new if condition else old
    return np.where(condition, new, old)


def found_among(tuners: Condition, find: Callable[..., NDArray[np.bool_]], *arrays: Array) -> Condition:
    """What `find` says [b] of the arrays [b, ...] of some tuners; False for the others, who cost nothing.

    Of one tuner the arrays lack their first axis.
    """
    if isinstance(tuners, bool):
        return tuners and bool(find(*(array[None] for array in arrays))[0])
    found = tuners & False
    taken = np.flatnonzero(tuners)
    for start in range(0, len(taken), BLOCK_TUNERS):
        block = taken[start : start + BLOCK_TUNERS]
        found[block] = find(*(array[block] for array in arrays))
    return found
