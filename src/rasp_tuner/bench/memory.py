"""Memory growth of an agent, by tracemalloc (paper, Section Efficiency). Slow, so measured apart from the runs."""

import gc
import json
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rasp_tuner.bench.protocol import Cell, play
from rasp_tuner.snapshot import write

WARM_UP = 50  # steps before counting starts: imports and first allocations are not growth


def growth(cell: Cell) -> float:
    """KiB by which the heap grew a hundred steps, from the end of the warm-up to the end of the run."""
    first, last = min(WARM_UP, cell.horizon - 1), cell.horizon
    held = {}
    tracemalloc.start()
    try:
        for row in play(cell):  # the agent lives as long as this loop: afterwards there is nothing to measure
            if row.step + 1 in (first, last):
                held[row.step + 1] = _held()
        return (held[last] - held.get(first, held[last])) / 1024 * 100 / (last - first)
    finally:
        tracemalloc.stop()


def measure(folder: Path, agents: Sequence[str], domain: str, horizon: int) -> Iterator[str]:
    """Measure each agent that the folder does not know yet, keep it there, and give its name."""
    held = load(folder)
    known = held[2] if held is not None and held[:2] == (domain, horizon) else {}
    for agent in agents:
        if agent not in known:
            known[agent] = growth(Cell(domain, agent, 0, horizon))
            save(folder, domain, horizon, known)
        yield agent


def save(folder: Path, domain: str, horizon: int, by_agent: Mapping[str, float]) -> None:
    facts = {"domain": domain, "horizon": horizon, "kib_per_100_steps": dict(by_agent)}
    write(folder / "memory.json", json.dumps(facts, indent=1).encode())


def load(folder: Path) -> tuple[str, int, dict[str, float]] | None:
    """What `save` wrote into the folder, if it did."""
    path = folder / "memory.json"
    if not path.is_file():
        return None
    facts = json.loads(path.read_text())
    return facts["domain"], facts["horizon"], facts["kib_per_100_steps"]


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
