"""Run the beds with the library as it is here and as it was before, and print both beside each other.

    python -m rasp_lab.beds                                  # all beds, odd seeds; beside the commit before
    python -m rasp_lab.beds --data DIR                       # also the measured tables in DIR/tables
    python -m rasp_lab.beds --half develop --only small,glitches --base none
    python -m rasp_lab.beds --base main --only small/ruinous --cells

Choose by `--half develop` (even seeds, every other table), report `--half report`. What was run is kept under out/beds
for each state of src/: a commit is measured once.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from rasp_lab.beds import source, table
from rasp_lab.beds.bed import Bed, Half, Options, chosen_seeds
from rasp_lab.beds.beds import BEDS, load
from rasp_lab.beds.runner import Cell, Results, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 if a run with today's library failed."""
    given = _parser().parse_args(arguments)
    options = Options(given.half, str(given.data.resolve()) if given.data else None, given.long)
    only = [word.partition("/") for word in given.only.split(",")] if given.only else [(name, "", "") for name in BEDS]
    beds = {name: load(name) for name in BEDS if name in {name for name, *_ in only}}
    cells = []
    for name, _, part in only:
        reason = beds[name].missing(options)
        if reason is not None:
            print(f"{name}: left out, {reason}")
            continue
        cells += [cell for cell in _cells(beds[name], given.seeds, options) if part in cell.cell]
    cells = list(dict.fromkeys(cells))
    if not cells:
        print("nothing to run")
        return 0
    for name in {cell.bed for cell in cells}:
        beds[name].prepare()
    began = time.monotonic()

    def run(at: source.Source) -> Results:
        print(f"{at.name}: {len(cells)} runs of src {at.tree}, unless they are on file", file=sys.stderr)
        with _progress(at.name) as progress:
            return measure(at, beds, cells, options, given.jobs, given.fresh, progress)

    base = source.before() if given.base is None else given.base
    old = None if base == "none" else source.other(base)
    then = None if old is None else run(old)
    now = run(source.here())
    title = old.name if old is not None else "before"
    print(table.render(beds, now, then, title))
    if given.cells:
        print(f"\n{table.render_cells(beds, now, then, title)}")
    for said, results in ((title, then), ("now", now)):
        for line in table.failures(results) if results is not None else ():
            print(f"{said}: {line}")
    print(f"{len(cells)} runs each, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return int(bool(now.errors))


def _cells(bed: Bed, seeds: int | None, options: Options) -> list[Cell]:
    each = chosen_seeds(bed.seeds if seeds is None else seeds, options.half)
    return [Cell(bed.name, cell, seed) for cell in bed.cells(options) for seed in each]


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _names(text: str) -> str:
    for word in text.split(","):
        if word.partition("/")[0] not in BEDS:
            raise argparse.ArgumentTypeError(f"no bed {word!r}; there are {', '.join(BEDS)}")
    return text


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m rasp_lab.beds", description=__doc__, formatter_class=form)
    parser.add_argument(
        "--base",
        metavar="COMMIT",
        help="a commit, or a folder with a working tree, or none; without: HEAD if src/ has changed since, else HEAD~1",
    )
    parser.add_argument(
        "--only", type=_names, metavar="BED,...", help=f"of {', '.join(BEDS)}; bed/words: cells with these words"
    )
    parser.add_argument("--half", choices=get_args(Half), default="report")
    parser.add_argument("--seeds", type=int, metavar="N", help="of each cell; usually 4 to 60, by the bed")
    parser.add_argument("--data", type=Path, metavar="DIR", help="with measured tables in DIR/tables/*.npz")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--cells", action="store_true", help="also print every cell")
    parser.add_argument("--fresh", action="store_true", help="run again what is on file")
    parser.add_argument("--long", action="store_true", help="also the nine domains for 1,000 steps")
    return parser


if __name__ == "__main__":
    sys.exit(main())
