"""Memory growth of an agent, by tracemalloc (paper, Section Efficiency). Slow, so measured apart from the runs.

Growth counts over the last SPAN_STEPS steps. A run must be longer than every window of the agent: while windows fill,
a bounded agent grows like an unbounded one.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rasp_lab.bench.runner import measurements_io
from rasp_lab.bench.runner.protocol import Cell, play

SPAN_STEPS = 100  # over which growth is counted
LOOK_EVERY_STEPS = 50  # how often the heap is measured; what comes before the first time is warm-up
BUDGET_S = 100.0  # of processor time; an agent that has spent it stops at the next mark
MIN_STEPS = 300  # even of the slowest agent: windows of 200 are full when counting starts


class MemoryGrowth(NamedTuple):
    """KiB by which the heap grew a hundred steps, from the end of one step to the end of another."""

    first: int
    last: int
    kib: float


def growth(cell: Cell, budget_s: float = BUDGET_S) -> MemoryGrowth:
    """Growth over the last steps of a run, or of as much of it as the budget allows."""
    held: dict[int, int] = {}
    early, started = min(LOOK_EVERY_STEPS, max(cell.horizon - 1, 1)), time.process_time()
    tracemalloc.start()
    try:
        for row in play(cell):  # the agent lives as long as this loop: afterwards there is nothing to measure
            step = row.step + 1
            if step % LOOK_EVERY_STEPS == 0 or step in (early, cell.horizon):
                held[step] = _held()
                if step >= MIN_STEPS and time.process_time() - started >= budget_s:
                    break
    finally:
        tracemalloc.stop()
    last = max(held)
    first = max((step for step in held if step <= last - SPAN_STEPS), default=min(held))
    return MemoryGrowth(first, last, (held[last] - held[first]) / 1024 * 100 / max(last - first, 1))


def measure(folder: Path, agents: Sequence[str], domain: str, horizon: int) -> Iterator[str]:
    """Measure each agent that the folder does not know yet, keep it there, and give its name."""
    held = load(folder)
    known = held[2] if held is not None and held[:2] == (domain, horizon) else {}
    for agent in agents:
        if agent not in known:
            known[agent] = growth(Cell(domain, agent, 0, horizon))
            save(folder, domain, horizon, known)
        yield agent


def save(folder: Path, domain: str, horizon: int, by_agent: Mapping[str, MemoryGrowth]) -> None:
    """Write DIR/memory.json; `horizon` is how many steps were asked for."""
    each = {agent: {"from": g.first, "to": g.last, "kib_per_100_steps": g.kib} for agent, g in by_agent.items()}
    measurements_io.write(folder / "memory.json", {"domain": domain, "horizon": horizon, "growth": each})


def load(folder: Path) -> tuple[str, int, dict[str, MemoryGrowth]] | None:
    """What `save` wrote into the folder, if it did; a file of an older version counts as none."""
    held = measurements_io.read(folder / "memory.json")
    if "growth" not in held:
        return None
    each = {agent: MemoryGrowth(g["from"], g["to"], g["kib_per_100_steps"]) for agent, g in held["growth"].items()}
    return held["domain"], held["horizon"], each


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
