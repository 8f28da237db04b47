"""docs/RESULTS.md: every agent on every domain, written from the runs that are finished; no number is typed by hand."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.bench.agents import AGENTS, OF_PAPER_PAGE
from rasp_lab.bench.analysis import summary
from rasp_lab.bench.analysis.metrics import Runs, load
from rasp_lab.bench.domains import short_name
from rasp_lab.bench.domains.worlds import is_world
from rasp_lab.bench.report import html_report, result_figures, result_page
from rasp_lab.bench.report.result_figures import Figures, collected
from rasp_lab.bench.runner import run, suites, timing
from rasp_lab.bench.runner.protocol import Cell
from rasp_lab.pages import origin
from rasp_lab.pages.origin import Origin
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole

MEMORY_DOMAIN, MEMORY_STEPS = "H1_Recurring_Regimes", 1200  # beyond every window, RASP's ledger of 1,000 among them
OF_ENGINE = ("rasp", "rasp-no-memory")  # agents whose runs are of no use once the engine has changed
WORLDS = "random worlds"  # figures that can be measured again without the others
DOMAINS = "domains"
NOTES = "origins.json"  # in DIR: the engines of its runs


def plan(seeds: int) -> list[Cell]:
    """Every run of the page, slow agents last."""
    cells = suites.cells("all", [name for name in AGENTS if name not in OF_PAPER_PAGE], seeds) + plan_worlds(seeds)
    return sorted(cells, key=lambda cell: cell.agent in suites.SLOW)


def plan_worlds(seeds: int) -> list[Cell]:
    """The runs of the section of random worlds."""
    return [cell for cell in suites.world_cells(seeds) if cell.agent in AGENTS]


def forget_older(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """Remove the runs of an older engine, and note which engine runs now; returns what was removed.

    Runs of agents that are not of the engine stay. Step times and memory growth are measured again for all agents,
    since those of a table run beside each other.
    """
    known, today = {o.what: o for o in _noted(out)}, origin.origin_of()
    gone: list[Cell] = []
    for what in sorted({_what(cell) for cell in cells}):
        if what in known and not known[what].is_older(today.engine):
            continue
        known[what] = replace(today, what=what)
        gone += [c for c in cells if c.agent in OF_ENGINE and _what(c) == what and _file(c, out).is_file()]
        if what == DOMAINS:
            for name in ("timing.json", "memory.json"):
                (out / name).unlink(missing_ok=True)
    for cell in gone:
        _file(cell, out).unlink()
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / NOTES, (json.dumps([asdict(o) for o in known.values()], indent=1) + "\n").encode())
    return gone


def write(cells: Sequence[Cell], out: Path, target: Path) -> Path:
    """From the finished ones of `cells` in DIR: steps.csv, summary.json, both reports, the page and its tables."""
    runs = _finished(cells, out)
    write_whole(out / "summary.json", summary.to_json(summary.summarise(runs)).encode())
    web, _ = html_report.write(out, runs)
    _publish(figures(runs, cells, out), out, target)
    return web


def write_worlds(cells: Sequence[Cell], out: Path, target: Path) -> None:
    """Replace the tables of random worlds beside the page at `target`, and write the page again.

    Its other tables stay as they are, so their runs are not needed.
    """
    runs, known = _finished(cells, out), result_figures.load(target.parent / result_page.FOLDER)
    _publish(replace(known, tables={**known.tables, **result_figures.world_figures(runs)}), out, target)


def figures(runs: Sequence[Runs], cells: Sequence[Cell], out: Path) -> Figures:
    """What the page shows; `cells` is the plan, of which some may have no runs yet."""
    seeds = max((c.seed for c in cells if not is_world(c.domain)), default=0) + 1
    missing = _missing(_not_in(runs, cells), cells)
    return collected(runs, seeds, len(cells), missing, html_report.memory_tables(out), timing.load(out))


def page_again(target: Path) -> None:
    """Write the page from the tables beside it; nothing is run or recorded."""
    known = result_figures.load(target.parent / result_page.FOLDER)
    write_whole(target, result_page.page(known, origin.head(target.name)).encode())


def _publish(made: Figures, out: Path, target: Path) -> None:
    """Write tables and page; the repository's own page is recorded with the engine that ran."""
    result_figures.save(made, target.parent / result_page.FOLDER)
    noted = _noted(out)
    if target.resolve() == (REPOSITORY / "docs" / "RESULTS.md").resolve():
        for each in noted:
            origin.record(target.name, each)
        noted = origin.load()[target.name]
    write_whole(target, result_page.page(made, origin.head_of(noted, origin.engine_hash())).encode())


def _finished(cells: Sequence[Cell], out: Path) -> list[Runs]:
    done = [cell for cell in cells if run.is_finished(cell, out)]
    if not done:
        raise InvalidValue(f"{out / 'cells'} must hold finished runs of the plan, got none of {len(cells)}")
    return load(run.merge(done, out))


def _noted(out: Path) -> tuple[Origin, ...]:
    """The engines that the runs in DIR are of; none of a folder that nothing was noted in."""
    file = out / NOTES
    return tuple(Origin(**found) for found in json.loads(file.read_text())) if file.is_file() else ()


def _what(cell: Cell) -> str:
    return WORLDS if is_world(cell.domain) else DOMAINS


def _file(cell: Cell, out: Path) -> Path:
    return out / "cells" / f"{cell.key}.csv"


def _not_in(runs: Sequence[Runs], cells: Sequence[Cell]) -> list[Cell]:
    known = {(r.domain, r.agent, r.horizon, seed) for r in runs for seed in r.seeds}
    return [c for c in cells if (c.domain, c.agent, c.horizon, c.seed) not in known]


def _missing(missing: Sequence[Cell], cells: Sequence[Cell]) -> list[str]:
    """One line a horizon and agent."""
    lines = []
    for horizon, agent in dict.fromkeys((c.horizon, c.agent) for c in missing):
        gone = [c for c in missing if (c.horizon, c.agent) == (horizon, agent)]
        planned = [c for c in cells if (c.horizon, c.agent) == (horizon, agent)]
        if len(gone) == len(planned):
            said = f"all {len(gone)} runs"
        else:
            where = [_seeds(d, gone, planned) for d in dict.fromkeys(c.domain for c in gone)]
            said = f"{len(gone)} of {len(planned)} runs: {', '.join(where)}"
        lines.append(f"T = {horizon:,}, `{agent}`: {said}")
    return lines


def _seeds(domain: str, gone: Sequence[Cell], planned: Sequence[Cell]) -> str:
    """The domain alone if every seed of it is missing, else with those that are."""
    seeds = [str(c.seed) for c in gone if c.domain == domain]
    whole = len(seeds) == sum(c.domain == domain for c in planned)
    return short_name(domain) + ("" if whole else f" (seed {' and '.join(seeds)})")
