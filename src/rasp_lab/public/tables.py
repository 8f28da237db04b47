"""Published tables as n settings that can run in m contexts: what each costs, less is better."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner import Categorical, Int
from rasp_tuner.space import Knob, Params

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
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
    def unordered(self) -> Mask:
        return np.array([isinstance(knob, Categorical) for knob in self.knobs.values()])

    @property
    def levels(self) -> NDArray[np.int_]:
        """[d]"""
        return np.array([int(knob.levels or 0) for knob in self.knobs.values()])

    def row_of(self) -> dict[tuple[object, ...], int]:
        return {tuple(row.values()): i for i, row in enumerate(self.rows)}

    def places_of(self, params: Params) -> Array:
        """[d]"""
        own = zip(self.knobs.items(), params.values(), strict=True)
        return np.array(
            [float(knob.choices.index(v) if isinstance(knob, Categorical) else int(str(v))) for (_, knob), v in own]
        )

    def nearest(self, place: Array, fresh: Mask) -> int:
        """The row, of those that are fresh [n], nearest to places [d]; another choice is as far as a knob goes."""
        apart = np.where(
            self.unordered, place != self.places, np.abs(place - self.places) / np.maximum(self.levels - 1, 1)
        )
        return int(np.where(fresh, apart.sum(axis=1), np.inf).argmin())


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
    with np.load(folder / "dlisa" / f"{system}.npz") as file:
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
def sqlite(folder: Path) -> tuple[Table, Array, Array]:
    """Contexts are a size and a query; also the repeats [m, n, 8] of each setting, NaN where there is none, and sizes.

    Nothing ran in cells that are marked as failed: such a setting cannot run there.
    """
    with np.load(folder / "sqlite_queries" / "sqlite.npz") as file:
        time, setting, failed = file["time_s"].astype(float), file["setting"], file["failed"]
        distinct, options, queries, sizes = file["distinct"], file["options"].tolist(), file["queries"], file["inputs"]
    time[failed] = np.nan
    n, most = len(distinct), int(np.bincount(setting).max())
    by_query = np.full((len(sizes), len(queries), n, most), np.nan)
    for i in range(n):
        rows = np.flatnonzero(setting == i)
        by_query[:, :, i, : len(rows)] = time[:, rows].transpose(0, 2, 1)
    runs: Array = by_query.reshape(-1, n, most)
    counts = (~np.isnan(runs)).sum(axis=2)
    cost = np.where(counts > 0, np.nansum(runs, axis=2) / np.maximum(counts, 1), np.nan)
    contexts = [str(query) for _ in sizes for query in queries.tolist()]
    default = int((distinct == 0).all(axis=1).argmax())
    table = made("SQLite queries", distinct, options, contexts, cost, np.nanmin(cost, axis=1), default)
    return table, runs, np.repeat(sizes.astype(float), len(queries))


@cache
def poppler(folder: Path) -> tuple[Table, Array]:
    """Every file is a context of its own, without features; the default is png with all flags off.

    Also the bytes written [m, n].
    """
    with np.load(folder / "poppler" / "poppler.npz") as file:
        cost, settings, names = file["time_s"].astype(float), file["settings"], file["format_names"].tolist()
        options, files = file["options"].tolist(), [str(one) for one in file["inputs"].tolist()]
        written = file["size_b"].astype(float)
    png = names.index("png")
    default = int(((settings[:, 0] == png) & (settings[:, 1:] == 0).all(axis=1)).argmax())
    return made("poppler", settings, options, files, cost, cost.min(axis=1), default), written


@cache
def printed(folder: Path) -> list[dict[str, str]]:
    """The published table of DLiSA, without the state whose times were mixed up."""
    with (folder / "dlisa" / "printed.csv").open(newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["state"] == "right"]


def exclusive_groups(places: NDArray[np.int_]) -> list[list[int]]:
    """Columns; those that exclude each other, three or more switches of which always one is on, together."""
    left, groups = list(range(places.shape[1])), []
    binary = [j for j in left if set(places[:, j].tolist()) <= {0, 1} and places[:, j].any()]
    for j in binary:
        if j not in left:
            continue
        group = [j]
        for k in binary:
            if k > j and k in left and not (places[:, group].any(axis=1) & (places[:, k] > 0)).any():
                group.append(k)
        if len(group) > 2 and places[:, group].any(axis=1).all():
            groups.append(group)
            left = [k for k in left if k not in group]
    return groups + [[j] for j in left]
