"""Table: measured configurations, contexts and metrics, read from a CSV or npz file."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile

import numpy as np

from rasp_tuner.checks import show
from rasp_tuner.errors import InvalidValue
from rasp_tuner.numerics import Array

Level: TypeAlias = str | float
Row: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """n configurations of d knobs, m contexts with d_c features, and one array [m, n] a metric; NaN cannot run."""

    knobs: tuple[str, ...]
    configurations: tuple[tuple[Level, ...], ...]  # n rows of d levels
    contexts: Array  # [m, d_c]
    metrics: Mapping[str, Array]  # each [m, n]

    def __post_init__(self) -> None:
        if self.contexts.ndim != 2 or not np.all(np.isfinite(self.contexts)):
            raise InvalidValue(f"contexts must be finite numbers [m, d_c], got shape {self.contexts.shape}")
        if any(len(row) != len(self.knobs) for row in self.configurations):
            raise InvalidValue(f"configurations must have one level for each of the knobs {list(self.knobs)}")
        if len(set(self.configurations)) < len(self.configurations):
            raise InvalidValue("configurations must differ from each other, got one of them twice")
        shape = len(self.contexts), len(self.configurations)
        if 0 in shape:
            raise InvalidValue(f"a table needs at least one context and one configuration, got {shape}")
        for name, values in self.metrics.items():
            if values.shape != shape:
                raise InvalidValue(f"metric {name!r} must have shape [m, n] = {shape}, got {values.shape}")
            if np.any(np.isinf(values)):
                raise InvalidValue(f"metric {name!r} must be finite, or NaN where it cannot run, got infinity")

    def column(self, knob: str) -> list[Level]:
        """The level of one knob in each configuration."""
        at = self.knobs.index(knob)
        return [row[at] for row in self.configurations]

    def levels(self, knob: str) -> list[Level]:
        """The measured levels of one knob, in order."""
        return sorted(set(self.column(knob)))


def read_csv(path: str | Path, knobs: Sequence[str], context: Sequence[str], metrics: Sequence[str]) -> Table:
    """The table in a CSV file with one row for each measurement: knob, context and metric columns.

    An empty metric, like a pair of configuration and context that has no row, says that it cannot run there. Repeated
    measurements are averaged. A column of numbers is taken as numbers; any other knob is categorical, and any other
    context column one-hot.
    """
    rows = _rows(Path(path), [*knobs, *context, *metrics])
    for field, names in (("knobs", knobs), ("context", context), ("metrics", metrics)):
        if not names:
            raise InvalidValue(f"{field} must name at least one column of {path}")
    configurations, configuration_of = _distinct(
        zip(*(_levels([row[name] for row in rows]) for name in knobs), strict=True)
    )
    features, context_of = _distinct(zip(*(_levels([row[name] for row in rows]) for name in context), strict=True))
    shape = len(features), len(configurations)
    return Table(
        tuple(knobs),
        tuple(configurations),
        _one_hot(features),
        {name: _mean(shape, context_of, configuration_of, _measured(path, rows, name)) for name in metrics},
    )


def read_npz(path: str | Path, metrics: Sequence[str]) -> Table:
    """The table in an npz file: `configurations` [n, d], `contexts` [m, d_c], each metric [m, n], maybe `knobs` [d]."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (BadZipFile, ValueError, TypeError, OSError) as reason:
        raise InvalidValue(f"{path} must be an npz file of plain arrays: {reason}") from reason
    for name in ("configurations", "contexts", *metrics):
        if name not in arrays:
            raise InvalidValue(f"{path} lacks the array {name!r}; it has {sorted(arrays)}")
    configurations = arrays["configurations"]
    if configurations.ndim != 2:
        raise InvalidValue(f"{path}: configurations must have shape [n, d], got {configurations.shape}")
    names = arrays.get("knobs", np.array([f"x{i + 1}" for i in range(configurations.shape[1])]))
    columns = [_levels([str(level) for level in column]) for column in configurations.T]
    try:
        contexts = arrays["contexts"].astype(np.float64)
        values = {name: arrays[name].astype(np.float64) for name in metrics}
    except ValueError as reason:
        raise InvalidValue(f"{path}: contexts and metrics must be numbers: {reason}") from reason
    return Table(tuple(map(str, names)), tuple(zip(*columns, strict=True)), contexts, values)


def _rows(path: Path, columns: Iterable[str]) -> Sequence[Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            header, rows = list(reader.fieldnames or []), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as reason:
        raise InvalidValue(f"{path} must be a readable CSV file: {reason}") from reason
    missing = [name for name in columns if name not in header]
    if missing:
        raise InvalidValue(f"{path} lacks the columns {missing}; it has {header}")
    if not rows:
        raise InvalidValue(f"{path} has a header but no rows")
    return rows


def _measured(path: str | Path, rows: Sequence[Row], name: str) -> list[float]:
    """One metric of each row; NaN where the cell is empty."""
    values = []
    for line, row in enumerate(rows, start=2):
        text = row[name].strip()
        value = _number(text) if text else math.nan
        if value is None:
            raise InvalidValue(
                f"{path} line {line}: metric {name!r} must be a finite number or empty, got {show(text)}"
            )
        values.append(value)
    return values


def _levels(texts: Sequence[str]) -> list[Level]:
    """The column as numbers if all are, else as they are written."""
    numbers: list[Level] = [number for number in map(_number, texts) if number is not None]
    return numbers if len(numbers) == len(texts) else list(texts)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
