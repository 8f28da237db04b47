"""Checks: what comes into a call of a fleet, checked before anything changes."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.context_encoder import ContextEncoder
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Tensor
from rasp_tuner.errors import InvalidValue
from rasp_tuner.fleet.device import host
from rasp_tuner.fleet.inputs import Convert, Rows, columns_of, contexts_of
from rasp_tuner.fleet.knobs import Knobs
from rasp_tuner.types import Metric


class Checks:
    """Arguments as arrays with one row for each tuner in `rows`, its positions, by which errors name it."""

    def __init__(self, metrics: Mapping[str, Metric], knobs: Knobs, encoder: ContextEncoder, convert: Convert) -> None:
        self._metrics, self._knobs, self._encoder, self._convert = metrics, knobs, encoder, convert

    def contexts(self, given: object, rows: Rows) -> Tensor:
        """[n, c]"""
        return contexts_of(given, self._encoder, rows, self._convert)

    def params(self, given: object, rows: Rows) -> dict[str, Tensor]:
        """Legal values [n] by knob."""
        names = self._knobs.space.knobs
        params = dict(zip(names, columns_of("params", given, names, rows, self._convert), strict=True))
        illegal = self._knobs.illegal(params)
        if illegal is not None:
            name, bad, rule = illegal
            raise InvalidValue(f"params[{name!r}] {rule}, got {float(params[name][bad])!r} for tuner {int(rows[bad])}")
        return params

    def values(self, metrics: object, rows: Rows, failed: NDArray[np.bool_]) -> dict[str, Tensor]:
        """Metrics [n] by name; those of failures are ones."""
        if metrics is None and failed.all():
            metrics = dict.fromkeys(self._metrics, np.ones(len(rows)))
        if failed.any() and isinstance(metrics, Mapping):
            metrics = {name: self._without(values, failed) for name, values in metrics.items()}
        columns = columns_of("metrics", metrics, self._metrics, rows, self._convert)
        values = dict(zip(self._metrics, columns, strict=True))
        for name, column in values.items():
            if self._metrics[name].scale == "log" and bool(namespace(column).any(column <= 0.0)):
                bad = int(np.argmin(host(column) > 0.0))
                raise InvalidValue(
                    f"metrics[{name!r}] must be above 0, since its scale is 'log'; got {float(column[bad])!r} for tuner"
                    f" {int(rows[bad])}"
                )
        return values

    def _without(self, values: object, failed: NDArray[np.bool_]) -> object:
        """Ones in the place of what failures came to."""
        try:
            array = host(self._convert(values))
        except (ValueError, TypeError, RuntimeError):
            return values  # the check says what is wrong
        return np.where(failed, 1.0, array) if array.shape == failed.shape else array
