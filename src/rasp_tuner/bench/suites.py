"""Named sets of cells: what `rasp bench --suite NAME` runs."""

from collections.abc import Sequence

from rasp_tuner.bench.domains import BEYOND, PAPER, STREAMS
from rasp_tuner.bench.protocol import Cell, plan
from rasp_tuner.errors import InvalidValue

SUITES: dict[str, tuple[tuple[tuple[str, ...], int], ...]] = {  # name -> (domains, horizon), ...
    "paper": ((PAPER, 100),),
    "long": ((PAPER, 1000),),
    "streams": ((STREAMS, 100),),
    "beyond": ((BEYOND, 100),),
    "all": (((*PAPER, *BEYOND, *STREAMS), 100), (PAPER, 1000)),
    "sensitivity": ((PAPER, 100),),
}

# Appendix C: one constant at a time around the paper's defaults
SWEEPS: dict[str, tuple[float, ...]] = {
    "top_k": (1, 3, 5),
    "temperature": (0.5, 1.0, 2.0),
    "novelty_threshold": (0.5, 0.7, 0.85),
    "stay": (0.5, 0.65, 0.8),
    "memory_size": (50, 200, 400),
}


def sensitivity_agents() -> list[str]:
    """The paper's stack with one constant changed, by name; and the static default to relate to."""
    return ["static", *(f"rasp-paper[{name}={value:g}]" for name, values in SWEEPS.items() for value in values)]


def cells(suite: str, agents: Sequence[str], seeds: int, horizon: int | None = None) -> list[Cell]:
    """The plan of a suite, domain by domain; `horizon` replaces the suite's own."""
    if suite not in SUITES:
        raise InvalidValue(f"no suite {suite!r}; there are {sorted(SUITES)}")
    chosen = sensitivity_agents() if suite == "sensitivity" else agents
    return [cell for domains, steps in SUITES[suite] for cell in plan(domains, chosen, seeds, horizon or steps)]
