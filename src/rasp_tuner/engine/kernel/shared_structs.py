"""Structs that Python fills in and compiled code reads; and whether both mean the same by them.

A library is used only if every size and offset agrees: a field that lies elsewhere would be an address of something
else. native/shared_structs.c has the other half of this table.
"""

import ctypes
from dataclasses import fields

from rasp_tuner.base.common_constants import EARLY_SAMPLES
from rasp_tuner.engine.kernel import state as s


class DimsStruct(ctypes.Structure):
    """Dims of kernel.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("d", "c", "k", "p", "q", "P", "R", "w", "r", "m")),
        *((name, ctypes.c_void_p) for name in ("default_", "sketch")),
    ]


class StateStruct(ctypes.Structure):
    """State of kernel.h."""

    _fields_ = [(field.name, ctypes.c_void_p) for field in fields(s.State)]


class OneStruct(ctypes.Structure):
    """One of kernel.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("dims", "state", "context", "draws", "point", "y", "losses", "failed")),
        *((name, ctypes.c_void_p) for name in ("logs", "chosen", "noise", "figures")),
    ]


MOST_COMPILED_KNOBS = 64  # beyond, matrices are large enough for NumPy's linear algebra
STRUCTS: dict[str, type[ctypes.Structure]] = {"Dims": DimsStruct, "State": StateStruct, "One": OneStruct}
NUMBERS = {
    "L": s.L, "E": s.E, "SLOTS": s.SLOTS, "SPARE_SLOTS": s.SPARE_SLOTS, "WINDOW": s.WINDOW_SAMPLES,
    "EARLY": EARLY_SAMPLES, "NOISES": s.NOISES, "SKETCH_DIMENSIONS": s.SKETCH_DIMENSIONS, "RANK": s.RANK,
    "MOST_KNOBS": MOST_COMPILED_KNOBS,
}  # fmt: skip


class _Place(ctypes.Structure):
    """Place of shared_structs.c."""

    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_int64)]


def difference(library: ctypes.CDLL) -> str | None:
    """The first size, offset or constant in which the library differs from Python; None if there is none."""
    found, places = ctypes.POINTER(_Place)(), library.rasp_places
    places.restype = ctypes.c_int64
    count = places(ctypes.byref(found))
    theirs = {found[i].name.decode(): int(found[i].value) for i in range(count)}
    ours = {**NUMBERS}
    for name, struct in STRUCTS.items():
        ours[name] = ctypes.sizeof(struct)
        ours |= {f"{name}.{field[0]}": getattr(struct, field[0]).offset for field in struct._fields_}
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            return f"{name} is {theirs.get(name)} there and {ours.get(name)} here"
    return None
