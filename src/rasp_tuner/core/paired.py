"""Paired runs: what a run gave beside a control, the same metrics measured at the same time under the default.

What disturbs both alike cancels in their ratio, or difference. The model is told what the run would have given where
the default gives what is expected of it: its level.
"""

from collections.abc import Mapping

from rasp_tuner.core.checks import number, same_names
from rasp_tuner.core.numerics import LARGEST
from rasp_tuner.errors import InvalidValue
from rasp_tuner.types import Metric


def checked_metrics(field: str, values: object, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The values of all metrics as floats, or a typed error that names the field."""
    given = same_names(field, values, metrics)
    found = {name: number(f"{field}[{name!r}]", given[name]) for name in metrics}
    for name, value in found.items():
        if metrics[name].scale == "log" and value <= 0.0:
            raise InvalidValue(f"{field}[{name!r}] must be above 0, since its scale is 'log'; got {value!r}")
    return found


def beside_control(value: float, control: float, level: float) -> float:
    """What a run would have given if the control had given the level: by ratios where all are positive.

    >>> beside_control(90.0, 120.0, 100.0), beside_control(-1.0, 1.0, 3.0)
    (75.0, 1.0)
    """
    told = value / control * level if min(value, control, level) > 0.0 else value - control + level
    return min(max(told, -LARGEST), LARGEST)
