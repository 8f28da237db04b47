"""Checks of what comes into a fleet: arrays with one row for each tuner; errors name the first tuner concerned."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.base.checks import same_names, show
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.contexts.context_encoder import ContextEncoder, KindEncoder
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import InvalidValue


def on_host(given: Any) -> Any:
    """The same; tensors, which may lie on a GPU, as arrays."""
    return given.cpu().numpy() if hasattr(given, "cpu") else given


def rows_of(which: object, size: int) -> Places:
    """Positions of the tuners meant by None (all), a position, a slice, positions or a mask of length `size`."""
    if which is None:
        return np.arange(size)
    try:
        if isinstance(which, slice):
            return np.arange(size)[which]
        given = np.atleast_1d(np.asarray(on_host(which)))
    except (ValueError, TypeError) as reason:
        raise InvalidValue(f"which must be positions of tuners, got {show(which)}") from reason
    if given.dtype == bool and given.shape == (size,):
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
        raise InvalidValue(
            f"which must be None, a position, a slice, positions or a mask of length {size}, got {show(which)}"
        )
    rows = given.astype(np.int64)
    outside = rows[(rows < 0) | (rows >= size)]
    if outside.size:
        there = f"positions from 0 to {size - 1}" if size else "nothing: the fleet is empty"
        raise InvalidValue(f"which must hold {there}, got {int(outside[0])}")
    if rows.size > 1 and not (np.diff(rows) > 0).all():
        found, counts = np.unique(rows, return_counts=True)
        if counts.max() > 1:
            raise InvalidValue(f"which must name a tuner once in a call, got {int(found[counts.argmax()])} twice")
    return rows


def row_of(i: object, size: int) -> Places:
    """[1] the position of one tuner."""
    if i is None or isinstance(i, slice) or len(rows := rows_of(i, size)) != 1:
        raise InvalidValue(f"fleet[i] is one tuner: i must be a position, got {show(i)}")
    return rows


def contexts_of(given: object, encoder: ContextEncoder, rows: Places) -> Array:
    """[n, c] of an array, or of arrays [n] by name; values beyond +-1e100 saturate."""
    if encoder.dim == 0:
        if given is None or (isinstance(given, Mapping) and not given) or getattr(given, "shape", (1,))[-1] == 0:
            return np.zeros((len(rows), 0))
        raise InvalidValue(f"this fleet was built without context, got {show(given)}; leave it out")
    if isinstance(encoder, KindEncoder):
        if given is None:
            raise InvalidValue(f"contexts are missing: give columns by name, {len(rows)} values each")
        return _encoded_rows(given, encoder, rows)
    if given is None:
        raise InvalidValue(f"contexts are missing: give an array [{len(rows)}, {encoder.dim}]")
    if isinstance(given, Mapping):
        if encoder.names is None:
            raise InvalidValue(f"contexts have no names here: give an array [{len(rows)}, {encoder.dim}]")
        columns = same_names("contexts", given, encoder.names)
        arrays = [_column(f"contexts[{name!r}]", columns[name], rows) for name in encoder.names]
        contexts = np.stack(arrays, axis=1)
    else:
        contexts = _array("contexts", given, (len(rows), encoder.dim))
        _check_finite("contexts", contexts, rows)
    return np.clip(contexts, -LARGEST, LARGEST)


def _encoded_rows(given: object, encoder: KindEncoder, rows: Places) -> Array:
    """[n, c] of columns by name, whose values have kinds: each tuner's context by itself."""
    columns = columns_by_name("contexts", given, rows)
    encoded = np.empty((len(rows), encoder.dim))
    for i, row in enumerate(rows):
        try:
            encoded[i] = encoder.encode({name: column[i] for name, column in columns.items()})
        except InvalidValue as reason:
            raise InvalidValue(f"{reason} for tuner {int(row)}") from None
    return encoded


def columns_by_name(field: str, given: object, rows: Places) -> dict[str, Sequence[Any]]:
    """Plain values of any kind, a column for each name."""
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{field} must be columns by name, one value for each tuner, got {show(given)}")
    columns = {name: column.tolist() if hasattr(column, "tolist") else column for name, column in given.items()}
    for name, column in columns.items():
        if not isinstance(column, Sequence) or isinstance(column, str | bytes) or len(column) != len(rows):
            raise InvalidValue(f"{field}[{name!r}] must hold {len(rows)} values, got {show(column)}")
    return columns


def columns_of(field: str, given: object, names: Mapping[str, object], rows: Places) -> list[Array]:
    """Finite arrays [n], one for each name."""
    columns = same_names(field, given, names)
    return [_column(f"{field}[{name!r}]", columns[name], rows) for name in names]


def flags_of(field: str, given: object, rows: Places) -> Flags:
    """[n] true or false for each tuner; all false for None."""
    if given is None:
        return np.zeros(len(rows), dtype=bool)
    try:
        flags = np.asarray(on_host(given))
    except ValueError:
        flags = np.zeros(0)  # rows of different lengths
    if flags.shape != (len(rows),) or flags.dtype != bool:
        raise InvalidValue(f"{field} must hold {len(rows)} times True or False, got {show(given)}")
    return flags


def ends_of(failed: object, stopped: object, rows: Places) -> tuple[Flags, Flags]:
    """[n] whether runs failed, and whether they were ended; of one run at most one of the two is true."""
    flags, ended = flags_of("failed", failed, rows), flags_of("stopped", stopped, rows)
    both = flags & ended
    if both.any():
        raise InvalidValue(
            f"a run either failed or was stopped; failed and stopped are both True for tuner {int(rows[both][0])}"
        )
    return flags, ended


def check_no_control(control: object) -> None:
    """Refuse what a Tuner learns and a fleet does not: runs with a control."""
    if control is not None:
        raise InvalidValue("a fleet takes no control: tell the metrics alone, or give such runs to a Tuner")


def _column(field: str, given: object, rows: Places) -> Array:
    if _holds_bools(on_host(given)):
        raise InvalidValue(f"{field} must hold numbers, got {show(given)}; if you mean 1 and 0, give these")
    column = _array(field, given, (len(rows),))
    _check_finite(field, column, rows)
    return column


def _holds_bools(given: object) -> bool:
    """Whether there is a True or False where numbers should be."""
    if isinstance(given, list | tuple):
        return any(isinstance(value, bool | np.bool_) for value in given)
    return isinstance(given, np.ndarray) and given.dtype == np.bool_


def _array(field: str, given: object, shape: tuple[int, ...]) -> Array:
    try:
        found = np.asarray(on_host(given))
        if found.dtype.kind in "US" or (
            found.dtype == object and any(isinstance(one, str | bytes) for one in found.flat)
        ):
            raise TypeError("a text is no number, whatever it says")
        array = np.array(found, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError) as reason:
        raise InvalidValue(f"{field} must be an array of numbers {list(shape)}, got {show(given)}") from reason
    if tuple(array.shape) != shape:
        raise InvalidValue(f"{field} must have the shape {list(shape)}, got {list(array.shape)}")
    return array


def _check_finite(field: str, array: Array, rows: Places) -> None:
    fine = np.isfinite(array)
    if fine.all():
        return
    bad = int(np.argmin(fine.reshape(len(rows), -1).all(axis=1)))
    raise InvalidValue(f"{field} must be finite, got {show(array[bad].tolist())} for tuner {int(rows[bad])}")
