"""The demo: the paper's ten domains, doing nothing, two searches and this library. Always run anew."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rasp_lab.bench.analysis import summary, verdicts
from rasp_lab.bench.analysis.metrics import Runs, load
from rasp_lab.bench.report import html_report
from rasp_lab.bench.runner import run, suites
from rasp_lab.bench.runner.protocol import Cell
from rasp_tuner.files.snapshot import write

AGENTS = ("static", "random", "cma-es", "rasp")
HORIZON = 100


def cells(seeds: int) -> list[Cell]:
    return suites.cells("paper", AGENTS, seeds, HORIZON)


def play(plan: Sequence[Cell], folder: Path, finished: Callable[[Cell], None], jobs: int = -1) -> list[Runs]:
    """Run the plan and write DIR/steps.csv, DIR/summary.json and the report; cells of older code are never used."""
    with TemporaryDirectory() as fresh:
        steps = run.run_plan(plan, Path(fresh), jobs=jobs, finished=finished)
        write(folder / "steps.csv", steps.read_bytes())
    runs = load(folder / "steps.csv")
    write(folder / "summary.json", summary.to_json(summary.summarise(runs)).encode())
    html_report.write(folder, runs)
    return runs


def verdict(runs: Sequence[Runs]) -> str:
    """How the library's default preset fares, in plain words."""
    return verdicts.sentence(runs, HORIZON, "rasp", {**verdicts.OTHERS, "cma-es": "CMA-ES"})
