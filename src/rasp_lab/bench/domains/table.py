"""TableDomain: a measured table (configurations x contexts x metrics) as a stream whose optimum is known exactly.

symbol    shape   meaning
n, d      scalar  measured configurations and the knobs that vary among them
m, d_c    scalar  contexts and their features
code      [n, d]  each configuration's levels, ranked into [0, 1]
value     [m, n]  one metric; NaN where the configuration cannot run
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

import numpy as np

from rasp_lab.bench.domains.base import ExperimentDomain, InvalidConfiguration
from rasp_lab.bench.domains.measurements import Level, MeasurementTable, as_number, read_csv, read_npz
from rasp_lab.bench.domains.schedules import check_horizon, generator, not_negative, recurring
from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Categorical, Int, Knob, Space
from rasp_tuner.types import Direction, Metric

Loss = Literal["log", "raw"]

BLOCK = (10, 30)  # steps that a context lasts, unless told otherwise


@dataclass(frozen=True, slots=True)
class Visit:
    """omega: a row of the table, and the context as it looks this time."""

    row: int
    context: Array  # [d_c]


class TableDomain(ExperimentDomain[Visit]):
    """A stream of blocks over the table's contexts, which come back in random order.

    A knob of numbers is an `Int`, the rank of its level: order is kept and every legal value was measured. A knob of
    words is a `Categorical`. Settings that were not measured stand for the nearest measured ones, where a rank counts
    as its share of the knob's ranks and two different words are 1 apart. A knob with one level is left out.

    The first of `metrics` is the objective. With `loss="log"` the loss is the log of how many times worse than the best
    of that context it is, and agents see logs of metrics; with `loss="raw"` both are the numbers as measured.
    `noise` is added to every metric as seen (0.05 with "log": about 5%); `context_noise` to every context feature, in
    units of that feature's spread over contexts.
    """

    def __init__(
        self,
        table: MeasurementTable,
        metrics: Mapping[str, Direction],
        name: str = "table",
        loss: Loss = "log",
        noise: float = 0.0,
        context_noise: float = 0.0,
        block: tuple[int, int] = BLOCK,
        default: Mapping[str, Level] | None = None,
    ) -> None:
        self.name = name
        self._table, self._block = table, _check_block(block)
        self._noise, self._context_noise = not_negative("noise", noise), not_negative("context_noise", context_noise)
        self._levels = {knob: table.levels(knob) for knob in table.knobs if len(table.levels(knob)) > 1}
        if not self._levels:
            raise InvalidValue(f"at least one knob must have two levels, got one level each for {list(table.knobs)}")
        self.space = Space({knob: _knob(levels) for knob, levels in self._levels.items()})
        self._words = np.array([isinstance(knob, Categorical) for knob in self.space.knobs.values()])
        self._steps = np.array([len(levels) - 1 for levels in self._levels.values()])
        ranks = [[levels.index(level) for level in table.column(knob)] for knob, levels in self._levels.items()]
        self._code = np.array(ranks, dtype=np.float64).T / self._steps  # [n, d]
        self.context_dim = table.contexts.shape[1]
        self._seen = _as_seen(table, metrics, loss)  # what agents see of each metric, without noise
        prefix = "log_" if loss == "log" else ""
        self.metrics = {prefix + metric: Metric(direction) for metric, direction in metrics.items()}
        self._valid = np.all([np.isfinite(values) for values in self._seen.values()], axis=0)  # [m, n]
        self._loss = _losses(next(iter(self._seen.values())), self._valid, next(iter(metrics.values())), loss)
        self._default = self._middle() if default is None else self._find(default)

    def build_sequence(self, horizon: int, seed: int) -> Sequence[Visit]:
        rng, features = generator(seed), self._table.contexts
        rows = recurring(check_horizon(horizon), len(features), *self._block, rng)
        blur = self._context_noise * features.std(axis=0) * rng.normal(size=(horizon, self.context_dim))
        return [Visit(row, features[row] + shift) for row, shift in zip(rows, blur, strict=True)]

    def context_fn(self, omega: Visit) -> Array:
        return omega.context

    def metric_fn(self, theta: Array, omega: Visit, rng: np.random.Generator) -> dict[str, float]:
        at = omega.row, self._nearest(theta)
        if not self._valid[at]:
            raise InvalidConfiguration(f"{self.configuration(theta)} cannot run in context {omega.row} of {self.name}")
        seen = zip(self.metrics, self._seen.values(), strict=True)
        return {name: float(values[at]) + self._noise * float(rng.normal()) for name, values in seen}

    def true_loss(self, theta: Array, omega: Visit) -> float:
        return float(self._loss[omega.row, self._nearest(theta)])

    def minimum(self, omega: Visit) -> float:
        return float(self._loss[omega.row].min())

    def regime(self, omega: Visit) -> int:
        return omega.row

    @property
    def default(self) -> Array:
        """The settings before tuning [d]: as given, or the most central configuration that runs in every context."""
        ranks = np.round(self._code[self._default] * self._steps).astype(int).tolist()
        values = {
            name: knob.choices[rank] if isinstance(knob, Categorical) else rank
            for (name, knob), rank in zip(self.space.knobs.items(), ranks, strict=True)
        }
        return self.space.to_unit(values)

    def configuration(self, theta: Array) -> dict[str, Level]:
        """The measured configuration that theta stands for, knob by knob, as written in the table."""
        return dict(zip(self._table.knobs, self._table.configurations[self._nearest(theta)], strict=True))

    def _nearest(self, theta: Array) -> int:
        return int(self._distances(theta / self._steps).argmin())

    def _distances(self, code: Array) -> Array:
        gap = self._code - code
        squares: Array = np.where(self._words, gap != 0.0, gap**2).sum(axis=1)
        return squares

    def _middle(self) -> int:
        runs = self._valid.all(axis=0)
        away = self._distances(np.full(self.space.dim, 0.5))
        return int(np.where(runs | ~runs.any(), away, np.inf).argmin())

    def _find(self, settings: Mapping[str, Level]) -> int:
        """Where the configuration is; a knob with one level need not be named, and a number may be text."""
        knobs = self._table.knobs
        if not set(self._levels) <= set(settings) <= set(knobs):
            raise InvalidValue(
                f"default (--default) must set each of the knobs {list(self._levels)}, got {show(dict(settings))}"
            )
        wanted = tuple(_measured(knob, self._table.levels(knob), settings.get(knob)) for knob in knobs)
        if wanted not in self._table.configurations:
            raise InvalidValue(f"default (--default) must be a measured configuration of {knobs}, got {show(wanted)}")
        return self._table.configurations.index(wanted)


@dataclass(frozen=True, slots=True)
class TableFile:
    """Where a table lies and how to read it: enough to build the same domain in any process."""

    path: str
    metrics: tuple[tuple[str, Direction], ...]  # the first is the objective
    knobs: tuple[str, ...] = ()  # of a CSV file; an npz file says itself
    context: tuple[str, ...] = ()
    noise: float = 0.0
    loss: Loss = "log"
    block: tuple[int, int] = BLOCK
    default: tuple[tuple[str, Level], ...] = ()  # none: the most central configuration
    context_noise: float = 0.0
    fingerprint: str = field(init=False, repr=False)  # of the content and of how it is read; finished runs carry it

    def __post_init__(self) -> None:
        if self._is_npz and (self.knobs or self.context):
            raise InvalidValue("an npz file says itself what its knobs and contexts are: leave out knobs and context")
        object.__setattr__(self, "fingerprint", self._hash())

    @property
    def name(self) -> str:
        """The file's name without its endings; signs that mean something in a CSV file or a page become _."""
        path = Path(self.path)
        return re.sub(r"[^\w.+-]+", "_", Path(path.stem).stem if path.suffix == ".gz" else path.stem)

    def build(self) -> TableDomain:
        """The domain of the file, which must still be as it was when this was made."""
        if self._hash() != self.fingerprint:
            raise InvalidValue(f"{self.path} has changed since the runs were planned; start again")
        names = [metric for metric, _ in self.metrics]
        if self._is_npz:
            table = read_npz(self.path, names)
        else:
            table = read_csv(self.path, self.knobs, self.context, names)
        return TableDomain(
            table,
            dict(self.metrics),
            name=self.name,
            loss=self.loss,
            noise=self.noise,
            context_noise=self.context_noise,
            block=self.block,
            default=dict(self.default) or None,
        )

    @property
    def _is_npz(self) -> bool:
        return self.path.lower().endswith(".npz")

    def _hash(self) -> str:
        try:
            content = Path(self.path).read_bytes()
        except OSError as reason:
            raise InvalidValue(f"{self.path} must be a readable file: {reason}") from reason
        reading = [getattr(self, part.name) for part in fields(self) if part.name not in ("path", "fingerprint")]
        return hashlib.sha256(repr(reading).encode() + content).hexdigest()[:10]


def _measured(knob: str, levels: Sequence[Level], value: Level | None) -> Level:
    """The level that a value is; without one, the only level."""
    if value is None:
        return levels[0]
    for level in levels:
        if value == level or (isinstance(level, float) and isinstance(value, str) and as_number(value) == level):
            return level
    raise InvalidValue(f"knob {knob!r} was measured at {show(levels)}, got {show(value)} in default (--default)")


def _knob(levels: Sequence[Level]) -> Knob:
    return Categorical(levels) if isinstance(levels[0], str) else Int(0, len(levels) - 1)


def _as_seen(table: MeasurementTable, metrics: Mapping[str, Direction], loss: Loss) -> dict[str, Array]:
    if loss not in ("log", "raw"):
        raise InvalidValue(f"loss (--loss) must be 'log' or 'raw', got {show(loss)}")
    if not metrics:
        raise InvalidValue(f"metrics must name at least one of {list(table.metrics)} and its direction")
    for name in metrics:
        if name not in table.metrics:
            raise InvalidValue(f"metrics has unknown name {show(name)}; the table has {list(table.metrics)}")
        if loss == "log" and np.any(table.metrics[name] <= 0.0):
            least = np.nanmin(table.metrics[name])
            raise InvalidValue(
                f"loss='log' (--loss log) needs positive metrics, got {least} in {name!r}; use loss='raw' (--loss raw)"
            )
    return {name: np.log(table.metrics[name]) if loss == "log" else table.metrics[name] for name in metrics}


def _losses(seen: Array, valid: Array, direction: Direction, loss: Loss) -> Array:
    """The loss [m, n]: an invalid configuration is as bad as the worst valid one of its context."""
    without = np.flatnonzero(~valid.any(axis=1))
    if len(without):
        raise InvalidValue(f"every context needs a valid configuration, got none in context {without[0]}")
    cost = seen if direction == "min" else -seen
    if loss == "log":
        cost = cost - np.where(valid, cost, np.inf).min(axis=1, keepdims=True)
    worst = np.where(valid, cost, -np.inf).max(axis=1, keepdims=True)
    return np.where(valid, cost, worst)


def _check_block(block: tuple[int, int]) -> tuple[int, int]:
    shortest, longest = block
    if not 1 <= shortest <= longest:
        raise InvalidValue(
            "block must be the shortest and the longest, 1 <= shortest <= longest, "
            f"as in block=(10, 30) or --block 10,30, got {show(block)}"
        )
    return shortest, longest
