"""What a bed is: cells to run with seeds, and the lines of the table that their values add up to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rasp_lab import REPOSITORY

OUT = REPOSITORY / "out" / "beds"

Half = Literal["develop", "report", "all"]
Values = dict[str, float]  # of a run: line of the table -> value


@dataclass(frozen=True, slots=True)
class Measure:
    """How one line of the table is made of the values of many runs; less is better unless `more`."""

    how: Literal["geometric", "mean", "count"] = "geometric"  # a count: the sum, of `of` in each run
    wanted: float | None = None  # at most; of a count with `more` at least this share
    of: int = 1
    more: bool = False
    worst: Literal["cell", "run"] = "cell"  # what the worst one is looked for among: means of cells, or single runs


@dataclass(frozen=True, slots=True)
class Options:
    """What every worker must know."""

    half: Half = "report"
    data: str | None = None  # folder of measured tables
    long: bool = False  # also what takes minutes


@dataclass(frozen=True, slots=True)
class Bed:
    """A family of runs. A run is a function of cell and seed alone, and of the library."""

    name: str
    seeds: int  # for each cell, unless --seeds says otherwise
    measures: Mapping[str, Measure]
    cells: Callable[[Options], Sequence[str]]
    run: Callable[[str, int, Options], Values]
    prepare: Callable[[], None] = lambda: None  # once, before the first run, by one process
    missing: Callable[[Options], str | None] = lambda _: None  # why there is nothing to run


def chosen_seeds(count: int, half: Half) -> list[int]:
    """The first seeds of a half: even ones to choose by, odd ones to report.

    >>> chosen_seeds(3, "develop"), chosen_seeds(3, "report"), chosen_seeds(3, "all")
    ([0, 2, 4], [1, 3, 5], [0, 1, 2])
    """
    step, first = (1, 0) if half == "all" else (2, int(half == "report"))
    return [first + step * i for i in range(count)]
