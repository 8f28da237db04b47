"""docs/REAL.md and its pictures, from the rows of runs. No number on the page is typed by hand."""

from collections.abc import Iterator, Mapping, Sequence
from inspect import getdoc
from pathlib import Path

from rasp_lab.pages import csv_tables
from rasp_lab.real import analysis
from rasp_lab.real.analysis import EARLY, Ratio, Runs, Summary, by_hand, by_kind, recommended, summaries, versus
from rasp_lab.real.harness import PAIRS, read, read_about
from rasp_lab.real.picture import NAMES, picture
from rasp_lab.real.systems import ON_GPU, SYSTEMS, load
from rasp_tuner.page.html_page import Table
from rasp_tuner.report.paired import Effect

OURS = "rasp-budget"
NOISE = "static-again"
MOST_EARLY = 1.05  # what the budget should keep in the first steps

Found = Mapping[str, Mapping[str, Summary]]  # of each system, of each agent

FOLDER = "results/real"  # of the tables, beside the page

HEAD = f"""\
*Reference: what tuning brings on programs that run here, against their shipped defaults. Made from the runs that
are checked in by `python -m rasp_lab.real page`; `make real` measures them again.*

Every step is one piece of work. All agents do it, one after another in random order, so that the machine's noise hits
all alike. A ratio is an agent's cost as times the default's on the same work: below one is better. It is the geometric
mean over all steps, with everything that exploring cost. Intervals are 95%, by a bootstrap of blocks of
{analysis.BLOCK} steps. Of the general tuners only RASP-Tuner sees the context. "Recommended" is what it
recommends in the end beside the default, on new work.
"""
BY_HAND_HEAD = """## To find this by hand

A person would try a grid before the run: each setting once on every kind of work, then always the best. "With the
search" spreads its cost over the steps.
"""
FOOT = f"""## All tables, and how to repeat them

- [agents.csv]({FOLDER}/agents.csv): every agent on every system. "First {EARLY}" is the ratio over the first {EARLY}
  steps, "worst run" the same of the run where it is worst. "Total time" is a ratio of sums. "Think" is the median
  processor time of one ask and one tell.
- [kinds.csv]({FOLDER}/kinds.csv): recommendation and default side by side on new work, {PAIRS} pairs for each kind of
  work and run, with a t interval of log ratios.
- [compiling.csv]({FOLDER}/compiling.csv): the time with compiling, as if every agent had to compile each program once.
- [machines.csv]({FOLDER}/machines.csv): versions, cores and load.
- `make real` needs PostgreSQL and Redis (Debian's packages `postgresql` and `redis-server`); what cannot run is left
  out and named. Stopped, it goes on. The raw runs are in `src/rasp_lab/real/runs`. The Triton kernels need a GPU,
  PyTorch and Triton: `python -m rasp_lab.real triton` measures them alone.
"""


def write(files: Mapping[str, Sequence[Path]], docs: Path, head: str) -> None:
    """The page, its tables, and one picture for each system beside it, from the files of runs of each system."""
    measured = {name: [read(file) for file in own] for name, own in files.items()}
    found = {name: {summary.agent: summary for summary in summaries(runs)} for name, runs in measured.items()}
    lines = ["# Real systems\n", f"{head}\n", HEAD, *_overview(measured, found), "", *_verdicts(measured, found), ""]
    lines += [*_by_hand(measured, found), ""]
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for name, runs in measured.items():
        (docs / "images" / f"real-{name}.svg").write_text(picture(runs, load(name).title))
    for name in SYSTEMS:
        lines += _system(name, name in measured)
    where = [[load(name).title, _measured([read_about(file) for file in own])] for name, own in files.items()]
    tables = {
        "agents": _agents(found),
        "kinds": _kinds(measured),
        "compiling": _compiling(found),
        "machines": (["system", "measured with"], where),
    }
    for table, made in tables.items():
        csv_tables.write(docs / FOLDER / f"{table}.csv", made)
    (docs / "REAL.md").write_text("\n".join([*lines, FOOT]))


def _overview(measured: Mapping[str, Runs], found: Found) -> Iterator[str]:
    yield "| system | runs x steps | RASP-Tuner | budget off | TPE | RASP-Tuner / TPE | recommended |"
    yield "|---|---|---|---|---|---|---|"
    for name, runs in measured.items():
        runs_count, steps = analysis.table(runs, OURS, "cost_ms").shape
        cells = [
            *(found[name][agent].overall for agent in (OURS, "rasp", "tpe")),
            versus(runs, OURS, "tpe"),
            _effect(recommended(runs, OURS)),
        ]
        title = load(name).title
        link = f"[{title}](#{title.lower().replace(' ', '-')})"
        yield f"| {link} | {runs_count} x {steps} | {_narrow(cells)} |"


def _by_hand(measured: Mapping[str, Runs], found: Found) -> Iterator[str]:
    """What a search by hand costs and finds."""
    searched = {name: hand for name, runs in measured.items() if (hand := by_hand(runs)) is not None}
    if searched:
        yield BY_HAND_HEAD
        yield "| system | settings | the search costs, steps | its best | with the search | RASP-Tuner |"
        yield "|---|---|---|---|---|---|"
    for name, hand in searched.items():
        cells = [hand.settings, f"{hand.steps:.0f}", hand.ratio, hand.with_search, found[name][OURS].overall]
        yield f"| {load(name).title} | {_narrow(cells)} |"


def _narrow(cells: Sequence[object]) -> str:
    """Cells of a wide table: intervals as 0.65-0.79."""
    return " | ".join(str(cell).replace(" to ", "-") for cell in cells)


def _verdicts(measured: Mapping[str, Runs], found: Found) -> Iterator[str]:
    """What was to be shown, and where it was not."""
    ours = {name: agents[OURS] for name, agents in found.items()}
    lower = {
        peer: {name: s.overall.value < found[name][peer].overall.value for name, s in ours.items()}
        for peer in ("tpe", "tpe-each")
    }
    surely = {name: versus(runs, OURS, "tpe").high < 1.0 for name, runs in measured.items()}
    yield _said("Below the default, interval below 1", {name: s.overall.high < 1.0 for name, s in ours.items()})
    yield _said("Recommendation below the default, interval below 1", {n: _below(runs) for n, runs in measured.items()})
    yield _said("Below TPE, which does not see the context", lower["tpe"])
    yield _said("The same, interval below 1", surely)
    yield _said(f"Below {NAMES['tpe-each']}", lower["tpe-each"])
    for agent, words in ((OURS, "on"), ("rasp", "off")):
        early = f"Budget {words}: at most {MOST_EARLY} in the first {EARLY} steps"
        kept = {name: agents[agent].early_worst.value <= MOST_EARLY for name, agents in found.items()}
        yield f"{_said(f'{early} of every single run', kept)} The highest: {_highest(found, agent):.2f}."
    noise = _highest(found, NOISE)
    yield f"- The default again, beside itself, in the first {EARLY} steps of a single run: up to {noise:.2f}."
    if left_out := [name for name in SYSTEMS if name not in measured]:
        yield f"- Not measured yet: {', '.join(load(name).title for name in left_out)}."


def _highest(found: Found, agent: str) -> float:
    """Of the first steps of any run of any system."""
    return max(agents[agent].early_worst.value for agents in found.values())


def _said(claim: str, holds: Mapping[str, bool]) -> str:
    missed = ", ".join(load(name).title for name, ok in holds.items() if not ok)
    return f"- {claim}: on {sum(holds.values())} of {len(holds)}{f'; not on {missed}' if missed else ''}."


def _below(runs: Runs) -> bool:
    found = recommended(runs, OURS)
    return found is not None and found.high < 1.0


def _system(name: str, measured: bool) -> Iterator[str]:
    system = load(name)
    yield f"## {system.title}\n\n{getdoc(system)}\n"
    if measured:
        yield f'<img src="images/real-{name}.svg" width="620" alt="{system.title}: total cost so far">\n'
    else:
        how = "triton" if name in ON_GPU else f"run --system {name}"
        yield f"Not measured yet: `python -m rasp_lab.real {how}`.\n"


def _agents(found: Found) -> Table:
    """One row a system and agent, the least cost first."""
    rows = []
    for name, agents in found.items():
        for s in sorted(agents.values(), key=lambda s: s.overall.value):
            cells = [s.overall, s.late, f"{s.total:.2f}", s.early, s.early_worst, s.failed, f"{s.think_ms:.1f}"]
            rows.append([load(name).title, NAMES[s.agent], *map(str, cells)])
    head = ["system", "agent", "ratio", "second half", "total time", f"first {EARLY}"]
    return [*head, "worst run", "failed runs", "think, ms"], rows


def _kinds(measured: Mapping[str, Runs]) -> Table:
    """The final comparison for each kind of work."""
    rows = []
    for name, runs in measured.items():
        again = by_kind(runs, NOISE)
        for kind, found in by_kind(runs, OURS).items():
            rows.append([load(name).title, kind, _effect(found), _effect(again.get(kind))])
    return ["system", "kind of work", "recommendation / default", "default / default"], rows


def _compiling(found: Found) -> Table:
    """What compiling adds, which the other table leaves out."""
    rows = []
    for name, agents in found.items():
        compiled = agents.values() if any(s.build_s for s in agents.values()) else []
        rows += [
            [load(name).title, NAMES[s.agent], f"{s.build_s:.1f}", f"{s.total_built:.2f}"]
            for s in sorted(compiled, key=lambda s: s.total_built)
        ]
    return ["system", "agent", "compiling, s a run", "total time with it"], rows


def _measured(abouts: Sequence[str]) -> str:
    """What was measured, and how busy the machine was when runs began.

    >>> _measured(["Toy 1, 2 cores, load 0.5 a core", "Toy 1, 2 cores, load 1.2 a core"])
    'Toy 1, 2 cores, load 0.5 to 1.2 a core'
    """
    what = dict.fromkeys(about.rpartition(", load ")[0] for about in abouts)
    loads = sorted(float(about.rpartition(", load ")[2].split()[0]) for about in abouts)
    return f"{'; '.join(what)}, load {loads[0]:.1f} to {loads[-1]:.1f} a core"


def _effect(found: Effect | None) -> str:
    return "not measured" if found is None else str(Ratio(found.value, found.low, found.high))
