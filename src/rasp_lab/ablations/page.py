"""docs/ABLATIONS.md: every sentence and every number of it is made here, from tables that are kept beside it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.ablations import tables
from rasp_lab.ablations.conditions import CONDITIONS, Condition
from rasp_lab.ablations.parts import FAMILIES, FULL
from rasp_lab.ablations.tables import LEVEL, Plan, Table, markdown
from rasp_lab.pages import csv_tables, origin

FOLDER = "results/ablations"  # of the tables, beside the page
EFFECTS = "effects"
FOUND = ("helps", "hurts")
OTHERS = {  # file: title, what to know of it
    "harder": ("Harder conditions", "Regret relative to static; the geometric mean is over the paper's nine domains."),
    "guard": ("Guard", "`guard=0.1` limits how much worse than the default a step may be expected to be."),
    "streams": ("Tabular streams", "Regret relative to static. [STREAMS.md](STREAMS.md) describes them."),
    "switching": ("Switching cost", "What `switching_cost=` saves where every change of settings costs something"),
    "leaders": ("Which expert leads", "The expert with most weight on each domain, and from which step on"),
}
LONG = ("switching", "leaders")  # in their files alone

OPENING = """\
A reference, for people who change the engine or doubt it: what each part of it is worth.
[ENGINE.md](ENGINE.md) says what the parts are, [BENCHMARKS.md](BENCHMARKS.md) what the domains are.

Each row takes one part away, or changes one choice, and runs everything again. The number is the logarithm of the
regret with the change over that of the full engine: +0.10 means about 10% more regret without the part. It is paired
by seed; after +- stands its standard error. Only effects beyond luck are shown (a t-test at {level:.0%}): a plus means
that the part helps, a minus that it hurts. [effects.csv]({folder}/effects.csv) has all rows. "No difference beyond
luck" there is no proof of none: with few seeds small effects stay hidden. Of {rows} rows, about {lucky} would be shown
by luck alone.

`{command}` ran this ({seeds}, T = {horizon}).{gone}
"""

LIMITS = """\
## What this page cannot show

- Parts that stand in for each other look useless one at a time.
- Parts that matter late (a full memory, looks that become rare) cannot show within {horizon} steps.
- The constants of the engine were chosen on the quiet synthetic domains. Expect less elsewhere.
"""


@dataclass(frozen=True)
class Facts:
    """How the tables were made."""

    command: str
    seeds: str
    horizon: int


def measure(plan: Plan, conditions: Sequence[Condition], command: str, folder: Path, only: str = "") -> None:
    """Run everything and keep the tables in the folder."""
    tables.warm_up(plan, conditions, only)
    head, rows = ["condition", "part", "regret relative to static", "difference in log", "verdict"], []
    for condition in conditions:
        rows += [[condition.title, *row] for row in tables.ablations(plan, condition, only)[1:]]
    csv_tables.write(folder / f"{EFFECTS}.csv", (head, rows))
    made = {
        "harder": tables.robust(plan),
        "guard": tables.guard(plan),
        "streams": tables.streams(plan),
        "switching": tables.switching(plan),
        "leaders": tables.leaders(plan),
    }
    for name, (first, *rest) in made.items():
        csv_tables.write(folder / f"{name}.csv", (first, rest))
    facts = Facts(command, seeds_in_words(plan), plan.horizon)
    (folder / "facts.json").write_text(json.dumps(asdict(facts), indent=1) + "\n")


def write(target: Path, measured: bool) -> None:
    """Write the page from the tables beside it. The repository's own is recorded with the engine if it was measured."""
    line = origin.head_of([origin.origin_of()], origin.engine_hash())
    if target.resolve() == (REPOSITORY / "docs" / "ABLATIONS.md").resolve():
        if measured:
            origin.record(target.name, origin.origin_of())
        line = origin.head(target.name)
    target.write_text(page(target.parent / FOLDER, line))


def page(folder: Path, head: str) -> str:
    """The whole page, in Markdown."""
    facts = Facts(**json.loads((folder / "facts.json").read_text()))
    _, rows = csv_tables.read(folder / f"{EFFECTS}.csv")
    parts = {part for family in FAMILIES.values() for part in family}
    known = [row for row in rows if row[1] in parts]
    gone = len(rows) - len(known)
    effects = [row for row in known if row[1] != FULL]
    opening = OPENING.format(
        **asdict(facts),
        level=LEVEL,
        folder=FOLDER,
        rows=len(effects),
        lucky=round(LEVEL * len(effects)),
        gone=f" {gone} rows of parts that the engine no longer has are left out." if gone else "",
    )
    sections = ["# Ablations", head, opening.strip(), summary(known), difference(known)]
    for name, (title, about) in OTHERS.items():
        if name in LONG:
            sections.append(f"## {title}\n\n{about}: [{name}.csv]({FOLDER}/{name}.csv).")
        else:
            first, rest = csv_tables.read(folder / f"{name}.csv")
            sections.append(f"## {title}\n\n{about}\n\n{markdown([first, *rest])}")
    return "\n\n".join([*sections, LIMITS.format(horizon=facts.horizon).rstrip()]) + "\n"


def summary(rows: Sequence[Sequence[str]]) -> str:
    """How many parts make a difference under which condition."""
    table: Table = [["condition", "full engine", "helps", "hurts", "no difference beyond luck"]]
    for title in dict.fromkeys(row[0] for row in rows):
        here = [row for row in rows if row[0] == title]
        full = next((row[2] for row in here if row[1] == FULL), "-")
        verdicts = [row[4] for row in here if row[1] != FULL]
        counts = [verdicts.count(verdict) for verdict in FOUND]
        table.append([title, full, *map(str, counts), str(len(verdicts) - sum(counts))])
    left_out = [condition.title for condition in CONDITIONS if condition.title not in {row[0] for row in rows}]
    said = f"\n\nNot measured: {'; '.join(left_out)}." if left_out else ""
    return f"## How many parts make a difference\n\n{markdown(table)}{said}"


def difference(rows: Sequence[Sequence[str]]) -> str:
    """One row for each part that makes a difference somewhere, a column for each condition."""
    titles = list(dict.fromkeys(row[0] for row in rows))
    found = {(row[1], row[0]): row[3] for row in rows if row[4] in FOUND}
    parts = dict.fromkeys(part for part, _ in found)
    table = [["part", *titles], *([part, *(found.get((part, t), "") for t in titles)] for part in parts)]
    text = markdown(table) if parts else "None does."
    return f"## Parts that make a difference\n\n{text}"


def seeds_in_words(plan: Plan) -> str:
    seeds = plan.seeds
    return f"seed {seeds[0]} alone" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}"
