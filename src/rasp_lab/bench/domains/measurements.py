"""MeasurementTable: measured configurations, contexts and metrics, read from a CSV or npz file."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.checks import BLANKS, show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.csv_file import read_csv as read_csv_file

Level: TypeAlias = str | float

STAR = "what the star stands for"  # the context column that a metric with a star brings along


@dataclass(frozen=True)
class MeasurementTable:
    """n configurations of d knobs, m contexts with d_c features, and one array [m, n] a metric; NaN cannot run."""

    knobs: tuple[str, ...]
    configurations: tuple[tuple[Level, ...], ...]  # n rows of d levels
    contexts: Array  # [m, d_c]
    metrics: Mapping[str, Array]  # each [m, n]

    def __post_init__(self) -> None:
        if self.contexts.ndim != 2 or not np.all(np.isfinite(self.contexts)):
            raise InvalidValue(f"contexts must be finite numbers [m, d_c], got shape {self.contexts.shape}")
        if len(set(self.knobs)) < len(self.knobs):
            raise InvalidValue(f"knobs must have different names, got {list(self.knobs)}")
        if any(len(row) != len(self.knobs) for row in self.configurations):
            raise InvalidValue(f"configurations must have one level for each of the knobs {list(self.knobs)}")
        if len(set(self.configurations)) < len(self.configurations):
            raise InvalidValue("configurations must differ from each other, got one of them twice")
        shape = len(self.contexts), len(self.configurations)
        if 0 in shape:
            raise InvalidValue(f"a table needs at least one context and one configuration, got {shape}")
        for name, values in self.metrics.items():
            if values.shape != shape:
                raise InvalidValue(
                    f"metric {name!r} must have shape [m, n] = {shape}, a row for each context and a column for "
                    f"each configuration, got {values.shape}"
                )
            if np.any(np.isinf(values)):
                raise InvalidValue(f"metric {name!r} must be finite, or NaN where it cannot run, got infinity")

    def column(self, knob: str) -> list[Level]:
        """The level of one knob in each configuration."""
        at = self.knobs.index(knob)
        return [row[at] for row in self.configurations]

    def levels(self, knob: str) -> list[Level]:
        """The measured levels of one knob, in order."""
        return sorted(set(self.column(knob)))


def read_csv(
    path: str | Path, knobs: Sequence[str], context: Sequence[str], metrics: Sequence[str]
) -> MeasurementTable:
    """The table in a CSV file with one row for each measurement: knob, context and metric columns; gzip is fine.

    An empty metric, or one of `BLANKS`, says that it cannot run there; so does a pair of configuration and context that
    has no row. Repeated measurements are averaged. A column of numbers is taken as numbers; any other knob is
    categorical, and any other context column one-hot. A metric `time_*` is read from each column that fits, and what
    the star stands for is one more context column.
    """
    sheet = _read_sheet(Path(path)).unfolded(knobs, context, metrics)
    seen = [*context, STAR] if STAR in sheet.columns else context
    sheet.check([*knobs, *seen, *metrics])
    for field, names in (("knobs", knobs), ("context", seen), ("metrics", metrics)):
        if not names:
            raise InvalidValue(f"{field} (--{field}) must name at least one column of {path}; it has {sheet.header}")
    configurations, configuration_of = _distinct(zip(*(_levels(sheet.columns[name]) for name in knobs), strict=True))
    features, context_of = _distinct(zip(*(_levels(sheet.columns[name]) for name in seen), strict=True))
    shape = len(features), len(configurations)
    return MeasurementTable(
        tuple(knobs),
        tuple(configurations),
        _one_hot(features),
        {name: _mean(shape, context_of, configuration_of, sheet.measured(name)) for name in metrics},
    )


def read_npz(path: str | Path, metrics: Sequence[str]) -> MeasurementTable:
    """The table in an npz file: `configurations` [n, d], `contexts` [m, d_c], each metric [m, n], maybe `knobs` [d].

    Configurations and contexts may be words; a column of them that are all numbers is taken as numbers.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (BadZipFile, ValueError, TypeError, OSError) as reason:
        raise InvalidValue(f"{path} must be an npz file of plain arrays: {reason}") from reason
    for name in ("configurations", "contexts", *metrics):
        if name not in arrays:
            raise InvalidValue(f"{path} lacks the array {name!r}; it has {sorted(arrays)}")
    for name, shape in (("configurations", "[n, d]"), ("contexts", "[m, d_c]")):
        if arrays[name].ndim != 2 or not arrays[name].shape[1]:
            raise InvalidValue(f"{path}: {name} must have shape {shape}, got {arrays[name].shape}")
    configurations, contexts = arrays["configurations"], arrays["contexts"]
    d = configurations.shape[1]
    names = arrays.get("knobs", np.array([f"x{i + 1}" for i in range(d)]))
    if names.shape != (d,):
        raise InvalidValue(
            f"{path}: knobs must be {d} names, one for each column of configurations, got shape {names.shape}"
        )
    return MeasurementTable(
        tuple(map(str, names)),
        tuple(_by_row(configurations)),
        _one_hot(_by_row(contexts)) if contexts.dtype.kind in "SU" else _floats(f"{path}: contexts", contexts),
        {name: _floats(f"{path}: metric {name!r}", arrays[name]) for name in metrics},
    )


def as_number(text: str) -> float | None:
    """The finite number that the text writes, if it does."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class _Sheet:
    """The cells of a CSV file by column, and the line that each row ends on."""

    path: Path
    header: list[str]
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    def check(self, names: Sequence[str]) -> None:
        """Every name is a column, and only one thing."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise InvalidValue(f"{self.path} lacks the columns {missing}; it has {self.header}")
        for name in names:
            if names.count(name) > 1:
                raise InvalidValue(f"each column can be one knob, context or metric, got {name!r} twice")
            if self.header.count(name) > 1:
                raise InvalidValue(f"{self.path} has two columns named {name!r}")
        if not self.lines:
            raise InvalidValue(f"{self.path} has a header but no rows")

    def unfolded(self, knobs: Sequence[str], context: Sequence[str], metrics: Sequence[str]) -> "_Sheet":
        """The sheet with its rows repeated for each thing that the star of a metric stands for."""
        free = [name for name in self.header if name not in (*knobs, *context, *metrics)]
        stars = {name: _fits(name, free) for name in metrics if "*" in name and name not in self.header}
        if not any(stars.values()):
            return self
        things = list(dict.fromkeys(thing for found in stars.values() for thing in found))
        rows = len(self.lines)
        columns = {name: [*cells] * len(things) for name, cells in self.columns.items()}
        columns[STAR] = [thing for thing in things for _ in range(rows)]
        for name, found in stars.items():
            if found:
                empty = [""] * rows
                columns[name] = [c for t in things for c in (self.columns[found[t]] if t in found else empty)]
        return _Sheet(self.path, self.header, columns, [*self.lines] * len(things))

    def measured(self, name: str) -> list[float]:
        """One metric of each row; NaN where there is none."""
        values = []
        for line, text in zip(self.lines, self.columns[name], strict=True):
            value = math.nan if text.lower() in BLANKS else as_number(text)
            if value is None:
                raise InvalidValue(
                    f"{self.path} line {line}: metric {name!r} must be a finite number or empty, got {show(text)}"
                )
            values.append(value)
        return values


def _read_sheet(path: Path) -> _Sheet:
    file = read_csv_file(path)
    header, rows = file.header, [(line, [cell.strip() for cell in row]) for line, row in file.rows]
    for line, cells in rows:
        if len(cells) != len(header):
            raise InvalidValue(f"{path} line {line} has {len(cells)} cells, but the header has {len(header)}")
    columns = {name: [cells[i] for _, cells in rows] for i, name in enumerate(header)}
    return _Sheet(path, header, columns, [line for line, _ in rows])


def _fits(pattern: str, names: Iterable[str]) -> dict[str, str]:
    """What the star of the pattern stands for in each name that fits, and that name."""
    before, _, after = pattern.partition("*")
    least = len(before) + len(after)
    return {
        name[len(before) : len(name) - len(after)]: name
        for name in names
        if len(name) > least and name.startswith(before) and name.endswith(after)
    }


def _floats(field: str, array: NDArray[Any]) -> Array:
    try:
        return array.astype(np.float64)
    except (ValueError, TypeError) as reason:
        raise InvalidValue(f"{field} must be numbers: {reason}") from reason


def _by_row(array: NDArray[Any]) -> list[tuple[Level, ...]]:
    """The rows of an array [n, d] as levels."""
    return list(zip(*(_levels([str(level) for level in column]) for column in array.T), strict=True))


def _levels(texts: Sequence[str]) -> list[Level]:
    """The column as numbers if all are, else as they are written."""
    numbers: list[Level] = [number for number in map(as_number, texts) if number is not None]
    return numbers if len(numbers) == len(texts) else list(texts)


def _distinct(rows: Iterable[tuple[Level, ...]]) -> tuple[list[tuple[Level, ...]], list[int]]:
    """The different rows in the order they first appear, and which of them each row is."""
    index: dict[tuple[Level, ...], int] = {}
    which = [index.setdefault(row, len(index)) for row in rows]
    return list(index), which


def _one_hot(rows: Sequence[tuple[Level, ...]]) -> Array:
    """Context features [m, d_c]: numbers as they are, words one-hot."""
    features: list[Array] = []
    for column in zip(*rows, strict=True):
        if isinstance(column[0], str):
            features += [np.array([float(value == word) for value in column]) for word in sorted(set(column))]
        else:
            features.append(np.array(column, dtype=np.float64))
    return np.column_stack(features)


def _mean(
    shape: tuple[int, int], contexts: Sequence[int], configurations: Sequence[int], values: Sequence[float]
) -> Array:
    """The mean measurement of each pair [m, n]; NaN where there is none."""
    value = np.array(values)
    measured = np.isfinite(value)
    at = np.array(contexts)[measured], np.array(configurations)[measured]
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, at, value[measured])
    np.add.at(count, at, 1.0)
    mean: Array = np.divide(total, count, out=np.full(shape, np.nan), where=count > 0)
    return mean
