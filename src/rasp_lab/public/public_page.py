"""The results of the public suite as a table of lines, and the page docs/PUBLIC.md."""

import csv
import io
import math
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rasp_lab import REPOSITORY
from rasp_lab.public import protocols
from rasp_lab.public.cells import OURS, PROBED, Cell, Row
from rasp_lab.public.protocols import SETS
from rasp_lab.public.runs import engine_digest
from rasp_lab.public.tables import SYSTEMS, dlisa, poppler, printed, sqlite
from rasp_tuner import __version__
from rasp_tuner.files.snapshot import write

ALL = "all"
AT_THE_END, FROM_SECOND = "best of 80", "best of 20, from the second workload on"
ONLINE, ONCE = "mean of 80 steps, report half", "every input once"
HEAD = ("set", "measure", "agent", "cost / optimum", "standard error", "seeds")
WITHIN = 0.02  # over the best fixed setting: what is wanted where inputs are met once
Found = Mapping[Cell, Sequence[Row]]


class Line(NamedTuple):
    """The cost over the optimum, by the mean of logarithms over workloads, then over seeds."""

    set: str
    measure: str
    agent: str
    value: float
    error: float | None  # standard error over seeds; None of one seed, and of what has none
    seeds: int


def summary(found: Found, folder: Path) -> list[Line]:
    """All lines: ours, peers, and what others printed."""
    logs: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for cell, rows in found.items():
        whole = all(cell._replace(set=name) in found for name in SETS[cell.protocol])
        for row in rows:
            for measure, value in _measures(cell, row):
                for name in (cell.set, *([ALL] if whole and cell.protocol != "once" else [])):
                    own = logs.setdefault((name, measure, cell.agent), {})
                    own.setdefault(cell.seed, []).append(math.log(value))
    lines = []
    for (name, measure, agent), seeds in logs.items():
        means = [float(np.mean(own)) for own in seeds.values()]
        error = float(np.std(means, ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
        value = math.exp(float(np.mean(means)))
        lines.append(Line(name, measure, agent, value, None if error is None else value * error, len(means)))
    order = {name: i for i, name in enumerate((*SYSTEMS, ALL))}
    lines += _printed(folder) + _fixed(folder)
    return sorted(lines, key=lambda line: (line.measure, order.get(line.set, 99), line.set))


def _measures(cell: Cell, row: Row) -> list[tuple[str, float]]:
    if cell.protocol == "find":
        early, end = (float(row[f"best {protocols.AFTER[at]}"]) for at in (0, -1))
        return [(AT_THE_END, end), *([] if row["place"] == 0 else [(FROM_SECOND, early)])]
    if cell.protocol == "online":
        return [(ONLINE, float(row["ratio"]))] if row["half"] == "report" else []
    return [(ONCE, float(row["ratio"]))]


def _printed(folder: Path) -> list[Line]:
    """What the authors of DLiSA print, and what follows from their table."""
    lines = []
    for name in (*SYSTEMS, ALL):
        rows = [row for row in printed(folder) if name in (row["system"], ALL)]
        for agent, column in (("DLiSA (printed)", "DLiSA-0.3_mean"), ("best fixed", "best_fixed")):
            ratios = [
                float(row["optimum"]) / float(row[column])
                if row["direction"] == "max"
                else float(row[column]) / float(row["optimum"])
                for row in rows
            ]
            lines.append(Line(name, AT_THE_END, agent, math.exp(float(np.mean(np.log(ratios)))), None, 0))
    return lines


def _fixed(folder: Path) -> list[Line]:
    """The one setting that is best over all inputs, known afterwards."""
    lines, every = [], []
    for name in SYSTEMS:
        table = dlisa(folder, name)
        logs = np.log(table.cost / table.least[:, None])[(len(table.contexts) + 1) // 2 :]
        best = logs[:, int(logs.mean(axis=0).argmin())]
        every.append(best)
        lines.append(Line(name, ONLINE, "best fixed", math.exp(float(best.mean())), None, 0))
    lines.append(Line(ALL, ONLINE, "best fixed", math.exp(float(np.concatenate(every).mean())), None, 0))
    for table in (sqlite(folder)[0], poppler(folder)[0]):
        means = np.nanmean(np.log(table.cost / table.least[:, None]), axis=0)
        everywhere = ~np.isnan(table.cost).any(axis=0)
        least = float(np.where(everywhere, means, np.inf).min())
        lines.append(Line(table.name, ONCE, "best fixed", math.exp(least), None, 0))
    return lines


def rows_of(lines: Sequence[Line]) -> list[list[str]]:
    return [
        [x.set, x.measure, x.agent, f"{x.value:.3f}", "" if x.error is None else f"{x.error:.3f}", str(x.seeds or "")]
        for x in lines
    ]


def write_csv(lines: Sequence[Line], file: Path) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEAD, *rows_of(lines)])
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, text.getvalue().encode())


def write_page(lines: Sequence[Line], page: Path) -> None:
    """The page, and beside it all of its numbers as CSV."""
    write_csv(lines, page.with_suffix(".csv"))
    write(page, text_of(lines, page.with_suffix(".csv").name).encode())


def text_of(lines: Sequence[Line], csv_name: str) -> str:
    value = {(x.set, x.measure, x.agent): x for x in lines}

    def table(measure: str, agents: Sequence[str], sets: Sequence[str], first: str) -> str:
        shown = [agent for agent in agents if any((name, measure, agent) in value for name in sets)]
        rows = [f"| {first} | " + " | ".join(shown) + " |", "|---|" + "---:|" * len(shown)]
        for name in sets:
            cells = [_shown(value.get((name, measure, agent))) for agent in shown]
            rows.append(f"| {f'**{name}**' if name == ALL else name} | " + " | ".join(cells) + " |")
        return "\n".join(rows)

    systems = (*SYSTEMS, ALL)
    seeds = sorted({(x.agent, x.measure, x.seeds) for x in lines if x.seeds and x.set in (ALL, "poppler")})
    return TEXT.format(
        head=f"Version {__version__}, commit {_commit()}, engine {engine_digest()}, {datetime.now(UTC):%Y-%m-%d};"
        f" beside optuna {version('optuna')} and cmaes {version('cmaes')}",
        csv=csv_name,
        losses="\n".join(_losses(value)) or "Nowhere on this page.",
        find=table(AT_THE_END, (OURS, "random", "TPE", "DLiSA (printed)", "best fixed"), systems, "system"),
        early=table(FROM_SECOND, (OURS, "random", "TPE"), systems, "system"),
        online=table(ONLINE, (OURS, "default", "random", "TPE", "CMA-ES", "best fixed"), systems, "system"),
        once=table(
            ONCE,
            (OURS, PROBED, "default", "random", "TPE", "CMA-ES", "best fixed"),
            ("SQLite queries", "poppler"),
            "set",
        ),
        counts="; ".join(f"{agent}, {measure}: {n}" for agent, measure, n in seeds),
        probed=PROBED,
    )


TEXT = """\
# Public tables

*Results; for people who want to see them repeated. {head}. Written by
`rasp bench public --data DIR --seeds 20 --page docs/PUBLIC.md`; [{csv}]({csv}) has all numbers with standard errors.*

Others measured these tables and published them. Every number is a cost over the least cost of its workload, by the
geometric mean: 1 is perfect, less is better.

## Where it loses

{losses}

## DLiSA: search, 80 measurements on each workload

Nine systems and 93 workloads (ICSE 2023), and the protocol of DLiSA (ICSE 2025): the workloads of a system come in
random order, each may be measured 80 times, and the best measurement counts. RASP is `Tuner(goal="find")`, one for all
workloads of a system; its context is the workload's name, and it is told which settings were measured
(`ask(among=...)`). Random search draws measured settings. TPE starts anew in every workload and gets the nearest row
that it has not had.

{find}

After 20 measurements, from the second workload on: does it learn from workload to workload?

{early}

## DLiSA: online, every step counts

The same workloads, 80 steps on each, and each step is paid: the mean cost of all steps over the optimum. RASP is
`Tuner(...)` as it comes. The second half of the workloads is shown; the first was to develop on. What cannot run, runs
as the nearest row. "Best fixed" is known only afterwards.

{online}

## Inputs that are met once

SQLite: 2,250 pairs of a size and a query, which are the context. poppler: 1,480 files without features; {probed} knows
time and size of the default's run on each file, which is not counted.

{once}

## What is wrong with the published numbers

- DLiSA's bar is 80 random rows (1.098 expected), which beat all published methods. The authors' code charges a run for
  settings that are not in the table, and gives them the 75th percentile. Who picks measured rows does not pay that.
- A first state of the results (lrzip, x264, xz) had times attached to other settings. The later state is used here.
- dconvert, jump3r, x264 and xz hold equal settings with times up to 3 times apart: an option was lost. The first such
  row counts, as in the authors' lookup, and ratios are of the best of all rows: on jump3r nobody can be below 1.028.
- Times have ticks of 0.01 s, and the least optima are 0.01 to 0.03 s. There is one measurement of each: no noise.
- No default is named. It is what the program does without options, or the nearest row.
- Options that exclude each other are one knob here.
- SQLite: 50 rows are eight settings with repeats. Cells in which nothing ran (492) look 10 times faster; here they are
  failures.
- poppler: one run of each; one setting always ran first and carries a cold start; files without images are noise.

## The files

`dlisa/` is from AI-4-SE/workload_coverage_companion, commit 78d3b695 (CC BY-SA 4.0), and ideas-labo/dlisa, commit
5455851e; `sqlite_queries/` and `poppler/` are from llesoil/input_sensitivity, commit aec6b95b (MIT). They were turned
into arrays; `src/rasp_lab/public/files.py` has their checksums. Nothing of them is part of this repository, and no
command gets them yet.

## Again

Seeds (orders of workloads) so far: {counts}. Finished runs are kept under `--out`, and the same command goes on. A seed
of all agents takes about four minutes of CPU time. What peers gave is kept; ours runs again when the engine changes.
LLM serving and GPU kernels are not part of this page yet.
"""


def _losses(value: Mapping[tuple[str, str, str], Line]) -> list[str]:
    found = []
    for measure, words in ((AT_THE_END, "after 80 measurements"), (FROM_SECOND, "after 20")):
        worse = [
            f"{name} ({ours.value:.3f} against {other.value:.3f})"
            for name in SYSTEMS
            if (ours := value.get((name, measure, OURS))) and (other := value.get((name, measure, "random")))
            and ours.value >= other.value
        ]  # fmt: skip
        if worse:
            found.append(f"- Search, {words}: no better than random rows on {', '.join(worse)}.")
    worse = []
    for name in (*SYSTEMS, ALL):
        ours = value.get((name, ONLINE, OURS))
        others = {agent: value.get((name, ONLINE, agent)) for agent in ("default", "random", "TPE", "CMA-ES")}
        known = {agent: line.value for agent, line in others.items() if line is not None}
        if ours and known and ours.value >= min(known.values()):
            best = min(known, key=known.__getitem__)
            worse.append(f"{name} ({ours.value:.2f} against {best}'s {known[best]:.2f})")
    if worse:
        found.append(f"- Online: {', '.join(worse)}.")
    for name in ("SQLite queries", "poppler"):
        fixed = value.get((name, ONCE, "best fixed"))
        for agent in (OURS, PROBED):
            line = value.get((name, ONCE, agent))
            if line and fixed and line.value > fixed.value + WITHIN:
                found.append(
                    f"- {name}: {agent} {line.value:.3f}, best fixed {fixed.value:.3f}; wanted within {WITHIN}."
                )
    return found


def _shown(line: Line | None) -> str:
    if line is None:
        return ""
    return f"{line.value:.3f}" + (f" ± {line.error:.3f}" if line.error is not None and line.set == ALL else "")


def _commit() -> str:
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=10", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
