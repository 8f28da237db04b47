"""Space: named knobs <-> points of the unit box; and Layout, what models know of that box."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rasp_tuner.base.checks import same_names, show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space.auto import Auto
from rasp_tuner.space.choices import Bool, Categorical
from rasp_tuner.space.numbers import MOST_LEVELS, Float, Int, PowerOfTwo
from rasp_tuner.space.rules import Axis, Knob, Rules, axes_of
from rasp_tuner.space.values import Params, Value

KINDS: dict[str, type[Knob]] = {
    "float": Float,
    "int": Int,
    "power_of_two": PowerOfTwo,
    "categorical": Categorical,
    "bool": Bool,
    "auto": Auto,
}
OPTIONAL = "optional"  # an Auto whose word is None
KNOBS = "a Float, Int, PowerOfTwo, Categorical, Bool, Auto or Optional"


@dataclass(frozen=True, slots=True)
class Layout:
    """The unit box as models see it: where its legal values lie, and where one starts."""

    levels: tuple[Array | None, ...]  # [n_i] ascending positions of knob i's values; None for (nearly) a continuum
    unordered: tuple[bool, ...]  # choices without an order
    default: Array  # [d]
    rules: Rules | None = None  # what ties knobs together, if anything does
    snap: Callable[[Array], Array] | None = None  # the legal point nearest to a point [d]; None: all are legal

    @classmethod
    def continuous(cls, dim: int) -> "Layout":
        return cls((None,) * dim, (False,) * dim, np.full(dim, 0.5))


class Space:
    """Named knobs in a fixed order <-> points of the unit box [d].

    constraints   rules between knobs, as texts (constraints.py)
    default       legal values of all knobs that exist there; without it the middle of every range
    """

    def __init__(
        self, knobs: Mapping[str, Knob], constraints: Sequence[str] = (), default: Mapping[str, object] | None = None
    ) -> None:
        if not isinstance(knobs, Mapping) or not knobs:
            raise InvalidSpace(f"space must map at least one name to {KNOBS}, got {show(knobs)}")
        for name, knob in knobs.items():
            if not isinstance(name, str) or not name:
                raise InvalidSpace(f"space names must be non-empty strings, got {show(name)}")
            if type(knob) not in KINDS.values():
                raise InvalidSpace(f"space[{name!r}] must be {KNOBS}, got {show(knob)}")
        self.knobs = dict(knobs)
        try:
            rules = Rules(knobs, constraints, default)
        except InvalidValue as reason:
            raise InvalidSpace(str(reason)) from reason
        self.constraints = [constraint.text for constraint in rules.constraints]
        self.default = rules.default  # [d]
        self.rules = None if rules.plain else rules
        self._axes = {name: knob for name, knob in knobs.items() if not isinstance(knob, Auto)}  # all, without rules

    @property
    def dim(self) -> int:
        """d: a coordinate for each knob, two for an Auto."""
        return len(self.default)

    def to_unit(self, params: object, field: str = "params") -> Array:
        """The point [d] of a full set of legal parameter values; errors call it `field`."""
        if self.rules is not None:
            return self.rules.to_unit(params, field)
        given = same_names(field, params, self.knobs)
        point = np.empty(self.dim)
        for i, (name, knob) in enumerate(self._axes.items()):
            try:
                point[i] = knob.to_unit(given[name])
            except InvalidValue as reason:
                raise InvalidValue(f"{field}[{name!r}]: {reason}") from None
        return point

    def from_unit(self, point: Array) -> Params:
        """The legal parameter values nearest to a point of the unit box."""
        return self.nearest(point)[0]

    def nearest(self, point: Array) -> tuple[Params, Array]:
        """The legal parameter values nearest to `point`, and their own point: what will really run."""
        if self.rules is not None:
            return self.rules.nearest(point)
        params: Params = {}
        legal = []
        for (name, knob), u in zip(self._axes.items(), point.tolist(), strict=True):
            params[name], place = knob.nearest(u)
            legal.append(place)
        return params, np.array(legal)

    def snap(self, point: Array) -> Array:
        """The point of the legal values nearest to `point`."""
        return self.nearest(point)[1]

    def what_ran(self, planned: Mapping[str, Value], given: object) -> tuple[Params, Array]:
        """The parameters that ran, and their point, if some of the planned ones were replaced by the given ones."""
        if not isinstance(given, Mapping):
            raise InvalidValue(f"params must be a mapping of names to values, got {show(given)}")
        merged = self.completed(planned, given)
        point = self.to_unit(merged)
        return {name: self.knobs[name].check(value) for name, value in merged.items()}, point

    def check_constraints(self, params: Params) -> None:
        """Raise if the parameters break a constraint."""
        for constraint in [] if self.rules is None else self.rules.broken(params):
            raise InvalidValue(f"params break constraints[{constraint.text!r}]: got {show(params)}")

    def completed(self, planned: Mapping[str, Value], given: Mapping[str, object]) -> dict[str, Any]:
        """The given values, unchecked, and the planned ones of other knobs that exist beside them."""
        return {**planned, **given} if self.rules is None else self.rules.completed(planned, given)

    def names_in(self, values: Mapping[str, object]) -> list[str]:
        """Names of the knobs that exist beside these values."""
        return list(self.knobs) if self.rules is None else self.rules.names_in(values)

    def layout(self, default: Array) -> Layout:
        """What a model may know of this space; `default` [d] is a legal point."""
        axes = [axis for knob in self.knobs.values() for axis in axes_of(knob)]
        unordered = tuple(isinstance(axis, Categorical) and not axis.ordered and axis.levels > 2 for axis in axes)
        rules = self.rules if self.rules is not None and self.rules.tie_knobs else None
        return Layout(tuple(_positions(axis) for axis in axes), unordered, default, rules, self.snap)

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it; constraints and the default are not part of it."""
        return {name: knob_to_json(knob) for name, knob in self.knobs.items()}

    @classmethod
    def from_json(
        cls,
        data: Mapping[str, Any],
        constraints: Sequence[str] = (),
        default: Mapping[str, object] | None = None,
    ) -> "Space":
        """A space from `{"pool": {"type": "int", "low": 1, "high": 64, "log": true}, ...}`."""
        knobs = {name: knob_from_json(f"space[{name!r}]", fields) for name, fields in data.items()}
        return cls(knobs, constraints, default)


def knob_to_json(knob: Knob) -> dict[str, Any]:
    """A knob as JSON, without unset fields, and without those of later versions where they say nothing new."""
    if isinstance(knob, Auto):
        word = {"type": OPTIONAL} if knob.word is None else {"type": "auto", "word": knob.word}
        return {**word, "knob": knob_to_json(knob.knob), **_when_json(knob)}
    kind = next(name for name, known in KINDS.items() if known is type(knob))
    left_out = {"when"} | ({"choices", "ordered"} if isinstance(knob, Bool) else set())
    if isinstance(knob, Categorical) and not knob.ordered:
        left_out.add("ordered")
    own: dict[str, Any] = {
        field.name: getattr(knob, field.name) for field in fields(knob) if field.name not in left_out
    }
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in own.items() if value is not None}
    return {"type": kind, **plain, **_when_json(knob)}


def _when_json(knob: Knob) -> dict[str, Any]:
    return {} if knob.when is None else {"when": {name: list(values) for name, values in knob.when.items()}}


def knob_from_json(field: str, data: object) -> Knob:
    """The knob that JSON describes; errors call it `field`."""
    if not isinstance(data, Mapping):
        raise InvalidSpace(f"{field} must be a mapping with a type among {[*KINDS, OPTIONAL]}, got {show(data)}")
    settings = dict(data)
    kind = settings.pop("type", None)
    if kind not in KINDS and kind != OPTIONAL:
        raise InvalidSpace(f"{field} needs a type among {[*KINDS, OPTIONAL]}, got {show(kind)}")
    if kind in ("auto", OPTIONAL) and "knob" in settings:
        settings["knob"] = knob_from_json(f"{field}.knob", settings["knob"])
    if kind == OPTIONAL:
        settings["word"] = None
    try:
        return KINDS["auto" if kind == OPTIONAL else kind](**settings)
    except TypeError as reason:
        said = str(reason).partition("() ")[2]  # without the name of the method
        raise InvalidSpace(f"{field} of type {kind!r} takes other fields: {said}") from reason


def _positions(axis: Axis) -> Array | None:
    """Where the legal values of a coordinate lie in [0, 1], if they are few."""
    if axis.levels is None or axis.levels > MOST_LEVELS:
        return None
    if isinstance(axis, Categorical):
        return np.array([axis.to_unit(choice) for choice in axis.choices])
    if isinstance(axis, Int) and axis.log:
        return np.array([axis.to_unit(value) for value in range(axis.low, axis.high + 1)])
    return np.arange(axis.levels) / (axis.levels - 1)  # to the last bit as `to_unit` gives them
