"""Run cells in parallel and keep what is finished: a run that was killed goes on where it stopped.

layout   DIR/cells/<key>.csv   one finished cell each, written whole or not at all
         DIR/steps.csv         all of them, in the order of the plan, once the plan is done
         DIR/summary.json      what they add up to
"""

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rasp_lab.bench import agents, domains
from rasp_lab.bench.agents.base import Factory
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.runner.protocol import COLUMNS, FIRST_COLUMNS, Cell, play
from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue, MissingExtra
from rasp_tuner.files import snapshot

HEADER = ",".join(COLUMNS) + "\n"


@dataclass(frozen=True)
class UserPlugins:
    """Agents and domains of the user, sent to worker processes with each cell."""

    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))  # to import module:Name from
    agents: Mapping[str, Factory] = field(default_factory=agents.registered)
    domains: Mapping[str, Callable[[], ExperimentDomain[Any]]] = field(default_factory=domains.registered)


def run_cell(cell: Cell, own: UserPlugins) -> tuple[Cell, str]:
    """The cell and its CSV text, without the header."""
    sys.path.extend(folder for folder in own.path if folder not in sys.path)
    agents.AGENTS.update(own.agents)
    domains.DOMAINS.update(own.domains)
    return cell, "".join(row.csv() + "\n" for row in play(cell))


def run_plan(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int = 1,
    engine: str = "joblib",
    address: str | None = None,
    finished: Callable[[Cell], None] = lambda _cell: None,
) -> Path:
    """Run what is not finished yet and return the path of the merged CSV; `finished` hears of each new cell."""
    if engine not in ENGINES:
        raise InvalidValue(f"no engine {show(engine)}; there are {list(ENGINES)}")
    if jobs == 0:
        raise InvalidValue("jobs must be a number of processes, or -1 for one a core, got 0")
    folder = out / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in cells if not is_finished(cell, out)]
    for cell, text in ENGINES[engine](missing, UserPlugins(), jobs, address):
        snapshot.write(folder / f"{cell.key}.csv", (HEADER + text).encode())
        finished(cell)
    return merge(cells, out)


def is_finished(cell: Cell, out: Path) -> bool:
    """Whether the cell's file is there and whole: this cell's, with a row for each step. If not, it is run anew."""
    path = out / "cells" / f"{cell.key}.csv"
    try:
        text = path.read_text() if path.is_file() else ""
    except UnicodeDecodeError:
        return False
    head, *rows = csv.reader(text.splitlines()) if text else [[]]
    return (
        head in (COLUMNS, FIRST_COLUMNS)
        and text.endswith("\n")
        and len(rows) == cell.horizon
        and all(
            len(row) == len(head) and row[:5] == [cell.domain, cell.agent, str(cell.horizon), str(cell.seed), str(step)]
            for step, row in enumerate(rows)
        )
    )


def merge(cells: Iterable[Cell], out: Path) -> Path:
    """Write steps.csv from the cells' files, in the order of `cells`."""
    texts = [_rows((out / "cells" / f"{cell.key}.csv").read_text()) for cell in cells]
    target = out / "steps.csv"
    snapshot.write(target, (HEADER + "".join(texts)).encode())
    return target


def _rows(text: str) -> str:
    """A cell's rows with all columns; the last one stays empty where the file is of before it was known."""
    head, _, rows = text.partition("\n")
    return rows if head == HEADER.strip() else rows.replace("\n", ",\n")


def _on_joblib(cells: Sequence[Cell], own: UserPlugins, jobs: int, _address: str | None) -> Iterator[tuple[Cell, str]]:
    if jobs == 1:
        yield from (run_cell(cell, own) for cell in cells)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(run_cell)(cell, own) for cell in cells)


def _on_ray(cells: Sequence[Cell], own: UserPlugins, _jobs: int, address: str | None) -> Iterator[tuple[Cell, str]]:
    """The same cells on a Ray cluster; results come back to this process, so workers need no shared disk."""
    try:
        import ray
    except ModuleNotFoundError as reason:
        raise MissingExtra("--engine ray needs ray, which is not installed: pip install 'rasp-lab[ray]'") from reason
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    try:
        remote: Any = ray.remote(run_cell)
        waiting = [remote.remote(cell, own) for cell in cells]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield ray.get(done[0])
    finally:
        if started_here:
            ray.shutdown()


ENGINES = {"joblib": _on_joblib, "ray": _on_ray}
