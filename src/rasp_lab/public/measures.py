"""What runs of the public suite are about: measures, and what the rows of a run come to in each."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rasp_lab.public import protocols, serving
from rasp_lab.public.cells import Cell, Row

AT_THE_END, FROM_SECOND = "best of 80", "best of 20, from the second workload on"
ONLINE, ONCE = "mean of 80 steps, report half", "every input once"
SCORE = "score, 0 is random search"
KEPT = ", share that keeps the limit"


class Total(NamedTuple):
    """Of one run in one measure."""

    inputs: int  # workloads or contexts
    mean: float  # over them, of logarithms if the measure is a ratio


Totals = Mapping[str, Total]  # by measure


def totals(cell: Cell, rows: Sequence[Row]) -> dict[str, Total]:
    """What the rows of a run come to."""
    values: dict[str, list[float]] = {}
    for measure, value in [one for row in rows for one in _measured(cell, row)]:
        values.setdefault(measure, []).append(value if is_plain(measure) else math.log(value))
    return {measure: Total(len(own), float(np.mean(own))) for measure, own in values.items()}


def is_plain(measure: str) -> bool:
    """Whether values of a measure are added up as they are; else it is a ratio, and its logarithms are."""
    return measure == SCORE or measure.endswith(KEPT)


def looks_of(objective: str, looks: int) -> str:
    return f"{objective}, {looks} look{'' if looks == 1 else 's'}"


def _measured(cell: Cell, row: Row) -> list[tuple[str, float]]:
    if cell.protocol == "find":
        early, end = (float(row[f"best {protocols.AFTER[at]}"]) for at in (0, -1))
        return [(AT_THE_END, end), *([] if row["place"] == 0 else [(FROM_SECOND, early)])]
    if cell.protocol == "online":
        return [(ONLINE, float(row["ratio"]))] if row["half"] == "report" else []
    if cell.protocol == "kernels":
        return [(SCORE, float(row["score"]))]
    if cell.protocol == "serving":
        named = [(looks_of(str(row["objective"]), n), n) for n in serving.LOOKS]
        ratios = [(name, float(row[f"ratio {n}"])) for name, n in named]
        return ratios + [(name + KEPT, float(row[f"kept {n}"])) for name, n in named]
    return [(ONCE, float(row["ratio"]))]
