"""How each claim of the paper is measured: each function takes the runs and an agent and gives words and a verdict.

"Often", "many" and "several" mean more than half; "comparable" means at most COMPARABLE times the regret.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rasp_lab.bench.analysis import stats, summary
from rasp_lab.bench.analysis.metrics import (
    ADAPT_WINDOW,
    Adaptation,
    Runs,
    geometric_mean,
    regret_after_switches,
    select,
)
from rasp_lab.bench.domains import STREAMS, SWITCHING, SYNTHETIC
from rasp_lab.bench.runner import timing
from rasp_tuner.base.numerics import Array

HORIZON = 100  # of every claim but those about step time
COMPARABLE = 1.1
HANDFUL_STEPS = 5  # beyond the first whole window
SPEEDUP_RANGE = (8.0, 12.0)  # the paper's factor
TENS_OF_MS = (10.0, 100.0)
EARLY_STEPS = HORIZON // 5
PAPERS_PEERS = ("gp-ucb", "cma-es")  # the two it compares with; random search is its upper envelope
MOVING = tuple(d for d in SYNTHETIC if d[0] in "145789")  # the drifting and switching rows of its Figure 2
SMOOTH, ISP, TRACE, ADVERSARIAL = SYNTHETIC[5], SYNTHETIC[2], SYNTHETIC[8], "A1_Adversarial_Context"

ClaimVerdict = Literal["holds", "holds, and more", "does not hold", "not measured"]
ClaimOutcome = tuple[str, ClaimVerdict]
NOT_MEASURED: ClaimOutcome = ("", "not measured")


@dataclass(frozen=True, slots=True)
class ClaimInputs:
    """Runs at HORIZON, and step times by domain and agent."""

    runs: Sequence[Runs]
    times: Mapping[str, Mapping[str, timing.StepTimes]]

    def run(self, domain: str, agent: str) -> Runs | None:
        return select(self.runs, domain=domain, agent=agent, horizon=HORIZON)

    def regret(self, domain: str, *agents: str) -> dict[str, Array] | None:
        """Regret of every step [seeds, T] over the seeds that all of the agents ran; None if one did not run."""
        found = [r for r in (self.run(domain, agent) for agent in agents) if r is not None]
        if len(found) < len(agents):
            return None
        shared = set.intersection(*(set(r.seeds) for r in found))
        return {r.agent: r["regret"][[seed in shared for seed in r.seeds]] for r in found} if shared else None

    def means(self, domain: str, *agents: str) -> dict[str, float] | None:
        """Mean cumulative regret of each."""
        known = self.regret(domain, *agents)
        return None if known is None else {agent: float(r.sum(axis=1).mean()) for agent, r in known.items()}

    def adapts(self, domain: str, agent: str) -> Adaptation | None:
        own = self.run(domain, agent)
        return None if own is None else summary.adapts(own, self.runs)


ClaimCheck = Callable[[ClaimInputs, str], ClaimOutcome]


def as_verdict(claim_holds: bool) -> ClaimVerdict:
    return "holds" if claim_holds else "does not hold"


def against_peers(
    data: ClaimInputs, agent: str, peers: Sequence[str] = PAPERS_PEERS
) -> list[tuple[bool, float]] | None:
    """Of each of the nine: whether it has less regret than the strongest of the peers, and the p-value."""
    told = []
    for domain in SYNTHETIC:
        known = data.regret(domain, agent, *peers)
        if known is None:
            return None
        totals = {name: r.sum(axis=1) for name, r in known.items()}
        best = min((totals[peer] for peer in peers), key=lambda total: float(total.mean()))
        told.append((bool(totals[agent].mean() < best.mean()), stats.paired_p(totals[agent], best)))
    return told


def wins(data: ClaimInputs, agent: str) -> ClaimOutcome:
    told = against_peers(data, agent)
    if told is None:
        return NOT_MEASURED
    won = sum(less and p < 0.05 for less, p in told)
    return f"{won} of 9", as_verdict(won >= 7)


def improves_or_matches(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Matching is regret that is higher, but not at p < 0.05."""
    told = against_peers(data, agent)
    if told is None:
        return NOT_MEASURED
    good = sum(less or not p < 0.05 for less, p in told)
    return f"{good} of 9; lower on {sum(less for less, _ in told)}", as_verdict(good >= 7)


def tracks_peers(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Regret relative to the better of the two peers where optima drift or switch."""
    known = [data.means(domain, agent, *PAPERS_PEERS) for domain in MOVING]
    ratios = [m[agent] / min(m[peer] for peer in PAPERS_PEERS) for m in known if m is not None]
    if len(ratios) < len(MOVING):
        return NOT_MEASURED
    good = sum(ratio <= COMPARABLE for ratio in ratios)
    return f"at most {COMPARABLE} times the better peer's on {good} of {len(MOVING)}", as_verdict(
        good > len(MOVING) / 2
    )


def softens_switches(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Regret right after a switch, beside that of CMA-ES."""
    ratios = []
    for domain in SWITCHING:
        own, cma = data.run(domain, agent), data.run(domain, "cma-es")
        if own is not None and cma is not None:
            after = [[cost for blocks in regret_after_switches(r) for _, cost in blocks[1:]] for r in (own, cma)]
            if after[0] and after[1]:
                ratios.append(float(np.mean(after[0]) / np.mean(after[1])))
    if not ratios:
        return NOT_MEASURED
    less = sum(ratio < 1 for ratio in ratios)
    said = f"lower on {less} of {len(ratios)} that switch by T = {HORIZON}; {times_over(ratios)} CMA-ES's"
    return said, as_verdict(less > len(ratios) / 2)


def smooth_favours_gp(data: ClaimInputs, agent: str) -> ClaimOutcome:
    means = data.means(SMOOTH, "gp-ucb", agent, "cma-es")
    return NOT_MEASURED if means is None else (listed(means), as_verdict(min(means, key=means.__getitem__) == "gp-ucb"))


def nobody_dominates(data: ClaimInputs, agent: str) -> ClaimOutcome:
    names = (agent, *PAPERS_PEERS, "random")
    known = [means for means in (data.means(domain, *names) for domain in SYNTHETIC) if means is not None]
    if len(known) < len(SYNTHETIC):
        return NOT_MEASURED
    leaders = [min(means, key=means.__getitem__) for means in known]
    first = max(names, key=leaders.count)
    return f"{first} has the least regret on {leaders.count(first)} of 9", as_verdict(leaders.count(first) < 9)


def mixed_by_segment(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Who has the least regret in each fifth of the camera's day."""
    known = data.regret(ISP, agent, *PAPERS_PEERS)
    if known is None:
        return NOT_MEASURED
    parts = {name: [part.sum() for part in np.array_split(r.mean(axis=0), 5)] for name, r in known.items()}
    leaders = [min(parts, key=lambda name: parts[name][i]) for i in range(5)]
    counts = {name: leaders.count(name) for name in parts}
    said = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"least regret by segment: {said}", as_verdict(len(set(leaders)) > 1)


def memory_helps(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Regret without memory relative to regret with it, on the switching tasks that do switch within the horizon."""
    factors = []
    for domain in SWITCHING:
        means, own = data.means(domain, agent, f"{agent}-no-memory"), data.run(domain, agent)
        if means is not None and own is not None and np.ptp(own["regime"]) > 0:
            factors.append(means[f"{agent}-no-memory"] / means[agent])
    if not factors:
        return NOT_MEASURED
    worse = sum(factor > COMPARABLE for factor in factors)
    said = f"regret x {geometric_mean(factors):.2f}; over 10% more on {worse} of {len(factors)}"
    return f"{said} that switch by T = {HORIZON}", as_verdict(worse > len(factors) / 2)


def faster(domain: str) -> ClaimCheck:
    """GP-UCB's median step time divided by the agent's on a domain."""

    def measure(data: ClaimInputs, agent: str) -> ClaimOutcome:
        own, gp = (data.times.get(domain, {}).get(name) for name in (agent, "gp-ucb"))
        if own is None or gp is None:
            return NOT_MEASURED
        factor, (least, most) = gp.median_ms / own.median_ms, SPEEDUP_RANGE
        said = f"{factor:.1f} times lower: {own.median_ms:.3g} against {gp.median_ms:.3g} ms"
        return said, "does not hold" if factor < least else "holds" if factor <= most else "holds, and more"

    return measure


def tens_of_milliseconds(data: ClaimInputs, agent: str) -> ClaimOutcome:
    means = {name: t.mean_ms for name, t in data.times.get(timing.DOMAIN, {}).items() if name in (agent, "cma-es")}
    if len(means) < 2:
        return NOT_MEASURED
    said = ", ".join(f"{name} {means[name]:.3g} ms" for name in (agent, "cma-es"))
    low, high = TENS_OF_MS
    slowest = max(means.values())
    return said, "does not hold" if slowest >= high else "holds" if slowest >= low else "holds, and more"


def cma_is_as_fast(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """On the same scale: within a factor of ten."""
    own, cma = (data.times.get(timing.DOMAIN, {}).get(name) for name in (agent, "cma-es"))
    if own is None or cma is None:
        return NOT_MEASURED
    factor = own.median_ms / cma.median_ms
    return f"{agent} takes {factor:.3g} times as long as CMA-ES", as_verdict(0.1 <= factor <= 10)


def adapts_soon(data: ClaimInputs, agent: str) -> ClaimOutcome:
    known = [adapted for domain in SYNTHETIC if (adapted := data.adapts(domain, agent)) is not None]
    if not known:
        return NOT_MEASURED
    steps = [np.inf if adapted.median_step is None else adapted.median_step for adapted in known]
    limit = ADAPT_WINDOW + HANDFUL_STEPS
    soon, ever = sum(step <= limit for step in steps), sum(step < np.inf for step in steps)
    return f"by step {limit} on {soon} of {len(known)}, at all on {ever}", as_verdict(soon > len(known) / 2)


def quick_on_return(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Regret right after a regime comes back relative to that right after its first visit."""
    ratios = []
    for domain in SWITCHING:
        own, first, back = data.run(domain, agent), [], []
        for blocks in regret_after_switches(own) if own is not None else []:
            met: dict[int, float] = {}
            for regime, cost in blocks:
                if regime in met:
                    first.append(met[regime])
                    back.append(cost)
                met.setdefault(regime, cost)
        if back:
            ratios.append(float(np.mean(back) / np.mean(first)))
    if not ratios:
        return NOT_MEASURED
    return f"regret {times_over(ratios)} that of the first visit", as_verdict(
        sum(r < 0.5 for r in ratios) > len(ratios) / 2
    )


def adapts_before_peers(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Median step to adapt beside both peers' on switching tasks and the trace; never is later than any step."""
    ahead = known = 0
    for domain in (*SWITCHING, TRACE):
        told = [data.adapts(domain, name) for name in (agent, *PAPERS_PEERS)]
        if any(adapted is None for adapted in told):
            continue
        known += 1
        own, *theirs = (t.median_step if t and t.median_step is not None else np.inf for t in told)
        ahead += int(own < min(theirs))
    if not known:
        return NOT_MEASURED
    return f"before both on {ahead} of {known}", as_verdict(ahead > known / 2)


def never_adapts(data: ClaimInputs, agent: str) -> ClaimOutcome:
    known = [adapted for domain in SYNTHETIC if (adapted := data.adapts(domain, agent)) is not None]
    if not known:
        return NOT_MEASURED
    reached, seeds = sum(a.reached for a in known), sum(a.seeds for a in known)
    return f"adapts in {reached} of {seeds} runs", as_verdict(all(a.reached <= a.seeds / 2 for a in known))


def adversarial(data: ClaimInputs, agent: str) -> ClaimOutcome:
    means = data.means(ADVERSARIAL, agent, "cma-es", "gp-ucb")
    return NOT_MEASURED if means is None else (listed(means), as_verdict(max(means, key=means.__getitem__) == agent))


def on_streams(data: ClaimInputs, *agents: str) -> list[dict[str, float]] | None:
    """Mean regret of each on the three streams; None if one is missing."""
    known = [means for means in (data.means(domain, *agents) for domain in STREAMS) if means is not None]
    return known if len(known) == len(STREAMS) else None


def cuts_streams(data: ClaimInputs, agent: str) -> ClaimOutcome:
    known = on_streams(data, agent, *PAPERS_PEERS, "random")
    if known is None:
        return NOT_MEASURED
    cuts = [1.0 - means[agent] / min(mean for name, mean in means.items() if name != agent) for means in known]
    verdict = as_verdict(min(cuts) >= 0.159)
    said = ", ".join(f"{100 * cut:+.1f}%" for cut in cuts)
    return f"reduction {said}", "holds, and more" if min(cuts) > 0.198 else verdict


def least_on_streams(data: ClaimInputs, agent: str) -> ClaimOutcome:
    known = on_streams(data, agent, *PAPERS_PEERS, "random")
    if known is None:
        return NOT_MEASURED
    won = sum(min(means, key=means.__getitem__) == agent for means in known)
    return f"{won} of 3", as_verdict(won == 3)


def best_baseline_on_streams(data: ClaimInputs, agent: str) -> ClaimOutcome:
    known = on_streams(data, agent, "cma-es", "random")
    if known is None:
        return NOT_MEASURED
    best = [min(means, key=means.__getitem__) for means in known]
    said = ", ".join(f"{name} on {best.count(name)}" for name in dict.fromkeys(best))
    return f"least regret of the three: {said}", as_verdict(best.count(agent) == 3)


def random_is_worst_on_streams(data: ClaimInputs, agent: str) -> ClaimOutcome:
    known = on_streams(data, agent, *PAPERS_PEERS, "random")
    if known is None:
        return NOT_MEASURED
    worst = sum(max(means, key=means.__getitem__) == "random" for means in known)
    return f"most regret at the end on {worst} of 3", as_verdict(worst == 3)


def gp_pays_early(data: ClaimInputs, agent: str) -> ClaimOutcome:
    """Regret of the first fifth of the steps on each stream, GP-UCB's relative to the agent's."""
    ratios = []
    for domain in STREAMS:
        known = data.regret(domain, agent, "gp-ucb")
        if known is not None:
            own, gp = (known[name][:, :EARLY_STEPS].sum(axis=1).mean() for name in (agent, "gp-ucb"))
            ratios.append(float(gp / own))
    if len(ratios) < len(STREAMS):
        return NOT_MEASURED
    said = f"{times_over(ratios)} {agent}'s in the first {EARLY_STEPS} steps"
    return said, as_verdict(min(ratios) > 1)


def beats_static(*domains: str) -> ClaimCheck:
    """Not a claim of the paper's: on how many of the domains it beats never moving."""

    def measure(data: ClaimInputs, agent: str) -> ClaimOutcome:
        known = [means for means in (data.means(domain, agent, "static") for domain in domains) if means is not None]
        won = sum(means[agent] < means["static"] for means in known)
        return (f"{won} of {len(known)}", as_verdict(won == len(known))) if len(known) == len(domains) else NOT_MEASURED

    return measure


def listed(means: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {mean:.3g}" for name, mean in means.items())


def times_over(ratios: Sequence[float]) -> str:
    return ", ".join(f"x {ratio:.2f}" for ratio in ratios)
