"""What each part and constant of the engine is worth: taken out, or moved by a factor of two, on five beds.

    python -m rasp_lab.ablations --data DIR                  # writes docs/ABLATIONS.md; about 40 minutes of one core
    python -m rasp_lab.ablations --only trust --page out/ABLATIONS.md
    python -m rasp_lab.ablations --page-only                 # the page again, from its table

Each row is a copy of src/ under out/ with one change. Seeds are odd, measured tables those of the half to report.
DIR/tables has measured tables, which are not part of the repository; without them that column is empty. Finished runs
are kept under out/beds: a stopped command goes on where it was.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.ablations.rows import BOTH, ROWS, Row
from rasp_lab.ablations.table import SLICES, Bench, Effect
from rasp_lab.beds.bed import Options
from rasp_lab.pages import csv_tables, origin

PAGE = REPOSITORY / "docs" / "ABLATIONS.md"
FILE = "results/ablations/effects.csv"  # beside the page
NOTE = "results/ablations/facts.json"
OPENING = """\
A reference, for people who change the engine or doubt it: what its parts and constants are worth.
[ENGINE.md](ENGINE.md) says what they are, [BENCHMARKS.md](BENCHMARKS.md) what the domains and beds are.

Each row takes one part out, or moves one constant by a factor of two, and runs everything again
(`python -m rasp_lab.ablations{data}`). The number is the logarithm of the loss with the change over that of the engine
as it is: +0.10 means about 10% more loss with the change, so the part helps. After ± stands its standard error over
pairs of runs, and what is beyond two of them is **bold**. An empty cell: the change has no part there. "None": no run
changed at all.

{runs} Constants were chosen on even seeds. Of {count} numbers about {lucky} would be bold by luck alone.
"""

LIMITS = """\
## Taken out, and kept

- Taken out since the last table, because nothing defended it: a second engine without the context (`screen`), and
  the value of five and of 25 looks at once.
- Kept for safety, which these beds do not measure: budget, its allowance, the measured bill, the default first in a
  new situation ([the contract](STOPS.md#the-contract)).
- Kept for what a forecast promises: calibration ([coverage](RESULTS.md#calibration)).
- Kept for worlds that change, levels that differ by factors, and single false or lucky samples, each with tests of
  its own: drift, changes, logarithms, good news.

## What it cannot show

- Small effects stay hidden, and parts that stand in for each other look useless one at a time.
- What matters late (a full memory) cannot show within 80 to 300 steps; the bed `situations` is for that.
- Safety is not measured here: stops, limits and the contract of the budget have [their own](STOPS.md)."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    rows = [row for row in ROWS if given.only in row.key]
    if not rows:
        print(f"no row has {given.only!r} in its name", file=sys.stderr)
        return 1
    if not given.page_only:
        os.environ["ARCHFLAGS"] = "-O1"  # a copy runs for seconds: it shall not be compiled for a minute
        options = Options("report", str(given.data.resolve()) if given.data else None)
        told = partial(print, file=sys.stderr, flush=True)
        bench = Bench.of(options, given.times, given.jobs, told, given.on_file)
        found = bench.effects(rows)
        rows = [row for row in rows if row.key in found]
        keep(found, rows, given.page.parent)
        facts = {
            name: [len(one.cells(options, given.times)), given.times * one.seeds] for name, one in bench.slices.items()
        }
        (given.page.parent / NOTE).write_text(json.dumps(facts, indent=1) + "\n")
        if given.page.resolve() == PAGE.resolve():
            origin.record(PAGE.name, origin.origin_of())
    own = given.page.resolve() == PAGE.resolve()
    line = origin.head(PAGE.name) if own else origin.head_of([origin.origin_of()], origin.engine_hash())
    given.page.write_text(page(given.page.parent, line))
    print(f"Page: {given.page}")
    return 0


def keep(found: Mapping[str, Mapping[str, Effect]], rows: Sequence[Row], folder: Path) -> None:
    """Write the table: effects and their errors, with three digits."""
    head = ["part", "change", "knobs", *(f"{name}{kind}" for name in SLICES for kind in ("", ", error"))]
    body = [[r.part, r.change, r.model, *(_shown(x) for name in SLICES for x in found[r.key][name])] for r in rows]
    csv_tables.write(folder / FILE, (head, body))


def page(folder: Path, line: str) -> str:
    """The page, from the table beside it."""
    head, body = csv_tables.read(folder / FILE)
    facts = json.loads((folder / NOTE).read_text())
    effects = [[Effect(*(float(x or "nan") for x in row[i : i + 2])) for i in range(3, len(head), 2)] for row in body]
    known = sum(bool(str(one)) for row in effects for one in row)
    runs = ", ".join(f"{name} {count} ({seeds} odd seed{'s' * (seeds > 1)})" for name, (count, seeds) in facts.items())
    opening = OPENING.format(
        data=" --data DIR" if "tables" in facts else "",
        runs=f"Runs of each row: {runs}.",
        count=known,
        lucky=round(0.05 * known),
    )
    shown = [[_words(row), row[1], *map(str, own)] for row, own in zip(body, effects, strict=True)]
    lines = ["part", "change", *SLICES], ["---"] * (2 + len(SLICES)), *shown
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return "\n\n".join(["# Ablations", line, opening.strip(), table, verdict(body, effects), LIMITS]) + "\n"


def verdict(body: Sequence[Sequence[str]], effects: Sequence[Sequence[Effect]]) -> str:
    """Which rows help, hurt and do neither."""
    said: dict[str, list[str]] = {"helps": [], "hurts": [], "neither": []}
    for row, own in zip(body, effects, strict=True):
        sure = [one.mean for one in own if one.beyond_luck]
        kind = "neither" if not sure else "helps" if max(sure) > 0.0 else "hurts"
        said[kind].append(f"{_words(row)} ({row[1]})")
    lines = [f"- {len(said['helps'])} of {len(body)} changes make it worse somewhere, beyond two errors."]
    if said["hurts"]:
        lines.append(f"- Better somewhere and worse nowhere, beyond two errors: {'; '.join(said['hurts'])}.")
    if said["neither"]:
        lines.append(f"- No difference beyond two errors: {'; '.join(said['neither'])}.")
    there = {tuple(row[:3]) for row in body}
    left = [f"{r.part} ({r.change})" for r in ROWS if (r.part, r.change, r.model) not in there]
    lines += [f"- Not measured yet: {'; '.join(left)}."] if left else []
    return "\n\n".join(["## What the table says", "\n".join(lines)])


def _words(row: Sequence[str]) -> str:
    return row[0] if row[2] == BOTH or row[2] in row[0] else f"{row[0]}, {row[2]}"


def _shown(value: float) -> str:
    return "" if value != value else f"{value:.3f}"


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m rasp_lab.ablations", description=__doc__, formatter_class=form)
    parser.add_argument("--data", type=Path, metavar="DIR", help="with measured tables in DIR/tables/*.npz")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="so many times the usual seeds of each bed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows with these words in their name")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="the page to write")
    parser.add_argument("--on-file", action="store_true", help="only rows whose runs are finished")
    parser.add_argument("--page-only", action="store_true", help="run nothing; write the page from its table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
