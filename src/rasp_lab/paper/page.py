"""The measured part of docs/PAPER.md: between two marks, written from tables; long ones are CSV files beside it."""

from collections.abc import Mapping
from pathlib import Path

from rasp_lab.bench.report.tables import markdown
from rasp_lab.pages import csv_tables, marked
from rasp_lab.paper.plan import CHOSEN_ON
from rasp_lab.paper.tables import FILES
from rasp_tuner.page.html_page import Table

FOLDER = "results/paper"  # of the tables, beside the page
REPAIRED, CHOSEN = "### Repaired", " Its changes were chosen on"
START = "<!-- measured: make paper -->"


def write(found: Mapping[str, Table], verdict: str, page: Path) -> None:
    """Write the tables into FOLDER beside the page, and its measured part; without a verdict, that of before stays."""
    empty = f"# The paper, measured\n\n{START}\n{marked.END}\n"
    verdict = verdict or marked.read(page, START, empty).measured.partition(f"{REPAIRED}\n\n")[2].partition(CHOSEN)[0]
    for name, table in found.items():
        csv_tables.write(page.parent / FOLDER / f"{name}.csv", table)
    marked.write(page, START, part(found, verdict), empty)


def part(found: Mapping[str, Table], verdict: str) -> str:
    """The text between the marks."""
    chosen = ", ".join(domain[0] for domain in CHOSEN_ON)
    said = {
        "readings": (
            "### Readings",
            "Regret of 100 steps on the nine domains relative to `static` (geometric mean ± standard error over seeds),"
            " and on how many of the nine a reading has less regret than the better of CMA-ES and GP-UCB:",
        ),
        "bridge": (
            "### From `paper` to `default`",
            "Each row has what the rows above it have. The effect is relative to the row above:",
        ),
    }
    parts = [f"{title}\n\n{words}\n\n{markdown(found[name])}" for name, (title, words) in said.items() if name in found]
    if "repaired" in found:
        parts += [REPAIRED, f"{verdict}{CHOSEN} domains {chosen} and even seeds."]
    if "claims" in found:
        parts += ["### Claims", claims(found["claims"])]
    files = ", ".join(f"[{name}.csv]({FOLDER}/{name}.csv) ({what})" for name, what in FILES.items() if name in found)
    return "\n\n".join([*parts, f"Tables: {files}. `out/paper/report.html` has Figures 2 to 5."])


def claims(table: Table) -> str:
    """How many of the paper's claims hold, agent by agent."""
    head, rows = table
    verdicts: dict[str, list[str]] = {}
    for row in rows:
        if row[head.index("verdict")] != "not measured" and row[head.index("where")] != "not in the paper":
            verdicts.setdefault(row[head.index("agent")], []).append(row[head.index("verdict")])
    counts = [
        f"{sum(verdict.startswith('holds') for verdict in own)} of {len(own)} hold for `{agent}`"
        for agent, own in verdicts.items()
        if len(own) > 1
    ]
    return f"Of what the paper claims in its text, Figures 2 to 5 and Table 4, {', '.join(counts)}."
