"""The results of the public suite as a table of lines, and the page docs/PUBLIC.md."""

import csv
import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from operator import gt, le
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rasp_lab.public import kernels, serving
from rasp_lab.public.cells import LATER, OURS, PROBED, Cell
from rasp_lab.public.measures import (
    AT_THE_END,
    FROM_SECOND,
    KEPT,
    ONCE,
    ONLINE,
    SCORE,
    Total,
    Totals,
    is_plain,
    looks_of,
)
from rasp_lab.public.protocols import SETS
from rasp_lab.public.tables import SYSTEMS, dlisa, poppler, printed, sqlite
from rasp_tuner.files.snapshot import write

ALL, TYPICAL = "all", "median configuration"
HEAD = ("set", "measure", "agent", "value", "standard error", "seeds")
WANTED_LOOKS, WANTED_RATIO = 3, 1.15  # looks, after which the ratio should be at most this
WANTED_SEARCH = 1.05  # of the best of 80 measurements
WITHIN = 0.02  # over the best fixed setting: what is wanted where inputs are met once
PACKAGES = ("optuna", "cmaes", "kernel_tuner")
SHOWN_STRATEGIES = (OURS, LATER, kernels.TUNED, "differential evolution", "random sample")
Found = Mapping[Cell, Totals]


class Line(NamedTuple):
    """One number: mostly a cost over the optimum, by the mean of logarithms over workloads and seeds."""

    set: str
    measure: str
    agent: str
    value: float
    error: float | None  # standard error over seeds, or over models that were held out; None of one, and of none
    seeds: int


Lines = Mapping[tuple[str, str, str], Line]  # by set, measure and agent


def summary(found: Found, folder: Path) -> list[Line]:
    """All lines: ours, peers, and what others printed."""
    values: dict[tuple[str, str, str], dict[int | str, list[Total]]] = {}
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for cell, totals in found.items():
        whole = cell.protocol != "once" and all(cell._replace(set=name) in found for name in SETS[cell.protocol])
        for measure, total in totals.items():
            for name in (cell.set, *([ALL] if whole else [])):
                key, by_model = (name, measure, cell.agent), cell.protocol == "serving" and name == ALL
                values.setdefault(key, {}).setdefault(cell.set if by_model else cell.seed, []).append(total)
                seeds.setdefault(key, set()).add(cell.seed)
    lines = []
    for key, groups in values.items():
        own_value, own_error = _mean_and_error(list(groups.values()))
        if not is_plain(key[1]):
            own_value = math.exp(own_value)
            own_error = None if own_error is None else own_value * own_error
        lines.append(Line(*key, own_value, own_error, len(seeds[key])))
    return in_order(lines + _printed(folder) + _fixed(folder))


def _mean_and_error(groups: Sequence[Sequence[Total]]) -> tuple[float, float | None]:
    """The mean of all values, and the standard error of the means of groups: seeds, or models that were held out."""
    means = [_mean(own) for own in groups]
    error = float(np.std(means, ddof=1) / math.sqrt(len(means))) if len(means) > 1 else None
    return _mean([total for own in groups for total in own]), error


def _mean(totals: Sequence[Total]) -> float:
    return sum(count * mean for count, mean in totals) / sum(count for count, _ in totals)


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
    for objective in serving.OBJECTIVES:
        typical = math.exp(float(np.log(serving.without_limit(folder, objective)).mean()))
        lines.append(Line(ALL, f"{objective}, no limit", TYPICAL, typical, None, 0))
    return lines


def with_earlier(lines: Sequence[Line], file: Path, ran: Collection[str] = ()) -> list[Line]:
    """Also the lines of an earlier table: of peers those of more seeds than today's, or of none today.

    Of our agents those that were not asked to run: `ran` names the others.
    """
    if not file.is_file():
        return list(lines)
    with file.open(newline="") as rows:
        read = [
            Line(
                row["set"],
                row["measure"],
                row["agent"],
                float(row["value"]),
                _number(row["standard error"]),
                int(row["seeds"]),
            )
            for row in csv.DictReader(rows)
            if row["seeds"] and not (row["agent"].startswith(OURS) and row["agent"] in ran)
        ]
    best = {line[:3]: line for line in lines}
    for line in read:
        if line[:3] not in best or line.seeds > best[line[:3]].seeds:
            best[line[:3]] = line
    return in_order(list(best.values()))


def _number(text: str) -> float | None:
    return float(text) if text else None


def in_order(lines: Sequence[Line]) -> list[Line]:
    order = {name: i for i, name in enumerate((*SYSTEMS, *serving.MODELS, *kernels.GPUS, ALL))}
    return sorted(
        lines,
        key=lambda x: (x.measure, order.get(x.set, 99), x.set, not x.agent.startswith(OURS), x.agent),
    )


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

    return TEXT.format(
        packages=", ".join(f"{name} {version(name)}" for name in PACKAGES if find_spec(name) is not None),
        csv=csv_name,
        targets=_targets(value),
        losses="\n".join(_losses(value)) or "Nowhere on this page.",
        dlisa=_dlisa_table(value),
        systems=_systems_table(value),
        once=table(
            ONCE,
            (OURS, PROBED, "default", "random", "TPE", "CMA-ES", "best fixed"),
            ("SQLite queries", "poppler"),
            "set",
        ),
        serving=_serving_table(value),
        median_tpot=value[ALL, f"{serving.TPOT}, no limit", TYPICAL].value,
        median_tokens=value[ALL, f"{serving.TOKENS}, no limit", TYPICAL].value,
        kernels=table(SCORE, SHOWN_STRATEGIES, (*kernels.GPUS, ALL), "GPU"),
        counts=_counts(lines),
        probed=PROBED,
        later=_later() if (ALL, SCORE, LATER) in value else "",
    )


def _dlisa_table(value: Lines) -> str:
    agents = (OURS, "default", "random", "TPE", "CMA-ES", "DLiSA (printed)", "best fixed")
    rows = ["| all workloads | " + " | ".join(agents) + " |", "|---|" + "---:|" * len(agents)]
    for measure in (AT_THE_END, FROM_SECOND, ONLINE):
        cells = [_shown(value.get((ALL, measure, agent))) for agent in agents]
        rows.append(f"| {measure} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _systems_table(value: Lines) -> str:
    shown = {"best of 80: RASP": (AT_THE_END, OURS), "random": (AT_THE_END, "random")}
    shown |= {"online: RASP": (ONLINE, OURS), "default": (ONLINE, "default")}
    rows = ["| system | " + " | ".join(shown) + " |", "|---|" + "---:|" * len(shown)]
    for name in SYSTEMS:
        cells = [_shown(value.get((name, *which))) for which in shown.values()]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _serving_table(value: Lines) -> str:
    shown = [agent for agent in serving.AGENTS if (ALL, looks_of(serving.TPOT, WANTED_LOOKS), agent) in value]
    rows = [
        "| objective, looks | " + " | ".join(shown) + " | RASP keeps the limit |",
        "|---|" + "---:|" * (len(shown) + 1),
    ]
    for objective in serving.OBJECTIVES:
        for n in serving.LOOKS:
            cells = [_shown(value.get((ALL, looks_of(objective, n), agent))) for agent in shown]
            kept = value.get((ALL, looks_of(objective, n) + KEPT, OURS))
            cells.append("" if kept is None else f"{kept.value:.0%}")
            rows.append(f"| {objective}, {n} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _counts(lines: Sequence[Line]) -> str:
    """How many seeds each protocol has so far, by agent; agents with the same number together."""
    found = []
    for words, measure in (
        ("search", AT_THE_END), ("online", ONLINE), ("inputs once", ONCE),
        ("LLM serving", looks_of(serving.TPOT, WANTED_LOOKS)), ("GPU kernel", SCORE),
    ):  # fmt: skip
        by_count: dict[int, list[str]] = {}
        for line in lines:
            if line.measure == measure and line.seeds and line.set in (ALL, "poppler"):
                by_count.setdefault(line.seeds, []).append(line.agent)
        if by_count:
            most, *fewer = sorted(by_count, reverse=True)
            less = "; ".join(f"{', '.join(by_count[n])} {n}" for n in fewer)
            found.append(f"{words} {most}" + (f" ({less})" if less else ""))
    return ", ".join(found)


TEXT = """\
# Public tables

*Results; for people who want to see them repeated. Beside {packages}. Written by
`rasp bench public --data DIR --seeds 20 --page docs/PUBLIC.md`; [{csv}]({csv}) has all numbers with standard errors.*

Others measured these tables and published them. But for the GPU kernel every number is a cost over the least cost of
its workload, by the geometric mean: 1 is perfect, less is better. "±" is a standard error over orders of workloads.

## Where it loses

{targets}

{losses}

## DLiSA: nine systems, 93 workloads

Search is the protocol of DLiSA (ICSE 2025): workloads come in random order, each may be measured 80 times, and the best
measurement counts; after 20 it shows what is learned from others. Online, all 80 steps are paid; the first half of the
workloads was to develop on.

RASP is `Tuner(goal="find")` with `ask(among=...)` the measured settings, and online `Tuner(...)`: one for all workloads
of a system, whose names are its context. Random search draws measured settings. Others start anew in every workload and
get the nearest row. "Best fixed" is known only afterwards.

{dlisa}

{systems}

## Inputs that are met once

SQLite: 2,250 sizes and queries, which are the context. poppler: 1,480 files without features; {probed} knows time and
size of the default's run on each file, which is not counted.

{once}

## LLM serving: a model that nobody has measured

185 contexts: seven models, five GPUs, lengths and load. One model is held out; the runs of the others are known
(`Tuner.from_log`, `goal="find"`). After n looks at measured configurations the best that kept the limit runs; if none
did, what the agent holds to be best. The limit on the time to first token (TTFT) is the median of the context; what
breaks it counts as its worst configuration. "Best elsewhere" goes by the order on the other models; TPE has their runs
as trials. Without a limit the median configuration is {median_tpot:.2f} (TPOT) and {median_tokens:.2f} times the best.
"±" is over models.

{serving}

## A GPU kernel on six GPUs

Dedispersion, 11,130 configurations, in Kernel Tuner's simulation. The score is that of autotuning_methodology: 0 is
random search, 1 the optimum at once. RASP is `RaspStrategy`{later}.

{kernels}

The hub's authors print 0.517 for their tuned genetic algorithm over several kernels, and 0.061 or less for five others.
The formula takes the value of random search's mean rank for its mean value: so random search itself is above 0.

## What is wrong with the published numbers

- DLiSA's bar is 80 random rows (1.098 expected), which beat all published methods: the authors' code charges a run for
  settings that are not in the table.
- A first state of the results (lrzip, x264, xz) had times attached to other settings. The later state is used here.
- dconvert, jump3r, x264 and xz hold equal settings with times up to 3 times apart: an option was lost. The first such
  row counts, as in the authors' lookup, and ratios are of the best of all rows: on jump3r nobody can be below 1.028.
- Times have ticks of 0.01 s; the least optima are 0.01 to 0.03 s. One measurement of each: no noise. No default is
  named: it is what the program does without options, or the nearest row. Options that exclude each other are one knob.
- SQLite: 50 rows are eight settings with repeats. 492 cells look 10 times faster, but nothing ran; here they are
  failures.
- poppler: one run of each; one setting always ran first and carries a cold start; files without images are noise.
- LLM serving is a sample of convenience: a context has 6 to 20 of 112 configurations, so no fixed one is best. Repeats
  (other versions, other days) differ by 10% and are averaged. TPOT alone rewards more GPUs. Precision changes answers.
  Some rows hold products of splits.
- The kernel's printed scores are of several kernels that the file does not name: no bar for this one alone.

## The files

`dlisa/` is from AI-4-SE/workload_coverage_companion, commit 78d3b695 (CC BY-SA 4.0), and ideas-labo/dlisa, commit
5455851e; `sqlite_queries/` and `poppler/` from llesoil/input_sensitivity, commit aec6b95b (MIT); `llm_serving/` from
ai-dynamo/aiconfigurator, commit 095f58a5 (Apache-2.0); `kernel_hub/` from AutoTuningAssociation/benchmark_hub, commit
8eeb99e7 (MIT). They were turned into arrays, which those repositories do not hold.
`rasp bench public --data DIR --download URL` fetches them from somebody who has them, and checks their checksums.
Nothing of them is part of this repository.

## Again

Seeds so far: {counts}. Finished runs are kept under `--out`, and the same command goes on.
[peers.csv](results/public/peers.csv) keeps what peers came to; only ours runs again when the engine changes.
"""


def _targets(value: Lines) -> str:
    """What was wanted, by whether it was reached."""
    reached: dict[bool, list[str]] = {False: [], True: []}

    def known(*key: str) -> float | None:
        line = value.get((key[0], key[1], key[2]))
        return None if line is None else line.value

    def note(words: str, own: float | None, bound: float | None, better: Callable[[float, float], bool] = le) -> None:
        if own is not None and bound is not None:
            reached[better(own, bound)].append(f"{words} ({own:.3f}, wanted {bound:.3f})")

    note("search", known(ALL, AT_THE_END, OURS), WANTED_SEARCH)
    for measure, words in ((AT_THE_END, "search"), (FROM_SECOND, "after 20")):
        pairs = [(known(name, measure, OURS), known(name, measure, "random")) for name in SYSTEMS]
        ahead = [own < other for own, other in pairs if own is not None and other is not None]
        if ahead:
            reached[all(ahead)].append(f"{words}, ahead of random rows on all systems ({sum(ahead)} of {len(ahead)})")
    for name in ("SQLite queries", "poppler"):
        fixed = known(name, ONCE, "best fixed")
        note(name, known(name, ONCE, OURS), None if fixed is None else fixed + WITHIN)
    for objective in serving.OBJECTIVES:
        looks = looks_of(objective, WANTED_LOOKS)
        note(f"LLM serving, {looks}", known(ALL, looks, OURS), WANTED_RATIO)
    note("GPU kernel", known(ALL, SCORE, OURS), known(ALL, SCORE, kernels.TUNED), gt)
    note("sixth GPU", known(ALL, SCORE, LATER), known(ALL, SCORE, OURS), gt)
    said = {False: "Targets missed", True: "Targets met"}
    return "\n\n".join(f"{words}: {'; '.join(reached[yes])}." for yes, words in said.items() if reached[yes])


def _later() -> str:
    return f'; "{LATER}" has made {kernels.BEFORE} evaluations on each\nof the other five before'


def _losses(value: Lines) -> list[str]:
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
        fixed, lines = (
            value.get((name, ONCE, "best fixed")),
            [value.get((name, ONCE, agent)) for agent in (OURS, PROBED)],
        )
        over = [f"{x.agent} {x.value:.3f}" for x in lines if x and fixed and x.value > fixed.value + WITHIN]
        if over and fixed:
            found.append(f"- {name}: {', '.join(over)}, best fixed {fixed.value:.3f}.")
    return found + _serving_losses(value) + _kernel_losses(value)


def _serving_losses(value: Lines) -> list[str]:
    found = []
    for measure in [looks_of(objective, n) for objective in serving.OBJECTIVES for n in serving.LOOKS]:
        known = {agent: value[ALL, measure, agent].value for agent in serving.AGENTS if (ALL, measure, agent) in value}
        best = min(known, key=known.__getitem__, default=OURS)
        behind = f" against {best}'s {known[best]:.2f}" if best != OURS else ""
        if OURS in known and behind:
            found.append(f"{measure}: {known[OURS]:.2f}{behind}")
    return [f"- LLM serving, {'; '.join(found)}."] if found else []


def _kernel_losses(value: Lines) -> list[str]:
    behind, later_behind = [], []
    for name in (*kernels.GPUS, ALL):
        ours, later = value.get((name, SCORE, OURS)), value.get((name, SCORE, LATER))
        others = {agent: value.get((name, SCORE, agent)) for agent in kernels.STRATEGIES}
        known = {agent: line.value for agent, line in others.items() if line is not None}
        if ours and known and ours.value <= max(known.values()):
            best = max(known, key=known.__getitem__)
            behind.append(f"{name} ({ours.value:.2f} against {known[best]:.2f}, {best})")
        if ours and later and later.value <= ours.value:
            later_behind.append(f"{name} ({later.value:.2f} against {ours.value:.2f})")
    found = [f"- GPU kernel, behind the best of Kernel Tuner's: {', '.join(behind)}."] if behind else []
    if later_behind:
        found.append(f"- GPU kernel, after five other GPUs not better than at first: {', '.join(later_behind)}.")
    return found


def _shown(line: Line | None) -> str:
    if line is None:
        return ""
    has_error = line.error is not None and line.set == ALL and line.agent.startswith(OURS)
    return f"{line.value:.3f}" + (f" ± {line.error:.3f}" if has_error else "")
