"""What each row does on each bed: the logarithm of the loss with the change over that without, and its error."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rasp_lab.ablations.rows import BOTH, PROCESS, QUADRATICS, Row
from rasp_lab.beds import source
from rasp_lab.beds.bed import Options, chosen_seeds
from rasp_lab.beds.beds import load
from rasp_lab.beds.factor_of_two import edited
from rasp_lab.beds.runner import Cell, Results, measure, on_file
from rasp_lab.beds.table import LEAST

BEYOND_LUCK = 2.0  # standard errors


@dataclass(frozen=True)
class Slice:
    """Some runs of a bed: cells that begin with one of these words, and the lines of their losses."""

    bed: str
    model: str
    seeds: int
    line: str  # how the names of its lines begin
    words: tuple[str, ...] = ("",)

    def cells(self, options: Options, times: int) -> list[Cell]:
        found = [cell for cell in load(self.bed).cells(options) if cell.startswith(self.words)]
        return [Cell(self.bed, cell, s) for cell in found for s in chosen_seeds(times * self.seeds, options.half)]


SLICES: Mapping[str, Slice] = {
    "nine domains": Slice("domains", QUADRATICS, 10, "regret / static", ("plain/",)),
    "noisy, outlying": Slice("domains", QUADRATICS, 10, "regret / static, ", ("noise/", "outliers/")),
    "worlds": Slice("worlds", PROCESS, 10, "loss, "),
    "tables": Slice("tables", PROCESS, 10, "regret / static"),
    "emulated": Slice("emulated", PROCESS, 10, "cost / default"),
}


class Effect(NamedTuple):
    """Mean and standard error of the logarithm of a ratio; NaN where the row has no part in the bed."""

    mean: float
    error: float

    @property
    def beyond_luck(self) -> bool:
        return abs(self.mean) > BEYOND_LUCK * self.error

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return ""
        if self.mean == self.error == 0.0:
            return "none"
        said = f"{self.mean:+.2f} ± {self.error:.2f}"
        return f"**{said}**" if self.beyond_luck else said


NO_PART = Effect(math.nan, math.nan)


def effect(before: Results, after: Results, cells: Sequence[Cell], line: str, geometric: bool) -> Effect:
    """Of the runs that both have. A loss near zero has no logarithm to speak of: there the means are compared."""
    both = [cell for cell in cells if cell in before.values and cell in after.values]
    if len(both) < 2:
        return NO_PART
    a, b = (np.array([_loss(found.values[cell], line) for cell in both]) for found in (before, after))
    if geometric:
        gaps = np.log(np.maximum(b, LEAST)) - np.log(np.maximum(a, LEAST))
        return Effect(float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps))))
    apart = b / b.mean() - a / a.mean()  # of the logarithm of a ratio of means, to first order
    return Effect(float(np.log(b.mean() / a.mean())), float(apart.std(ddof=1) / math.sqrt(len(apart))))


def _loss(values: Mapping[str, float], line: str) -> float:
    return next(value for name, value in values.items() if name.startswith(line))


@dataclass(frozen=True)
class Bench:
    """All runs of the table, with the engine as it is and with each change."""

    options: Options
    times: int = 1
    jobs: int = 2
    told: Callable[[str], None] = lambda _: None
    slices: Mapping[str, Slice] = field(default_factory=dict)
    on_file: bool = False  # rows whose runs are not all there are left out

    @classmethod
    def of(cls, options: Options, times: int, jobs: int, told: Callable[[str], None], on_file: bool) -> "Bench":
        """With every bed that there are data for."""
        here = {name: one for name, one in SLICES.items() if load(one.bed).missing(options) is None}
        for bed in {one.bed for one in here.values()}:
            load(bed).prepare()
        return cls(options, times, jobs, told, here, on_file)

    def effects(self, rows: Sequence[Row]) -> dict[str, dict[str, Effect]]:
        """Row -> bed -> effect."""
        at = source.here()
        self.told("the engine as it is")
        usual = self._run(at, list(self.slices.values()))  # which are few
        found = {}
        for number, row in enumerate(rows, 1):
            self.told(f"{number} of {len(rows)}: {row.key}")
            shown = {name: one for name, one in self.slices.items() if row.model in (BOTH, one.model)}
            changed = self._with(row, at.tree, list(shown.values()))
            if not changed.values:
                continue
            for cell, reason in list(changed.errors.items())[:1]:
                self.told(f"  {cell}: {reason}")
            found[row.key] = {name: self._effect(usual, changed, name) if name in shown else NO_PART for name in SLICES}
        return found

    def _with(self, row: Row, tree: str, slices: Sequence[Slice]) -> Results:
        """Runs with the change; a copy is made and built only if one is missing."""
        name = f"{tree}-{_slug(row)}"
        cells, beds = self._cells(slices), {one.bed: load(one.bed) for one in slices}
        known = on_file(source.Source(row.key, Path(), name), beds, cells, self.options)
        if len(known.values) == len(cells):
            return known
        return Results() if self.on_file else self._run(edited(name, row.apply), slices)

    def _effect(self, usual: Results, changed: Results, name: str) -> Effect:
        one = self.slices[name]
        return effect(usual, changed, one.cells(self.options, self.times), one.line, one.bed != "worlds")

    def _run(self, at: source.Source, slices: Sequence[Slice]) -> Results:
        beds = {one.bed: load(one.bed) for one in slices}
        return measure(at, beds, self._cells(slices), self.options, self.jobs)

    def _cells(self, slices: Sequence[Slice]) -> list[Cell]:
        return list(dict.fromkeys(cell for one in slices for cell in one.cells(self.options, self.times)))


def _slug(row: Row) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in f"{row.model}-{row.part}: {row.change}").lower()
