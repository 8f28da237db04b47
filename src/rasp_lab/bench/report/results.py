"""docs/RESULTS.md: every agent on every domain; no number is typed by hand.

What the page needs of each run is a row of runs.csv beside its tables (kept_runs). Only our own agents run again when
the engine has changed. Peers are kept: they take hours, and no engine moves them.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.bench.agents import AGENTS, OF_PAPER_PAGE
from rasp_lab.bench.analysis import kept_runs
from rasp_lab.bench.analysis.kept_runs import OF_ENGINE, KeptRun
from rasp_lab.bench.analysis.metrics import load
from rasp_lab.bench.domains import SYNTHETIC, short_name
from rasp_lab.bench.domains.worlds import is_world
from rasp_lab.bench.report import result_figures, result_page
from rasp_lab.bench.report.result_figures import FRESH_SEEDS, MEASURED_APART, Figures, collected
from rasp_lab.bench.runner import run, suites, timing
from rasp_lab.bench.runner.protocol import Cell
from rasp_lab.pages import origin
from rasp_lab.pages.origin import Origin
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole

PAGE = REPOSITORY / "docs" / "RESULTS.md"
RUNS = "runs.csv"  # beside the tables
NOTE = "engine.json"  # in DIR: the engine that its runs of our agents are of


def plan(seeds: int) -> list[Cell]:
    """Every run of the page, slow agents last."""
    cells = suites.cells("all", [name for name in AGENTS if name not in OF_PAPER_PAGE], seeds) + plan_worlds(seeds)
    fresh = [Cell(name, agent, seed, 100) for name in SYNTHETIC for agent in ("static", "rasp") for seed in FRESH_SEEDS]
    return sorted([*cells, *fresh], key=lambda cell: cell.agent in suites.SLOW)


def plan_worlds(seeds: int) -> list[Cell]:
    """The runs of the section of random worlds."""
    return [cell for cell in suites.world_cells(seeds) if cell.agent in AGENTS]


def on_file(cells: Sequence[Cell], target: Path, peers: bool = False) -> list[KeptRun]:
    """Rows of these cells that need not run again: ours of today's engine, and all of peers.

    `peers`: those of peers only if today's packages and code made them.
    """
    file = target.parent / result_page.FOLDER / RUNS
    rows = kept_runs.read(file if file.is_file() else PAGE.parent / result_page.FOLDER / RUNS)
    wanted, strict = set(cells), {agent for agent in AGENTS if peers or agent in OF_ENGINE}
    return [
        row
        for row in rows
        if wanted.issuperset(row.cells) and (row.agent not in strict or row.made_by == kept_runs.made_by(row.agent))
    ]


def to_run(cells: Sequence[Cell], rows: Iterable[KeptRun], peers: bool = False) -> list[Cell]:
    """The cells without a row: ours, the default's beside them, and with `peers` everybody's."""
    known = {cell for row in rows for cell in row.cells}
    return [c for c in cells if c not in known and (peers or c.agent in OF_ENGINE or c.seed in FRESH_SEEDS)]


def forget_older(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """Remove runs of an older engine from DIR, and note which one runs now; returns what was removed.

    Step times are measured again for all agents: those of a table run beside each other.
    """
    noted, today = _noted(out), origin.origin_of()
    if noted is not None and not noted.is_older(today.engine):
        return []
    gone = [c for c in cells if c.agent in OF_ENGINE and _file(c, out).is_file()]
    for file in (*(_file(cell, out) for cell in gone), out / "timing.json"):
        file.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / NOTE, (json.dumps(asdict(today), indent=1) + "\n").encode())
    return gone


def write(cells: Sequence[Cell], out: Path, target: Path, rows: Sequence[KeptRun]) -> None:
    """The page and its tables, from the rows on file and the finished runs in DIR."""
    single = {row.cells[0] for row in rows if row.seeds == 1}
    known = kept_runs.merged(rows, _finished([cell for cell in cells if cell not in single], out))
    if not known:
        raise InvalidValue(f"{out / 'cells'} must hold finished runs of the plan, got none of {len(cells)}")
    folder = target.parent / result_page.FOLDER
    made = figures(known, cells, out, folder)
    result_figures.save(made, folder)
    kept_runs.write(folder / RUNS, known)
    noted = [one for one in (_noted(out),) if one is not None]
    if target.resolve() == PAGE.resolve():
        for each in noted:
            origin.record(target.name, each)
        noted = list(origin.load()[target.name])
    write_whole(target, result_page.page(made, origin.head_of(noted, origin.engine_hash())).encode())


def figures(rows: Sequence[KeptRun], cells: Sequence[Cell], out: Path, folder: Path) -> Figures:
    """What the page shows; `cells` is the plan, of which some may have no runs yet.

    Step times are those of DIR, or of the tables that are there.
    """
    seeds = max((c.seed for c in cells if not is_world(c.domain) and c.seed not in FRESH_SEEDS), default=0) + 1
    there = {cell for row in rows for cell in row.cells}
    missing = _missing([c for c in cells if c not in there], cells)
    made = collected(rows, seeds, len(cells), missing, timing.load(out))
    before = result_figures.load(folder).tables if (folder / result_figures.FACTS).is_file() else {}
    kept = {name: before[name] for name in MEASURED_APART if name in before}
    return Figures(made.facts, {**kept, **made.tables})


def _finished(cells: Sequence[Cell], out: Path) -> list[KeptRun]:
    """Of the cells that DIR has whole; ours only if they are of today's engine."""
    noted = _noted(out)
    fresh = noted is not None and not noted.is_older(origin.engine_hash())
    done = [c for c in cells if (fresh or c.agent not in OF_ENGINE) and run.is_finished(c, out)]
    runs = (load(_file(cell, out))[0] for cell in done)
    return [kept_runs.rounded(kept_runs.kept(each, kept_runs.made_by(each.agent))) for each in runs]


def _noted(out: Path) -> Origin | None:
    """The engine that the runs in DIR are of; None of a folder that nothing was noted in."""
    file = out / NOTE
    return Origin(**json.loads(file.read_text())) if file.is_file() else None


def _file(cell: Cell, out: Path) -> Path:
    return out / "cells" / f"{cell.key}.csv"


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
