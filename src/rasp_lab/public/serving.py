"""LLM serving: what would run for a model that nobody has measured, after a few looks.

One model is held out, and agents know all runs of the others. In each context of the model that is held out (a GPU, two
lengths, a load) they look at one configuration after the other, of those that were measured there. After n looks the
best of them that kept the limit would run; if none did, what the agent holds to be best of the others. What breaks the
limit counts as the worst configuration of its context.
"""

import csv
import gzip
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import optuna
from optuna.trial import create_trial

from rasp_lab.public.cells import OURS, Cell, Row
from rasp_lab.public.peers import Random, Tpe
from rasp_lab.public.tables import Array, Mask, Table, made
from rasp_tuner import Category, Metric, Number, Tuner
from rasp_tuner.contexts import ContextKind

LOOKS = (0, 1, 3, 5)
FEWEST = 6  # configurations of a context, as in the published table
TPOT, TOKENS = "TPOT", "tokens/s/GPU"
OBJECTIVES = (TPOT, TOKENS)
MODELS = (
    "MiniMaxAI/MiniMax-M2.5", "Qwen/Qwen3-32B", "Qwen/Qwen3.5-397B-A17B", "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-70B", "openai/gpt-oss-120b",
)  # fmt: skip
BEST_ELSEWHERE = "best elsewhere"
BACKENDS, PRECISIONS = ("trtllm", "sglang", "vllm"), ("fp8", "fp4", "bf16", "")
POOLS, SPLITS = ("prefill", "decode"), ("tp", "dp", "moe_tp", "moe_ep")
SCHEMA: dict[str, ContextKind] = {
    "model": Category(), "gpu": Category(), **dict.fromkeys(("isl", "osl", "concurrency"), Number(log=True))
}  # fmt: skip


class Serving(NamedTuple):
    """m contexts, n configurations; NaN where one was not measured."""

    table: Table  # its cost is the objective, its least cost that of the best which keeps the limit
    late: Array  # [m, n] time to first token over its limit, which half of a context's configurations keep
    seen: list[dict[str, str | float]]  # [m] context, as a tuner is told it

    def ratio(self, at: int) -> Array:
        """[n] cost in a context over the best that keeps the limit."""
        cost = self.table.cost[at]
        broken = np.where(self.late[at] > 1.0, np.nanmax(cost), cost)
        ratio: Array = np.where(np.isnan(cost), np.nan, broken) / self.table.least[at]
        return ratio

    def of(self, model: str) -> list[int]:
        return [at for at, seen in enumerate(self.seen) if seen["model"] == model]

    def not_of(self, model: str) -> list[int]:
        return [at for at, seen in enumerate(self.seen) if seen["model"] != model]

    def measured(self, at: int) -> Mask:
        there: Mask = ~np.isnan(self.table.cost[at])
        return there


@cache
def serving(folder: Path, objective: str) -> Serving:
    """Repeats of a cell (another version, another day) are averaged; one pool counts as both pools."""
    with gzip.open(folder / "llm_serving" / "measured.csv.gz", "rt", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if objective == TPOT or row["tokens_s_gpu"]]
    cells: dict[tuple[Any, ...], dict[tuple[int, ...], list[tuple[float, float]]]] = {}
    for row in rows:
        context = (row["model"], row["gpu"], *(float(row[name]) for name in ("isl", "osl", "concurrency")))
        told = (float(row["tpot_ms" if objective == TPOT else "tokens_s_gpu"]), float(row["ttft_ms"]))
        cells.setdefault(context, {}).setdefault(_setting(row), []).append(told)
    cells = {context: own for context, own in cells.items() if len(own) >= FEWEST}
    settings = sorted({setting for own in cells.values() for setting in own})
    place = {setting: i for i, setting in enumerate(settings)}
    cost, late = (np.full((len(cells), len(settings)), np.nan) for _ in range(2))
    for at, own in enumerate(cells.values()):
        for setting, runs in own.items():
            cost[at, place[setting]], late[at, place[setting]] = np.mean(runs, axis=0)
    cost = cost if objective == TPOT else 1000.0 / cost
    late /= np.nanmedian(late, axis=1, keepdims=True)
    least = np.nanmin(np.where(late <= 1.0, cost, np.nan), axis=1)
    seen: list[dict[str, str | float]] = [dict(zip(SCHEMA, context, strict=True)) for context in cells]
    names = [" ".join(map(str, context)) for context in cells]
    return Serving(made("LLM serving", np.array(settings), _options(), names, cost, least, 0), late, seen)


def _options() -> list[str]:
    parts = [f"{pool}_{name}" for pool in POOLS for name in ("workers", *SPLITS)]
    return [*BACKENDS, *(f"precision {name or 'not said'}" for name in PRECISIONS), "disagg", *parts, "gpus"]


def _setting(row: dict[str, str]) -> tuple[int, ...]:
    """Choices as switches, of which one is on; what is empty is 1, or 0 GPUs."""
    one = row["mode"] == "agg"
    switches = [row["backend"] == name for name in BACKENDS] + [row["precision"] == name for name in PRECISIONS]
    counts = [
        int(row[name if one else f"{pool}_{name}"] or 1) if name != "workers" or not one else 1
        for pool in POOLS
        for name in ("workers", *SPLITS)
    ]
    return (*map(int, switches), int(not one), *counts, int(float(row["gpus"] or 0)))


class Looks(Protocol):
    """An agent in one context after the other."""

    def enter(self, at: int) -> None:
        """A new context: what was seen in others of the same model is forgotten."""

    def ask(self, open_rows: Mask) -> int:
        """The configuration to look at next, of those that are open [n]."""

    def choose(self, open_rows: Mask) -> int:
        """What it would run, of those that are open [n]."""

    def tell(self, row: int) -> None: ...


class Ours:
    """`Tuner(goal="find")` that was given the runs of the other models as a log."""

    def __init__(self, data: Serving, model: str, seed: int) -> None:
        self._data, table = data, data.table
        cells = [(at, row) for at in data.not_of(model) for row in np.flatnonzero(data.measured(at)).tolist()]
        records = [{**data.seen[at], **table.rows[row], **self._metrics(at, row)} for at, row in cells]
        columns = {name: [record[name] for record in records] for name in records[0]}
        metrics = {"cost": Metric("min", scale="log"), "late": Metric("min", scale="log", max=1.0)}
        tuner, _ = Tuner.from_log(columns, space=table.knobs, metrics=metrics, context=SCHEMA, goal="find", seed=seed)
        self._told, self._tuner, self._row_of = tuner.to_bytes(), tuner, table.row_of()
        self._listed, self._at, self._asked = tuner.listed(table.rows), 0, ""

    def enter(self, at: int) -> None:
        self._tuner, self._at = Tuner.from_bytes(self._told), at

    def ask(self, open_rows: Mask) -> int:
        suggestion = self._tuner.ask(self._data.seen[self._at], among=self._listed.where(open_rows))
        self._asked = suggestion.id
        return self._row_of[tuple(suggestion.params.values())]

    def choose(self, open_rows: Mask) -> int:
        params = self._tuner.recommend(self._data.seen[self._at], self._listed.where(open_rows))
        return self._row_of[tuple(params.values())]

    def tell(self, row: int) -> None:
        self._tuner.tell(self._asked, self._metrics(self._at, row))

    def _metrics(self, at: int, row: int) -> dict[str, float]:
        return {"cost": float(self._data.table.cost[at, row]), "late": float(self._data.late[at, row])}


class BestElsewhere:
    """One order for all contexts: by how configurations did on the other models, beside those measured with them."""

    def __init__(self, data: Serving, model: str, seed: int) -> None:
        del seed
        logs = np.log([data.ratio(at) for at in data.not_of(model)])
        apart = logs - np.nanmean(logs, axis=1, keepdims=True)
        counts = (~np.isnan(apart)).sum(axis=0)
        self._score = np.nansum(apart, axis=0) / np.maximum(counts, 1)  # what never ran there is average

    def enter(self, at: int) -> None:
        """The order is the same."""

    def ask(self, open_rows: Mask) -> int:
        return int(np.where(open_rows, self._score, np.inf).argmin())

    choose = ask

    def tell(self, row: int) -> None:
        """Nothing is learned."""


class AtRandom(Random):
    def __init__(self, data: Serving, model: str, seed: int) -> None:
        super().__init__(data.table, seed)
        del model

    def enter(self, at: int) -> None:
        """Nothing is known."""

    choose = Random.ask

    def tell(self, row: int, cost: float = 0.0) -> None:
        """Nothing is learned."""


class ToldTpe:
    """Optuna's TPE with constraints; the runs of other models are trials of its study.

    It has no contexts, so all costs are relative to the median of their context, which is a gift in a new one.
    """

    def __init__(self, data: Serving, model: str, seed: int) -> None:
        self._data, self._seed, self._at = data, seed, 0
        self._typical = np.nanmedian(data.table.cost, axis=1)
        self._tpe = Tpe(data.table, seed)
        cells = [(at, row) for at in data.not_of(model) for row in np.flatnonzero(data.measured(at)).tolist()]
        self._trials = [self._trial(at, row) for at, row in cells]

    def enter(self, at: int) -> None:
        self._at, self._tpe = at, Tpe(self._data.table, self._seed + at)
        self._tpe.begin_with(self._trials)

    def ask(self, open_rows: Mask) -> int:
        return self._tpe.ask(open_rows)

    choose = ask

    def tell(self, row: int) -> None:
        self._tpe.begin_with([self._trial(self._at, row)])

    def _trial(self, at: int, row: int) -> optuna.trial.FrozenTrial:
        data, value = self._data, float(np.log(self._data.table.cost[at, row] / self._typical[at]))
        limits = {"constraints": [float(np.log(data.late[at, row]))]}
        params, axes = self._tpe.params_of(row), self._tpe.axes
        return create_trial(params=params, distributions=axes, value=value, system_attrs=limits)


AGENTS: dict[str, Callable[[Serving, str, int], Looks]] = {
    OURS: Ours, BEST_ELSEWHERE: BestElsewhere, "random": AtRandom, "TPE": ToldTpe
}  # fmt: skip


def look(cell: Cell, folder: Path) -> list[Row]:
    """A row for each objective and context of the model: cost over the best, and whether the limit is kept."""
    rows: list[Row] = []
    for objective in OBJECTIVES:
        data = serving(folder, objective)
        agent = AGENTS[cell.agent](data, cell.set, cell.seed)
        for at in data.of(cell.set):
            ratio, late = data.ratio(at), data.late[at]
            agent.enter(at)
            looked: list[int] = []
            row_of: Row = {"context": data.table.contexts[at], "objective": objective}
            for n in range(LOOKS[-1] + 1):
                if n in LOOKS:
                    runs = would_run(agent, data, at, looked)
                    row_of |= {f"ratio {n}": float(ratio[runs]), f"kept {n}": float(late[runs] <= 1.0)}
                if n < LOOKS[-1]:
                    looked.append(agent.ask(left(data, at, looked)))
                    agent.tell(looked[-1])
            rows.append(row_of)
    return rows


def left(data: Serving, at: int, looked: Sequence[int]) -> Mask:
    """[n] what was measured in a context and not looked at."""
    there = data.measured(at)
    there[list(looked)] = False
    return there


def would_run(agent: Looks, data: Serving, at: int, looked: Sequence[int]) -> int:
    kept = [row for row in looked if data.late[at, row] <= 1.0]
    return min(kept, key=lambda row: data.table.cost[at, row]) if kept else agent.choose(left(data, at, looked))


def without_limit(folder: Path, objective: str) -> Array:
    """[m] the median configuration over the best one, limits aside: how much there is to gain."""
    cost = serving(folder, objective).table.cost
    typical: Array = np.nanmedian(cost, axis=1) / np.nanmin(cost, axis=1)
    return typical
