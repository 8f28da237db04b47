"""The paper's numeric claims, each with what the runs at hand say about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rasp_tuner.bench import stats
from rasp_tuner.bench.domains import RECURRING, STREAMS, SYNTHETIC
from rasp_tuner.bench.metrics import Runs, latency, select, shared_totals

Verdict = Literal["holds", "does not hold", "not measured"]
PAPERS_PEERS = ("gp-ucb", "cma-es")  # the two it compares with; random search is its upper envelope


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured for a claim, for one agent."""

    where: str
    claim: str
    agent: str
    measured: str
    verdict: Verdict


Measure = Callable[[Sequence[Runs], str], tuple[str, Verdict]]


def findings(runs: Sequence[Runs], agents: Sequence[str] = ("rasp-paper", "rasp")) -> list[Finding]:
    """One row a claim and agent; claims are about T = 100."""
    here = [r for r in runs if r.horizon == 100]
    rows = []
    for where, claim, measure in CLAIMS:
        for agent in (a for a in agents if any(r.agent == a for r in here)):
            measured, verdict = measure(here, agent)
            rows.append(Finding(where, claim, agent, measured, verdict))
    return rows


def wins(runs: Sequence[Runs], agent: str) -> tuple[str, Verdict]:
    """On how many of the nine it beats the stronger of the paper's two peers at p < 0.05."""
    won = 0
    for domain in SYNTHETIC:
        own = select(runs, domain=domain, agent=agent, horizon=100)
        peers = [select(runs, domain=domain, agent=peer, horizon=100) for peer in PAPERS_PEERS]
        if own is None or any(peer is None for peer in peers):
            return "", "not measured"
        best = min((peer for peer in peers if peer is not None), key=lambda r: float(r.totals.mean()))
        ours, theirs = shared_totals(own, best)
        won += int(ours.mean() < theirs.mean() and stats.paired_p(ours, theirs) < 0.05)
    return f"{won} of 9", "holds" if won >= 7 else "does not hold"


def speed(runs: Sequence[Runs], agent: str) -> tuple[str, Verdict]:
    """Median over the nine domains of GP-UCB's step time divided by the agent's."""
    factors = []
    for domain in SYNTHETIC:
        own, gp = (select(runs, domain=domain, agent=a, horizon=100) for a in (agent, "gp-ucb"))
        if own is not None and gp is not None:
            factors.append(latency(gp)["median_ms"] / latency(own)["median_ms"])
    if not factors:
        return "", "not measured"
    factor = float(np.median(factors))
    return f"{factor:.0f} times lower (median of {len(factors)} domains)", "holds" if factor >= 8 else "does not hold"


def memory_helps(runs: Sequence[Runs], agent: str) -> tuple[str, Verdict]:
    """Regret without memory relative to regret with it, over domains whose regimes recur."""
    factors = []
    for domain in RECURRING:
        own, masked = (select(runs, domain=domain, agent=a, horizon=100) for a in (agent, f"{agent}-no-memory"))
        if own is not None and masked is not None:
            factors.append(float(masked.totals.mean() / own.totals.mean()))
    if not factors:
        return "", "not measured"
    worse = sum(factor > 1.1 for factor in factors)
    said = (
        f"regret x {np.exp(np.mean(np.log(factors))):.2f} without memory; over 10% worse on {worse} of {len(factors)}"
    )
    return said, "holds" if worse > len(factors) / 2 else "does not hold"


def adversarial(runs: Sequence[Runs], agent: str) -> tuple[str, Verdict]:
    """Whether the agent does worse than both peers where context is noise."""
    names = (agent, "cma-es", "gp-ucb")
    totals = {a: select(runs, domain="A1_Adversarial_Context", agent=a, horizon=100) for a in names}
    if any(r is None for r in totals.values()):
        return "", "not measured"
    means = {a: float(r.totals.mean()) for a, r in totals.items() if r is not None}
    said = ", ".join(f"{a} {mean:.2f}" for a, mean in means.items())
    return said, "holds" if means[agent] > max(means["cma-es"], means["gp-ucb"]) else "does not hold"


def beats_nothing(runs: Sequence[Runs], agent: str) -> tuple[str, Verdict]:
    """Not a claim of the paper's: on how many of the nine it beats never moving."""
    won = known = 0
    for domain in SYNTHETIC:
        own, static = (select(runs, domain=domain, agent=a, horizon=100) for a in (agent, "static"))
        if own is not None and static is not None:
            known += 1
            won += int(own.totals.mean() < static.totals.mean())
    if not known:
        return "", "not measured"
    return f"{won} of {known}", "holds" if won == known else "does not hold"


def streams(runs: Sequence[Runs], agent: str) -> tuple[str, Verdict]:
    """Reduction of regret against the best of the paper's peers on the three tabular streams."""
    cuts = []
    for domain in STREAMS:
        own = select(runs, domain=domain, agent=agent, horizon=100)
        peers = [select(runs, domain=domain, agent=peer, horizon=100) for peer in (*PAPERS_PEERS, "random")]
        known = [float(peer.totals.mean()) for peer in peers if peer is not None]
        if own is None or len(known) < len(peers):
            return "", "not measured"
        cuts.append(1.0 - float(own.totals.mean()) / min(known))
    said = ", ".join(f"{100 * cut:+.1f}%" for cut in cuts)
    return f"reduction {said}", "holds" if min(cuts) >= 0.159 else "does not hold"


CLAIMS: tuple[tuple[str, str, Measure], ...] = (
    ("Abstract, 1, 6.1", "beats the stronger of GP-UCB and CMA-ES on 7 of 9 tasks, p < 0.05", wins),
    ("Abstract, 6.2", "8 to 12 times lower step time than sliding-window GP-UCB", speed),
    ("6.2", "regret rises substantially without memory on switching tasks", memory_helps),
    ("6.3, App. B", "does worse than CMA-ES and GP-UCB where context is pure noise", adversarial),
    ("6.4, Table 3", "15.9 to 19.8% less regret than the best peer on all three streams", streams),
    ("not in the paper", "beats never changing anything on all nine tasks", beats_nothing),
)
