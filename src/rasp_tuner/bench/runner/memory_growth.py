"""Memory growth of an agent, by tracemalloc (paper, Section Efficiency). Slow, so measured apart from the runs.

Growth counts over the last SPAN steps. Let a run be longer than every window of the agent: while windows fill, an agent
that is bounded grows like one that is not.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rasp_tuner.bench.runner import measurements_io as facts
from rasp_tuner.bench.runner.protocol import Cell, play

SPAN = 100  # steps over which growth is counted
MARK = 50  # steps between two looks at the heap; the first is the warm-up: imports and first allocations are not growth
BUDGET_S = 100.0  # of processor time; an agent that has spent it stops at the next mark
LEAST = 300  # steps of the slowest agent all the same: windows of 200 are full when counting starts


class Growth(NamedTuple):
    """KiB by which the heap grew a hundred steps, from the end of one step to the end of another."""

    first: int
    last: int
    kib: float


def growth(cell: Cell, budget_s: float = BUDGET_S) -> Growth:
    """Growth over the last steps of a run, or of as much of it as the budget allows."""
    held: dict[int, int] = {}
    early, started = min(MARK, max(cell.horizon - 1, 1)), time.process_time()
    tracemalloc.start()
    try:
        for row in play(cell):  # the agent lives as long as this loop: afterwards there is nothing to measure
            step = row.step + 1
            if step % MARK == 0 or step in (early, cell.horizon):
                held[step] = _held()
                if step >= LEAST and time.process_time() - started >= budget_s:
                    break
    finally:
        tracemalloc.stop()
    last = max(held)
    first = max((step for step in held if step <= last - SPAN), default=min(held))
    return Growth(first, last, (held[last] - held[first]) / 1024 * 100 / max(last - first, 1))


def measure(folder: Path, agents: Sequence[str], domain: str, horizon: int) -> Iterator[str]:
    """Measure each agent that the folder does not know yet, keep it there, and give its name."""
    held = load(folder)
    known = held[2] if held is not None and held[:2] == (domain, horizon) else {}
    for agent in agents:
        if agent not in known:
            known[agent] = growth(Cell(domain, agent, 0, horizon))
            save(folder, domain, horizon, known)
        yield agent


def save(folder: Path, domain: str, horizon: int, by_agent: Mapping[str, Growth]) -> None:
    """Write DIR/memory.json; `horizon` is how many steps were asked for."""
    each = {agent: {"from": g.first, "to": g.last, "kib_per_100_steps": g.kib} for agent, g in by_agent.items()}
    facts.write(folder / "memory.json", {"domain": domain, "horizon": horizon, "growth": each})


def load(folder: Path) -> tuple[str, int, dict[str, Growth]] | None:
    """What `save` wrote into the folder, if it did; a file of an older version counts as none."""
    held = facts.read(folder / "memory.json")
    if "growth" not in held:
        return None
    each = {agent: Growth(g["from"], g["to"], g["kib_per_100_steps"]) for agent, g in held["growth"].items()}
    return held["domain"], held["horizon"], each


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
