"""What the arrays of a saved state must be: said once for each, and checked before anything computes on them.

    FIELDS = {
        "steps": Field((), 0, MOST_SAMPLES, whole=True),
        "counts": Field(("n",), 1),
        "keys": Field(("n", "c"), -LARGEST, LARGEST),
    }
    arrays = checked(state, FIELDS, {"n": range(SLOTS + 1), "c": context_dim})

A state may be damaged, or made by somebody who means harm: its checksum says nothing about that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_type_hints

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import SnapshotError

FINITE = 1.7e308  # no float is much larger
MOST_SAMPLES = 2**50  # a million a second for 35 years; every count up to here is a float of its own

Sizes = Mapping[str, int | range]  # a range: the file chooses, the same size for all arrays that name it


@dataclass(frozen=True, slots=True)
class Field:
    """The rule of one array. A dimension is a number, or the name of a size. Numbers lie in [least, most].

    Bounds may be tuples: one for each place of the last axis.
    """

    shape: tuple[int | str, ...]
    least: float | tuple[float, ...] = -FINITE
    most: float | tuple[float, ...] = FINITE
    whole: bool = False


def fields_of(kind: type) -> dict[str, Field]:
    """The rules beside the arrays of a class, as in `steps: Annotated[Array, Field(())]`."""
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: hint.__metadata__[0] for name, hint in hints if hasattr(hint, "__metadata__")}


MOMENTS = Field((2,), (-FINITE, 0.0), (FINITE, 1e201))  # mean and variance of a RunningEMA


class StatePart(dict[str, Array]):
    """Some arrays of a state by shorter names; `place` is what all their full names begin with."""

    def __init__(self, arrays: Mapping[str, Array], place: str) -> None:
        super().__init__(arrays)
        self.place = place


def under(prefix: str, state: Mapping[str, Array]) -> StatePart:
    """The arrays whose names begin with `prefix`, without it: what one part of a nested state was saved as."""
    found = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
    return StatePart(found, _place(state) + prefix)


def checked(state: Mapping[str, Array], fields: Mapping[str, Field], sizes: Sizes) -> dict[str, Array]:
    """The arrays that `fields` name, as copies in C order; a SnapshotError if one lacks or breaks its rule.

    Arrays without a field are left out.
    """
    known = dict(sizes)
    return {name: _checked(state, name, field, known) for name, field in fields.items()}


def broken(state: Mapping[str, Array], name: str, rule: str, value: object) -> SnapshotError:
    """The error that says which array breaks which rule, and by what; for rules between arrays, too."""
    return SnapshotError(f"array {_place(state) + name!r} must {rule}, got {show(value)}")


def _checked(state: Mapping[str, Array], name: str, field: Field, sizes: dict[str, int | range]) -> Array:
    array = state.get(name)
    if array is None:
        raise SnapshotError(f"array {_place(state) + name!r} is missing")
    if not isinstance(array, np.ndarray) or array.dtype != np.float64:
        raise broken(state, name, "hold floats of 64 bits", getattr(array, "dtype", type(array)))
    if not _fits(array.shape, field.shape, sizes):
        raise broken(state, name, f"have the shape {_shape_rule(field.shape, sizes)}", array.shape)
    fine = (array >= field.least) & (array <= field.most)  # a NaN is wrong, too
    if field.whole:
        fine &= array == np.floor(array)
    if not fine.all():
        wrong, kind = ~fine, "whole numbers" if field.whole else "numbers"
        least, most = (np.broadcast_to(bound, array.shape)[wrong][0] for bound in (field.least, field.most))
        raise broken(state, name, f"hold {kind} from {least:g} to {most:g}", float(array[wrong][0]))
    return np.array(array, order="C")


def _fits(shape: tuple[int, ...], rule: tuple[int | str, ...], sizes: dict[str, int | range]) -> bool:
    """Whether a shape keeps its rule; a size that was open is known from then on."""
    if len(shape) != len(rule):
        return False
    for length, wanted in zip(shape, rule, strict=True):
        size = sizes[wanted] if isinstance(wanted, str) else wanted
        if isinstance(size, range):
            if length not in size:
                return False
            sizes[str(wanted)] = length
        elif length != size:
            return False
    return True


def _shape_rule(rule: tuple[int | str, ...], sizes: Sizes) -> str:
    parts = [sizes[wanted] if isinstance(wanted, str) else wanted for wanted in rule]
    words = [f"{part.start}..{part.stop - 1}" if isinstance(part, range) else str(part) for part in parts]
    return f"[{', '.join(words)}]"


def _place(state: Mapping[str, Array]) -> str:
    return state.place if isinstance(state, StatePart) else ""
