"""What the rows of runs say: each agent against the default on the same work, with intervals.

symbol  shape   meaning
x       [S, T]  log(cost of an agent / cost of the default) of S runs (seeds) of T steps

A ratio is exp(mean of x): every step counts the same, however long it takes. Steps that follow each other are alike (in
their work, in the machine's noise, in what an agent has settled on), so the bootstrap draws blocks of steps.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rasp_lab.real.harness import BASE, BY_HAND, Row
from rasp_tuner.report.paired import Effect, effect, t_quantile

BLOCK = 15  # steps
RESAMPLES = 2_000
NORMAL = 1.96  # what Student's t comes to with many degrees of freedom
EARLY = 50  # steps in which harm counts most

Runs = Sequence[Sequence[Row]]  # of one system, one for each seed
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Times the default's cost, with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Summary:
    """One agent on one system."""

    agent: str
    overall: Ratio
    late: Ratio  # the second half of the steps
    total: float  # sum of costs over sum of the default's costs
    early: Ratio  # the first EARLY steps
    early_worst: Ratio  # the same, of the run where that is worst
    early_total_worst: float  # the same as a ratio of sums
    failed: int
    think_ms: float  # median of a step
    build_s: float  # compiling, mean of a run
    total_built: float  # `total` with compiling, the default's too


def summaries(runs: Runs) -> list[Summary]:
    """All agents but the default."""
    costs = {agent: table(runs, agent, "cost_ms") for agent in agents_of(runs)}
    builds = {agent: _building(runs, agent) for agent in costs}
    found = []
    for agent, own in costs.items():
        if agent == BASE:
            continue
        x = np.log(own / costs[BASE])
        early = x[:, :EARLY]
        worst = int(early.mean(axis=1).argmax())
        found.append(
            Summary(
                agent,
                interval(x),
                interval(x[:, x.shape[1] // 2 :]),
                float(own.sum() / costs[BASE].sum()),
                interval(early),
                interval(early[worst : worst + 1]),
                float((own[:, :EARLY].sum(axis=1) / costs[BASE][:, :EARLY].sum(axis=1)).max()),
                int(table(runs, agent, "failed").sum()),
                float(np.median(table(runs, agent, "think_ms"))),
                builds[agent] / len(runs) / 1000.0,
                float((own.sum() + builds[agent]) / (costs[BASE].sum() + builds[BASE])),
            )
        )
    return found


def agents_of(runs: Runs) -> list[str]:
    return sorted({row.agent for row in runs[0] if row.phase == "tune"})


def table(runs: Runs, agent: str, field: str) -> Array:
    """A field of an agent's rows as [S, T]."""
    found = [[getattr(row, field) for row in run if row.agent == agent and row.phase == "tune"] for run in runs]
    return np.array(found, dtype=np.float64)


def _building(runs: Runs, agent: str) -> float:
    """Milliseconds that an agent's programs took to compile, of all runs."""
    return sum(row.cost_ms for run in runs for row in run if row.agent == agent and row.phase == "build")


def versus(runs: Runs, agent: str, other: str) -> Ratio:
    """One agent's cost as times another's."""
    return interval(np.log(table(runs, agent, "cost_ms") / table(runs, other, "cost_ms")))


def interval(x: Array, seed: int = 0) -> Ratio:
    """exp of the mean of x [S, T], with a block-bootstrap interval: circular blocks within each run.

    >>> print(interval(np.log(np.full((2, 30), 0.5))))
    0.50 (0.50 to 0.50)
    """
    runs, steps = x.shape
    if steps < 2:
        return Ratio(float(np.exp(x.mean())), 0.0, np.inf)
    block = min(BLOCK, -(-steps // 5))  # of a short run, at least five
    count = -(-steps // block)
    starts = np.random.default_rng(seed).integers(steps, size=(RESAMPLES, runs, count))
    sums = np.stack([np.roll(x, -i, axis=1) for i in range(block)]).sum(axis=0)  # [S, T] of the block that starts here
    means = sums[np.arange(runs)[None, :, None], starts].mean(axis=(1, 2)) / block
    # Few blocks, drawn around a run's own mean, vary too little: the factors of n / (n - 1) and of Student's t.
    few = np.sqrt(count * block / steps * count / (count - 1)) * t_quantile(runs * (count - 1)) / NORMAL
    low, high = x.mean() + few * (np.quantile(means, [0.025, 0.975]) - x.mean())
    return Ratio(*(float(np.exp(v)) for v in (x.mean(), low, high)))


@dataclass(frozen=True, slots=True)
class ByHand:
    """A search by hand: a grid that is run before the first step, then its best setting always."""

    settings: int  # of the grid
    steps: float  # what running them cost, in mean steps of the default
    ratio: Ratio  # of the best setting
    with_search: Ratio  # every step with its share of the search


def by_hand(runs: Runs) -> ByHand | None:
    """None if the runs have no grid, as older ones have not."""
    own = [[row for row in run if row.phase == "grid" and row.agent == BY_HAND] for run in runs]
    if not all(own):
        return None
    base, best = table(runs, BASE, "cost_ms"), table(runs, BY_HAND, "cost_ms")
    steps = np.array([sum(row.cost_ms for row in rows) for rows in own]) / base.mean(axis=1)
    share = steps[:, None] / base.shape[1]
    return ByHand(
        len({row.step for row in own[0]}),
        float(steps.mean()),
        interval(np.log(best / base)),
        interval(np.log(best / base + share)),
    )


def running(runs: Runs, agent: str) -> Array:
    """Total cost so far as times the default's [T], geometric mean over runs."""
    own, base = table(runs, agent, "cost_ms"), table(runs, BASE, "cost_ms")
    ratio: Array = np.exp(np.log(np.cumsum(own, axis=1) / np.cumsum(base, axis=1)).mean(axis=0))
    return ratio


def by_kind(runs: Runs, agent: str) -> dict[str, Effect]:
    """The final comparison for each kind of work: recommendation as times the default."""
    return {kind: found for kind, pairs in _pairs(runs, agent).items() if (found := effect([pairs])) is not None}


def recommended(runs: Runs, agent: str) -> Effect | None:
    """The final comparison over all kinds of work, each the same."""
    return effect(list(_pairs(runs, agent).values()))


def _pairs(runs: Runs, agent: str) -> Mapping[str, list[tuple[float, float]]]:
    """(default, agent) of the same piece of work, by kind."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        costs = {(row.kind, row.step, row.agent): row.cost_ms for row in run if row.phase == "final"}
        for (kind, step, name), cost in costs.items():
            if name == agent:
                found[kind].append((costs[kind, step, BASE], cost))
    return found
