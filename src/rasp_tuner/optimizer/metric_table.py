"""MetricTable: the declared metrics, and the check of every value that comes in."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from rasp_tuner.base.checks import number, same_names, show
from rasp_tuner.base.numerics import LARGEST
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.types import Direction, Metric

NORMAL_90 = 1.645  # deviations on either side that hold nine in ten


class MetricTable:
    """The declared metrics: their checks, directions and weights."""

    def __init__(self, metrics: Mapping[str, Metric | Direction]) -> None:
        if not isinstance(metrics, Mapping) or not metrics:
            raise InvalidSpace(f"metrics must map at least one name to 'min', 'max' or a Metric, got {show(metrics)}")
        self.metrics = {name: _as_metric(name, metric) for name, metric in metrics.items()}

    def check(self, values: object) -> dict[str, float]:
        """The values as floats, or a typed error; state is not touched."""
        given, checked = same_names("metrics", values, self.metrics), {}
        for name in self.metrics:
            value = given[name]
            if type(value) is float and math.isfinite(value):  # the usual case
                checked[name] = value
            else:
                checked[name] = number(f"metrics[{name!r}]", value)
        return checked


def checked_metrics(field: str, values: object, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The values of all metrics as floats, or a typed error that names the field."""
    given = same_names(field, values, metrics)
    found = {name: number(f"{field}[{name!r}]", given[name]) for name in metrics}
    for name, value in found.items():
        if metrics[name].scale == "log" and value <= 0.0:
            raise InvalidValue(f"{field}[{name!r}] must be above 0, since its scale is 'log'; got {value!r}")
    return found


def beside_control(value: float, control: float, level: float) -> float:
    """What a run would have given if its control had given the level: by ratios where all are positive.

    >>> beside_control(90.0, 120.0, 100.0), beside_control(-1.0, 1.0, 3.0)
    (75.0, 1.0)
    """
    told = value / control * level if min(value, control, level) > 0.0 else value - control + level
    return min(max(told, -LARGEST), LARGEST)


def near_level(control: float, mean: float, low: float, high: float) -> float:
    """What a control says of the default's level, which is expected at `mean`, nine times in ten from `low` to `high`.

    Noise that a control shares with its run is no part of the level: it moves by at most half its deviation.
    """
    deviation = (high - low) / (2.0 * NORMAL_90)
    if min(control, mean) > 0.0:
        moved = _damped(math.log(control) - math.log(mean), deviation / mean)
        return min(mean * math.exp(min(moved, math.log(LARGEST))), LARGEST)
    return mean + _damped(control - mean, deviation)


def _damped(gap: float, deviation: float) -> float:
    """gap d^2 / (d^2 + gap^2), of any finite numbers."""
    size = math.hypot(deviation, gap)
    return gap * (deviation / size) ** 2 if size else 0.0


def reweighed(metrics: Mapping[str, Metric], weights: object) -> dict[str, Metric]:
    """The metrics with other weights for some or all of them; an InvalidValue if one cannot be."""
    if not isinstance(weights, Mapping):
        raise InvalidValue(f"weights must map metric names to numbers, got {show(weights)}")
    changed = dict(metrics)
    for name, weight in weights.items():
        if name not in changed:
            raise InvalidValue(f"weights: no metric {show(name)}; there are {list(changed)}")
        try:
            changed[name] = replace(changed[name], weight=weight)
        except InvalidSpace as reason:
            raise InvalidValue(f"weights[{name!r}]: {reason}") from None
    return changed


def _as_metric(name: object, metric: object) -> Metric:
    if not isinstance(name, str) or not name:
        raise InvalidSpace(f"metric names must be non-empty strings, got {show(name)}")
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric in ("min", "max"):
        return Metric(cast(Direction, metric))
    raise InvalidSpace(
        f"metrics[{name!r}] must be 'min', 'max' or a Metric, got {show(metric)}; with a weight or a limit say"
        ' Metric("min", weight=0.5) or Metric("min", at_most="1.05 default")'
    )
