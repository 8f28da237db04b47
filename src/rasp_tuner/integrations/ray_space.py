"""Ray Tune's search spaces as knobs, and the values of the one as values of the other."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ray.tune.search.sample import Categorical as Choice
from ray.tune.search.sample import Domain, Function, LogUniform, Normal, Quantized
from ray.tune.search.sample import Float as RayFloat
from ray.tune.search.sample import Integer as RayInteger

from rasp_tuner.core.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.integrations.shared import labels_of
from rasp_tuner.space import Auto, Bool, Categorical, Float, Int, Knob, PowerOfTwo, Value

OWN_KNOBS = (Float, Int, PowerOfTwo, Categorical, Bool, Auto)


class Parameter:
    """One parameter of a search space: its knob, and its values in both forms. Of a knob of ours they are the same."""

    def __init__(self, knob: Knob | None, only: Any = None) -> None:
        self.knob, self.only = knob, only  # no knob: there is only one value

    def from_knob(self, value: Value) -> Any:
        return value

    def to_knob(self, value: Any) -> Value:
        return value  # type: ignore[no-any-return]


class Choices(Parameter):
    """`tune.choice`: values of any type."""

    def __init__(self, choices: list[Any]) -> None:
        if not choices:
            raise InvalidSpace("choice must have at least one value, got []")
        self._choices, self._labels = choices, labels_of(choices)
        super().__init__(Categorical(self._labels) if len(choices) > 1 else None, choices[0])

    def from_knob(self, value: Value) -> Any:
        return self._choices[self._labels.index(value)]

    def to_knob(self, value: Any) -> Value:
        for choice, label in zip(self._choices, self._labels, strict=True):
            if choice is value or (type(choice) is type(value) and choice == value):
                return label
        raise InvalidValue(f"value must be one of {show(self._choices)}, got {show(value)}")


class Numbers(Parameter):
    """A range of Ray's, which may have a grid and a log scale at once: knobs have one of them, so the grid is here."""

    def __init__(self, domain: RayFloat | RayInteger) -> None:
        sampler, grid = domain.get_sampler(), None
        if isinstance(sampler, Quantized):
            sampler, grid = sampler.sampler, sampler.q
        if isinstance(sampler, Normal) or not math.isfinite(domain.lower) or not math.isfinite(domain.upper):
            raise InvalidSpace("a normal distribution has no ends: give tune.uniform(low, high) or tune.quniform")
        log, whole = isinstance(sampler, LogUniform), isinstance(domain, RayInteger)
        low, high = domain.lower, domain.upper - (1 if whole and grid in (None, 1) else 0)  # as Ray samples them
        self._grid = None if whole and grid == 1 else grid
        if self._grid is not None:
            low, high = self._on_grid(low, math.ceil), self._on_grid(high, math.floor)
        self._low, self._high = low, high
        step = None if log else self._grid
        super().__init__(
            None if low == high else Int(low, high, log, step or 1) if whole else Float(low, high, log, step), low
        )

    def from_knob(self, value: Value) -> Any:
        if self._grid is None or not isinstance(value, int | float):
            return value
        near = self._on_grid(value, round)
        return min(max(near, self._low), self._high)

    def _on_grid(self, value: float, rounded: Any) -> Any:
        """The multiple of the grid; one that is there but for rounding errors is not left."""
        share = value / self._grid
        count = round(share) if math.isclose(share, round(share)) else rounded(share)
        return count * self._grid


def parameters_of(space: Mapping[str, Any]) -> dict[str, Parameter]:
    """Every parameter of Ray's space by its path, as "optimizer/lr"; a typed error for what cannot be tuned.

    >>> from ray import tune
    >>> found = parameters_of({"epochs": 3, "optimizer": {"lr": tune.loguniform(1e-4, 0.1)}})
    >>> {path: parameter.knob for path, parameter in found.items()}
    {'optimizer/lr': Float(low=0.0001, high=0.1, log=True, step=None, when=None, digits=3)}
    """
    found: dict[str, Parameter] = {}
    for path, value in _leaves(space, ()):
        name = "/".join(path)
        try:
            parameter = _parameter(value)
        except InvalidSpace as reason:
            raise InvalidSpace(f"parameter {name!r}: {reason}") from None
        if parameter is not None:
            found[name] = parameter
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path as nested dicts, as Ray's config has them.

    >>> nested({"epochs": 3, "optimizer/lr": 0.1})
    {'epochs': 3, 'optimizer': {'lr': 0.1}}
    """
    config: dict[str, Any] = {}
    for name, value in values.items():
        *folders, last = name.split("/")
        place = config
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return config


def value_at(config: Mapping[str, Any], name: str) -> Any:
    """The value of a config, nested or flat, at a path; a KeyError if there is none."""
    if name in config:
        return config[name]
    place: Any = config
    for key in name.split("/"):
        if not isinstance(place, Mapping):
            raise KeyError(name)
        place = place[key]
    return place


def _leaves(space: Mapping[Any, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in space.items():
        if not isinstance(key, str) or "/" in key:
            raise InvalidSpace(f"names of parameters must be texts without '/', got {show(key)}")
        if isinstance(value, Mapping) and not {"grid_search", "eval"} & set(value):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _parameter(value: Any) -> Parameter | None:
    """The parameter of a leaf; None for a constant."""
    if isinstance(value, OWN_KNOBS):
        return Parameter(value)
    if isinstance(value, Mapping) or (isinstance(value, Domain) and value.is_grid()):
        raise InvalidSpace("a grid or an expression cannot be tuned: give tune.choice([...]) instead of grid_search")
    if isinstance(value, Function):
        raise InvalidSpace("a function (sample_from) cannot be tuned: compute it in the trainable from the config")
    if isinstance(value, Choice):
        return Choices(list(value.categories))
    if isinstance(value, RayFloat | RayInteger):
        return Numbers(value)
    if isinstance(value, Domain):
        raise InvalidSpace(f"must be a range, a choice or a constant, got {show(value)}")
    if isinstance(value, list | tuple) and any(isinstance(part, Domain) for part in value):
        raise InvalidSpace("a list with ranges in it cannot be tuned: give each of them a name")
    return None
