"""docs/ABLATIONS.md: every sentence and every number of it is made here."""

from collections.abc import Sequence

from rasp_lab.ablations import tables
from rasp_lab.ablations.conditions import Condition
from rasp_lab.ablations.tables import LEVEL, Plan, markdown

OPENING = """\
# Ablations

A reference, for people who change the engine or doubt it: what each part of it is worth.
[ENGINE.md](ENGINE.md) says what the parts are, [BENCHMARKS.md](BENCHMARKS.md) what the domains are.

How to read it. Each row takes one part away, or changes one choice, and runs everything again. "Regret relative to
static" is the geometric mean over the worlds of that table: below one beats a default that never changes. "Difference
in log" is the logarithm of the regret with the change over that of the full engine: +0.10 means about 10% more regret
without the part. It is paired by seed. The number after +- is its standard error over seeds: each world has its own
variance over seeds, and these are pooled, so that the error is about these worlds and not about others. "Helps" means
that the engine as it is has less regret than with the change, "hurts" that it has more, both by a t-test at 5%.
Everything else is "no difference beyond luck", which is no proof of none: with few seeds small effects stay hidden.

Each row is tested by itself. Of the {rows} rows below, about {lucky} would be called "helps" or "hurts" by luck alone
if no part did anything. So doubt a lone surprise near twice its error, and run other seeds (`--first-seed`) before
changing the engine because of it. Harder worlds are tried with fewer parts.

One command wrote this page: `{command}` ({seeds}, T = {horizon}).
"""

LIMITS = """\
## What this page cannot show

- Parts that stand in for each other look useless one at a time.
- Parts that matter late (a full memory, looks that become rare) cannot show within {horizon} steps.
- The constants of the engine were chosen on the quiet synthetic domains. Expect less elsewhere.
- Streams and tables come from three data sets only, and all tune the same regressor.

Before this code was written, a prototype was tried with other designs, which no command here repeats: a curvature for
each expert by maximum likelihood (it grew without bound under misfit), a squashed target, clipping by median
deviations, a Matérn process on top of the quadratic, wide perturbations, and top-1 gating. None helped. Neither did six
trained multilayer perceptrons.
"""


def page(plan: Plan, conditions: Sequence[Condition], command: str, only: str = "") -> str:
    """The whole page, in Markdown."""
    tables.warm_up(plan, conditions, only)
    found = {condition.title: tables.ablations(plan, condition, only) for condition in conditions}
    rows = sum(len(table) - 2 for table in found.values())  # without the header and the full engine
    parts = [
        OPENING.format(
            command=command, seeds=seeds_in_words(plan), horizon=plan.horizon, rows=rows, lucky=round(LEVEL * rows)
        ),
        summary(found),
        *(
            f"## {condition.title}\n\n{condition.about}\n\n{markdown(found[condition.title])}\n"
            for condition in conditions
        ),
        *others(plan),
        LIMITS.format(horizon=plan.horizon),
    ]
    return "\n".join(parts)


def summary(found: dict[str, tables.Table]) -> str:
    """Which changes make a difference under which condition."""
    rows = [["condition", "full engine", "helps", "hurts", "no difference beyond luck"]]
    for title, (_, full, *changed) in found.items():
        verdicts = [row[3] for row in changed]
        counts = [verdicts.count("helps"), verdicts.count("hurts")]
        rows.append([title, full[1], *map(str, counts), str(len(verdicts) - sum(counts))])
    return f"## How many parts make a difference\n\n{markdown(rows)}\n"


def others(plan: Plan) -> list[str]:
    """Sections about the engine as it is."""
    nine = 'Here "geometric mean" is over the nine synthetic domains of the paper.'
    sections = [
        ("Harder conditions", nine, "--robust", tables.robust(plan)),
        (
            "Switching cost",
            'The cost of a change is a multiple of the default\'s mean regret of one step. "Told of it" means that'
            " `switching_cost=` was set.",
            "--switching",
            tables.switching(plan),
        ),
        ("Guard", nine, "--guard", tables.guard(plan)),
        ("Tabular streams", "[STREAMS.md](STREAMS.md) describes them.", "--streams", tables.streams(plan)),
        ("Which expert leads", "With each seed, the expert that has most weight.", "--leaders", tables.leaders(plan)),
    ]
    return [
        f"## {title}\n\n{about}\n\n`python -m rasp_lab.ablations {flag}`\n\n{markdown(table)}\n"
        for title, about, flag, table in sections
    ]


def seeds_in_words(plan: Plan) -> str:
    seeds = plan.seeds
    return f"seed {seeds[0]} alone" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}"
