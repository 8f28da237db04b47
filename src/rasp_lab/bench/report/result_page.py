"""docs/RESULTS.md in Markdown, from its figures: at most 1,500 words, the long tables are CSV files beside it."""

from rasp_lab.bench.analysis.verdicts import NO_LOSS
from rasp_lab.bench.report.result_figures import FILES, FRESH_SEEDS, LONG, SHORT, Figures
from rasp_lab.bench.report.tables import MEAN, markdown, number, transposed
from rasp_lab.bench.runner import suites, timing
from rasp_tuner.page.html_page import Table

FOLDER = "results/benchmark"  # of the tables, beside the page
SHOWN = ("rasp", "botorch", "warm-cma-es", "rasp-paper")  # domain by domain
IN_FILES_ONLY = (
    "gp-ucb-0.5",
    "gp-ucb-1",
    "rasp-paper-mlp",
    "rasp-paper-no-memory",
)  # variants of others
MISSING = "Missing: not measured yet."
MAX_MISSING = 12  # lines; facts.json has all


def page(figures: Figures, head: str) -> str:
    """The page; `head` says which engine the figures are of."""
    facts = figures.facts
    parts = [
        "# Results",
        head,
        f"A reference, written by `make results` (`rasp results --seeds {facts.seeds}`) beside {facts.versions}."
        " [BENCHMARKS.md](BENCHMARKS.md) describes domains and agents. Regret is the true loss minus the least loss"
        " possible at that step, added up over T steps. All ratios are relative to `static`, which never changes"
        " anything: **below one beats doing nothing.** `rasp` is this library's default, `rasp-paper` the paper's"
        " algorithm as we read it ([its claims](PAPER.md)). `ra-gd` is an oracle that is shown the truth; it is no"
        " competitor.",
        f"Seeds 0 to {facts.seeds - 1} here, and odd ones of worlds. Constants of the engine were chosen on even"
        f" seeds.{_fresh(figures)} Only our agents run again after a change of the engine."
        f" [runs.csv]({FOLDER}/runs.csv) keeps each run, with what made it.{_printed(figures)}",
        "Geometric means over the paper's nine domains and over random worlds, and the median step in milliseconds:",
        markdown(overview(figures)),
        f"GP-UCB, TuRBO and BoTorch are slow: at T = {LONG:,} they ran on {suites.SLOW_SEEDS} seed.",
        "## Where it loses",
        "\n".join(f"- {line}" for line in facts.losses or [NO_LOSS]),
        "## The paper's nine domains",
        "\n".join(f"- {line}" for line in facts.summaries if ": rasp " in line) or MISSING,
        f"Domain by domain at T = {SHORT}; in brackets the regret itself, where the default is already optimal:",
        _markdown(by_domain(figures[f"ratios-{SHORT}"])),
    ]
    if facts.missing:
        shown = facts.missing[:MAX_MISSING]
        more = len(facts.missing) - len(shown)
        parts += ["## Missing", "These runs were not finished when the page was written:"]
        parts.append("\n".join(f"- {line}" for line in shown) + (f"\n- {more} more: facts.json" if more else ""))
    parts += [*_streams(figures), *_worlds(figures), *_beside(figures), *_files(figures)]
    return "\n\n".join(parts) + "\n"


def _printed(figures: Figures) -> str:
    said = f' {figures.facts.printed} of its rows, "printed by", are what an earlier page printed of peers.'
    return said if figures.facts.printed else ""


def _fresh(figures: Figures) -> str:
    if figures.facts.fresh is None:
        return ""
    seeds = f"{FRESH_SEEDS[0]}, {FRESH_SEEDS[1]} ... {FRESH_SEEDS[-1]}"
    return (
        f" On seeds {seeds}, which nothing was chosen on, `rasp` has {number(figures.facts.fresh)} times the regret of"
        f" `static` (nine domains, T = {SHORT})."
    )


def overview(figures: Figures) -> Table:
    """One row an agent, the least mean first: both horizons, random worlds, step time."""
    columns = {
        f"T = {SHORT}": _column(figures[f"ratios-{SHORT}"], MEAN),
        f"T = {LONG:,}": _column(figures[f"ratios-{LONG}"], MEAN),
        "worlds": _column(figures["worlds-ratios"], MEAN),
        "ms": _column(figures["step-time-domain"], "median ms"),
    }
    found = dict.fromkeys(agent for column in columns.values() for agent in column)
    agents = [agent for agent in found if agent not in IN_FILES_ONLY]
    return ["agent", *columns], [[a, *(column.get(a, "-") for column in columns.values())] for a in agents]


def by_domain(ratios: Table) -> Table:
    """Domains as rows, a few agents as columns."""
    head, rows = ratios
    shown = [row for agent in SHOWN for row in rows if row[0] == agent]
    if not shown:
        return [], []
    kept = [i for i, name in enumerate(head) if name not in (MEAN, "seeds")]
    return transposed(([head[i] for i in kept], [[row[i] for i in kept] for row in shown]), "domain")


def _streams(figures: Figures) -> list[str]:
    parts = ["## Tabular streams"]
    head, rows = figures["streams-paper"]
    if not rows:
        return [*parts, MISSING]
    whose = list(dict.fromkeys(row[1] for row in rows))
    saved = {(row[0], row[1]): row[head.index("improvement")] for row in rows}
    streams = dict.fromkeys(row[0] for row in rows)
    table = ["stream", *whose], [[name, *(saved.get((name, who), "-") for who in whose)] for name in streams]
    return [
        *parts,
        "Regret saved against the best of the paper's peers (CMA-ES, GP-UCB, random search). The paper does not give"
        " its windows, grid and loss scale. [STREAMS.md](STREAMS.md) describes the streams.",
        markdown(table),
    ]


def _worlds(figures: Figures) -> list[str]:
    parts = ["## Random worlds"]
    head, rows = figures["worlds-shares"]
    costs = {row[0]: row[1:] for row in figures["worlds-costs"][1]}
    if not rows and not costs:
        return [*parts, MISSING]
    parts.append(
        "[BENCHMARKS.md](BENCHMARKS.md#random-worlds) describes the kinds; **odd seeds only**, since even ones choose"
        " constants."
    )
    if rows:
        shown = [row for row in rows if row[0] in ("rasp", "tpe", "static")]
        parts += [
            "Loss as a share of (median - best): whole run, and its last steps in brackets.",
            markdown(transposed((head, shown or rows), "kind")),
        ]
    if "rasp" in costs:
        near, within, cheap, dear, *_ = costs["rasp"]
        parts.append(
            f"Where the default is nearly optimal (W_Near) `rasp` costs {near} of it, and stays within the margin in"
            f" {within} worlds. Where two workloads differ a thousandfold (W_Scales) it costs {cheap} of the default in"
            f" the cheap one and {dear} in the dear one."
        )
    return parts


def _beside(figures: Figures) -> list[str]:
    """What is measured beside regret."""
    head, rows = figures["calibration"]
    own = [row for row in rows if row[0] == "rasp"] or rows
    parts = ["## Calibration", markdown((head, own)) if own else MISSING, "## Step time"]
    times = [row for row in figures["step-time-stream"][1] if row[0] in ("rasp", "gp-ucb")]
    if figures["step-time-domain"][1]:
        parts.append(
            f"Milliseconds of a processor for `ask` + `tell` over {timing.STEPS} steps are in the first table; an agent"
            f" that needs {timing.BUDGET_S:g} s stops there. Agents ran in one process, in turns of"
            f" {timing.TURN_STEPS} steps."
        )
        if len(times) > 1:
            parts.append(f"On the stream {timing.STREAM}: {', '.join(f'`{row[0]}` {row[2]}' for row in times)}.")
    else:
        parts.append(MISSING)
    return parts


def _files(figures: Figures) -> list[str]:
    lines = [f"- [{name}]({FOLDER}/{name}.csv): {what}" for name, what in FILES.items() if name in figures.tables]
    return ["## All tables", "\n".join(lines)]


def _column(table: Table, name: str) -> dict[str, str]:
    head, rows = table
    return {row[0]: row[head.index(name)] for row in rows} if name in head else {}


def _markdown(table: Table) -> str:
    return markdown(table) if table[1] else MISSING
