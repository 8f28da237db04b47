"""Optuna's distributions as knobs, and the values of the one as values of the other."""

import math
from decimal import Decimal
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.integrations.shared import labels_of
from rasp_tuner.space import Categorical, Float, Int, Knob, Value


def knob_of(name: str, distribution: BaseDistribution) -> Knob:
    """The knob of a distribution that has more than one value; an InvalidSpace if there is none."""
    try:
        if isinstance(distribution, FloatDistribution):
            return Float(distribution.low, distribution.high, distribution.log, distribution.step)
        if isinstance(distribution, IntDistribution):
            return Int(distribution.low, distribution.high, distribution.log, distribution.step)
        if isinstance(distribution, CategoricalDistribution):
            return Categorical(labels_of(distribution.choices))
    except InvalidSpace as reason:
        raise InvalidSpace(f"parameter {name!r}: {reason}") from None
    raise InvalidSpace(f"parameter {name!r} must be a float, an int or a categorical, got {distribution!r}")


def to_knob(distribution: BaseDistribution, value: Any) -> Value:
    """A value of Optuna's as the knob knows it."""
    if isinstance(distribution, CategoricalDistribution):
        try:
            return labels_of(distribution.choices)[int(distribution.to_internal_repr(value))]
        except ValueError:
            raise InvalidSpace(f"value must be one of {show(list(distribution.choices))}, got {show(value)}") from None
    return value  # type: ignore[no-any-return]


def from_knob(distribution: BaseDistribution, value: Value) -> Any:
    """A knob's value as Optuna knows it."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[labels_of(distribution.choices).index(value)]
    return value


def moved_inside(name: str, distribution: BaseDistribution, value: Value) -> Value:
    """A legal value of this distribution near to `value`, which is from a wider range or a finer grid.

    >>> moved_inside("n", IntDistribution(10, 20, step=5), 17), moved_inside("n", IntDistribution(10, 20, step=5), 3)
    (15, 10)
    """
    knob = knob_of(name, distribution)
    if not isinstance(knob, Float | Int) or isinstance(value, str | None):
        return value
    return knob.from_unit(knob.place(value))  # what lies outside goes to the nearer end


def hull(one: BaseDistribution, other: BaseDistribution) -> BaseDistribution:
    """The narrowest distribution that has all values of both. Optuna keeps the kind and `log` of a name the same.

    >>> hull(IntDistribution(0, 8, step=4), IntDistribution(2, 10, step=4))
    IntDistribution(high=10, log=False, low=0, step=2)
    """
    if isinstance(one, IntDistribution) and isinstance(other, IntDistribution):
        step = math.gcd(one.step, other.step, abs(one.low - other.low))
        return IntDistribution(min(one.low, other.low), max(one.high, other.high), one.log, step)
    if isinstance(one, FloatDistribution) and isinstance(other, FloatDistribution):
        grid = one.step if one.step == other.step else None
        if grid and (Decimal(repr(one.low)) - Decimal(repr(other.low))) % Decimal(repr(grid)):
            grid = None
        return FloatDistribution(min(one.low, other.low), max(one.high, other.high), one.log, grid)
    return one
