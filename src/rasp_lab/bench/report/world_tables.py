"""The tables of random worlds."""

from collections.abc import Sequence

from rasp_lab.bench.analysis.metrics import Runs, geometric_mean, ratios
from rasp_lab.bench.analysis.world_scores import LAST_STEPS, MARGIN, START_STEPS, STUCK, harm, possible, scales, share
from rasp_lab.bench.domains import WORLDS
from rasp_lab.bench.domains.worlds import KINDS, SETTINGS, is_world
from rasp_lab.bench.report.tables import number
from rasp_tuner.page.html_page import Table

TITLE = "Random worlds"
BY_COST = tuple(name for name, kind in KINDS.items() if kind.relative)
SHARES = (
    f"Loss as a share of (median - best) over {SETTINGS:,} random settings of each world: mean over the run, and in"
    f" brackets over the last {LAST_STEPS} steps. 0 is the best of those settings, 1 the median one; `optimum` is the"
    f" best there is. Stuck: runs whose last {LAST_STEPS} steps are above {STUCK}."
)
COSTS = (
    "Cost divided by the default's. W Near: the default is optimal, or the best of the random settings; cost from step"
    f" {START_STEPS} on, and the worlds in which it stays within {MARGIN} of the default's. W Scales: two workloads"
    " whose costs differ a thousandfold; `recommend` is what would be served in the cheap one at the end of the run,"
    " the mean and the worst over worlds."
)
RATIOS = "Regret relative to `static` on the same worlds. Not in the geo-mean: W Near, where `static` has almost none."


def worlds_of(runs: Sequence[Runs]) -> list[Runs]:
    """The runs on random worlds."""
    return [r for r in runs if is_world(r.domain)]


def told(runs: Sequence[Runs]) -> list[tuple[str, Table]]:
    """Each table with what to know of it; none without worlds."""
    here = worlds_of(runs)
    made = [(SHARES, share_table(here)), (COSTS, cost_table(here)), (RATIOS, ratio_table(here))]
    return [(words, table) for words, table in made if table[1]]


def share_table(runs: Sequence[Runs]) -> Table:
    """Agents by kinds, those that ran on all of them and the least mean first.

    "0.38 (0.22)" is the whole run and its last steps.
    """
    kinds = _present(runs, [name for name in WORLDS if name not in BY_COST])
    found = {(r.agent, r.domain): share(r) for r in _with_optimum(runs)}
    rows = []
    for agent in _agents(runs, kinds):
        mine = [found.get((agent, kind)) for kind in kinds]
        known = [s for s in mine if s is not None]
        cells = ["-" if s is None else f"{_two(s.mean)} ({_two(s.last)})" for s in mine]
        stuck = f"{sum(s.stuck for s in known)} of {sum(s.worlds for s in known)}"
        mean = sum(s.mean for s in known) / len(known)
        rows.append(((len(kinds) - len(known), mean), [agent, *cells, stuck]))
    ordered = [row for _, row in sorted(rows, key=lambda item: item[0])]
    return ["agent", *map(_short, kinds), "stuck"], ordered


def cost_table(runs: Sequence[Runs]) -> Table:
    """Agents, the least cost first, where the default is good and where workloads differ in scale."""
    kinds = _present(runs, BY_COST)
    found = {(r.agent, r.domain.split("+")[0]): r for r in _with_optimum(runs)}
    rows = []
    for agent in _agents(runs, kinds):
        near, two = found.get((agent, "W_Near")), found.get((agent, "W_Scales"))
        first = (number((h := harm(near)).mean), f"{h.within} of {h.worlds}") if near else ("-", "-")
        second = map(number, scales(two)) if two else "----"
        cost = harm(near).mean if near else scales(two).cheap if two else 0.0
        rows.append((cost, [agent, *first, *second]))
    head = ["agent", "W Near", f"within {MARGIN}", "W Scales, cheap", "dear", "recommend, cheap", "its worst"]
    return head, [row for _, row in sorted(rows, key=lambda item: item[0])]


def ratio_table(runs: Sequence[Runs]) -> Table:
    """Agents by kinds: regret relative to the static default over the worlds both ran, the least mean first."""
    relative: dict[str, dict[str, float]] = {}
    for horizon in sorted({r.horizon for r in runs}):
        for agent, row in ratios(runs, horizon).items():
            relative.setdefault(agent, {}).update(row)
    kinds = _present(runs, [name for name in WORLDS if name != "W_Near"])
    rows = []
    for agent, row in relative.items():
        mean = geometric_mean(row.get(kind, float("nan")) for kind in kinds)
        counts = sorted({len(r.seeds) for r in runs if r.agent == agent})
        worlds = str(counts[-1]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        rows.append((mean, [agent, *(number(row.get(kind)) for kind in kinds), number(mean), worlds]))
    ordered = [row for _, row in sorted(rows, key=lambda item: (item[0] != item[0], item[0]))]
    return ["agent", *map(_short, kinds), "geo-mean", "worlds"], ordered if kinds else []


def _with_optimum(runs: Sequence[Runs]) -> list[Runs]:
    return [*(possible(r) for r in runs if r.agent == "static"), *runs]


def _agents(runs: Sequence[Runs], kinds: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(r.agent for r in _with_optimum(runs) if r.domain in kinds))


def _present(runs: Sequence[Runs], kinds: Sequence[str]) -> list[str]:
    """Kinds that were run, each also as it was made harder."""
    ran = dict.fromkeys(r.domain for r in runs)
    return [domain for kind in kinds for domain in ran if domain.split("+")[0] == kind]


def _two(value: float) -> str:
    """Two decimals, and never -0.00."""
    return f"{round(value, 2) + 0.0:.2f}"


def _short(domain: str) -> str:
    return domain.replace("_", " ")
