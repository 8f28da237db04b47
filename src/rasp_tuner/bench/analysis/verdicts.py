"""Who beats whom, in words: the first lines of every page and the last of the demo."""

from collections.abc import Mapping, Sequence

from rasp_tuner.bench.analysis.metrics import Runs, geometric_mean, geometric_means, select, shared_totals
from rasp_tuner.bench.analysis.summary import best_peer_tests, is_peer
from rasp_tuner.bench.domains import DOMAINS, SYNTHETIC

OTHERS = {"static": "never changing anything", "random": "random search"}
TIE = 0.005  # share of the regret: what reads "1.00 times"


def lead(runs: Sequence[Runs], agents: Sequence[str] = ("rasp-paper", "rasp")) -> list[str]:
    """By horizon and preset: how it fares on the nine domains, and by name on those outside them."""
    lines = []
    for horizon in sorted({r.horizon for r in runs}):
        best = best_peer(runs, horizon)
        others = OTHERS if best is None or best in OTHERS else {**OTHERS, best: f"the best peer, {best}"}
        for agent in agents:
            lines += [sentence(runs, horizon, agent, others), outside(runs, horizon, agent)]
    return [line for line in lines if line]


def sentence(runs: Sequence[Runs], horizon: int, agent: str, others: Mapping[str, str]) -> str:
    """How the agent fares against others, name -> words, over the nine domains; empty if it met none of them there."""
    parts = []
    for other, words in others.items():
        gaps = relative(runs, horizon, agent, other)
        if gaps:
            mean, won = geometric_mean(gaps), sum(gap < 1 for gap in gaps)
            verb = "ties with" if f"{mean:.2f}" == "1.00" else "beats" if mean < 1 else "LOSES to"
            fewer = fewer_seeds(runs, horizon, agent, other)
            note = f"{fewer}: " if fewer else ""
            parts.append(f"{verb} {words} ({note}{mean:.2f} times its regret, lower on {won} of {len(gaps)} domains)")
    return f"T = {horizon:,}: {agent} {', '.join(parts)}." if parts else ""


def outside(runs: Sequence[Runs], horizon: int, agent: str) -> str:
    """Where the agent loses to doing nothing and to the best peer, domain by domain; empty if it ran on none there."""
    here = sorted((r for r in runs if r.horizon == horizon and r.domain not in SYNTHETIC), key=lambda r: r.domain)
    idle: dict[str, str] = {}
    for own in (r for r in here if r.agent == agent):
        static = select(here, domain=own.domain, agent="static", horizon=horizon)
        if static is not None and set(own.seeds) & set(static.seeds):
            ours, theirs = (float(totals.mean()) for totals in shared_totals(own, static))
            idle[_label(own.domain)] = _verb(ours, theirs)
    peers, found = {}, set()
    for test in best_peer_tests(here, agent):
        best = test["best_peer"]
        fewer = fewer_seeds(here, horizon, agent, best, [test["domain"]])
        peers[f"{_label(test['domain'])} ({', '.join(filter(None, (best, fewer)))})"] = _verb(
            test["ours"], test["theirs"]
        )
        found.add(best)
    said = [_grouped(idle, OTHERS["static"])] if idle else []
    if found - {"static"}:
        said.append(_grouped(peers, "the best peer of the domain"))
    return f"T = {horizon:,}, outside the nine: {agent} {'. It '.join(said)}." if said else ""


def fewer_seeds(runs: Sequence[Runs], horizon: int, agent: str, other: str, domains: Sequence[str] = SYNTHETIC) -> str:
    """On how many seeds the two were compared, such as "1 seed", where the agent itself ran on more; else nothing."""
    both = [[select(runs, domain=d, agent=a, horizon=horizon) for a in (agent, other)] for d in domains]
    counts = [(len(set(a.seeds) & set(b.seeds)), len(a.seeds)) for a, b in both if a is not None and b is not None]
    shared = min((n for n, own in counts if 0 < n < own), default=0)
    return f"{shared} seed{'s' if shared > 1 else ''}" if shared else ""


def _verb(ours: float, theirs: float) -> str:
    if abs(ours - theirs) <= TIE * theirs:
        return "ties with"
    return "beats" if ours < theirs else "LOSES to"


def _grouped(verbs: Mapping[str, str], whom: str) -> str:
    """Names under their verbs, losses first: LOSES to X on A1, S2; beats it on H1."""
    groups = {verb: [name for name, v in verbs.items() if v == verb] for verb in ("LOSES to", "beats", "ties with")}
    said = [(verb, ", ".join(names)) for verb, names in groups.items() if names]
    return "; ".join(f"{verb} {'it' if i else whom} on {names}" for i, (verb, names) in enumerate(said))


def _label(domain: str) -> str:
    """A1 for A1_Adversarial_Context; the name of a table of one's own stays whole."""
    return domain.split("_")[0] if domain in DOMAINS else domain


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
