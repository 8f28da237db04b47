"""Bad files: thousands of changed snapshots, fleets and policies, each loaded and, where it loads, used.

    python -m rasp_lab.reliability.fuzz_files --files 10000 --sanitize

A file may be refused, by a SnapshotError (a ValueError for a policy, whose reader stands alone), or be harmless: asks,
tells, recommendations and explanations work, what is suggested is legal, and what is saved loads again. Everything else
is a failure: another error, a crash, a minute without an answer, more memory than a tuner takes.

Files are tried in another process, so that a crash ends one file only. --sanitize builds the C code with the address
and undefined-behaviour sanitizers of gcc, and ends at the first thing that they report. A file is a function of its
number: `--only 4711` tries one again, with its traceback.
"""

import argparse
import contextlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rasp_lab.reliability.bad_files import FLEET_FILE, POLICY, File, changed, context_for, good_files, outcome
from rasp_lab.reliability.sanitizers import sanitized, with_sanitizers
from rasp_tuner import Fleet, Tuner
from rasp_tuner.engine.kernel import native
from rasp_tuner.errors import SnapshotError
from rasp_tuner.policy import evaluate
from rasp_tuner.space import Space

STEPS = 5  # of asking and telling, by a tuner that loads
MOST_SECONDS = 60.0  # for one file
MOST_MEMORY = 3 << 30  # bytes
REFUSED, HARMLESS, UNCHANGED = "refused", "harmless", "nothing"


def tried(file: File) -> str:
    """REFUSED or HARMLESS; any other error is raised."""
    try:
        loaded = _loaded(file)
    except SnapshotError:
        return REFUSED
    except ValueError:
        if file.kind != POLICY:
            raise
        return REFUSED
    {FLEET_FILE: _use_fleet, POLICY: _use_policy}.get(file.kind, _use_tuner)(loaded)
    return HARMLESS


def _loaded(file: File) -> Any:
    if file.kind not in (FLEET_FILE, POLICY):
        return Tuner.from_bytes(file.data)
    with tempfile.NamedTemporaryFile() as on_disk:
        on_disk.write(file.data)
        on_disk.flush()
        return (Fleet.load if file.kind == FLEET_FILE else evaluate.load)(on_disk.name)


def _use_tuner(tuner: Tuner) -> None:
    rng, names = np.random.default_rng(1), list(tuner.scales)
    space = Space(tuner.knobs)
    for step in range(STEPS):
        context = context_for(tuner.context_schema, rng)
        suggestion = tuner.ask(context)
        space.to_unit(suggestion.params)
        space.to_unit(tuner.recommend(context))
        if step == 2:
            tuner.tell_failed(suggestion.id, "crashed")
        else:
            tuner.tell(suggestion.id, outcome(names, rng))
        tuner.explain(suggestion.id)
    for suggestion in tuner.pending[-3:]:
        tuner.explain(suggestion.id)
        tuner.tell(suggestion.id, outcome(names, rng))
    context = context_for(tuner.context_schema, rng)
    tuner.observe(context, tuner.default, outcome(names, rng))
    tuner.what_if(context, tuner.default)
    tuner.budget(), tuner.margins(context), tuner.slots(), tuner.history(), repr(tuner), tuner._repr_html_()
    again = Tuner.from_bytes(tuner.to_bytes())
    again.ask(context)


def _use_fleet(fleet: Fleet) -> None:
    rng, plan = np.random.default_rng(1), fleet._plan
    n, c = len(fleet), plan.dims.context
    if not n:
        return
    for step in range(STEPS):
        contexts = rng.integers(3, size=(n, c)).astype(float) if c else None
        asked = fleet.ask(contexts)
        _check_legal(plan.space, asked.params)
        _check_legal(plan.space, fleet.recommend(contexts))
        fleet.tell({name: 1.0 + rng.random(n) for name in plan.metrics}, failed=np.arange(n) == step)
    _use_tuner(fleet[0])
    fleet.add(2)
    fleet.ask(np.zeros((n + 2, c)) if c else None)
    repr(fleet)
    with tempfile.TemporaryDirectory() as folder:
        fleet.save(Path(folder) / "fleet")
        Fleet.load(Path(folder) / "fleet")


def _check_legal(space: Space, params: dict[str, Any]) -> None:
    for i in range(len(next(iter(params.values())))):
        row = {name: float(values[i]) for name, values in params.items()}
        space.to_unit({name: int(x) if x.is_integer() and space.knobs[name].levels else x for name, x in row.items()})


def _use_policy(policy: dict[str, Any]) -> None:
    for context in (None, {}, {"qps": 1.0, "kb": 0.0}, {"qps": 2.0, "kb": 9e9}, [0.0, 1.0], "x", {"qps": "many"}):
        if not isinstance(evaluate.params_of(policy, context), dict):
            raise TypeError("parameters must be a dict")


# -- one process tries, another watches -------------------------------------------------------------------------------


def file_of(number: int, seed: int, good: dict[str, File]) -> tuple[str, File, str]:
    """Its kind, the file, and what was changed: a function of the number. The first ones are good."""
    name = list(good)[number % len(good)]
    if number < len(good):
        return name, good[name], UNCHANGED
    file, words = changed(good[name], np.random.default_rng([seed, number]))
    return name, file, words


def work(args: argparse.Namespace) -> int:
    """Try files from a number on; a line of JSON for each, before and after."""
    if args.library is None:  # sanitizers reserve addresses for all of memory
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    warnings.simplefilter("ignore")  # numbers near 1e300 overflow, which is harmless
    if args.library is not None:
        native.LIBRARY = args.library  # before it is first looked for
        if not native.available():
            sys.exit(f"no C code: {native.why_not()}")
    good = good_files(args.without)
    for number in range(args.start, args.files):
        name, file, words = file_of(number, args.seed, good)
        print(json.dumps({"file": number, "kind": name, "change": words}), flush=True)
        try:
            told = tried(file)
            if words == UNCHANGED and told == REFUSED:
                told = "a good file is refused"
        except Exception as error:  # noqa: BLE001 - each is a finding
            told = f"{type(error).__name__}: {error}"[:200]
            if args.only is not None:
                traceback.print_exc()
        print(json.dumps({"told": told}), flush=True)
    return 0


@dataclass
class Result:
    """How many files of each kind came to what, and those that failed."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, begun: dict[str, Any], told: str) -> None:
        good = told in (REFUSED, HARMLESS)
        self.counts.setdefault(begun["kind"], Counter())[told if good else "failed"] += 1
        if not good:
            self.failures.append({**begun, "told": told})

    def table(self) -> str:
        columns = (REFUSED, HARMLESS, "failed")
        rows = [("kind", "files", *columns)]
        rows += [(kind, str(sum(own.values())), *(str(own[c]) for c in columns)) for kind, own in self.counts.items()]
        total = sum(self.counts.values(), Counter())
        rows.append(("all", str(sum(total.values())), *(str(total[c]) for c in columns)))
        return "\n".join(f"{row[0]:<26}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def watch(args: argparse.Namespace, library: Path | None) -> Result:
    """Have all files tried, by as many processes as crash."""
    result, start, environment = Result(), args.start, os.environ if library is None else with_sanitizers()
    while start < args.files:
        command = [
            sys.executable,
            "-m",
            "rasp_lab.reliability.fuzz_files",
            "--worker",
            "--start",
            str(start),
            "--files",
            str(args.files),
        ]
        command += ["--seed", str(args.seed), "--without", *args.without]
        command += [] if library is None else ["--library", str(library)]
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True) as worker,
        ):
            begun = _follow(worker, result)
            worker.kill()
            ended = worker.wait()
            errors.seek(0)
            report = errors.read().decode(errors="replace")
        if begun is None:
            sys.exit(f"no file was tried:\n{report[-3000:]}")
        if begun.pop("open"):
            result.add(begun, f"ended with {ended}: {_reason(report, ended)}")
        start = begun["file"] + 1
    return result


def _reason(report: str, ended: int) -> str:
    """The first line of a sanitizer's report, or what there is."""
    found = [line.strip() for line in report.splitlines() if "ERROR" in line or "runtime error" in line]
    return (found or ["no answer in time" if ended == -signal.SIGKILL else report[-200:]])[0][:300]


def _follow(worker: "subprocess.Popen[str]", result: Result) -> dict[str, Any] | None:
    """The last file that was begun; "open" says whether nothing was told of it."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(worker.stdout, lines), daemon=True).start()
    begun: dict[str, Any] | None = None
    with contextlib.suppress(queue.Empty):
        while line := lines.get(timeout=MOST_SECONDS + (60.0 if begun is None else 0.0)):
            told = json.loads(line)
            if "file" in told:
                begun = {**told, "open": True}
                _progress(told["file"])
            elif begun is not None:
                begun["open"] = False
                result.add(begun, told["told"])
    return begun


def _read(stream: Any, lines: "queue.Queue[str]") -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _progress(number: int) -> None:
    if number % 100 == 0 and sys.stderr.isatty():
        sys.stderr.write(f"\r{number} files")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="how many to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the first one's number")
    parser.add_argument("--without", nargs="*", default=[], help="leave out kinds whose names begin like this")
    parser.add_argument("--only", type=int, help="try this one alone, here, with its traceback")
    parser.add_argument("--sanitize", action="store_true", help="build the C code with sanitizers and use that")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--library", type=Path, help="with --sanitize: one that was built before")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only is not None:
        args.start, args.files = args.only, args.only + 1
    if args.worker or args.only is not None:
        return work(args)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() if args.sanitize else contextlib.nullcontext("") as folder:
        result = watch(args, (args.library or sanitized(Path(folder))) if args.sanitize else None)
    if args.json:
        print(json.dumps({"files": args.files, "failures": result.failures, "counts": result.counts}))
    else:
        print(result.table())
        for failure in result.failures:
            print(f"  {failure['file']} ({failure['kind']}): {failure['change']} -> {failure['told']}")
        code = "with sanitizers" if args.sanitize else native.why_not() or "as built"
        print(f"{time.monotonic() - began:.0f} s, C code {code}")
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
