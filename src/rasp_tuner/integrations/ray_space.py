"""Ray Tune's search spaces as knobs, and the values of the one as values of the other."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ray.tune.search.sample import Categorical as Choice
from ray.tune.search.sample import Domain, Function, Grid, LogUniform, Normal, Quantized
from ray.tune.search.sample import Float as RayFloat
from ray.tune.search.sample import Integer as RayInteger

from rasp_tuner.base.checks import show
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

    def to_json(self) -> dict[str, Any] | None:
        """What a snapshot must hold beside the knob; None if JSON cannot."""
        return {} if self.knob is not None else {"only": self.only} if _is_json(self.only) else None


class Choices(Parameter):
    """`tune.choice`: values of any type."""

    def __init__(self, choices: list[Any]) -> None:
        if not choices:
            raise InvalidSpace("choice must have at least one value, got []")
        if any(isinstance(choice, Domain) for choice in choices):
            raise InvalidSpace("a choice with ranges in it cannot be tuned; give each of them a name of its own")
        self._choices, self._labels = choices, labels_of(choices)
        super().__init__(Categorical(self._labels) if len(choices) > 1 else None, choices[0])

    def from_knob(self, value: Value) -> Any:
        return self._choices[self._labels.index(value)]

    def to_knob(self, value: Any) -> Value:
        for choice, label in zip(self._choices, self._labels, strict=True):
            if choice is value or (type(choice) is type(value) and choice == value):
                return label
        raise InvalidValue(f"value must be one of {show(self._choices)}, got {show(value)}")

    def to_json(self) -> dict[str, Any] | None:
        return {"choices": self._choices} if _is_json(self._choices) else None


class OnGrid(Parameter):
    """A range with a log scale and a grid: knobs have one of them, so the grid is here."""

    def __init__(self, knob: Float | Int, grid: float) -> None:
        super().__init__(knob)
        self._low, self._high, self._grid = knob.low, knob.high, grid

    def from_knob(self, value: Value) -> Any:
        assert isinstance(value, int | float)  # noqa: S101  # of a knob for numbers
        return min(max(_multiple(value, self._grid, round), self._low), self._high)

    def to_json(self) -> dict[str, Any] | None:
        return {"grid": self._grid}


def parameters_of(space: Mapping[str, Any]) -> dict[str, Parameter]:
    """Every parameter of Ray's space by its path, as "optimizer/lr"; a typed error for what cannot be tuned.

    >>> from ray import tune
    >>> found = parameters_of({"epochs": 3, "optimizer": {"lr": tune.loguniform(1e-4, 0.1)}})
    >>> {path: parameter.knob for path, parameter in found.items()}
    {'optimizer/lr': Float(low=0.0001, high=0.1, log=True, step=None, digits=3, when=None)}
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


def constants_of(space: Mapping[str, Any]) -> dict[str, Any]:
    """The values of Ray's space that are no parameters, by path."""
    return {"/".join(path): value for path, value in _leaves(space, ()) if _parameter(value) is None}


def parameters_from_json(
    saved: Mapping[str, Mapping[str, Any] | None], knobs: Mapping[str, Knob]
) -> dict[str, Parameter]:
    """The parameters that `to_json` described; none at all if JSON could not hold one of them."""
    found: dict[str, Parameter] = {}
    for name, fields in saved.items():
        if fields is None:
            return {}
        if "choices" in fields:
            found[name] = Choices(list(fields["choices"]))
        elif "grid" in fields:
            knob = knobs[name]
            if not isinstance(knob, Float | Int):
                raise ValueError(f"parameter {name!r} has a grid, but is {knob}")
            found[name] = OnGrid(knob, fields["grid"])
        else:
            found[name] = Parameter(knobs.get(name), fields.get("only"))
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
    if isinstance(value, Mapping) or (isinstance(value, Domain) and isinstance(value.sampler, Grid)):
        raise InvalidSpace("a grid or an expression cannot be tuned: give tune.choice([...]) instead of grid_search")
    if isinstance(value, Function):
        raise InvalidSpace("a function (sample_from) cannot be tuned: compute it in the trainable from the config")
    if isinstance(value, Choice):
        return Choices(list(value.categories))
    if isinstance(value, RayFloat | RayInteger):
        return _range(value)
    if isinstance(value, Domain):
        raise InvalidSpace(f"must be a range, a choice or a constant, got {show(value)}")
    if isinstance(value, list | tuple) and any(isinstance(part, Domain) for part in value):
        raise InvalidSpace("a list with ranges in it cannot be tuned: give each of them a name")
    return None


def _range(domain: Any) -> Parameter:  # domain is a Float or an Integer of Ray, whose own types are incomplete
    """A range, with the ends that Ray can draw."""
    sampler: Any = domain.get_sampler()
    grid = None
    if isinstance(sampler, Quantized):
        sampler, grid = sampler.sampler, sampler.q
    if isinstance(sampler, Normal) or not math.isfinite(domain.lower) or not math.isfinite(domain.upper):
        raise InvalidSpace("a normal distribution has no ends: give tune.uniform(low, high) or tune.quniform")
    log, whole = isinstance(sampler, LogUniform), isinstance(domain, RayInteger)
    low, high = domain.lower, domain.upper
    if whole and grid in (None, 1):
        high, grid = high - 1, None
    if grid is not None:
        low, high = _multiple(low, grid, math.ceil), _multiple(high, grid, math.floor)
    if low == high:
        return Parameter(None, low)
    step = None if log else grid
    knob = Int(low, high, log, step or 1) if whole else Float(low, high, log, step)
    return Parameter(knob) if grid is None or not log else OnGrid(knob, grid)


def _multiple(value: float, grid: Any, rounded: Callable[[float], int]) -> Any:  # an int if the grid is one
    """The multiple of the grid at `value`; one that is there but for rounding errors is not left."""
    share = value / grid
    return (round(share) if math.isclose(share, round(share)) else rounded(share)) * grid


def _is_json(value: Any) -> bool:
    """Whether JSON gives back the same: no tuples, and nothing that is no value."""
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(part) for key, part in value.items())
    return value is None or (type(value) in (str, int, bool, float) and value == value)
