"""Checks: what comes into a call of a fleet, checked before anything changes."""

from collections.abc import Mapping

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_encoder import ContextEncoder
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import InvalidValue
from rasp_tuner.fleet.inputs import columns_of, contexts_of, on_host
from rasp_tuner.fleet.knobs import ContinuousKnobs
from rasp_tuner.types import Metric


class Checks:
    """Arguments as arrays with one row for each tuner in `rows`, its positions, by which errors name it."""

    def __init__(self, metrics: Mapping[str, Metric], knobs: ContinuousKnobs, encoder: ContextEncoder) -> None:
        self._metrics, self._knobs, self._encoder = metrics, knobs, encoder

    def contexts(self, given: object, rows: Places) -> Array:
        """[n, c]"""
        return contexts_of(given, self._encoder, rows)

    def params(self, given: object, rows: Places) -> dict[str, Array]:
        """Legal values [n] by knob."""
        names = self._knobs.space.knobs
        params = dict(zip(names, columns_of("params", given, names, rows), strict=True))
        illegal = self._knobs.illegal(params)
        if illegal is not None:
            name, bad, rule = illegal
            raise InvalidValue(f"params[{name!r}] {rule}, got {float(params[name][bad])!r} for tuner {int(rows[bad])}")
        return params

    def values(self, metrics: object, rows: Places, failed: Flags) -> dict[str, Array]:
        return checked_values(self._metrics, metrics, rows, failed)


def checked_values(known: Mapping[str, Metric], given: object, rows: Places, failed: Flags) -> dict[str, Array]:
    """Metrics [n] by name; those of failures are ones."""
    if given is None and failed.all():
        given = dict.fromkeys(known, np.ones(len(rows)))
    if failed.any() and isinstance(given, Mapping):
        given = {name: _without(values, failed) for name, values in given.items()}
    values = dict(zip(known, columns_of("metrics", given, known, rows), strict=True))
    for name, column in values.items():
        if known[name].scale == "log" and (column <= 0.0).any():
            bad = int(np.argmin(column > 0.0))
            raise InvalidValue(
                f"metrics[{name!r}] must be above 0, since its scale is 'log'; got {float(column[bad])!r} for tuner"
                f" {int(rows[bad])}"
            )
    return values


def _without(values: object, failed: Flags) -> object:
    """Ones in the place of what failures came to."""
    try:
        array = np.array(on_host(values), dtype=np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return values  # the check says what is wrong
    return np.where(failed, 1.0, array) if array.shape == failed.shape else array
