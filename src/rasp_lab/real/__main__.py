"""Measure agents on real systems, and write docs/REAL.md from the measurements.

    python -m rasp_lab.real run --system sqlite --steps 150 --seeds 1     # one system, some minutes
    python -m rasp_lab.real all                                            # all without a GPU: what `make real` does
    python -m rasp_lab.real triton                                         # those on a GPU, some minutes
    python -m rasp_lab.real page                                           # docs/REAL.md from the checked-in runs

A finished run is one file; what is there is not measured again, so a command that was stopped goes on.
"""

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.pages import origin
from rasp_lab.real import harness, page
from rasp_lab.real.analysis import summaries
from rasp_lab.real.systems import ON_GPU, SYSTEMS, load

KEPT = Path(__file__).parent / "runs"  # checked in
STEPS, SEEDS = 150, 4
ON_A_GPU, WITHOUT_GPU = "Triton kernels", "other systems"  # measured by two commands
GPU_STEPS, GPU_SEEDS = 240, 2  # longer runs: a server meets the same shapes again and again


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.command == "page":
        return _page(options.runs, options.docs)
    on_gpu = options.command == "triton"
    names = options.system or [name for name in SYSTEMS if (name in ON_GPU) == on_gpu]
    lacking = {name: reason for name in names if (reason := load(name).missing()) is not None}
    if on_gpu and lacking:
        print(f"Triton kernels cannot be measured here: they need {lacking.popitem()[1]}.", file=sys.stderr)
        return 1
    for name, reason in lacking.items():
        print(f"{name}: left out, it needs {reason}")
    steps = options.steps or (GPU_STEPS if on_gpu else STEPS)
    seeds = range(options.first_seed, options.first_seed + (options.seeds or (GPU_SEEDS if on_gpu else SEEDS)))
    todo = [(name, seed) for name in names if name not in lacking for seed in seeds]
    _forget_older(options.out, names)
    began = time.monotonic()
    for done, (name, seed) in enumerate(todo):
        file = options.out / f"{name}-{seed}.csv.gz"
        if file.exists():
            print(f"{name}, seed {seed}: measured before ({file})")
        else:
            _measure(name, seed, steps, file, f"[{done + 1}/{len(todo)}, {_minutes(began)}]")
    for name in dict.fromkeys(name for name, _ in todo):
        runs = [harness.read(file) for file in sorted(options.out.glob(f"{name}-*.csv.gz"))]
        print(f"\n{load(name).title}: times the default's cost, {len(runs)} runs")
        for found in sorted(summaries(runs), key=lambda found: found.overall.value):
            print(f"  {found.agent:13} {found.overall}   first 50 of the worst run {found.early_worst}")
    if options.command != "run":
        KEPT.mkdir(exist_ok=True)
        for name in dict.fromkeys(name for name, _ in todo):  # systems that could not run keep what they had
            for file in KEPT.glob(f"{name}-*.csv.gz"):
                file.unlink()
            for file in options.out.glob(f"{name}-*.csv.gz"):
                shutil.copy(file, KEPT)
        if todo and KEPT.is_relative_to(REPOSITORY / "src"):
            origin.record("REAL.md", origin.origin_of(what=ON_A_GPU if on_gpu else WITHOUT_GPU))
        return _page(KEPT, options.docs)
    return 0


def _forget_older(out: Path, names: Iterable[str]) -> None:
    """Remove finished runs of an older engine, and note which engine runs now."""
    out.mkdir(parents=True, exist_ok=True)
    note, today = out / "engine.txt", origin.engine_hash()
    if not note.is_file() or note.read_text() != today:
        for file in [file for name in names for file in out.glob(f"{name}-*.csv.gz")]:
            file.unlink()
    note.write_text(today)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m rasp_lab.real", description=__doc__, formatter_class=form)
    parser.add_argument("command", choices=["run", "all", "triton", "page"])
    parser.add_argument("--system", action="append", choices=list(SYSTEMS), help="may be given several times")
    parser.add_argument("--steps", type=int, help=f"of a run: {STEPS}; triton: {GPU_STEPS}")
    parser.add_argument("--seeds", type=int, help=f"how many runs of each system: {SEEDS}; triton: {GPU_SEEDS}")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "out" / "real", help="where runs are written")
    parser.add_argument("--runs", type=Path, default=KEPT, help="page: where runs are read")
    parser.add_argument(
        "--docs", type=Path, default=REPOSITORY / "docs", help="where REAL.md and its pictures are written"
    )
    return parser.parse_args(arguments)


def _measure(name: str, seed: int, steps: int, file: Path, where: str) -> None:
    shown = time.monotonic()

    def progress(step: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > 10.0:
            shown = time.monotonic()
            print(f"{where} {name}, seed {seed}: step {step + 1} of {steps}", flush=True)

    print(f"{where} {name}, seed {seed}: preparing ...", flush=True)
    said = harness.about(load(name))
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder, load(name)(Path(folder)) as system:
        rows = harness.measure(system, steps, seed, progress)
    harness.write(file, rows, said)


def _page(runs: Path, docs: Path) -> int:
    found = {name: files for name in SYSTEMS if (files := sorted(runs.glob(f"{name}-*.csv.gz")))}
    if not found:
        print(f"no runs in {runs}: python -m rasp_lab.real all", file=sys.stderr)
        return 1
    kept = runs == KEPT and runs.is_relative_to(REPOSITORY / "src")
    head = origin.head("REAL.md") if kept else origin.head_of([origin.origin_of()], origin.engine_hash())
    page.write(found, docs, head)
    print(f"wrote {docs / 'REAL.md'}")
    return 0


def _minutes(began: float) -> str:
    return f"{(time.monotonic() - began) / 60.0:.1f} min"


if __name__ == "__main__":
    warnings.simplefilter("default")
    sys.exit(main())
