"""Does `rasp tune` find what is there, on programs that people use? Seven of them, each checked by pairs and a grid.

    python -m rasp_lab.find.real_programs                 # all that are installed; ten to twenty minutes
    python -m rasp_lab.find.real_programs sort gcc        # some of them
    python -m rasp_lab.find.real_programs --show          # the commands, without running them
    python -m rasp_lab.find.real_programs --csv docs/results/real-programs.csv --page docs/TUNE.md
    python -m rasp_lab.pages --record TUNE.md --of "seven real programs"

A study is run as a user would, by the command `rasp tune`. Then every setting of a small grid runs GRID_RUNS times, and
what the study recommends, the default and the best three of the grid run in interleaved rounds. Ratios are
times the default; the grid keeps the limits that the study has. `--csv` replaces the rows of the programs that were
run, after each of them; `--page` then writes the table into a page. Both need a quiet machine.
"""

import argparse
import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rasp_lab.bench.report.tables import markdown
from rasp_lab.find.real_studies import PYTHON, STUDIES, RealStudy, prepared
from rasp_lab.pages import csv_tables, marked
from rasp_tuner.page.html_page import Table
from rasp_tuner.page.words import settings_words
from rasp_tuner.report.paired import Effect, effect
from rasp_tuner.space import Params
from rasp_tuner.tune.measure import Runner, measure, runner_of
from rasp_tuner.tune.study import TuneStudy, build_study
from rasp_tuner.tune.verdict import goals_of, keeps_limits, log_cost

GRID_RUNS = 2
BEST_OF_GRID = 3
LIMIT_S = 20.0
HEAD = ["program", "default", "recommended", "verdict", "checked", "best of grid", "tried", "left alone"]
ON_PAGE = ["program", "recommended", "verdict", "checked", "best of grid"]
START = "<!-- measured: python -m rasp_lab.find.real_programs -->"

Metrics = dict[str, float]


@dataclass(frozen=True)
class Row:
    """What came of one input of a study."""

    name: str
    default: str
    recommended: str
    verdict: str
    checked: str
    grid: str
    tried: str
    left_alone: str


def command_words(name: str, fields: Mapping[str, Any]) -> list[str]:
    """`rasp tune` with a study's fields as options."""
    given = ["rasp", "tune", "--name", name]
    for option, table in (("knob", "knobs"), ("default", "default"), ("env", "env")):
        for key, value in fields.get(table, {}).items():
            given += [f"--{option}", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    for key, goal in fields["metrics"].items():
        given += ["--metric", f"{key}:{goal}"]
    for pattern in fields.get("inputs", ()):
        given += ["--inputs", pattern]
    given += ["--steps", str(fields["steps"])]
    return [*given, "--call", fields["call"]] if "call" in fields else [*given, "--", *fields["command"]]


def shown(study: RealStudy) -> str:
    """The command as one would type it."""
    settings = " ".join(f"{name}={text.format(folder='.')}" for name, text in study.env.items())
    words = shlex.join(["python" if word == PYTHON else word for word in command_words(study.name, study.fields)])
    return f"{settings} {words}".strip()


def tune_and_check(study: RealStudy, folder: Path, rounds: int) -> list[Row]:
    env = prepared(study, folder)
    words = command_words(study.name, study.fields)
    done = subprocess.run(
        [sys.executable, "-m", "rasp_tuner", *words[1:]],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stderr + done.stdout, flush=True)
    if done.returncode not in (0, 3, 4):
        raise SystemExit(f"{study.name}: rasp tune ended with {done.returncode}")
    place = folder / "rasp-tune" / study.name
    result = json.loads((place / "settings.json").read_text())
    runs = [json.loads(line) for line in (place / "journal.jsonl").read_text().splitlines()]
    with contextlib.chdir(folder):
        sys.path.insert(0, "")
        os.environ.update({name: env[name] for name in study.env})
        try:
            built = build_study({"name": study.name, **{k: v for k, v in study.fields.items() if k != "steps"}})
            runner = runner_of(built)
            return [_row(study, built, runner, found, runs, rounds) for found in result["situations"]]
        finally:
            sys.path.remove("")


def _row(
    study: RealStudy, built: TuneStudy, runner: Runner, found: Mapping[str, Any], runs: Sequence[Mapping[str, Any]],
    rounds: int,
) -> Row:  # fmt: skip
    """The check of one input: grid first, then rounds."""
    [input] = found["inputs"] or [None]
    use: Params = found["use"]
    grid: list[Params] = [
        {**built.default, **dict(zip(study.grid, values, strict=True))}
        for values in itertools.product(*study.grid.values())
    ]
    measured = {i: [_once(built, runner, params, input) for _ in range(GRID_RUNS)] for i, params in enumerate(grid)}
    level = _median([_once(built, runner, built.default, input) for _ in range(3)])
    good = {}
    for i, own in measured.items():
        if all(own) and keeps_limits(_median(own), level, built.metrics):
            good[i] = log_cost(level, _median(own), goals_of(built.metrics))
    best = [grid[i] for i in sorted(good, key=good.__getitem__)[:BEST_OF_GRID]]
    arms = [built.default, use, *best]
    done: list[list[Metrics | None]] = []
    rng = np.random.default_rng(7)
    for _ in range(rounds):
        values: dict[int, Metrics | None] = {
            i: _once(built, runner, arms[i], input) for i in rng.permutation(len(arms)).tolist()
        }
        done.append([values[i] for i in range(len(arms))])
    checked = _against([(row[0], row[1]) for row in done], built)
    rivals = [(params, _against([(row[0], row[i]) for row in done], built)) for i, params in enumerate(best, 2)]
    first = min(
        (one for one in rivals if one[1] is not None), key=lambda one: one[1].value if one[1] else 0.0, default=None
    )
    own_runs = [run for run in runs if run["kind"] == "run" and run["input"] == input and not run["control"]]
    distinct = {json.dumps(run["params"], sort_keys=True) for run in own_runs}
    told = found["effects"].get(next(iter(goals_of(built.metrics))))
    moved = [name for name in use if use[name] != built.default.get(name)]
    return Row(
        study.name if input is None else f"{study.name}, {input}",
        settings_words(built.default),
        settings_words({name: use[name] for name in moved}) or "the default",
        f"{told['value']:.2g} ({told['low']:.2g} to {told['high']:.2g})" if told else found["outcome"],
        _words(checked) if moved else "-",
        f"{_words(first[1])}: {settings_words(first[0])}" if first and first[1] else "-",
        f"{len(distinct)} of {len(own_runs)}",
        ", ".join(name for name in use if name not in moved) or "none",
    )


def _once(built: TuneStudy, runner: Runner, params: Params, input: str | None) -> Metrics | None:
    return measure(built, runner, params, input, 0, None if built.command is None else LIMIT_S).metrics


def _median(found: Sequence[Metrics | None]) -> Metrics:
    good = [one for one in found if one]
    return {name: float(np.median([one[name] for one in good])) for name in good[0]}


def _against(pairs: Sequence[tuple[Metrics | None, Metrics | None]], built: TuneStudy) -> Effect | None:
    """The objective's ratio over the default's, with its interval."""
    name = next(iter(goals_of(built.metrics)))
    return effect([[(d[name], other[name]) for d, other in pairs if d and other]])


def _words(found: Effect | None) -> str:
    return "-" if found is None else f"{found.value:.2g} ({found.low:.2g} to {found.high:.2g})"


def table_of(rows: Sequence[Row]) -> Table:
    """All that is known of each input."""
    return HEAD, [list(astuple(row)) for row in rows]


def keep(table: Table, file: Path) -> Table:
    """Write rows into a CSV file; of programs that are not among them the rows stay. Gives all of them."""
    names = [study.name for study in STUDIES]
    rows = [row for row in csv_tables.read(file)[1] if _program(row) in names] if file.is_file() else []
    new = {_program(row) for row in table[1]}
    rows = [*(row for row in rows if _program(row) not in new), *table[1]]
    rows.sort(key=lambda row: names.index(_program(row)))
    csv_tables.write(file, (HEAD, rows))
    return HEAD, rows


def _program(row: Sequence[str]) -> str:
    return row[0].partition(",")[0]


def page_table(table: Table) -> Table:
    """What a page shows: the verdict, its check, and the best of the grid without its settings."""
    head, rows = table
    shown = [head.index(name) for name in ON_PAGE]
    return ON_PAGE, [[row[i].partition(": ")[0] for i in shown] for row in rows]


def write_page(table: Table, page: Path, machine: str) -> None:
    """The table between the marks of a page, and on which machine it was measured."""
    marked.write(page, START, f"{machine}\n\n{markdown(page_table(table))}")


def machine_words() -> str:
    """Cores and load, which are part of every time.

    >>> machine_words().startswith("Measured on ")
    True
    """
    return f"Measured on {os.cpu_count()} cores, with a load of {os.getloadavg()[0]:.1f} at the start."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(study.name for study in STUDIES)}")
    parser.add_argument("--rounds", type=int, default=10, help="of the check, for every input")
    parser.add_argument("--show", action="store_true", help="print the commands only")
    parser.add_argument("--folder", type=Path, help="where data and reports stay; without it they go")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="the table to put the rows into")
    parser.add_argument("--page", type=Path, metavar="FILE", help="the page to put the table of --csv into")
    args = parser.parse_args()
    known = {study.name: study for study in STUDIES}
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"there is no {unknown[0]}: choose from {', '.join(known)}")
    if args.page is not None and args.csv is None:
        parser.error("--page writes what is in the file of --csv: give both")
    if args.page is not None:
        marked.read(args.page, START)
    rows: list[list[str]] = []
    machine = machine_words()
    with tempfile.TemporaryDirectory() as scratch:
        for study in [known[name] for name in args.names or known]:
            if args.show:
                print(shown(study))
                continue
            if missing := study.needs():
                print(f"{study.name}: left out, {missing}", flush=True)
                continue
            print(f"== {shown(study)}", flush=True)
            found = table_of(tune_and_check(study, (args.folder or Path(scratch)) / study.name, args.rounds))
            rows += found[1]
            print(markdown(found), flush=True)
            if args.csv is not None:
                table = keep(found, args.csv)
                if args.page is not None:
                    write_page(table, args.page, machine)
    if rows:
        print(markdown((HEAD, rows)))


if __name__ == "__main__":
    main()
