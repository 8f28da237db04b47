"""Runs cells of the public suite and keeps what they gave: a cell that is finished is not run again.

Ours is kept with a digest of the engine: a changed engine runs again. What peers gave is kept with what made it.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import rasp_tuner
from rasp_lab.public.cells import OURS, Cell, Row
from rasp_lab.public.peer_totals import made_by
from rasp_lab.public.protocols import run
from rasp_tuner.files.snapshot import write

ENGINE = ("engine", "space")  # rooms of the library that a suggestion depends on


@cache
def engine_digest() -> str:
    """Of the files that suggestions depend on."""
    root, digest = Path(rasp_tuner.__file__).parent, hashlib.sha256()
    kinds = [(root / room).rglob(kind) for room in ENGINE for kind in ("*.py", "*.c", "*.h")]
    for file in sorted(file for own in kinds for file in own):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def place(cell: Cell, out: Path) -> Path:
    ours, made = cell.agent.startswith(OURS), made_by(cell.protocol, cell.agent)
    return out / "cells" / (engine_digest() if ours else made.replace(", ", "-").replace(" ", "-")) / f"{cell.key}.json"


def finished(cell: Cell, out: Path) -> list[Row] | None:
    """What a finished cell gave; None if it has to run."""
    file = place(cell, out)
    rows: list[Row] | None = json.loads(file.read_text()) if file.is_file() else None
    return rows


def run_cells(
    cells: Sequence[Cell], folder: Path, out: Path, jobs: int, done: Callable[[Cell], None]
) -> dict[Cell, list[Row]]:
    """What all cells gave; `done` hears of each that had to run."""
    found = {cell: rows for cell in cells if (rows := finished(cell, out)) is not None}
    missing = [cell for cell in cells if cell not in found]
    for cell, rows in _ran(missing, folder, jobs):
        file = place(cell, out)
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(rows).encode())  # at once and whole: a run that is stopped goes on from here
        found[cell] = rows
        done(cell)
    return found


def _ran(cells: Sequence[Cell], folder: Path, jobs: int) -> Iterator[tuple[Cell, list[Row]]]:
    if jobs == 1:
        for cell in cells:
            yield cell, _quiet(cell, folder)
        return
    with ProcessPoolExecutor(None if jobs < 0 else jobs) as pool:
        waiting = {pool.submit(_quiet, cell, folder): cell for cell in cells}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _quiet(cell: Cell, folder: Path) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # packages that call their own options experimental
        return run(cell, folder)
