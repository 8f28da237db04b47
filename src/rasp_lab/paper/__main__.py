"""Run the paper's agents, other readings of it and the way from it to the engine, and write docs/PAPER.md's figures.

    python -m rasp_lab.paper                                    # what `make paper` does: about 20 minutes on two cores
    python -m rasp_lab.paper --seeds 2 --out out/quick --page out/quick/PAPER.md     # a quick look
    python -m rasp_lab.paper --page-only                        # from finished runs
    python -m rasp_lab.paper --engine-only                      # what the engine changes; other rows stay

Finished runs are kept, so a command that was stopped goes on. Runs of an older engine are repeated.
OUT/report.html has the paper's Figures 2 to 5 and its tables.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.bench.analysis.metrics import Runs, load
from rasp_lab.bench.report import html_report
from rasp_lab.bench.runner import run, timing
from rasp_lab.bench.runner.protocol import Cell
from rasp_lab.pages import origin
from rasp_lab.paper import earlier, page, plan, tables
from rasp_lab.progress import progress_bar
from rasp_tuner.errors import InvalidValue, RaspError
from rasp_tuner.files.snapshot import write as write_whole

PAGE = REPOSITORY / "docs" / "PAPER.md"
TIMED = ("cma-es", "gp-ucb", "rasp-paper", plan.REPAIRED, "rasp")
NOTE = "engine.txt"  # in OUT: of which engine its runs are


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    cells = (plan.engine_cells if options.engine_only else plan.cells)(options.seeds)
    out, renewed = options.out, list[str]()
    try:
        if not options.page_only:
            forget_older(cells, out)
            _run(cells, out, options.jobs)
            if options.timed_steps:
                _time(out, options.timed_steps)
        runs = finished(cells, out)
        times = timing.load(out)
        found = tables.of_runs(runs, times, options.engine_only)
        verdict = "" if options.engine_only else tables.verdict(runs, times)
        if options.engine_only:
            found, renewed = earlier.with_earlier(found, options.page.parent / page.FOLDER)
            print(f"measured again: rows of the engine in {', '.join(renewed) or 'no table'}; all others stay")
        page.write(found, verdict, options.page)
        report, _ = html_report.write(out, [r for r in runs if ":" not in r.agent and "[" not in r.agent])
    except RaspError as reason:
        print(f"rasp: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("rasp: stopped; finished runs are kept, and the same command continues from there", file=sys.stderr)
        return 130
    if options.page.resolve() == PAGE.resolve() and (renewed or not options.engine_only):
        what = f"rows of the engine in {', '.join(renewed)}" if renewed else ""
        origin.record(PAGE.name, origin.origin_of(what=what))
        PAGE.write_text(origin.with_head(PAGE.read_text(), origin.head(PAGE.name)))
    print(f"Page: {options.page}   Figures 2 to 5: {report}")
    return 0


def forget_older(cells: Iterable[Cell], out: Path) -> int:
    """Remove the runs of an older engine and all step times, and note which engine runs now; how many were removed."""
    note, today = out / NOTE, origin.engine_hash()
    if note.is_file() and note.read_text().strip() == today:
        return 0
    files = [out / "cells" / f"{cell.key}.csv" for cell in cells if cell.agent in plan.OF_ENGINE]
    gone = [file for file in files if file.is_file()]
    for file in (*gone, out / "timing.json"):
        file.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(note, f"{today}\n".encode())
    return len(gone)


def finished(cells: Sequence[Cell], out: Path) -> list[Runs]:
    """The runs that are there; none is an error."""
    done = [cell for cell in cells if run.is_finished(cell, out)]
    if not done:
        raise InvalidValue(f"{out} must hold finished runs; run `make paper` without --page-only")
    if len(done) < len(cells):
        print(f"{len(cells) - len(done):,} of {len(cells):,} runs are missing; their rows are left out")
    return load(run.merge(done, out))


def _run(cells: Sequence[Cell], out: Path, jobs: int) -> None:
    kept = sum(run.is_finished(cell, out) for cell in cells)
    print(f"{len(cells):,} runs" + (f", {kept:,} finished before" if kept else ""), flush=True)
    with progress_bar() as progress:
        task = progress.add_task("runs", total=len(cells), completed=kept)

        def told(cell: Cell) -> None:
            progress.update(task, advance=1, description=f"{cell.agent.rpartition(':')[2]} on {cell.domain}")

        run.run_plan(cells, out, jobs=jobs, finished=told)


def _time(out: Path, steps: int) -> None:
    wanted = dict.fromkeys((timing.DOMAIN, timing.STREAM), TIMED)
    with progress_bar() as progress:
        task = progress.add_task("step times", total=sum(map(len, wanted.values())) * steps)
        for name, done in timing.measure(out, wanted, steps):
            progress.update(task, advance=done, description=f"step times of {name}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m rasp_lab.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=plan.SEEDS, help="seeds of quick agents; slow ones run the odd ones"
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 means one for each core")
    parser.add_argument(
        "--timed-steps", type=int, default=timing.STEPS, help="steps of which the time is taken; 0: none"
    )
    parser.add_argument("--out", type=Path, default=Path("out/paper"), help="folder of the runs")
    parser.add_argument("--page", type=Path, default=PAGE, help="whose measured part is written")
    parser.add_argument("--page-only", action="store_true", help="run nothing; write the page from finished runs")
    parser.add_argument("--engine-only", action="store_true", help="other rows of the page stay as they are")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: reports are about odd seeds, and 1 is the first")
    return options


if __name__ == "__main__":
    sys.exit(main())
