"""Checks of what comes into a fleet: arrays with one row for each tuner; errors name the first tuner concerned."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.checks import same_names, show
from rasp_tuner.core.context_encoder import ContextEncoder, KindEncoder
from rasp_tuner.core.numerics import LARGEST
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Tensor
from rasp_tuner.errors import InvalidValue
from rasp_tuner.fleet.device import host, is_tensor

Rows = NDArray[np.int64]
Convert = Callable[[Any], Tensor]  # anything array-like to a float64 array where the fleet computes


def rows_of(which: object, size: int) -> Rows:
    """Positions of the tuners meant by None (all), a position, a slice, positions or a mask of length `size`."""
    if which is None:
        return np.arange(size)
    if isinstance(which, slice):
        return np.arange(size)[which]
    try:
        given = np.atleast_1d(np.asarray(host(which) if is_tensor(which) else which))
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
        raise InvalidValue(f"which must hold positions from 0 to {size - 1}, got {int(outside[0])}")
    if rows.size > 1 and not (np.diff(rows) > 0).all():
        found, counts = np.unique(rows, return_counts=True)
        if counts.max() > 1:
            raise InvalidValue(f"which must name a tuner once in a call, got {int(found[counts.argmax()])} twice")
    return rows


def contexts_of(given: object, encoder: ContextEncoder, rows: Rows, convert: Convert) -> Tensor:
    """[n, c] of an array, or of arrays [n] by name; values beyond +-1e100 saturate."""
    if encoder.dim == 0:
        if given is None or (isinstance(given, Mapping) and not given) or getattr(given, "shape", (1,))[-1] == 0:
            return convert(np.zeros((len(rows), 0)))
        raise InvalidValue(f"this fleet was built without context, got {show(given)}; leave it out")
    if given is None:
        raise InvalidValue(f"contexts are missing: give an array [{len(rows)}, {encoder.dim}]")
    if isinstance(encoder, KindEncoder):
        return convert(_encoded_rows(given, encoder, rows))
    if isinstance(given, Mapping):
        if encoder.names is None:
            raise InvalidValue(f"contexts have no names here: give an array [{len(rows)}, {encoder.dim}]")
        columns = same_names("contexts", given, encoder.names)
        arrays = [_column(f"contexts[{name!r}]", columns[name], rows, convert) for name in encoder.names]
        contexts = namespace(arrays[0]).stack(arrays, axis=1)
    else:
        contexts = _array("contexts", given, (len(rows), encoder.dim), convert)
        _check_finite("contexts", contexts, rows)
    return namespace(contexts).clip(contexts, -LARGEST, LARGEST)


def _encoded_rows(given: object, encoder: KindEncoder, rows: Rows) -> NDArray[np.float64]:
    """[n, c] of columns by name, whose values have kinds: each tuner's context by itself."""
    if not isinstance(given, Mapping):
        raise InvalidValue(f"contexts must be columns by name, one value for each tuner, got {show(given)}")
    columns = {name: column.tolist() if hasattr(column, "tolist") else column for name, column in given.items()}
    for name, column in columns.items():
        if not isinstance(column, Sequence) or isinstance(column, str | bytes) or len(column) != len(rows):
            raise InvalidValue(f"contexts[{name!r}] must hold {len(rows)} values, got {show(column)}")
    encoded = np.empty((len(rows), encoder.dim))
    for i, row in enumerate(rows):
        try:
            encoded[i] = encoder.encode({name: column[i] for name, column in columns.items()})
        except InvalidValue as reason:
            raise InvalidValue(f"{reason} for tuner {int(row)}") from None
    return encoded


def columns_of(field: str, given: object, names: Mapping[str, object], rows: Rows, convert: Convert) -> list[Tensor]:
    """Finite arrays [n], one for each name."""
    columns = same_names(field, given, names)
    return [_column(f"{field}[{name!r}]", columns[name], rows, convert) for name in names]


def flags_of(field: str, given: object, rows: Rows) -> NDArray[np.bool_]:
    """[n] true or false for each tuner; all false for None."""
    if given is None:
        return np.zeros(len(rows), dtype=bool)
    flags = np.asarray(host(given) if is_tensor(given) else given)
    if flags.shape != (len(rows),) or flags.dtype != bool:
        raise InvalidValue(f"{field} must hold {len(rows)} times True or False, got {show(given)}")
    return flags


def _column(field: str, given: object, rows: Rows, convert: Convert) -> Tensor:
    column = _array(field, given, (len(rows),), convert)
    _check_finite(field, column, rows)
    return column


def _array(field: str, given: object, shape: tuple[int, ...], convert: Convert) -> Tensor:
    try:
        array = convert(given)
    except (ValueError, TypeError, RuntimeError) as reason:
        raise InvalidValue(f"{field} must be an array of numbers {list(shape)}, got {show(given)}") from reason
    if tuple(array.shape) != shape:
        raise InvalidValue(f"{field} must have the shape {list(shape)}, got {list(array.shape)}")
    return array


def _check_finite(field: str, array: Tensor, rows: Rows) -> None:
    xp = namespace(array)
    fine = xp.isfinite(array)
    if bool(xp.all(fine)):
        return
    fine = xp.reshape(fine, (len(rows), -1))
    bad = int(xp.argmin(xp.astype(xp.all(fine, axis=1), xp.int8)))
    raise InvalidValue(f"{field} must be finite, got {show(array[bad].tolist())} for tuner {int(rows[bad])}")
