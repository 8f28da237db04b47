"""Published tables as n settings that can run in m contexts: what each costs, less is better."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_lab.find.worlds import exclusive_groups
from rasp_tuner import Categorical, Int
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Knob, Params

Array = NDArray[np.float64]
SYSTEMS = ("batik", "dconvert", "h2", "jump3r", "kanzi", "lrzip", "x264", "xz", "z3")


@dataclass(frozen=True)
class Table:
    """Settings as parameters of a tuner, and as places of their values."""

    name: str
    knobs: dict[str, Knob]
    rows: list[Params]  # n
    places: Array  # [n, d] which of its knob's values a row has
    contexts: list[str]  # m
    cost: Array  # [m, n]; NaN where a setting cannot run
    least: Array  # [m] what ratios are of
    default: int  # row

    @property
    def unordered(self) -> NDArray[np.bool_]:
        return np.array([isinstance(knob, Categorical) for knob in self.knobs.values()])

    @property
    def levels(self) -> NDArray[np.int_]:
        """[d]"""
        return np.array([int(knob.levels or 0) for knob in self.knobs.values()])

    def row_of(self) -> dict[tuple[object, ...], int]:
        return {tuple(row.values()): i for i, row in enumerate(self.rows)}

    def nearest(self, place: Array, fresh: NDArray[np.bool_]) -> int:
        """The row, of those that are fresh [n], nearest to places [d]; another choice is as far as a knob goes."""
        apart = np.where(
            self.unordered, place != self.places, np.abs(place - self.places) / np.maximum(self.levels - 1, 1)
        )
        return int(np.where(fresh, apart.sum(axis=1), np.inf).argmin())


def found(folder: Path, *names: str) -> Path:
    """A file of the folder; InvalidValue says how to get it."""
    file = folder.joinpath(*names)
    if not file.is_file():
        raise InvalidValue(f"{file} is not there: get it by `rasp bench public --download --data {folder}`")
    return file


def made(
    name: str, settings: NDArray[Any], options: Sequence[str], contexts: Sequence[str], cost: Array, least: Array,
    default: int,
) -> Table:  # fmt: skip
    """Switches of which always one is on are one knob; a knob with several values has them in order."""
    values = [np.unique(column) for column in settings.T]
    places = np.column_stack([np.searchsorted(own, column) for own, column in zip(values, settings.T, strict=True)])
    knobs: dict[str, Knob] = {}
    columns: list[list[Any]] = []
    kept = []
    for group in exclusive_groups(places):
        count = len(values[group[0]])
        if len(group) > 1:
            which = places[:, group].argmax(axis=1)
            knobs["|".join(options[j] for j in group)[:60]] = Categorical([options[j] for j in group])
            columns.append([options[group[i]] for i in which.tolist()])
            kept.append(which)
        elif count > 1:
            knobs[options[group[0]]] = Int(0, count - 1)
            columns.append(places[:, group[0]].tolist())
            kept.append(places[:, group[0]])
    rows: list[Params] = [dict(zip(knobs, own, strict=True)) for own in zip(*columns, strict=True)]
    return Table(name, knobs, rows, np.column_stack(kept).astype(float), list(contexts), cost, least, default)


@cache
def dlisa(folder: Path, system: str) -> Table:
    """Of rows with equal settings the first, as the authors' lookup has it; ratios are of the best of all rows."""
    with np.load(found(folder, "dlisa", f"{system}.npz")) as file:
        cost = file["value"].astype(float)
        cost = 1.0 / cost if str(file["direction"]) == "max" else cost
        first = file["first"]
        kept = np.unique(first)
        default = int(np.searchsorted(kept, first[int(file["default"])]))
        return made(
            system, file["settings"][kept], file["options"].tolist(), file["workloads"].tolist(), cost[:, kept],
            cost.min(axis=1), default,
        )  # fmt: skip


@cache
def printed(folder: Path) -> list[dict[str, str]]:
    """The published table of DLiSA, without the state whose times were mixed up."""
    with found(folder, "dlisa", "printed.csv").open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["state"] == "right"]
