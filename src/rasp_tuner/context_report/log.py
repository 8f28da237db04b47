"""A CSV log as samples: contexts, points of the unit box, one loss. A row is a run, in the order of time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rasp_tuner.base.checks import BLANKS, show
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts import Name
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.csv_file import read_csv

MAX_WORDS = 50  # different words up to which each has a column of its own; more are hashed


@dataclass(frozen=True, slots=True)
class Log:
    """What was read."""

    names: tuple[str, ...]  # of the log's column that each of the contexts' columns comes from
    contexts: Array  # [n, d_c]
    points: Array  # [n, d] numbers from the least to the largest seen, words one-hot
    losses: Array  # [n] the weighted mean of the metrics, turned so that lower is better, each in its deviations
    left_out: int  # rows that lack a value


def read(path: Path, context: Sequence[str], metrics: Mapping[str, float], params: Sequence[str]) -> Log:
    """The log in a CSV file; `metrics` are names -> weights, negative if larger is better.

    A row that lacks one of the values is left out and counted. A column is one of numbers if most of it is, else one
    of words: there NA and the like are words too.
    """
    for field, given in (("context", context), ("metrics", list(metrics)), ("params", params)):
        if not given or len(set(given)) < len(given):
            raise InvalidValue(f"{field} must name columns of {path}, each once, got {show(list(given))}")
    wanted = [*context, *metrics, *params]
    if len(set(wanted)) < len(wanted):
        raise InvalidValue(f"a column must be context, metric or parameter, not two of them, got {show(wanted)}")
    rows = [[(text or "").strip() for text in row] for row in read_csv(path).columns(wanted)]
    blanks = [BLANKS if _mostly_numbers(column) else ("",) for column in zip(*rows, strict=True)]
    full = [row for row in rows if not any(text.lower() in gaps for text, gaps in zip(row, blanks, strict=True))]
    if not full:
        raise InvalidValue(f"{path} has no row with a value in each of the columns {show(wanted)}")
    columns = dict(zip(wanted, zip(*full, strict=True), strict=True))
    coded = {name: _coded(path, name, columns[name]) for name in (*context, *params)}
    labels = [name for name in context for _ in coded[name]]
    contexts = np.column_stack([array for name in context for array in coded[name]])
    points = np.column_stack([_unit(array) for name in params for array in coded[name]])
    losses = np.zeros(len(full))
    for name, weight in metrics.items():
        values = np.array([_number(path, name, text) for text in columns[name]])
        values /= np.abs(values).max() or 1.0  # so that no square overflows
        losses += weight * (values - values.mean()) / (values.std() or 1.0)
    return Log(tuple(labels), contexts, points, losses, len(rows) - len(full))


def _coded(path: Path, name: str, texts: Sequence[str]) -> list[Array]:
    """A column of numbers as it is; one of words as zeros and ones for each word, or for the second of two.

    Of very many words each becomes a few numbers from its hash, as in a tuner (contexts.py).
    """
    if _mostly_numbers(texts):
        return [np.array([_number(path, name, text) for text in texts])]
    words = sorted(set(texts))
    if len(words) > MAX_WORDS:
        hashed = {word: Name().encode(word)[:-1] for word in words}
        return list(np.array([hashed[text] for text in texts]).T)
    kept = words[1:] if len(words) == 2 else words
    return [np.array([float(text == word) for text in texts]) for word in kept]


def _mostly_numbers(texts: Sequence[str]) -> bool:
    there = [text for text in texts if text.lower() not in BLANKS]
    return 2 * sum(map(_is_number, there)) > len(there)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(path: Path, name: str, text: str) -> float:
    value = float(text) if _is_number(text) else math.nan
    if not math.isfinite(value):
        raise InvalidValue(
            f"column {name!r} of {path} must hold finite numbers, got {show(text)}; an empty field, or NA, leaves the"
            " row out"
        )
    return value


def _unit(column: Array) -> Array:
    low, width = float(column.min()), float(np.ptp(column))
    unit: Array = (column - low) / width if width > 0.0 else np.full(len(column), 0.5)
    return unit
