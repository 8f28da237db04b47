"""Numbers: what the bookkeeping around the families is written in, once for one tuner and for many.

A number is a float, of one tuner, or an array [B], of B tuners; a condition is a bool, or an array [B] of them. The
same code serves both: it takes its functions from `numbers_of(x)`, by the names of the Python array API standard. For
floats these are Python's own, since a call of NumPy costs as much as twenty of them.

Written so that it holds for both: `&`, `|` and `logical_not` of conditions; `where` for a branch; `clip` for a bound
that is a constant, of which either may be None.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.state_checks import Field, checked
from rasp_tuner.engine import floats
from rasp_tuner.engine.kernel.namespace import namespace

Number = Any  # a float, or an array [B] of the namespace in use
Condition = Any  # a bool, or an array [B]
Tensor = Any

FLOATS = floats
BLOCK_TUNERS = 4096  # looked at together by what takes much memory for each


def numbers_of(x: Number) -> Any:
    """The functions for numbers of this kind: `FLOATS`, or the array namespace."""
    return FLOATS if isinstance(x, (float, int)) else namespace(x)


def erfc(x: Number) -> Number:
    """1 - erf(x), accurate where that is tiny; not in the array API standard."""
    if isinstance(x, float):
        return math.erfc(x)
    return np.array([math.erfc(value) for value in x.tolist()]) if isinstance(x, np.ndarray) else x.erfc()


def columns_of(rows: Tensor) -> list[Number]:
    """The C columns of an array [C] of one tuner, or [B, C], as numbers."""
    if rows.ndim == 1:
        columns: list[Number] = rows.tolist()
        return columns
    return [rows[:, c] for c in range(rows.shape[1])]


def rows_of(columns: Sequence[Number]) -> Tensor:
    """[C], or [B, C]: the columns as one array."""
    if isinstance(columns[0], float):
        return np.array(columns)
    return namespace(columns[0]).stack(columns, axis=-1)


def saved(numbers: Sequence[Number]) -> Array:
    """Numbers as an array for a snapshot: [n], or [n, B]; one tuner's are one of the latter's last axis."""
    if isinstance(numbers[0], np.ndarray | float | int):  # a bool is an int
        return np.array(numbers, dtype=np.float64)
    return np.array([number.cpu().numpy() for number in numbers], dtype=np.float64)


def restored(state: Mapping[str, Array], fields: Mapping[str, Field], zero: Number) -> dict[str, list[Number]]:
    """The numbers that `saved` made arrays of, checked, on the device of `zero`: a list for each field [n] or [].

    Of many tuners every array has a last axis of tuners.
    """
    if isinstance(zero, float):
        found = checked(state, fields, {})
        return {name: array.reshape(-1).tolist() for name, array in found.items()}
    xp, many = namespace(zero), {name: replace(field, shape=(*field.shape, "B")) for name, field in fields.items()}
    rows = {name: array.reshape(-1, len(zero)) for name, array in checked(state, many, {"B": len(zero)}).items()}
    return {
        name: [xp.asarray(row.copy(), dtype=zero.dtype, device=zero.device) for row in own]
        for name, own in rows.items()
    }


def chosen(condition: Condition, new: Number, old: Number) -> Number:
    """`new` where the condition holds, `old` elsewhere."""
    if isinstance(condition, bool):
        return new if condition else old
    return namespace(condition).where(condition, new, old)


def found_among(tuners: Condition, find: Callable[..., Tensor], *arrays: Tensor) -> Condition:
    """What `find` says [b] of the arrays [b, ...] of some tuners; False for the others, who cost nothing.

    Of one tuner the arrays lack their first axis.
    """
    if isinstance(tuners, bool):
        return tuners and bool(find(*(array[None] for array in arrays))[0])
    found = tuners & False
    taken = namespace(tuners).nonzero(tuners)[0]
    for start in range(0, len(taken), BLOCK_TUNERS):
        block = taken[start : start + BLOCK_TUNERS]
        found[block] = find(*(array[block] for array in arrays))
    return found
