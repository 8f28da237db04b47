"""Time to recover when a regime comes back, beside its first visit, for agents that remember and agents that forget.

A visit is a block of steps with the same true regime. It has recovered at the first three steps in a row whose median
true regret is at most ADAPT_SHARE of what never changing anything loses in that regime (history/recovery.py, without
noise). Every return is paired with the first visit of the same regime and seed, and both are cut at the length of the
shorter one, which stands for a visit that never recovers. So a longer visit is no advantage, and all agents are
measured on the same pairs. Means are over the pairs of a seed, then over seeds, with standard errors over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rasp_lab.bench.analysis.metrics import ADAPT_SHARE, Runs
from rasp_tuner.base.numerics import Array
from rasp_tuner.history.recovery import IN_A_ROW, steps_to_recover

Block = tuple[int, int, int]  # regime, first step, step after the last


@dataclass(frozen=True, slots=True)
class Recovery:
    """Steps to recover of one agent on one domain: mean and standard error over seeds."""

    domain: str
    agent: str
    seeds: int
    pairs: int  # of a first visit and a return, over all seeds
    first: float
    first_error: float  # NaN with one seed
    back: float
    back_error: float
    cut: float  # mean of the steps at which pairs are cut
    reached: float  # share of returns that recovered

    @property
    def saved(self) -> float:
        """Steps fewer on return."""
        return self.first - self.back


def blocks(regimes: Array) -> list[Block]:
    """The visits of one seed, from the true regime of each step [T]."""
    starts = [0, *(np.flatnonzero(np.diff(regimes)) + 1).tolist()]
    return [(int(regimes[a]), a, b) for a, b in zip(starts, [*starts[1:], len(regimes)], strict=True)]


def recoveries(here: Sequence[Runs]) -> list[Recovery]:
    """Of every agent on every domain where a regime comes back and the static default ran; of one horizon."""
    found = []
    for domain in dict.fromkeys(r.domain for r in here):
        static = next((r for r in here if (r.domain, r.agent) == (domain, "static")), None)
        if static is None:
            continue
        limits = _limits(static)
        found += [one for r in here if r.domain == domain and (one := _recovery(r, limits)) is not None]
    return found


def _limits(static: Runs) -> dict[int, float]:
    """By regime, over all seeds."""
    regimes, regret = static["regime"], static["regret"]
    return {int(k): ADAPT_SHARE * float(regret[regimes == k].mean()) for k in np.unique(regimes)}


def _recovery(r: Runs, limits: dict[int, float]) -> Recovery | None:
    """None where nothing comes back, or doing nothing loses nothing."""
    of_seeds = [_pairs(regimes, regret, limits) for regimes, regret in zip(r["regime"], r["regret"], strict=True)]
    known = [np.array(pairs, dtype=np.float64) for pairs in of_seeds if pairs]
    if not known:
        return None
    means = np.array([pairs.mean(axis=0) for pairs in known])
    count = len(means)
    errors = means.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(4, np.nan)
    first, back, cut, reached = means.mean(axis=0).tolist()
    pairs = sum(map(len, known))
    return Recovery(r.domain, r.agent, count, pairs, first, float(errors[0]), back, float(errors[1]), cut, reached)


def _pairs(regimes: Array, regret: Array, limits: dict[int, float]) -> list[tuple[float, float, float, float]]:
    """Of each return in a seed: steps to recover at first and now, where both are cut, whether it recovered."""
    first: dict[int, Block] = {}
    pairs = []
    for block in blocks(regimes):
        regime, start, end = block
        before = first.setdefault(regime, block)
        cut = min(end - start, before[2] - before[1])
        if before is block or cut < IN_A_ROW or limits.get(regime, 0.0) <= 0.0:
            continue
        took = [steps_to_recover(regret[at : at + cut].tolist(), limits[regime]) for at in (before[1], start)]
        then, now = (float(cut if steps is None else steps) for steps in took)
        pairs.append((then, now, float(cut), float(took[1] is not None)))
    return pairs
