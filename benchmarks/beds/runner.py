"""Runs cells of beds in worker processes and keeps their values, one file for a bed and a state of the library."""

import hashlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.beds.bed import OUT, ROOT, Bed, Options, Values
from benchmarks.beds.source import Source

SHARED = ("bed", "costs", "forest", "loop")  # files that all beds depend on


class Cell(NamedTuple):
    """One run."""

    bed: str
    cell: str
    seed: int


@dataclass(slots=True)
class Results:
    """What came of the runs."""

    values: dict[Cell, Values] = field(default_factory=dict)
    errors: dict[Cell, str] = field(default_factory=dict)


def measure(
    source: Source,
    beds: Mapping[str, Bed],
    cells: Sequence[Cell],
    options: Options,
    jobs: int = 2,
    fresh: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Results:
    """The values of all cells with this library: those on file, and the others by running them."""
    files = {name: _file(source, bed, options) for name, bed in beds.items()}
    known = {} if fresh else {cell: values for name, file in files.items() for cell, values in _read(name, file)}
    results = Results({cell: known[cell] for cell in cells if cell in known})
    todo: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    missing = [cell for cell in cells if cell not in known]
    for cell in missing:
        todo.put(cell)
    answers: queue.SimpleQueue[tuple[Cell, dict[str, Values | str]]] = queue.SimpleQueue()
    for _ in range(min(jobs, len(missing))):
        threading.Thread(target=_serve, args=(source, options, todo, answers), daemon=True).start()
    for done in range(len(missing)):
        cell, answer = answers.get()
        if isinstance(values := answer.get("values"), dict):
            results.values[cell] = values
            _keep(files[cell.bed], cell, values)
        else:
            results.errors[cell] = str(answer["error"])
        progress(done + 1, len(missing))
    return results


def _serve(
    source: Source,
    options: Options,
    todo: "queue.SimpleQueue[Cell]",
    answers: "queue.SimpleQueue[tuple[Cell, dict[str, Values | str]]]",
) -> None:
    """One worker, from its start to the last cell; a worker that dies is started again."""
    process: subprocess.Popen[str] | None = None
    while True:
        try:
            cell = todo.get_nowait()
        except queue.Empty:
            break
        if process is None or process.poll() is not None:
            command = [sys.executable, "-m", "benchmarks.beds.worker", json.dumps(asdict(options))]
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=source.environment,
                cwd=ROOT,
            )
        answers.put((cell, _answer(process, cell)))
    if process is not None:
        process.communicate()


def _answer(process: "subprocess.Popen[str]", cell: Cell) -> dict[str, Values | str]:
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    try:
        process.stdin.write(json.dumps(cell._asdict()) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    if line:
        found: dict[str, Values | str] = json.loads(line)
        return found
    said = process.stderr.read().strip().splitlines()
    process.wait()
    return {"error": f"the worker ended: {said[-1] if said else process.returncode}"}


def _file(source: Source, bed: Bed, options: Options) -> Path:
    """Where values are kept; the name changes with the bed's own code and its data."""
    module = str(bed.run.__module__).rpartition(".")[2]
    digest = hashlib.sha256()
    for name in (module, *SHARED):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    if options.data is not None and module == "tables":
        for file in sorted((Path(options.data) / "tables").glob("*.npz")):
            digest.update(f"{file.name} {file.stat().st_size}".encode())
    return OUT / "results" / source.tree / f"{bed.name}-{digest.hexdigest()[:12]}.jsonl"


def _read(bed: str, file: Path) -> list[tuple[Cell, Values]]:
    lines = file.read_text().splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines]
    return [(Cell(bed, line["cell"], line["seed"]), line["values"]) for line in found]


def _keep(file: Path, cell: Cell, values: Values) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps({"cell": cell.cell, "seed": cell.seed, "values": values}) + "\n")
