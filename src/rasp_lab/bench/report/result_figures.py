"""The figures of docs/RESULTS.md: tables of text and a few facts, from runs or from the files beside the page.

layout   FOLDER/runs.csv     what is kept of each run
         FOLDER/<name>.csv   one table each
         FOLDER/facts.json   seeds, versions, and what the runs say in words
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from statistics import mean, median

from rasp_lab.bench.analysis.kept_runs import FORECASTS, KeptRun, as_runs
from rasp_lab.bench.analysis.metrics import Runs, geometric_means
from rasp_lab.bench.analysis.verdicts import losses, summaries
from rasp_lab.bench.domains import BEYOND, PAPER
from rasp_lab.bench.domains.worlds import is_world
from rasp_lab.bench.report import paper_tables, tables, world_tables
from rasp_lab.bench.runner import suites, timing
from rasp_lab.pages import csv_tables
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole
from rasp_tuner.page.html_page import Table

DOMAINS = (*PAPER, *BEYOND)
FRESH_SEEDS = (101, 103, 105, 107, 109)  # no constant was chosen on them: ours and the default alone run there
FACTS = "facts.json"
PRINTED = "printed by"  # how `made_by` begins of rows that are means of an earlier page
SHORT, LONG = suites.SHORT, suites.LONG
MADE_OF = ("numpy", "scipy", "torch", "cmaes", "optuna", "botorch", "gpytorch", "vowpalwabbit")
NONE: Table = ([], [])

# What each file has, in the order of the page's list. A file that is not there was not measured.
FILES = {
    f"ratios-{SHORT}": f"regret relative to `static`, T = {SHORT}",
    f"ratios-{LONG}": f"the same, T = {LONG:,}",
    f"regret-{SHORT}": f"regret with its 95% interval, T = {SHORT}",
    f"regret-{LONG}": f"the same, T = {LONG:,}",
    f"best-peer-{SHORT}": f"against each domain's best peer, paired t-test with Holm's correction, T = {SHORT}",
    f"best-peer-{LONG}": f"the same, T = {LONG:,}",
    "second-half": f"regret of the second half of {LONG:,} steps / the first, where regimes return",
    "streams": "tabular streams, every agent",
    "streams-paper": "the same beside the paper's figures",
    "worlds-shares": "random worlds: loss, and runs that are stuck",
    "worlds-costs": "W_Near and W_Scales: cost / the default's",
    "worlds-ratios": "random worlds: regret relative to `static`",
    "step-time-domain": f"milliseconds of a step on {timing.DOMAIN}",
    "step-time-stream": f"milliseconds of a step on {timing.STREAM}",
    "calibration": "forecasts: negative log-likelihood (NLL; of the median run) and coverage",
}
MEASURED_APART = ("step-time-domain", "step-time-stream")


@dataclass(frozen=True)
class Facts:
    """What the page says besides tables."""

    seeds: int
    versions: str
    losses: Sequence[str]
    summaries: Sequence[str]
    fresh: float | None = None  # regret of ours relative to `static` on FRESH_SEEDS, nine domains
    runs: int = 0
    missing: Sequence[str] = ()
    printed: int = 0  # rows that are what an earlier page printed


@dataclass(frozen=True)
class Figures:
    """Everything on the page."""

    facts: Facts
    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Table:
        """A table, without rows if it was not measured."""
        return self.tables.get(name, NONE)


def collected(
    rows: Sequence[KeptRun],
    seeds: int,
    planned: int,
    missing: Sequence[str],
    times: Mapping[str, Mapping[str, timing.StepTimes]] | None = None,
) -> Figures:
    """The figures of runs; `times` are measured apart. `missing` names planned runs that are not there."""
    usual = [row for row in rows if row.seed not in FRESH_SEEDS]
    runs = as_runs(usual)
    here = [r for r in runs if not is_world(r.domain)]
    found = {"streams": tables.stream_table(here, SHORT), "streams-paper": paper_tables.streams_table(here, SHORT)}
    for horizon in (SHORT, LONG):
        if any(r.horizon == horizon for r in here):
            found[f"ratios-{horizon}"] = tables.ratio_table(here, horizon, DOMAINS)
            found[f"regret-{horizon}"] = tables.interval_table(here, horizon, DOMAINS)
            found[f"best-peer-{horizon}"] = best_peers(here, horizon)
    found["second-half"] = tables.second_half_table(here, LONG)
    found |= world_figures(runs)
    for name, domain in (("step-time-domain", timing.DOMAIN), ("step-time-stream", timing.STREAM)):
        if domain in (times or {}):
            found[name] = tables.timing_table((times or {})[domain])
    found["calibration"] = calibration(usual)
    printed = sum(row.made_by.startswith(PRINTED) for row in usual)
    elsewhere = geometric_means(as_runs([row for row in rows if row.seed in FRESH_SEEDS]), SHORT).get("rasp")
    facts = Facts(seeds, versions(), losses(here), summaries(here), elsewhere, planned, missing, printed)
    return Figures(facts, {name: found[name] for name in FILES if name in found and found[name][1]})


def calibration(rows: Sequence[KeptRun]) -> Table:
    """Agents that forecast the composed error, worlds left out: NLL of the median run, mean coverage."""
    made = []
    for horizon, agent in sorted({(row.horizon, row.agent) for row in rows if not is_world(row.domain)}):
        own = [row for row in rows if (row.horizon, row.agent) == (horizon, agent) and not is_world(row.domain)]
        said = [[getattr(row, name) for name in FORECASTS] for row in own if row.nll == row.nll]
        if said:
            nll, half, most = (median(each) if i == 0 else mean(each) for i, each in enumerate(zip(*said, strict=True)))
            made.append([agent, f"{horizon:,}", tables.number(nll), f"{100 * half:.0f}%", f"{100 * most:.0f}%"])
    return ["agent", "T", "NLL", "inside 50%", "inside 90%"], made


def world_figures(runs: Sequence[Runs]) -> dict[str, Table]:
    """The tables of random worlds."""
    here = world_tables.worlds_of(runs)
    found = {
        "worlds-shares": world_tables.share_table(here),
        "worlds-costs": world_tables.cost_table(here),
        "worlds-ratios": world_tables.ratio_table(here),
    }
    return {name: table for name, table in found.items() if table[1]}


def best_peers(runs: Sequence[Runs], horizon: int) -> Table:
    """Ours against the best peer of each domain, both presets in one table."""
    rows = []
    for agent in ("rasp", "rasp-paper"):
        rows += [[agent, *row] for row in tables.best_peer_table(runs, horizon, agent)[1]]
    return ["agent", "domain", "best peer", "regret", "of the peer", "it is", "seeds", "p", "p (Holm)"], rows


def save(figures: Figures, folder: Path) -> None:
    """Write the files; those of tables that were not measured are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if name in figures.tables:
            csv_tables.write(folder / f"{name}.csv", figures.tables[name])
        else:
            (folder / f"{name}.csv").unlink(missing_ok=True)
    write_whole(folder / FACTS, (json.dumps(asdict(figures.facts), indent=1) + "\n").encode())


def load(folder: Path) -> Figures:
    """What `save` wrote."""
    if not (folder / FACTS).is_file():
        raise InvalidValue(f"{folder} must hold the tables of a page of results, got no facts.json")
    facts = Facts(**json.loads((folder / FACTS).read_text()))
    files = {name: folder / f"{name}.csv" for name in FILES}
    return Figures(facts, {name: csv_tables.read(file) for name, file in files.items() if file.is_file()})


def versions() -> str:
    """What the agents are made of, as far as it is installed."""
    found = {distribution.name.lower(): distribution.version for distribution in distributions()}
    return ", ".join(f"{name} {found[name]}" for name in MADE_OF if name in found)
