"""Who beats whom, in words: how ours does on the paper's nine domains, and every domain on which it loses."""

from collections.abc import Mapping, Sequence

from rasp_lab.bench.analysis.metrics import Runs, geometric_mean, geometric_means, select, shared_totals
from rasp_lab.bench.analysis.summary import best_peer_tests, is_peer
from rasp_lab.bench.domains import STREAMS, SYNTHETIC, short_name

OURS = ("rasp", "rasp-paper")
OTHERS = {"static": "never changing anything", "random": "random search"}
TIE_SHARE = 0.005  # of the regret: what reads "1.00 times"
NO_LOSS = "On none of the domains that were run."
ON_A1 = "On A1 the default is already optimal: every trial costs something."
ON_STREAMS = (
    "On the streams (S1 to S3) batches differ more than settings do: a hundred steps are too few to tell which setting"
    " is better."
)


def summaries(runs: Sequence[Runs], agents: Sequence[str] = OURS) -> list[str]:
    """By preset and horizon: how it does on the nine domains against doing nothing, random search and the best peer."""
    lines = []
    for agent in agents:
        for horizon in sorted({r.horizon for r in runs}):
            best = best_peer(runs, horizon)
            others = OTHERS if best is None or best in OTHERS else {**OTHERS, best: f"the best peer, {best}"}
            lines.append(sentence(runs, horizon, agent, others))
    return [line for line in lines if line]


def sentence(runs: Sequence[Runs], horizon: int, agent: str, others: Mapping[str, str]) -> str:
    """How the agent does against others, name -> words, over the nine domains; empty if it met none of them there."""
    parts = []
    for other, words in others.items():
        gaps = relative_regret(runs, horizon, agent, other)
        if gaps:
            mean, won = geometric_mean(gaps), sum(gap < 1 for gap in gaps)
            verb = "ties with" if f"{mean:.2f}" == "1.00" else "beats" if mean < 1 else "loses to"
            fewer = fewer_seeds(runs, horizon, agent, other)
            note = f"{fewer}: " if fewer else ""
            parts.append(f"{verb} {words} ({note}{mean:.2f} times its regret, lower on {won} of {len(gaps)} domains)")
    return f"T = {horizon:,}: {agent} {', '.join(parts)}." if parts else ""


def losses(runs: Sequence[Runs], agents: Sequence[str] = OURS) -> list[str]:
    """By preset and horizon: the domains on which it has more regret than `static` and than the best peer; then why."""
    lines, lost = [], set[str]()
    for agent in agents:
        for horizon in sorted({r.horizon for r in runs if r.agent == agent}):
            here = [r for r in runs if r.horizon == horizon]
            ran = [r.domain for r in here if r.agent == agent]
            to_static = _lost_to_static(here, agent)
            to_peer = _lost_to_best_peer(here, agent)
            said = [([*map(short_name, to_static)], OTHERS["static"])] if to_static else []
            if any(peer != "static" for peer, _ in to_peer.values()):
                named = [f"{short_name(domain)} ({', '.join(filter(None, peer))})" for domain, peer in to_peer.items()]
                said.append((named, "the best peer of the domain"))
            if said:
                parts = [f"than {whom} on {_all_or(names, len(ran))}" for names, whom in said]
                lines.append(f"T = {horizon:,}: {agent} has more regret {', and more '.join(parts)}.")
            if agent == agents[0]:
                lost |= {*to_static, *to_peer}
    reasons = [ON_A1] if "A1_Adversarial_Context" in lost else []
    reasons += [ON_STREAMS] if lost & {*STREAMS} else []
    return lines + reasons


def fewer_seeds(runs: Sequence[Runs], horizon: int, agent: str, other: str, domains: Sequence[str] = SYNTHETIC) -> str:
    """On how many seeds the two were compared, such as "1 seed", where the agent itself ran on more; else nothing."""
    both = [[select(runs, domain=d, agent=a, horizon=horizon) for a in (agent, other)] for d in domains]
    counts = [(len(set(a.seeds) & set(b.seeds)), len(a.seeds)) for a, b in both if a is not None and b is not None]
    shared = min((n for n, own in counts if 0 < n < own), default=0)
    return f"{shared} seed{'s' if shared > 1 else ''}" if shared else ""


def relative_regret(runs: Sequence[Runs], horizon: int, agent: str, other: str) -> list[float]:
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


def _lost_to_static(here: Sequence[Runs], agent: str) -> list[str]:
    lost = []
    for own in (r for r in here if r.agent == agent):
        static = select(here, domain=own.domain, agent="static", horizon=own.horizon)
        if static is not None and set(own.seeds) & set(static.seeds):
            ours, theirs = (float(totals.mean()) for totals in shared_totals(own, static))
            lost += [own.domain] if _is_more(ours, theirs) else []
    return sorted(lost)


def _lost_to_best_peer(here: Sequence[Runs], agent: str) -> dict[str, tuple[str, str]]:
    """domain -> the peer, and on how many seeds they were compared if on fewer than the agent ran."""
    lost = {}
    for test in sorted(best_peer_tests(here, agent), key=lambda test: str(test["domain"])):
        if _is_more(test["ours"], test["theirs"]):
            fewer = fewer_seeds(here, here[0].horizon, agent, test["best_peer"], [test["domain"]])
            lost[test["domain"]] = (test["best_peer"], fewer)
    return lost


def _is_more(ours: float, theirs: float) -> bool:
    return ours - theirs > TIE_SHARE * theirs


def _all_or(names: Sequence[str], count: int) -> str:
    """All names, or how many they are if it is every one of several."""
    return f"all {count} domains" if len(names) == count > 1 else ", ".join(names)
