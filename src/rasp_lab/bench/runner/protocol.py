"""The protocol: which agent meets which domain, and what is written down at each step.

Common random numbers: the stream comes from the seed alone, and the noise of a step from seed and step alone. So all
agents meet the same contexts and the same noise, whatever they do and however often they draw.
"""

import csv
import io
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from rasp_lab.bench import agents, domains
from rasp_lab.bench.agents.base import Agent
from rasp_lab.bench.domains.base import ExperimentDomain, InvalidConfiguration
from rasp_lab.bench.domains.table import TableFile


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: an agent on a domain, known by name or read from a file, with a seed for a number of steps."""

    domain: str
    agent: str
    seed: int
    horizon: int
    table: TableFile | None = None

    @property
    def key(self) -> str:
        """A name for the run's file; that of a table also says what was read, and how."""
        read = f"-{self.table.fingerprint}" if self.table else ""
        return f"{self.domain}{read}__{self.agent}__T{self.horizon}__seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a run. Times are of the processor, of the agent alone."""

    domain: str
    agent: str
    horizon: int
    seed: int
    step: int
    regime: int
    loss: float  # true loss of what was deployed, noise-free
    regret: float
    ask_ms: float
    tell_ms: float
    predicted: float | None = None  # composed error the agent expected, where it says so
    deviation: float | None = None
    error: float | None = None  # composed error that came back
    recommended: float | None = None  # true loss of what the agent would serve here without exploring, if it says so

    def csv(self) -> str:
        """The row as CSV; floats are written so that they read back exactly."""
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow([getattr(self, name) for name in COLUMNS])
        return text.getvalue()


COLUMNS = [field.name for field in fields(Row)]
FIRST_COLUMNS = COLUMNS[:-1]  # of files written before `recommended` was known; still read


def plan(
    domain_names: Iterable[str], agent_names: Sequence[str], seeds: int | Sequence[int], horizon: int
) -> Iterator[Cell]:
    """Every agent on every domain with every seed, given by number or by name; an unknown name is refused at once."""
    each = range(seeds) if isinstance(seeds, int) else seeds
    for name in agent_names:
        agents.check(name)
    for domain in domain_names:
        domains.create(domain)
        for agent in agent_names:
            for seed in each:
                yield Cell(domain, agent, seed, horizon)


def plan_table(table: TableFile, agent_names: Sequence[str], seeds: int, horizon: int) -> list[Cell]:
    """Every agent on the stream of one table, a name twice but once; the file is read, to find its mistakes now."""
    table.build()
    for name in agent_names:
        agents.check(name)
    return [
        Cell(table.name, agent, seed, horizon, table) for agent in dict.fromkeys(agent_names) for seed in range(seeds)
    ]


def play(cell: Cell, domain: ExperimentDomain[object] | None = None) -> Iterator[Row]:
    """Run one cell and give a row for each step once it is answered.

    Answers arrive `domain.delay` steps late, in order; the last of them never do, and their rows come at the end.
    """
    world = domain or (cell.table.build() if cell.table else domains.create(cell.domain, cell.seed))
    agent = agents.create(cell.agent, world.task(), cell.seed)
    waiting: list[tuple[str, dict[str, float] | None, Row]] = []
    for step, omega in enumerate(world.build_sequence(cell.horizon, cell.seed)):
        if hasattr(agent, "reveal"):
            agent.reveal(world, omega)
        started = time.process_time()
        id, point = agent.ask(world.context_fn(omega))
        ask_ms = 1e3 * (time.process_time() - started)
        theta = world.theta(point)
        loss = world.true_loss(theta, omega)
        served = agent.recommend(world.context_fn(omega)) if hasattr(agent, "recommend") else None
        try:
            metrics = world.metric_fn(theta, omega, np.random.default_rng([cell.seed, step, 1]))
        except InvalidConfiguration:
            metrics = None
        row = Row(
            domain=cell.domain,
            agent=cell.agent,
            horizon=cell.horizon,
            seed=cell.seed,
            step=step,
            regime=world.regime(omega),
            loss=loss,
            regret=loss - world.minimum(omega),
            ask_ms=ask_ms,
            tell_ms=0.0,
            recommended=None if served is None else world.true_loss(world.theta(served), omega),
        )
        waiting.append((id, metrics, row))
        if len(waiting) > world.delay:
            id, told, row = waiting.pop(0)
            started = time.process_time()
            agent.tell_failed(id) if told is None else agent.tell(id, told)
            yield _with_forecast(agent, id, replace(row, tell_ms=1e3 * (time.process_time() - started)))
    for id, _, row in waiting:
        yield _with_forecast(agent, id, row)


def _with_forecast(agent: Agent, id: str, row: Row) -> Row:
    """The row with what the agent expected and what came, if it says so."""
    said = agent.expectation(id) if hasattr(agent, "expectation") else None
    return replace(row, **said) if said else row
