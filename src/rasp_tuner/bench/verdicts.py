"""Who beats whom, in words: the first lines of every page and the last of the demo."""

from collections.abc import Mapping, Sequence

from rasp_tuner.bench.domains import SYNTHETIC
from rasp_tuner.bench.metrics import Runs, geometric_mean, geometric_means, select, shared_totals
from rasp_tuner.bench.summary import is_peer

OTHERS = {"static": "never changing anything", "random": "random search"}


def lead(runs: Sequence[Runs], agents: Sequence[str] = ("rasp-paper", "rasp")) -> list[str]:
    """One sentence a horizon and preset: against doing nothing, against random search, against the best peer."""
    lines = []
    for horizon in sorted({r.horizon for r in runs}):
        best = best_peer(runs, horizon)
        others = OTHERS if best is None or best in OTHERS else {**OTHERS, best: f"the best peer, {best}"}
        lines += [sentence(runs, horizon, agent, others) for agent in agents]
    return [line for line in lines if line]


def sentence(runs: Sequence[Runs], horizon: int, agent: str, others: Mapping[str, str]) -> str:
    """How the agent fares against others, name -> words, over the nine domains; empty if it met none of them there."""
    parts = []
    for other, words in others.items():
        gaps = relative(runs, horizon, agent, other)
        if gaps:
            mean, won = geometric_mean(gaps), sum(gap < 1 for gap in gaps)
            verb = "ties with" if f"{mean:.2f}" == "1.00" else "beats" if mean < 1 else "LOSES to"
            parts.append(f"{verb} {words} ({mean:.2f} times its regret, lower on {won} of {len(gaps)} domains)")
    return f"T = {horizon:,}: {agent} {', '.join(parts)}." if parts else ""


def relative(runs: Sequence[Runs], horizon: int, agent: str, other: str) -> list[float]:
    """The agent's mean regret relative to the other's on each of the nine domains, over the seeds both ran."""
    gaps = []
    for domain in SYNTHETIC:
        own, theirs = (select(runs, domain=domain, agent=a, horizon=horizon) for a in (agent, other))
        if own is not None and theirs is not None:
            a, b = shared_totals(own, theirs)
            if b.sum() > 0:
                gaps.append(float(a.mean() / b.mean()))
    return gaps


def best_peer(runs: Sequence[Runs], horizon: int) -> str | None:
    """The peer with the least geometric mean relative to the static default, of those that ran on all nine."""
    means = {agent: mean for agent, mean in geometric_means(runs, horizon).items() if is_peer(agent)}
    return min(means, key=lambda agent: means[agent], default=None)
