"""One run: all agents on one system, in shuffled turns on the same piece of work, so that noise hits all alike."""

import csv
import gzip
import io
import json
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rasp_lab.bench import agents as bench_agents
from rasp_lab.bench.domains.base import Task
from rasp_lab.real.system import RunFailed, SelfTuning, System, Work
from rasp_tuner import Tuner
from rasp_tuner.space import Params, Space
from rasp_tuner.types import Metric

BASE = "static"  # the default, with which all are compared
AGENTS = (BASE, "static-again", "random", "tpe", "tpe-each", "cma-es", "rasp", "rasp-budget")
PEERS = ("autotune", "best-fixed")  # where the system has a tuner of its own
BY_HAND = "best-of-grid"  # where the system has a grid
METRIC = "cost_ms"
PAIRS = 12  # of each kind of work in the final comparison
WARM_UPS = 2  # runs of the default for each kind of work before anything counts
DIGITS = 4  # of a cost in the file


class Agent(Protocol):
    def ask(self, work: Work) -> tuple[str, Params]: ...
    def tell(self, id: str, cost: float) -> None: ...
    def tell_failed(self, id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Row:
    """One measured piece of work. Steps of the final comparison start at 0 again: pairs of a kind.

    "build" is what an agent's first use of a compiled program took; it is in no other row. "grid" is the search by hand
    before the first step, which counts settings there; the rows of the default in it are what they are compared with.
    """

    phase: str  # "tune", "final", "build" or "grid"
    step: int
    kind: str
    agent: str
    cost_ms: float
    failed: int
    think_ms: float  # processor time of ask and tell
    params: str  # as JSON; empty where it is the default


class Ours:
    """A `Tuner` that sees the context, with its budget or without."""

    def __init__(self, system: System, seed: int, budget: float | None) -> None:
        settings: dict[str, Any] = {} if budget is None else {"budget": budget or None}
        settings["constraints"] = system.constraints
        self.tuner = Tuner(system.space, {METRIC: "min"}, system.context, system.default, seed=seed, **settings)

    def ask(self, work: Work) -> tuple[str, Params]:
        suggestion = self.tuner.ask(work.context)
        return suggestion.id, suggestion.params

    def tell(self, id: str, cost: float) -> None:
        self.tuner.tell(id, {METRIC: cost})

    def tell_failed(self, id: str) -> None:
        self.tuner.tell_failed(id)

    def recommend(self, work: Work) -> Params:
        return self.tuner.recommend(work.context)


class Blind:
    """An agent of the benchmark that does not see the context."""

    def __init__(self, name: str, system: System, seed: int) -> None:
        self._space = Space(system.space, system.constraints, system.default)
        task = Task(self._space, {METRIC: Metric("min")}, 0, self._space.to_unit(system.default))
        self._agent = bench_agents.create(name, task, seed)

    def ask(self, work: Work) -> tuple[str, Params]:
        del work
        id, point = self._agent.ask(np.empty(0))
        return id, self._space.from_unit(point)

    def tell(self, id: str, cost: float) -> None:
        self._agent.tell(id, {METRIC: cost})

    def tell_failed(self, id: str) -> None:
        self._agent.tell_failed(id)


class Autotune:
    """A system's own tuner, as `triton.autotune`: for a new context it tries all candidates, then keeps the best."""

    def __init__(self, system: SelfTuning) -> None:
        self._system = system
        self._best: dict[tuple[object, ...], Params] = {}

    def search(self, work: Work) -> tuple[float, tuple[Params, ...]]:
        """Tries the candidates on this work, unless it knows the context: what that cost, and which it tried."""
        if (key := _key(work)) in self._best:
            return 0.0, ()
        tried = self._system.candidates
        costs = [_timed(self._system, params, work) for params in tried]
        ran = [(cost, i) for i, (cost, failed) in enumerate(costs) if not failed]
        self._best[key] = tried[min(ran)[1]] if ran else self._system.default
        return sum(cost for cost, _ in ran), tried

    def ask(self, work: Work) -> tuple[str, Params]:
        return "", self._best[_key(work)]

    def tell(self, id: str, cost: float) -> None:
        """It has learned while searching."""

    def tell_failed(self, id: str) -> None:
        """It has learned while searching."""

    def recommend(self, work: Work) -> Params:
        return self._best.get(_key(work), self._system.default)


class Fixed:
    """The same settings always."""

    def __init__(self, params: Params) -> None:
        self._params = params

    def ask(self, work: Work) -> tuple[str, Params]:
        return "", self.recommend(work)

    def tell(self, id: str, cost: float) -> None:
        """Nothing is learned."""

    def tell_failed(self, id: str) -> None:
        """Nothing is learned."""

    def recommend(self, work: Work) -> Params:
        del work
        return self._params


class OneForEachKind:
    """A blind agent for each kind of work, as somebody would use who knows the kinds beforehand."""

    def __init__(self, build: Callable[[int], Agent]) -> None:
        self._build = build
        self._of: dict[str, Agent] = {}

    def ask(self, work: Work) -> tuple[str, Params]:
        if work.kind not in self._of:
            self._of[work.kind] = self._build(len(self._of))
        id, params = self._of[work.kind].ask(work)
        return f"{work.kind}/{id}", params

    def tell(self, id: str, cost: float) -> None:
        kind, _, own = id.rpartition("/")
        self._of[kind].tell(own, cost)

    def tell_failed(self, id: str) -> None:
        kind, _, own = id.rpartition("/")
        self._of[kind].tell_failed(own)


def build(name: str, system: System, seed: int) -> Agent:
    """An agent by name."""
    if name in ("rasp", "rasp-budget"):
        return Ours(system, seed, 0.0 if name == "rasp" else None)
    if name == "tpe-each":
        return OneForEachKind(lambda i: Blind("tpe", system, 1000 * seed + i))
    if isinstance(system, SelfTuning) and name in PEERS:
        return Autotune(system) if name == "autotune" else Fixed(system.best_fixed())
    return Blind("static" if name == "static-again" else name, system, seed)


def agents_for(system: System) -> tuple[str, ...]:
    """Who is there from the start."""
    return AGENTS + PEERS if isinstance(system, SelfTuning) else AGENTS


def measure(system: System, steps: int, seed: int, progress: Callable[[int], object] | None = None) -> list[Row]:
    """All rows of one run: the tuning, then pairs of recommendation and default."""
    rng = np.random.default_rng([seed, 2])
    agents = {name: build(name, system, seed) for name in agents_for(system)}
    for kind in system.kinds:
        for _ in range(WARM_UPS):
            system.run(system.default, system.work(kind, rng))
    rows: list[Row] = []
    if system.grid:
        rows = list(_grid(system, np.random.default_rng([seed, 3])))
        agents[BY_HAND] = Fixed(best_of_grid(system, rows))
    names = list(agents)
    built: dict[str, set[str]] = {name: set() for name in names}
    for step, work in enumerate(system.sequence(steps, seed)):
        for name in rng.permutation(names).tolist():
            row, used = _turn(system, step, name, agents[name], work)
            rows += [*_builds(system, row, used, built[name]), row]
        if progress is not None:
            progress(step)
    tuned = {name: agent for name, agent in agents.items() if isinstance(agent, Ours | Autotune | Fixed)}
    return rows + list(_final(system, tuned, rng))


def _turn(system: System, step: int, name: str, agent: Agent, work: Work) -> tuple[Row, list[Params]]:
    """One agent does one piece of work; and all settings that it ran for that."""
    searched, tried = agent.search(work) if isinstance(agent, Autotune) else (0.0, ())
    thinking = time.thread_time_ns()
    id, params = agent.ask(work)
    thinking = time.thread_time_ns() - thinking
    cost, failed = _timed(system, params, work)
    after = time.thread_time_ns()
    if failed:
        agent.tell_failed(id)
    else:
        agent.tell(id, cost)
    thinking += time.thread_time_ns() - after
    row = _row("tune", step, work.kind, name, searched + cost, failed, _said(params, system), thinking / 1e6)
    return row, [*tried, params, *([system.default] if failed else ())]  # which then did the work


def _builds(system: System, row: Row, used: list[Params], known: set[str]) -> Iterator[Row]:
    """What had to be compiled for the settings of a turn that the agent had not used before."""
    for program, took in filter(None, map(system.built, used)):
        if program not in known:
            known.add(program)
            yield _row("build", row.step, row.kind, row.agent, took, False, program)


def _grid(system: System, rng: np.random.Generator) -> Iterator[Row]:
    """Every setting of the grid, and the default, on one work of each kind, in shuffled order."""
    sides: dict[tuple[str, int], Params] = {(BASE, 0): system.default}
    sides |= {(BY_HAND, i): params for i, params in enumerate(system.grid)}
    for kind in system.kinds:
        work = system.work(kind, rng)
        for turn in rng.permutation(len(sides)).tolist():
            (name, i), params = list(sides.items())[turn]
            cost, failed = _timed(system, params, work)
            yield _row("grid", i, kind, name, cost, failed, _said(params, system))


def best_of_grid(system: System, rows: Sequence[Row]) -> Params:
    """The setting that is best for all kinds of work together; one that failed on some kind is out."""
    base = {row.kind: row.cost_ms for row in rows if row.phase == "grid" and row.agent == BASE}
    logs: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row.phase == "grid" and row.agent == BY_HAND:
            logs[row.step].append(np.inf if row.failed else math.log(row.cost_ms / base[row.kind]))
    means = {i: sum(own) / len(own) for i, own in logs.items()}
    best = min(means, key=means.__getitem__)
    return system.grid[best] if np.isfinite(means[best]) else system.default


def _final(system: System, tuners: Mapping[str, Ours | Autotune | Fixed], rng: np.random.Generator) -> Iterator[Row]:
    """Recommendations measured again beside the default, the default also beside itself; interleaved."""
    for pair in range(PAIRS):
        for kind in system.kinds:
            work = system.work(kind, rng)
            sides: dict[str, Params] = {"static": system.default, "static-again": system.default}
            sides |= {name: tuner.recommend(work) for name, tuner in tuners.items()}
            for name in rng.permutation(list(sides)).tolist():
                cost, failed = _timed(system, sides[name], work)
                yield _row("final", pair, kind, name, cost, failed, _said(sides[name], system))


def _timed(system: System, params: Params, work: Work) -> tuple[float, bool]:
    """Cost of a run and whether it failed."""
    began = time.perf_counter()
    try:
        return system.run(params, work), False
    except RunFailed as failure:
        return failure.cost_ms or 1000.0 * (time.perf_counter() - began), True


def _key(work: Work) -> tuple[object, ...]:
    return tuple(work.context.values())


def _row(
    phase: str, step: int, kind: str, name: str, cost: float, failed: bool, said: str, think_ms: float = 0.0
) -> Row:
    return Row(phase, step, kind, name, float(f"{cost:.{DIGITS}g}"), int(failed), round(think_ms, 2), said)


def _said(params: Params, system: System) -> str:
    return "" if params == system.default else json.dumps(list(params.values()), separators=(",", ":"))


def about(system: type[System]) -> str:
    """What is measured, and where."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] / cores
    return f"{system.version()}, Python {platform.python_version()}, {cores} cores, load {load:.1f} a core"


def write(file: Path, rows: list[Row], said: str) -> None:
    """The rows as CSV after a line of comment, packed; whole or not at all, and the same bytes for the same rows."""
    text = io.StringIO()
    text.write(f"# {said}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(field.name for field in fields(Row))
    table.writerows(astuple(row) for row in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    part.replace(file)


def read_about(file: Path) -> str:
    """The line of comment."""
    with gzip.open(file, "rt") as text:
        return text.readline().removeprefix("# ").strip()


def read(file: Path) -> list[Row]:
    """The rows."""
    with gzip.open(file, "rt", newline="") as text:
        lines = csv.reader(text)
        next(lines), next(lines)  # comment and names
        return [Row(p, int(s), k, a, float(c), int(f), float(t), said) for p, s, k, a, c, f, t, said in lines]
