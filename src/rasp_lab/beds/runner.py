"""Runs cells of beds in worker processes and keeps their values, one file for a bed and a state of the library."""

import hashlib
import json
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from rasp_lab import REPOSITORY
from rasp_lab.beds.bed import OUT, Bed, Options, Values
from rasp_lab.beds.source import Source

SHARED = ("bed", "costs", "forest", "loop")  # files that beds depend on besides their own


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


class Worker:
    """A process that imports one library; it is started with the first cell, and again if it dies."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._command = [sys.executable, "-m", "rasp_lab.beds.worker", json.dumps(asdict(options))]
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe that nobody reads would stop it
        self._process: subprocess.Popen[str] | None = None

    def run(self, cell: Cell) -> Values:
        """The values of a cell; RuntimeError with the reason if it failed."""
        process = self._started()
        line = ""
        with suppress(BrokenPipeError):
            print(json.dumps(cell._asdict()), file=process.stdin, flush=True)
            line = process.stdout.readline() if process.stdout else ""
        if not line:
            process.wait()
            self._complaints.seek(0)
            said = self._complaints.read().strip().splitlines()
            raise RuntimeError(f"the worker ended: {said[-1] if said else process.returncode}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        values: Values = answer["values"]
        return values

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()
        self._complaints.close()

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            pipe, env = subprocess.PIPE, self._source.environment
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=self._complaints, text=True, env=env, cwd=REPOSITORY
            )
        return self._process


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
    results = Results() if fresh else on_file(source, beds, cells, options)
    missing = [cell for cell in cells if cell not in results.values]
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    workers = [Worker(source, options) for _ in range(jobs)]
    for worker in workers:
        idle.put(worker)

    def run(cell: Cell) -> Values:
        worker = idle.get()
        try:
            return worker.run(cell)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(jobs) as threads:
        running = {threads.submit(run, cell): cell for cell in missing}
        try:
            for done, future in enumerate(as_completed(running), 1):
                cell = running[future]
                try:
                    results.values[cell] = future.result()
                except RuntimeError as reason:
                    results.errors[cell] = str(reason)
                else:
                    _keep(files[cell.bed], cell, results.values[cell])
                progress(done, len(missing))
        finally:
            threads.shutdown(cancel_futures=True)
            for worker in workers:
                worker.stop()
    return results


def on_file(source: Source, beds: Mapping[str, Bed], cells: Sequence[Cell], options: Options) -> Results:
    """The values of those cells that ran before; the library need not be there any more."""
    known = {cell: values for name, bed in beds.items() for cell, values in _read(name, _file(source, bed, options))}
    return Results({cell: known[cell] for cell in cells if cell in known})


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


def _read(bed: str, file: Path) -> Iterator[tuple[Cell, Values]]:
    for line in file.read_text().splitlines() if file.exists() else ():
        with suppress(json.JSONDecodeError):  # a command that was stopped may leave half a line
            kept = json.loads(line)
            yield Cell(bed, kept["cell"], kept["seed"]), kept["values"]


def _keep(file: Path, cell: Cell, values: Values) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps({"cell": cell.cell, "seed": cell.seed, "values": values}) + "\n")
