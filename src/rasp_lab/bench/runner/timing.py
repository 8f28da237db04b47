"""Step times of agents side by side (paper, Section Efficiency). The runs themselves are timed under changing load.

Times are of the processor. All agents live in one process and take turns of a few steps, so other load slows all
alike. An interrupted domain is timed from the start: times of two sessions differ by the machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rasp_lab.bench.runner import measurements_io
from rasp_lab.bench.runner.protocol import Cell, play

STEPS = 500  # the paper's; at T = 100 no window is full yet
TURN_STEPS = 25  # steps
BUDGET_S = 8.0  # of ask + tell; an agent stops after the turn in which it has spent them
DOMAIN = "H1_Recurring_Regimes"  # d = 5 and d_c = 3 are the medians of the paper's nine, and regimes come back
STREAM = "S1_California_Housing"  # d = 4, d_c = 18
STREAM_AGENTS = ("gp-ucb", "cma-es", "rasp-paper", "rasp")  # those the paper's claim is about


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of ask + tell over the steps an agent got."""

    steps: int
    median_ms: float
    mean_ms: float
    p99_ms: float


def plan(agents: Sequence[str]) -> dict[str, list[str]]:
    """domain -> agents: all of them on one domain, those of the paper's claim on a stream."""
    return {DOMAIN: list(agents), STREAM: [agent for agent in agents if agent in STREAM_AGENTS]}


def measure(folder: Path, wanted: Mapping[str, Sequence[str]], steps: int = STEPS) -> Iterator[tuple[str, int]]:
    """Time each domain that the folder does not know whole, and keep it there; gives who went how many steps on."""
    asked, known = _read(folder)
    if asked != steps:
        known = {}
    for domain, agents in wanted.items():
        left = len(agents) * steps
        if not set(agents) <= set(known.get(domain, {})):
            took: dict[str, list[float]] = {agent: [] for agent in agents}
            for agent, fresh in in_turns([Cell(domain, agent, 0, steps) for agent in agents]):
                took[agent] += fresh
                left -= len(fresh)
                yield agent, len(fresh)
            known[domain] = {agent: _times(each) for agent, each in took.items()}
            save(folder, steps, known)
        yield domain, left  # known before, or beyond an agent's budget


def in_turns(
    cells: Sequence[Cell], turn: int = TURN_STEPS, budget_s: float = BUDGET_S
) -> Iterator[tuple[str, list[float]]]:
    """The agents' names and the times of their next few steps, one agent after the other, until all are through."""
    going, spent = {cell: play(cell) for cell in cells}, dict.fromkeys(cells, 0.0)
    while going:
        for cell in list(going):
            fresh = [row.ask_ms + row.tell_ms for row in islice(going[cell], turn)]
            spent[cell] += sum(fresh) / 1e3
            if len(fresh) < turn or spent[cell] >= budget_s:
                del going[cell]
            yield cell.agent, fresh


def save(folder: Path, steps: int, by_domain: Mapping[str, Mapping[str, StepTimes]]) -> None:
    """Write DIR/timing.json; `steps` is how many were asked for."""
    domains = {domain: {agent: asdict(t) for agent, t in each.items()} for domain, each in by_domain.items()}
    measurements_io.write(folder / "timing.json", {"steps": steps, "domains": domains})


def load(folder: Path) -> dict[str, dict[str, StepTimes]]:
    """domain -> agent -> times, as `save` wrote them; empty if it did not."""
    return _read(folder)[1]


def _read(folder: Path) -> tuple[int, dict[str, dict[str, StepTimes]]]:
    held = measurements_io.read(folder / "timing.json")
    each = held.get("domains", {})
    return held.get("steps", 0), {d: {a: StepTimes(**t) for a, t in by_agent.items()} for d, by_agent in each.items()}


def _times(took: Sequence[float]) -> StepTimes:
    median, p99 = np.percentile(took, [50, 99])
    return StepTimes(len(took), float(median), float(np.mean(took)), float(p99))
