"""What a cell of the public suite runs, and what it gives: rows of numbers.

find     DLiSA's protocol: workloads in random order, 80 measurements in each, and only the best of them counts
online   the same workloads, but every measurement counts: cost over optimum, in the mean of 80 steps
once     every input is met once, and what was chosen there counts
serving  a model that nobody has measured, after none to five looks in each of its contexts (serving.py)
kernels  a GPU kernel by Kernel Tuner's strategies, in its simulation (kernels.py)
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rasp_lab.public import kernels, serving
from rasp_lab.public.cells import MOST_SEEDS, OURS, PROBED, Cell, Row
from rasp_lab.public.peers import PEERS
from rasp_lab.public.tables import SYSTEMS, Mask, Table, dlisa, poppler, sqlite
from rasp_tuner import Category, Metric, Tuner
from rasp_tuner.contexts import ContextKind, Number
from rasp_tuner.errors import InvalidValue

MEASUREMENTS = 80
AFTER = (20, 40, 80)  # measurements, after which the best is written down
Schema = dict[str, ContextKind] | None

AGENTS: dict[str, tuple[str, ...]] = {
    "find": (OURS, "random", "TPE"),
    "online": (OURS, "default", "random", "TPE", "CMA-ES"),
    "once": (OURS, PROBED, "default", "random", "TPE", "CMA-ES"),
    "serving": tuple(serving.AGENTS),
    "kernels": kernels.AGENTS,
}
SETS: dict[str, tuple[str, ...]] = {
    "find": SYSTEMS, "online": SYSTEMS, "once": ("SQLite queries", "poppler"), "serving": serving.MODELS,
    "kernels": kernels.GPUS,
}  # fmt: skip


def plan(seeds: int, chosen: Sequence[str] | None = None) -> list[Cell]:
    """Seed by seed, so that a run that was stopped has whole seeds."""
    every = {agent for agents in AGENTS.values() for agent in agents}
    if unknown := [agent for agent in chosen or () if agent not in every]:
        raise InvalidValue(f"agents of the suite public are {', '.join(sorted(every))}; not {', '.join(unknown)}")
    return [
        Cell(protocol, name, agent, seed)
        for seed in range(seeds)
        for protocol, agents in AGENTS.items()
        if seed < MOST_SEEDS.get(protocol, seeds) and (protocol != "kernels" or find_spec("kernel_tuner") is not None)
        for agent in agents
        for name in SETS[protocol]
        if (agent != PROBED or name == "poppler") and (chosen is None or agent in chosen)
    ]


def run(cell: Cell, folder: Path) -> list[Row]:
    return RUNS[cell.protocol](cell, folder)


def order_of(cell: Cell, contexts: int) -> list[int]:
    """The same for all agents."""
    found: list[int] = np.random.default_rng([cell.seed, 93]).permutation(contexts).tolist()
    return found


def metric() -> dict[str, Metric]:
    return {"cost": Metric("min", scale="log")}


def find(cell: Cell, folder: Path) -> list[Row]:
    """A row for each workload: the best cost over the optimum after 20, 40 and 80 measurements."""
    table = dlisa(folder, cell.set)
    search = Searching(table, cell.seed) if cell.agent == OURS else None
    rows = []
    for place, workload in enumerate(order_of(cell, len(table.contexts))):
        peer = None if search else PEERS[cell.agent](table, 1000 * cell.seed + workload)
        fresh, costs = np.ones(len(table.rows), dtype=bool), []
        for _ in range(MEASUREMENTS):
            row = search.measured(workload, fresh) if search else peer.ask(fresh) if peer else 0
            costs.append(table.cost[workload, row])
            fresh[row] = False
            if peer:
                peer.tell(row, costs[-1])
        best = np.minimum.accumulate(costs) / table.least[workload]
        row_of: Row = {"workload": table.contexts[workload], "place": place}
        rows.append(row_of | {f"best {n}": float(best[n - 1]) for n in AFTER})
    return rows


class Searching:
    """`Tuner(goal="find")`, told which settings can run; the workload's name is its context."""

    def __init__(self, table: Table, seed: int) -> None:
        self._table, self._row_of = table, table.row_of()
        context, default = {"workload": Category()}, table.rows[table.default]
        self._tuner = Tuner(table.knobs, metric(), context, default, goal="find", seed=seed)
        self._listed = self._tuner.listed(table.rows)

    def measured(self, workload: int, fresh: Mask) -> int:
        """The row that it measures next."""
        context = {"workload": self._table.contexts[workload]}
        suggestion = self._tuner.ask(context, among=self._listed.where(fresh))
        row = self._row_of[tuple(suggestion.params.values())]
        self._tuner.tell(suggestion.id, {"cost": float(self._table.cost[workload, row])})
        return row


class Living:
    """`Tuner` as it comes: it keeps to its budget beside the default. What can not run, runs as the nearest row."""

    def __init__(self, table: Table, seed: int, schema: Schema = None) -> None:
        self._table, self._row_of = table, table.row_of()
        self._tuner = Tuner(table.knobs, metric(), schema, table.rows[table.default], seed=seed)
        self._asked = ""

    def ask(self, context: dict[str, object] | None) -> int:
        suggestion = self._tuner.ask(context)
        self._asked = suggestion.id
        key = tuple(suggestion.params.values())
        if key not in self._row_of:
            every = np.ones(len(self._table.rows), dtype=bool)
            self._row_of[key] = self._table.nearest(self._table.places_of(suggestion.params), every)
        return self._row_of[key]

    def tell(self, row: int, cost: float) -> None:
        self._tuner.tell(self._asked, {"cost": cost}, self._table.rows[row])

    def tell_failed(self, row: int) -> None:
        self._tuner.tell_failed(self._asked, "it did not run", self._table.rows[row])


def online(cell: Cell, folder: Path) -> list[Row]:
    """A row for each workload: the mean cost over the optimum; the first half of the workloads is to develop on."""
    table = dlisa(folder, cell.set)
    count, every = len(table.contexts), np.ones(len(table.rows), dtype=bool)
    order, half = order_of(cell, count), (count + 1) // 2
    rows: list[Row] = []
    for name in ("develop", "report"):
        ours = Living(table, cell.seed, {"workload": Category()}) if cell.agent == OURS else None
        for workload in [i for i in order if (i < half) == (name == "develop")]:
            peer = None if ours else PEERS[cell.agent](table, 1000 * cell.seed + workload)
            costs = []
            for _ in range(MEASUREMENTS):
                row = ours.ask({"workload": table.contexts[workload]}) if ours else peer.ask(every) if peer else 0
                costs.append(float(table.cost[workload, row]))
                (ours or peer).tell(row, costs[-1])  # type: ignore[union-attr]  # one of them plays
            ratio = float(np.mean(costs)) / float(table.least[workload])
            rows.append({"workload": table.contexts[workload], "half": name, "ratio": ratio})
    return rows


def once(cell: Cell, folder: Path) -> list[Row]:
    """One row: cost over the best of each input, by the mean of logarithms; of all inputs, and of the last half.

    A run of SQLite is one of its repeats at random; what counts is their mean. A run that failed counts as the slowest
    one that did not; peers are told the worst they have seen.
    """
    schema: Schema = None
    runs = np.ones((0, 0, 0))
    if cell.set == "poppler":
        table, written = poppler(folder)
        seen: list[dict[str, object]] = [{}] * len(table.contexts)
        if cell.agent == PROBED:
            schema = {"log_time": Number(), "log_written": Number()}
            probes = zip(table.cost[:, table.default], written[:, table.default], strict=True)
            seen = [{"log_time": float(np.log(t)), "log_written": float(np.log(size))} for t, size in probes]
    else:
        table, runs, sizes = sqlite(folder)
        schema = {"query": Category(), "log_size": Number()}
        inputs = zip(table.contexts, np.log(sizes).tolist(), strict=True)
        seen = [{"query": query, "log_size": size} for query, size in inputs]
    ours = Living(table, cell.seed, schema) if cell.agent in (OURS, PROBED) else None
    peer = None if ours else PEERS[cell.agent](table, cell.seed)
    every, rng, logs, worst = np.ones(len(table.rows), dtype=bool), np.random.default_rng([cell.seed, 7]), [], 1.0
    for at in order_of(cell, len(table.contexts)):
        row = ours.ask(seen[at] or None) if ours else peer.ask(every) if peer else 0
        cost = table.cost[at, row]
        logs.append(float(np.log((np.nanmax(table.cost[at]) if np.isnan(cost) else cost) / table.least[at])))
        if len(runs) and not np.isnan(cost):
            repeats = runs[at, row]
            cost = rng.choice(repeats[~np.isnan(repeats)])
        if np.isnan(cost) and ours:
            ours.tell_failed(row)
        elif ours:
            ours.tell(row, float(cost))
        elif peer:
            worst = max(worst, float(np.nan_to_num(cost)))
            peer.tell(row, worst if np.isnan(cost) else float(cost))
    return [{"ratio": float(np.exp(np.mean(logs))), "last half": float(np.exp(np.mean(logs[len(logs) // 2 :])))}]


RUNS: dict[str, Callable[[Cell, Path], list[Row]]] = {
    "find": find, "online": online, "once": once, "serving": serving.look, "kernels": kernels.tune
}  # fmt: skip
