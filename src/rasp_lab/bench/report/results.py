"""docs/RESULTS.md: every agent on every domain, written from the runs that are finished; no number is typed by hand."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from rasp_lab.bench.agents import AGENTS
from rasp_lab.bench.analysis import summary
from rasp_lab.bench.analysis.claim_checks import COMPARABLE, HANDFUL_STEPS
from rasp_lab.bench.analysis.metrics import ADAPT_SHARE, ADAPT_WINDOW, Runs, geometric_means, load
from rasp_lab.bench.analysis.verdicts import NO_LOSS, losses, summaries
from rasp_lab.bench.domains import BEYOND, PAPER, STREAMS, short_name
from rasp_lab.bench.domains.worlds import is_world
from rasp_lab.bench.report import html_report, tables, world_tables
from rasp_lab.bench.report.tables import markdown
from rasp_lab.bench.runner import memory_growth as memory
from rasp_lab.bench.runner import run, suites, timing
from rasp_lab.bench.runner.protocol import Cell
from rasp_tuner import __version__
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole
from rasp_tuner.page.html_page import Table

DOMAINS = (*PAPER, *BEYOND)
SHORT, LONG = suites.SHORT, suites.LONG
MADE_OF = ("numpy", "scipy", "torch", "cmaes", "optuna", "botorch", "gpytorch", "vowpalwabbit")
NO_FLOOR = (
    "`ra-gd` is no lower bound on 6_Smooth_Quadratic. There the optimum is drawn anew at every step, and the whole"
    " stream is one regime. A gradient step leads towards the optimum of the step before: the oracle is always one step"
    " late, and farther from the next optimum than the middle of the box is."
)
MEMORY_DOMAIN, MEMORY_STEPS = "H1_Recurring_Regimes", 1200  # beyond every window, RASP's ledger of 1,000 among them

HEAP = (
    f"Growth of the heap by tracemalloc over the last {memory.SPAN_STEPS} steps of {MEMORY_STEPS:,}: by then every"
    " window is full, the 200 points of the GPs, RASP's 200 slots and its ledger of 1,000 suggestions, and a bounded"
    f" agent shows about 0. An agent that has spent {memory.BUDGET_S:.0f} s of processor time stops at the next"
    f" {memory.LOOK_EVERY_STEPS} steps, but not before step {memory.MIN_STEPS}; the table says where it was measured."
)


def plan(seeds: int) -> list[Cell]:
    """Every run of the page, slow agents last."""
    cells = suites.cells("all", list(AGENTS), seeds) + plan_worlds(seeds)
    return sorted(cells, key=lambda cell: cell.agent in suites.SLOW)


def plan_worlds(seeds: int) -> list[Cell]:
    """The runs of the section of random worlds."""
    return [cell for cell in suites.world_cells(seeds) if cell.agent in AGENTS]


def write(cells: Sequence[Cell], out: Path, target: Path) -> Path:
    """From the finished ones of `cells` in DIR: steps.csv, summary.json, both reports, and the page at `target`."""
    done = [cell for cell in cells if run.is_finished(cell, out)]
    if not done:
        raise InvalidValue(f"{out / 'cells'} must hold finished runs of the plan, got none of {len(cells)}")
    runs = load(run.merge(done, out))
    write_whole(out / "summary.json", summary.to_json(summary.summarise(runs)).encode())
    web, _ = html_report.write(out, runs)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page(runs, cells, html_report.memory_tables(out), timing.load(out)).encode())
    return web


def write_worlds(cells: Sequence[Cell], out: Path, target: Path) -> None:
    """Replace the section of random worlds in the page at `target`, from the finished ones of `cells` in DIR.

    The rest of the page stays as it is, so its other runs are not needed.
    """
    done = [cell for cell in cells if run.is_finished(cell, out)]
    if not done:
        raise InvalidValue(f"{out / 'cells'} must hold finished runs of the plan, got none of {len(cells)}")
    if not target.is_file():
        raise InvalidValue(f"{target} must be a page of results, to replace a section of it")
    text = _worlds(load(run.merge(done, out)), cells)
    write_whole(target, world_tables.replace_section(target.read_text(), text).encode())


def page(
    runs: Sequence[Runs],
    cells: Sequence[Cell],
    heap: Sequence[tuple[str, Table]] = (),
    times: Mapping[str, Mapping[str, timing.StepTimes]] | None = None,
) -> str:
    """The page in Markdown; `cells` is the plan, of which some may have no runs yet."""
    missing, everything = _not_in(runs, cells), runs
    runs = [r for r in everything if not is_world(r.domain)]
    seeds = max((c.seed for c in cells if not is_world(c.domain)), default=0) + 1
    parts = [
        "# Results",
        f"Regret relative to `static`, which never changes anything, after {SHORT} steps: **below one beats doing"
        " nothing.** `rasp` is this library's default. `rasp-paper` is the paper's algorithm. `ra-gd` is an oracle that"
        " is shown the truth; it is no competitor.",
        _or_missing(tables.ratio_table(runs, SHORT, DOMAINS)),
        "In brackets: the regret itself, where `static` has none, since its default is already optimal.",
        "## Where it loses",
        "\n".join(f"- {line}" for line in losses(runs) or [NO_LOSS]),
        "## The paper's nine domains in words",
        "\n".join(f"- {line}" for line in summaries(runs)) or "Missing.",
        "## How to read this page",
        f"This page is a reference, written by `make bench` (`rasp results --seeds {seeds}`) with rasp-tuner"
        f" {__version__} beside {_versions()}. [BENCHMARKS.md](BENCHMARKS.md) describes domains and agents. Regret is"
        " the true loss minus the least loss possible at that step, added up over T steps. A ratio is the mean regret"
        " over seeds divided by that of `static`.",
    ]
    if missing:
        parts.append(f"**{len(missing):,} of {len(cells):,} runs are missing;** [the end](#missing) says which.")
    parts += [*_short(runs), *_long(runs, seeds), _worlds(everything, cells), *_beside(runs, times or {})]
    for title, table in heap:
        parts += [f"## {title}", HEAP, markdown(table)]
    if not heap:
        parts += ["## Memory growth", "Missing: not measured yet."]
    if missing:
        parts += ["## Missing", "These runs were not finished when the page was written:", _missing(missing, cells)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _short(runs: Sequence[Runs]) -> list[str]:
    parts = [f"## T = {SHORT}"]
    if not any(r.horizon == SHORT for r in runs):
        return [*parts, "Missing."]
    told = html_report.stream_tables(runs, SHORT)
    parts += [
        "The table of ratios opens this page." + _best_kappa(runs, SHORT),
        NO_FLOOR,
        *_intervals(runs, SHORT),
        "### Tabular streams",
        "[STREAMS.md](STREAMS.md) describes them.",
        *([part for words, table in told for part in (words, markdown(table))] or ["Missing."]),
        "### Against the best peer",
        "The best peer of a domain is the agent with the least mean regret there that is neither RASP nor the oracle:"
        " `static` and `random` count. Paired t-test over the seeds both ran, two-sided; Holm's correction over the"
        " domains.",
    ]
    return parts + _best_peers(runs, SHORT)


def _long(runs: Sequence[Runs], seeds: int) -> list[str]:
    parts = [
        f"## T = {LONG:,}",
        f"{_names(suites.SLOW)} need more than 50 ms a step and ran on {suites.SLOW_SEEDS} seed of {seeds}, related to"
        " `static` on the same seed." + _best_kappa(runs, LONG),
    ]
    if not any(r.horizon == LONG for r in runs):
        return [*parts, "Missing."]
    return [
        *parts,
        markdown(tables.ratio_table(runs, LONG, DOMAINS)),
        *_intervals(runs, LONG),
        f"### Against the best peer, T = {LONG:,}",
        'As above, over the seeds both ran. "-" for p: the two share one seed, since the peer is a slow one, and one'
        " seed has no spread to test against. Holm's correction is over the other domains.",
        *_best_peers(runs, LONG),
        "### Second half relative to the first",
        "Where regimes come back: regret of steps 501 to 1,000 divided by that of steps 1 to 500. The row of `static`"
        " shows how much the halves themselves differ.",
        _or_missing(tables.second_half_table(runs, LONG)),
    ]


def _worlds(runs: Sequence[Runs], cells: Sequence[Cell]) -> str:
    """The section of random worlds, which says itself what is missing of it."""
    text = world_tables.section(runs, suites.SLOW_WORLD_AGENTS, suites.SLOW_WORLDS)
    missing = _not_in(runs, [c for c in cells if is_world(c.domain)])
    return text + (f"\n\n{len(missing):,} runs on worlds are missing." if missing else "")


def _not_in(runs: Sequence[Runs], cells: Sequence[Cell]) -> list[Cell]:
    known = {(r.domain, r.agent, r.horizon, seed) for r in runs for seed in r.seeds}
    return [c for c in cells if (c.domain, c.agent, c.horizon, c.seed) not in known]


def _intervals(runs: Sequence[Runs], horizon: int) -> list[str]:
    """The regrets behind the ratios, folded: few need them, and they are wide."""
    title = f"Regret itself at T = {horizon:,}: mean with its 95% interval over seeds"
    table = tables.interval_table(runs, horizon, DOMAINS)
    return [f"<details><summary>{title}</summary>", _or_missing(table), "</details>"]


def _best_peers(runs: Sequence[Runs], horizon: int) -> list[str]:
    return [_or_missing(tables.best_peer_table(runs, horizon, agent)) for agent in ("rasp", "rasp-paper")]


def _beside(runs: Sequence[Runs], times: Mapping[str, Mapping[str, timing.StepTimes]]) -> list[str]:
    """What is measured beside regret."""
    parts = [
        "## The paper's claims",
        f"Regret at T = {SHORT}, step times over {timing.STEPS} steps as below. Often, many and several mean more than"
        f" half; comparable means at most {COMPARABLE} times the regret; a handful is {HANDFUL_STEPS} steps beyond the"
        f" first {ADAPT_WINDOW}; a spike is the regret of the {ADAPT_WINDOW} steps after a switch. The paper's"
        f" switching tasks are 1, 3, 5, 7 and 8; 5 does not switch before T = {SHORT}.",
        markdown(tables.claims_table(runs, times)),
        *_step_times(times),
        "## Calibration",
        "Forecasts of the composed error against what came back, over all steps of all domains: mean negative"
        " log-likelihood, and how often the truth fell inside the central 50% and 90% interval.",
        _or_missing(tables.calibration_table(runs)),
        "## Steps to adapt",
        f"T = {SHORT}: the first step from which the mean loss of W = {ADAPT_WINDOW} steps stays within alpha ="
        f" {ADAPT_SHARE} of the way from the best agent's final level to the static default's; oracles do not count as"
        " best. The median over seeds, then how many of them get there; those that never do count as later than all"
        " others, so there is no median if half never do. Domains whose static default is no worse than the best final"
        " level are left out: there is no way to go.",
    ]
    if any(r.horizon == SHORT for r in runs):
        parts.append(markdown(tables.adaptation_table(runs, SHORT, (*DOMAINS, *STREAMS))))
    return parts


def _versions() -> str:
    """What the agents are made of, as far as it is installed."""
    found = {distribution.name.lower(): distribution.version for distribution in distributions()}
    return ", ".join(f"{name} {found[name]}" for name in MADE_OF if name in found)


def _best_kappa(runs: Sequence[Runs], horizon: int) -> str:
    means = {a: mean for a, mean in geometric_means(runs, horizon).items() if a.startswith("gp-ucb")}
    return f" Of GP-UCB's kappas the best is that of `{min(means, key=lambda a: means[a])}`." if means else ""


def _step_times(times: Mapping[str, Mapping[str, timing.StepTimes]]) -> list[str]:
    parts = [
        "## Step time",
        f"Milliseconds of `ask` + `tell` over {timing.STEPS} steps, as the paper times them. All agents of a table ran"
        f" in one process and took turns of {timing.TURN_STEPS} steps, so other load on the machine slows all alike. An"
        f" agent stops once it has spent {timing.BUDGET_S:.0f} s; the table says how many steps it got. The fit of"
        " our GP-UCB has exact slopes and is faster than scikit-learn's regressor for the same model, so RASP's lead is"
        " smaller here than it would be over that one.",
    ]
    why = {
        timing.DOMAIN: "Its sizes, d = 5 and d_c = 3, are the medians of the paper's nine domains.",
        timing.STREAM: "A stream, d = 4 and d_c = 18, for the agents of the paper's claim in Section 6.4.",
    }
    for domain, said in why.items():
        table = markdown(tables.timing_table(times[domain])) if domain in times else "Missing: not measured yet."
        parts += [f"### {domain}", said, table]
    return parts


def _missing(missing: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """One line a horizon and agent."""
    lines = []
    for horizon, agent in dict.fromkeys((c.horizon, c.agent) for c in missing):
        gone = [c for c in missing if (c.horizon, c.agent) == (horizon, agent)]
        planned = [c for c in cells if (c.horizon, c.agent) == (horizon, agent)]
        if len(gone) == len(planned):
            said = f"all {len(gone)} runs"
        else:
            where = [_seeds(d, gone, planned) for d in dict.fromkeys(c.domain for c in gone)]
            said = f"{len(gone)} of {len(planned)} runs: {', '.join(where)}"
        lines.append(f"- T = {horizon:,}, `{agent}`: {said}")
    return "\n".join(lines)


def _seeds(domain: str, gone: Sequence[Cell], planned: Sequence[Cell]) -> str:
    """The domain alone if every seed of it is missing, else with those that are."""
    seeds = [str(c.seed) for c in gone if c.domain == domain]
    whole = len(seeds) == sum(c.domain == domain for c in planned)
    return short_name(domain) + ("" if whole else f" (seed {' and '.join(seeds)})")


def _or_missing(table: Table) -> str:
    return markdown(table) if table[1] and len(table[0]) > 1 else "Missing."


def _names(agents: Iterable[str]) -> str:
    return ", ".join(f"`{agent}`" for agent in agents)
