"""NativeHandle: the compiled kernel of one tuner, without what it costs to find its way to many."""

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.native import ARGUMENTS, NUMBER, POINTER, address, dims_struct, function, state_struct
from rasp_tuner.engine.kernel.shared_structs import OneStruct
from rasp_tuner.engine.kernel.state import Dims, State

OFTEN, SELDOM = ("believe", "against", "choose", "forecast", "learn"), ("predict", "compare", "best")


class NativeHandle:
    """The compiled functions for one tuner alone in its state, by name.

    Those of OFTEN take the address of a belief, and find all else in `given`: arrays by their names in single.c.
    Those of SELDOM take addresses.
    """

    def __init__(self, dims: Dims, default: Array, state: State, given: Mapping[str, Array]) -> None:
        rows = np.zeros(1, dtype=np.int64)
        where, arrays = dims_struct(dims, default), state_struct(dims, state)
        one = OneStruct(where.address, arrays.address, **{name: address(array) for name, array in given.items()})
        self._owners = (where, arrays, rows, one, *given.values())
        for name in OFTEN:
            own = function(f"rasp_one_{name}", [POINTER, POINTER])
            setattr(self, name, partial(own, ctypes.addressof(one)))
        for name in SELDOM:
            own = function(f"rasp_{name}", [POINTER, POINTER, POINTER, NUMBER, *ARGUMENTS[name]])
            setattr(self, name, partial(own, where.address, arrays.address, address(rows), 1))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., None]: ...
