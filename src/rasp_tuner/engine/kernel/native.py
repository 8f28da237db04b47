"""The library that is compiled from C: whether there is one, its functions, and what they are given.

It is optional (`available()`): it saves what NumPy costs on small arrays. Calls do not hold Python's lock.
"""

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.build import LIBRARY, digest
from rasp_tuner.engine.kernel.moving import sketch
from rasp_tuner.engine.kernel.shared_structs import MOST_COMPILED_KNOBS, DimsStruct, StateStruct, difference
from rasp_tuner.engine.kernel.state import Dims, State, shapes

POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS: dict[str, list[Any]] = {  # of each function, after those that all have
    "believe": [POINTER] * 2,
    "predict": [POINTER, POINTER, NUMBER, POINTER, POINTER],
    "against": [POINTER] * 3,
    "forecast": [POINTER] * 6,
    "choose": [POINTER] * 6,
    "best": [POINTER] * 2,
    "learn": [POINTER] * 6,
}


class Owned(NamedTuple):
    """Where something lies that compiled code is given with every call, and the objects that own this memory."""

    address: int
    owners: tuple[Any, ...]


def wanted() -> bool:
    """Whether compiled code may be used at all."""
    return os.environ.get("RASP_NATIVE") != "0"


@lru_cache
def _library() -> ctypes.CDLL | str:
    """The library, or the reason why there is none."""
    if not wanted():
        return "turned off by RASP_NATIVE=0"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.rasp_sources.restype = ctypes.c_char_p
        made_of = library.rasp_sources().decode()
        for name, arguments in ARGUMENTS.items():
            function = getattr(library, f"rasp_{name}")
            function.restype, function.argtypes = None, [POINTER, POINTER, POINTER, NUMBER, *arguments]
        _ = library.rasp_places
    except (OSError, AttributeError):
        return "not built: run python -m rasp_tuner.engine.kernel.build"
    if digest() not in (None, made_of):
        return "built from other C files: run python -m rasp_tuner.engine.kernel.build"
    wrong = difference(library)
    return (
        library if wrong is None else f"built for other structs, {wrong}: run python -m rasp_tuner.engine.kernel.build"
    )


def available() -> bool:
    """Whether there is a library to use."""
    return why_not() is None


def why_not() -> str | None:
    """Why there is no library; None if there is one."""
    library = _library()
    return library if isinstance(library, str) else None


def function(name: str, arguments: list[Any], result: Any = None) -> Callable[..., Any]:
    """A function of the library that is none of those for many tuners."""
    if not available():
        raise RuntimeError(f"the native kernel is {why_not()}")
    found: Callable[..., Any] = getattr(_library(), name)
    found.restype, found.argtypes = result, arguments  # type: ignore[attr-defined]
    return found


def serves(dims: Dims) -> bool:
    """Whether compiled code is the faster way for tuners of this size."""
    return dims.knobs <= MOST_COMPILED_KNOBS


def dims_struct(dims: Dims, default: Array) -> Owned:
    if not serves(dims):
        raise ValueError(f"compiled code takes up to {MOST_COMPILED_KNOBS} knobs, got {dims.knobs}")
    own = as_given(np.array(default), 1, dims.knobs)
    matrix = np.ascontiguousarray(sketch(dims)) if dims.context > dims.width else np.zeros(1)
    struct = DimsStruct(
        dims.knobs, dims.context, dims.columns, dims.features, dims.sample, dims.prompt, dims.rows, dims.width,
        dims.rank, dims.coefficients, address(own), address(matrix),
    )  # fmt: skip
    return Owned(ctypes.addressof(struct), (struct, own, matrix))


def state_struct(dims: Dims, state: State) -> Owned:
    arrays = dict(state.items())
    for name, shape in shapes(dims).items():
        array = arrays[name]
        good = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.flags.c_contiguous
        if not good or array.shape != (state.size, *shape):
            raise ValueError(f"state.{name} must be a contiguous NumPy array of float64, {(state.size, *shape)}")
    struct = StateStruct(*(int(array.ctypes.data) for array in arrays.values()))
    return Owned(ctypes.addressof(struct), (struct, *arrays.values()))


def as_given(values: ArrayLike, n: int, width: int) -> Array:
    """As compiled code reads them."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.size != n * width:
        raise ValueError(f"{n} tuners take {n} x {width} numbers, got an array {array.shape}")
    return array


def address(array: NDArray[Any]) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type] # three times as fast
    except (TypeError, ValueError):  # read-only, or empty
        return int(array.ctypes.data)
