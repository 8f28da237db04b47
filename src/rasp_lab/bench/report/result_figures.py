"""The figures of docs/RESULTS.md: tables of text and a few facts, from runs or from the files beside the page.

layout   FOLDER/<name>.csv   one table each
         FOLDER/facts.json   seeds, versions, and what the runs say in words
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from rasp_lab.bench.analysis.metrics import Runs
from rasp_lab.bench.analysis.verdicts import losses, summaries
from rasp_lab.bench.domains import BEYOND, PAPER, STREAMS
from rasp_lab.bench.domains.worlds import is_world
from rasp_lab.bench.report import paper_tables, tables, world_tables
from rasp_lab.bench.runner import suites, timing
from rasp_lab.pages import csv_tables
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole
from rasp_tuner.page.html_page import Table

DOMAINS = (*PAPER, *BEYOND)
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
    "adaptation": f"median step of adaptation, and on how many seeds, T = {SHORT}",
    "streams": "tabular streams, every agent",
    "streams-paper": "the same beside the paper's figures",
    "worlds-shares": "random worlds: loss, and runs that are stuck",
    "worlds-costs": "W_Near and W_Scales: cost / the default's",
    "worlds-ratios": "random worlds: regret relative to `static`",
    "claims": "every claim of the paper with what was measured",
    "step-time-domain": f"milliseconds of a step on {timing.DOMAIN}",
    "step-time-stream": f"milliseconds of a step on {timing.STREAM}",
    "calibration": "forecasts: negative log-likelihood (NLL) and coverage",
    "memory": "growth of the heap",
}


@dataclass(frozen=True)
class Facts:
    """What the page says besides tables."""

    seeds: int
    versions: str
    losses: Sequence[str]
    summaries: Sequence[str]
    runs: int = 0
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Figures:
    """Everything on the page."""

    facts: Facts
    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Table:
        """A table, without rows if it was not measured."""
        return self.tables.get(name, NONE)


def collected(
    runs: Sequence[Runs],
    seeds: int,
    planned: int,
    missing: Sequence[str],
    heap: Sequence[tuple[str, Table]] = (),
    times: Mapping[str, Mapping[str, timing.StepTimes]] | None = None,
) -> Figures:
    """The figures of runs; `heap` and `times` are measured apart. `missing` names planned runs that are not there."""
    here = [r for r in runs if not is_world(r.domain)]
    found = {"streams": tables.stream_table(here, SHORT), "streams-paper": paper_tables.streams_table(here, SHORT)}
    for horizon in (SHORT, LONG):
        if any(r.horizon == horizon for r in here):
            found[f"ratios-{horizon}"] = tables.ratio_table(here, horizon, DOMAINS)
            found[f"regret-{horizon}"] = tables.interval_table(here, horizon, DOMAINS)
            found[f"best-peer-{horizon}"] = best_peers(here, horizon)
    found["second-half"] = tables.second_half_table(here, LONG)
    if any(r.horizon == SHORT for r in here):
        found["adaptation"] = tables.adaptation_table(here, SHORT, (*DOMAINS, *STREAMS))
    found |= world_figures(runs)
    found["claims"] = tables.claims_table(here, times or {})
    for name, domain in (("step-time-domain", timing.DOMAIN), ("step-time-stream", timing.STREAM)):
        if domain in (times or {}):
            found[name] = tables.timing_table((times or {})[domain])
    found["calibration"] = tables.calibration_table(here)
    if heap:
        found["memory"] = heap[0][1]
    facts = Facts(seeds, versions(), losses(here), summaries(here), planned, missing)
    return Figures(facts, {name: found[name] for name in FILES if name in found and found[name][1]})


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
    write_whole(folder / "facts.json", (json.dumps(asdict(figures.facts), indent=1) + "\n").encode())


def load(folder: Path) -> Figures:
    """What `save` wrote."""
    if not (folder / "facts.json").is_file():
        raise InvalidValue(f"{folder} must hold the tables of a page of results, got no facts.json")
    facts = Facts(**json.loads((folder / "facts.json").read_text()))
    files = {name: folder / f"{name}.csv" for name in FILES}
    return Figures(facts, {name: csv_tables.read(file) for name, file in files.items() if file.is_file()})


def versions() -> str:
    """What the agents are made of, as far as it is installed."""
    found = {distribution.name.lower(): distribution.version for distribution in distributions()}
    return ", ".join(f"{name} {found[name]}" for name in MADE_OF if name in found)
