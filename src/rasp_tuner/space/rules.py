"""Rules: what ties knobs together. Words instead of numbers, knobs that exist only sometimes, constraints.

Models see a box of d coordinates, one for each knob and two for an `Auto`: its switch and its number. What does not
exist stands at its home, the default's coordinate, so that equal settings are equal points. A point that breaks a
constraint is moved towards the default until it does not, in several directions: `offers` gives them all, and a model
may choose. `MOST_LOOKS` bounds how many settings that takes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rasp_tuner.base.checks import same_names, show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space.auto import Auto
from rasp_tuner.space.choices import Categorical
from rasp_tuner.space.constraints import Constraint, parse_all
from rasp_tuner.space.numbers import Float, Int, PowerOfTwo
from rasp_tuner.space.values import Params, Value

Axis: TypeAlias = Float | Int | PowerOfTwo | Categorical
Knob: TypeAlias = Axis | Auto

NUMBER, WORD = False, True
SWITCH = Categorical([NUMBER, WORD])  # of an Auto: which of the two it is
SAME_POINT = 1e-12  # as near to home is at home
BISECTIONS = 7  # of the way back to the default: within a hundredth of the box
MOST_DIRECTIONS = 16
MOST_LOOKS = MOST_DIRECTIONS * (BISECTIONS + 1) + 3 * MOST_DIRECTIONS + 4  # settings tried to mend one point, at most
MOST_SETTLED = 4096  # remembered: a search meets the same settings again
GOLDEN_RATIO = 0.6180339887498949


def axes_of(knob: Knob) -> tuple[Axis, ...]:
    """The coordinates of a knob."""
    return (SWITCH, knob.knob) if isinstance(knob, Auto) else (knob,)


class Rules:
    """Points of the unit box [d] <-> parameters that exist and keep the constraints."""

    def __init__(
        self, knobs: Mapping[str, Knob], constraints: Sequence[str] = (), default: Mapping[str, object] | None = None
    ) -> None:
        self._knobs = dict(knobs)
        self._axes = [axis for knob in knobs.values() for axis in axes_of(knob)]
        ends = np.cumsum([len(axes_of(knob)) for knob in knobs.values()]).tolist()
        self._at = dict(zip(knobs, [0, *ends], strict=False))  # name -> its first coordinate
        self._order = _parents_first(knobs)
        self._sorted = self._order == list(knobs)
        self.constraints = parse_all(constraints, knobs)
        self._tied = self._names_tied()
        self._tied_at = [at for name in self._tied for at in self._coordinates(name)]
        self._settled: dict[tuple[float, ...], tuple[float, ...] | None] = {}  # what `lawful` made of coordinates tied
        self._home = [axis.nearest(0.5) for axis in self._axes]  # value and coordinate where nothing else is said
        if default is not None:
            self._home = list(zip(*self._read(default, "default"), strict=True))
        self.default = np.array([place for _, place in self._home])
        self._check_default(given=default is not None)

    @property
    def plain(self) -> bool:
        """Whether there is nothing here that knobs do not know by themselves."""
        return (
            not self.constraints
            and all(knob.when is None and not isinstance(knob, Auto) for knob in self._knobs.values())
            and all(axis.from_unit(place) == value for axis, (value, place) in zip(self._axes, self._home, strict=True))
        )

    @property
    def tie_knobs(self) -> bool:
        """Whether knobs depend on each other; else this is only about digits of the default."""
        return bool(self._tied)

    def to_unit(self, params: object, field: str) -> Array:
        """The point [d] of parameters that exist; they may break constraints, for what ran is what ran."""
        return np.array(self._read(params, field)[1])

    def nearest(self, point: Array) -> tuple[Params, Array]:
        """Legal parameters near a point, and their own point."""
        params, places = self._settle(point.tolist())
        if self.broken(params):
            params, places = self._settle(next(self._mended(places)))
        return params, np.array(places)

    def offers(self, point: Array) -> Array:
        """[n, d] the legal point nearest to this one; if that breaks a constraint, several points that do not."""
        params, places = self._settle(point.tolist())
        if not self.broken(params):
            return np.array([places])
        return np.unique([self._settle(found)[1] for found in self._mended(places)], axis=0)

    def lawful(self, points: Array) -> Array:
        """Points [n, d] with what does not exist at home; the default in place of those that break a constraint."""
        kept, default = points.copy(), self.default
        for i, row in enumerate(points.tolist()):
            key = tuple([row[at] for at in self._tied_at])
            places = self._settled.get(key, ())
            if places == ():
                params, full = self._settle(row, self._tied)
                places = None if self.broken(params) else tuple([full[at] for at in self._tied_at])
                if len(self._settled) >= MOST_SETTLED:
                    self._settled.clear()
                self._settled[key] = places
            if places is None:
                kept[i] = default
            elif places != key:
                kept[i, self._tied_at] = places
        return kept

    def completed(self, planned: Mapping[str, Value], given: Mapping[str, object]) -> dict[str, object]:
        """What ran: the given values, and the planned ones of other knobs that exist beside them."""
        merged: dict[str, object] = {}
        for name in self._order:
            if name in given:
                merged[name] = given[name]
            elif name in planned and self._exists(name, merged):
                merged[name] = planned[name]
        return {**{name: merged[name] for name in self._knobs if name in merged}, **given}

    def names_in(self, values: Mapping[str, object]) -> list[str]:
        """Names of the knobs that exist beside these values, which may have others besides."""
        found: dict[str, object] = {}
        for name in self._order:
            if self._exists(name, found):
                found[name] = values.get(name)
        return [name for name in self._knobs if name in found]

    def _exists(self, name: str, params: Mapping[str, object]) -> bool:
        when = self._knobs[name].when
        return when is None or all(parent in params and params[parent] in values for parent, values in when.items())

    def _settle(self, units: Sequence[float], names: Sequence[str] | None = None) -> tuple[Params, list[float]]:
        """The nearest values that exist, and their coordinates, of all knobs or some; constraints are not looked at."""
        params: Params = {}
        places = list(units)
        for name in self._order if names is None else names:
            at, knob = self._at[name], self._knobs[name]
            if not self._exists(name, params):
                for i in range(at, at + len(axes_of(knob))):
                    places[i] = self._home[i][1]
                continue
            value, places[at] = self._nearest(at, units[at])
            if isinstance(knob, Auto):
                if value is WORD:
                    value, places[at + 1] = knob.word, self._home[at + 1][1]
                else:
                    value, places[at + 1] = self._nearest(at + 1, units[at + 1])
            params[name] = value
        if not self._sorted and names is None:
            params = {name: params[name] for name in self._knobs if name in params}
        return params, places

    def _names_tied(self) -> list[str]:
        """Names of the knobs that depend on others, or that others depend on, parents first."""
        tied = {name for constraint in self.constraints for name in constraint.names}
        for name, knob in self._knobs.items():
            if knob.when is not None or isinstance(knob, Auto):
                tied |= {name, *(knob.when or {})}
        for name in reversed(self._order):
            if name in tied:
                tied |= set(self._knobs[name].when or {})
        return [name for name in self._order if name in tied]

    def _nearest(self, at: int, unit: float) -> tuple[Value, float]:
        """Of one coordinate; the default's value is legal with all its digits."""
        home = self._home[at]
        return home if abs(unit - home[1]) < SAME_POINT else self._axes[at].nearest(unit)

    def _read(self, params: object, field: str) -> tuple[list[Value], list[float]]:
        """Value and coordinate on every axis; those of knobs that do not exist are at home."""
        if not isinstance(params, Mapping) or all(knob.when is None for knob in self._knobs.values()):
            params = same_names(field, params, self._knobs)
        unknown = [name for name in params if name not in self._knobs]
        if unknown:
            raise InvalidValue(f"{field} has unknown names {show(unknown)}; it takes {show(list(self._knobs))}")
        values, places = [value for value, _ in self._home], [place for _, place in self._home]
        known: Params = {}
        for name in self._order:
            knob, at = self._knobs[name], self._at[name]
            if not self._exists(name, known):
                if name in params:
                    raise InvalidValue(f"{field}[{name!r}] exists only if {_words(knob)}: leave it out")
                continue
            if name not in params:
                only = "" if knob.when is None else f", which exists as {_words(knob)}"
                raise InvalidValue(f"{field} lacks [{name!r}]{only}; it got {show(list(params))}")
            try:
                known[name] = value = knob.check(params[name])
                if isinstance(knob, Auto):
                    values[at] = knob.is_word(value)
                    places[at] = SWITCH.place(values[at])
                    if values[at] is WORD:
                        continue
                    at += 1
                values[at], places[at] = value, self._axes[at].to_unit(value)
            except InvalidValue as reason:
                raise InvalidValue(f"{field}[{name!r}]: {reason}") from None
        return values, places

    def broken(self, params: Params) -> list[Constraint]:
        """Constraints that these parameters do not keep."""
        return [constraint for constraint in self.constraints if not constraint.holds(params)]

    def _check_default(self, given: bool) -> None:
        params, _ = self._settle(self.default.tolist())
        for constraint in self.broken(params):
            advice = "" if given else ", which is the middle of every range: give a default that keeps it"
            raise InvalidSpace(f"constraints[{constraint.text!r}] is broken by the default {show(params)}{advice}")

    def _mended(self, places: list[float]) -> Iterator[list[float]]:
        """Points that keep all constraints, from one that does not; at least one, the best guess first.

        The knobs of broken constraints go back towards the default, or to an end of their range; if that does not
        help, all knobs go back.
        """
        found = False
        for goal, moving in self._goals(places):
            for weights in _directions(moving):
                mended = self._bisected(places, goal, weights)
                if mended is not None:
                    found = True
                    yield mended
            if found:
                return

    def _goals(self, places: list[float]) -> Iterator[tuple[Array, list[int]]]:
        """Where to go back to, and the coordinates that move; the last goal is the default, which is legal."""
        start, home = np.array(places), self.default
        names = {name for constraint in self.broken(self._settle(places)[0]) for name in constraint.names}
        moving = [i for name in names for i in self._coordinates(name) if start[i] != home[i]]
        goal = start.copy()
        goal[moving] = home[moving]
        yield goal, sorted(moving)
        for end in (0.0, 1.0):
            moving = sorted(i for name in names for i in self._coordinates(name)[-1:])
            goal = start.copy()
            goal[moving] = end
            yield goal, moving
        yield home, np.flatnonzero(start != home).tolist()

    def _coordinates(self, name: str) -> list[int]:
        return list(range(self._at[name], self._at[name] + len(axes_of(self._knobs[name]))))

    def _bisected(self, places: list[float], goal: Array, weights: dict[int, float]) -> list[float] | None:
        """The first point on the way to the goal that keeps all constraints; None if its end does not.

        Coordinates of choices without an order change at the end of the way only.
        """

        def on_the_way(share: float) -> list[float]:
            point = places.copy()
            for i, weight in weights.items():
                axis, part = self._axes[i], share * weight
                if not isinstance(axis, Categorical) or axis.ordered:
                    point[i] = (1.0 - part) * places[i] + part * float(goal[i])
                elif part == 1.0:
                    point[i] = float(goal[i])
            return point

        def legal(share: float) -> bool:
            return not self.broken(self._settle(on_the_way(share), self._tied)[0])

        return on_the_way(_least(legal)) if legal(1.0) else None


def _least(holds: Callable[[float], bool]) -> float:
    """About the least share in (0, 1] that holds, where 1 does."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _directions(moving: Sequence[int]) -> list[dict[int, float]]:
    """How far each coordinate goes of its way: all of them, each alone, and some in between."""
    directions = [dict.fromkeys(moving, 1.0)]
    if len(moving) > 1:
        directions += [{i: 1.0} for i in moving[: MOST_DIRECTIONS // 2]]
        while len(directions) < MOST_DIRECTIONS:  # spread evenly, and always the same
            turn = len(directions)
            weights = [(turn * GOLDEN_RATIO ** (1.0 + k / len(moving))) % 1.0 for k in range(len(moving))]
            directions.append({i: weight / max(weights) for i, weight in zip(moving, weights, strict=True)})
    return directions


def _parents_first(knobs: Mapping[str, Knob]) -> list[str]:
    """Names in an order in which every knob comes after those that it depends on."""
    for name, knob in knobs.items():
        for parent, values in (knob.when or {}).items():
            if parent not in knobs or parent == name:
                raise InvalidSpace(f"space[{name!r}] when: {parent!r} must be another knob; there are {list(knobs)}")
            other = knobs[parent]
            if isinstance(other, Float) and other.step is None:
                raise InvalidSpace(
                    f"space[{name!r}] when: {parent!r} is a Float without a step; it has no exact values"
                )
            for value in values:
                try:
                    other.check(value)
                except InvalidValue as reason:
                    raise InvalidSpace(f"space[{name!r}] when[{parent!r}]: {reason}") from None
    order: list[str] = []
    while len(order) < len(knobs):
        ready = [n for n, knob in knobs.items() if n not in order and all(p in order for p in knob.when or {})]
        if not ready:
            circle = [name for name in knobs if name not in order]
            raise InvalidSpace(f"space has knobs that exist only if each other do: {show(circle)}")
        order += ready
    return order


def _words(knob: Knob) -> str:
    parts = [f"{name!r} is {' or '.join(map(repr, values))}" for name, values in (knob.when or {}).items()]
    return " and ".join(parts)
