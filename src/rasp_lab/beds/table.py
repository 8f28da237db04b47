"""The table: each line of each bed before and now, and the difference, paired by cell and seed."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rasp_lab.beds.bed import Bed, Measure
from rasp_lab.beds.runner import Cell, Results

LEAST = 1e-3  # a share below this counts as this: its logarithm says nothing more

Found = dict[tuple[str, int], float]  # cell and seed -> value


@dataclass(frozen=True, slots=True)
class Change:
    """Now against before: the mean over pairs and its standard error; of logarithms where the line is geometric."""

    mean: float
    error: float
    pairs: int


def lines(beds: Iterable[Bed], results: Results) -> dict[tuple[str, str], Found]:
    """The values of each bed and line."""
    found: dict[tuple[str, str], Found] = defaultdict(dict)
    for cell, values in results.values.items():
        for name, value in values.items():
            found[cell.bed, name][cell.cell, cell.seed] = value
    return {(bed.name, name): found[bed.name, name] for bed in beds for name in bed.measures if found[bed.name, name]}


def total(values: Iterable[float], measure: Measure) -> float:
    """One number of many.

    >>> round(total([0.5, 2.0], Measure()), 3), total([0.5, 2.0], Measure("mean")), total([1.0, 1.0], Measure("count"))
    (1.0, 1.25, 2.0)
    """
    found = np.array(list(values))
    if measure.how == "count":
        return float(found.sum())
    return float(np.exp(np.log(np.maximum(found, LEAST)).mean()) if measure.how == "geometric" else found.mean())


def change(before: Found, now: Found, measure: Measure) -> Change | None:
    """The difference over all cells and seeds that both have; None without any."""
    both = [key for key in now if key in before]
    if not both:
        return None
    a, b = (np.array([found[key] for key in both]) for found in (before, now))
    if measure.how == "geometric":
        a, b = np.log(np.maximum(a, LEAST)), np.log(np.maximum(b, LEAST))
    gaps = b - a
    error = float(gaps.std(ddof=1) / math.sqrt(len(gaps))) if len(gaps) > 1 else math.nan
    return Change(float(gaps.mean()), error, len(gaps))


def worst(found: Found, measure: Measure) -> tuple[float, str]:
    """The worst cell, by its own mean; the worst run where that says more."""
    each_run = measure.worst == "run" or len({cell for cell, _ in found}) == 1
    groups: dict[str, list[float]] = defaultdict(list)
    for (cell, seed), value in found.items():
        groups[f"{cell}, seed {seed}" if each_run else cell].append(value)
    sums = {name: total(values, measure) for name, values in groups.items()}
    name = (min if measure.more else max)(sums, key=lambda name: sums[name])
    return sums[name], name


def render(beds: Mapping[str, Bed], now: Results, before: Results | None, base: str) -> str:
    """The table in Markdown."""
    ours = lines(beds.values(), now)
    theirs = lines(beds.values(), before) if before is not None else {}
    head = ["bed", "line", base, "now", "wanted", "change", "n", f"worst: {base}", "worst: now"]
    rows = []
    for (bed, name), found in ours.items():
        measure = beds[bed].measures[name]
        old = theirs.get((bed, name), {})
        gap = change(old, found, measure)
        shown = [_total(old, measure), _total(found, measure), _wanted(measure, found)]
        rows.append(
            [
                bed,
                name,
                *shown,
                _change(gap, measure),
                str(len(found)),
                _worst(old, measure)[:4],
                _worst(found, measure),
            ]
        )
    if before is None:
        keep = [i for i, title in enumerate(head) if title not in (base, "change", f"worst: {base}")]
        head, rows = [head[i] for i in keep], [[row[i] for i in keep] for row in rows]
    return markdown(head, rows)


def render_cells(beds: Mapping[str, Bed], now: Results, before: Results | None, base: str) -> str:
    """The same for each cell."""
    split = {True: lines(beds.values(), now), False: lines(beds.values(), before) if before is not None else {}}
    rows = []
    for (bed, name), found in split[True].items():
        measure, old = beds[bed].measures[name], split[False].get((bed, name), {})
        for cell in dict.fromkeys(cell for cell, _ in found):
            a, b = ({key: value for key, value in side.items() if key[0] == cell} for side in (old, found))
            rows.append(
                [bed, name, cell, _total(a, measure), _total(b, measure), _change(change(a, b, measure), measure)]
            )
    return markdown(["bed", "line", "cell", base, "now", "change"], rows)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Columns of one width, to be read as it is."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    ruled = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in ruled
    )


def failures(results: Results) -> list[str]:
    """One line for each error, with how often it came."""
    kinds: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell, error in results.errors.items():
        kinds[cell.bed, error].append(cell)
    return [
        f"{bed}: {len(cells)} runs failed, as {cells[0].cell}, seed {cells[0].seed}: {error}"
        for (bed, error), cells in kinds.items()
    ]


def _total(found: Found, measure: Measure) -> str:
    if not found:
        return "-"
    value = total(found.values(), measure)
    return f"{value:.0f} of {len(found) * measure.of}" if measure.how == "count" else f"{value:.3f}"


def _wanted(measure: Measure, found: Found) -> str:
    if measure.wanted is None:
        return ""
    sign = ">=" if measure.more else "<="
    if measure.how == "count":
        return f"{sign} {measure.wanted * len(found) * measure.of:.0f}"
    return f"{sign} {measure.wanted:g}"


def _change(gap: Change | None, measure: Measure) -> str:
    if gap is None:
        return "-"
    return f"{'log ' if measure.how == 'geometric' else ''}{gap.mean:+.3f} +- {gap.error:.3f}"


def _worst(found: Found, measure: Measure, where: str = " {}") -> str:
    if not found or measure.how == "count":
        return ""
    value, name = worst(found, measure)
    return f"{value:.2f}{where.format(name)}"
