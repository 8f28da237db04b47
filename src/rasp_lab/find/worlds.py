"""Worlds to search: what a setting costs on each of several inputs, as measured or as a formula."""

import csv
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rasp_lab.beds import small
from rasp_lab.beds.costs import System
from rasp_lab.find.gcc_flags import FLAGS, PROGRAMS
from rasp_lab.public.tables import exclusive_groups
from rasp_tuner import Categorical, Float, Int
from rasp_tuner.space import Knob, Params, Space

Array = NDArray[np.float64]
MOST_INPUTS = 4  # of a table that has more
FINE = 41  # values of a continuous knob that are looked at to know the least cost
MOST_LOOKS = 20_000  # settings that are looked at for that
HERE = Path(__file__).parent


class World(Protocol):
    """Some inputs, and what settings cost there."""

    name: str
    knobs: dict[str, Knob]
    default: Params
    least: Array  # [m] of all settings on each of m inputs

    def ran(self, params: Params) -> Params:
        """What really runs when a setting is asked for."""

    def cost(self, input: int, params: Params) -> float:
        """Of a setting that can run; above 0."""

    def drawn(self, rng: np.random.Generator, count: int) -> list[Params]:
        """Different settings at random."""

    @property
    def rows(self) -> list[Params] | None:
        """The settings that can run; None: all that are legal."""


class Table:
    """n measured settings, m inputs; others run as the nearest of them."""

    def __init__(self, name: str, knobs: dict[str, Knob], rows: list[Params], cost: Array, default: int) -> None:
        self.name, self.knobs, self.default, self.least = name, knobs, rows[default], cost.min(axis=1)
        self.rows, self._cost, self._names = rows, cost, list(knobs)
        self._place = {name: {v: float(i) for i, v in enumerate(_values(knob))} for name, knob in knobs.items()}
        self._spans = np.array([max(len(self._place[name]) - 1, 1) for name in self._names])
        self._unordered = np.array([isinstance(knob, Categorical) for knob in knobs.values()])
        self._places = np.array([[self._place[name][row[name]] for name in self._names] for row in rows])
        self._known = {tuple(row.values()): i for i, row in reversed(list(enumerate(rows)))}

    def _row(self, params: Params) -> int:
        key = tuple(params[name] for name in self._names)
        if key not in self._known:
            own = np.array([self._place[name][params[name]] for name in self._names])
            apart = np.where(self._unordered, own != self._places, np.abs(own - self._places) / self._spans)
            self._known[key] = int(apart.sum(axis=1).argmin())
        return self._known[key]

    def ran(self, params: Params) -> Params:
        return self.rows[self._row(params)]

    def cost(self, input: int, params: Params) -> float:
        return float(self._cost[input, self._row(params)])

    def drawn(self, rng: np.random.Generator, count: int) -> list[Params]:
        return [self.rows[int(i)] for i in rng.permutation(len(self.rows))[:count]]


class Formula:
    """A system of two situations, as src/rasp_lab/beds/small.py has them."""

    rows = None

    def __init__(self, name: str, system: System, inputs: int = 2) -> None:
        self.name, self.knobs, self.default, self._system = name, dict(system.space), dict(system.default), system
        every = [_values(knob) for knob in self.knobs.values()]
        total = math.prod(map(len, every))
        if total <= MOST_LOOKS:
            grid = [dict(zip(self.knobs, values, strict=True)) for values in itertools.product(*every)]
        else:
            grid = self.drawn(np.random.default_rng(0), MOST_LOOKS)
        self.least = np.array([min(system.cost(row, s) for row in grid) for s in range(inputs)])

    def ran(self, params: Params) -> Params:
        return params

    def cost(self, input: int, params: Params) -> float:
        return float(self._system.cost(params, input))

    def drawn(self, rng: np.random.Generator, count: int) -> list[Params]:
        space = Space(self.knobs)
        found = {}
        for _ in range(10 * count):
            params = space.from_unit(rng.random(space.dim))
            found[tuple(params.values())] = params
            if len(found) == count:
                break
        return list(found.values())


def gcc_flags(file: Path = HERE / "gcc_flags.csv") -> World:
    """Of gcc_flags.py."""
    with file.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    rows: list[Params] = [{name: row[name] for name in FLAGS} for row in found]
    cost = np.array([[float(row[program]) for row in found] for program in PROGRAMS])
    knobs: dict[str, Knob] = {name: Categorical(list(values)) for name, values in FLAGS.items()}
    return Table("gcc flags", knobs, rows, cost, rows.index({name: values[0] for name, values in FLAGS.items()}))


def bowl(knobs: int) -> Callable[[np.random.Generator], System]:
    """Continuous knobs whose logarithm of the cost is a turned bowl, with another optimum on each input."""

    def system(rng: np.random.Generator) -> System:
        names = [f"x{i}" for i in range(knobs)]
        optimum = rng.uniform(0.1, 0.9, (2, knobs))
        turn = np.linalg.qr(rng.standard_normal((knobs, knobs)))[0]
        size = rng.uniform(1.0, 6.0, knobs)

        def cost(p: Params, s: int) -> float:
            gap = turn @ (np.array([float(str(p[name])) for name in names]) - optimum[s])
            return float(np.exp(np.log1p(size * gap**2).sum()))

        return System({name: Float(0.0, 1.0) for name in names}, dict.fromkeys(names, 0.5), cost)

    return system


FORMULAS = {name: make for name, make in small.WORLDS.items() if name != "already best"}
FORMULAS |= {"a float": bowl(1), "two floats": bowl(2), "four floats": bowl(4)}


def formulas(seed: int) -> list[World]:
    return [Formula(name, make(np.random.default_rng([seed, 0x5A11]))) for name, make in FORMULAS.items()]


def stored(folder: Path, half: str) -> list[World]:
    """Tables of a folder with `tables/*.npz` (src/rasp_lab/beds/tables.py says what is in them), every other one."""
    files = sorted((folder / "tables").glob("*.npz"))
    return [_stored(file) for i, file in enumerate(files) if (i % 2 == 0) == (half == "develop")]


def _stored(file: Path) -> World:
    with np.load(file) as found:
        x, loss, base = (found[name].astype(float) for name in ("X", "L", "base"))
        levels = [row[~np.isnan(row)] for row in found["levels"].astype(float)]
        unordered, default = found["cat"].astype(bool), found["default"].astype(float)
    places = np.array([[int(np.abs(own - v).argmin()) for own, v in zip(levels, row, strict=True)] for row in x])
    start = np.array([int(np.abs(own - v).argmin()) for own, v in zip(levels, default, strict=True)])
    apart = np.abs(places - start).sum(axis=1)
    knobs: dict[str, Knob] = {}
    columns: list[list[Any]] = []
    for group in exclusive_groups(places):
        name = f"k{group[0]}"
        if len(group) > 1:  # options of which at most one is on are one knob
            which = np.where(places[:, group].any(axis=1), places[:, group].argmax(axis=1) + 1, 0)
            used = sorted(set(which.tolist()))
            knobs[name] = Categorical([f"c{i}" for i in used])
            columns.append([f"c{i}" for i in which.tolist()])
        elif len(levels[group[0]]) > 1:
            count, own = len(levels[group[0]]), places[:, group[0]].tolist()
            knobs[name] = Categorical([f"c{i}" for i in range(count)]) if unordered[group[0]] else Int(0, count - 1)
            columns.append([f"c{i}" for i in own] if unordered[group[0]] else own)
    rows: list[Params] = [dict(zip(knobs, values, strict=True)) for values in zip(*columns, strict=True)]
    some = np.linspace(0, len(loss) - 1, min(MOST_INPUTS, len(loss))).astype(int)
    return Table(file.stem, knobs, rows, np.exp((loss + base[:, None])[some]), int(apart.argmin()))


def _values(knob: Knob) -> list[Any]:
    if isinstance(knob, Categorical):
        return list(knob.choices)
    if isinstance(knob, Float):
        return [knob.from_unit(u) for u in np.linspace(0.0, 1.0, FINE)]
    if isinstance(knob, Int):
        return list(range(knob.low, knob.high + 1))
    raise TypeError(knob)
