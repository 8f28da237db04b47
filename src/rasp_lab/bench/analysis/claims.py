"""The claims of the paper's abstract and Sections 1, 5 and 6 that runs can answer, each with what they say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rasp_lab.bench.analysis import claim_checks as checks
from rasp_lab.bench.analysis.metrics import Runs
from rasp_lab.bench.domains import STREAMS, SYNTHETIC
from rasp_lab.bench.runner.timing import DOMAIN, STREAM, StepTimes

OURS = ("rasp-paper", "rasp-repaired", "rasp")


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """What was measured for a claim, for one agent."""

    where: str
    claim: str
    agent: str
    measured: str
    verdict: checks.ClaimVerdict


def findings(runs: Sequence[Runs], times: Mapping[str, Mapping[str, StepTimes]] | None = None) -> list[ClaimFinding]:
    """One row a claim and agent that ran; claims are about T = 100, those about step time about 500 steps."""
    known = checks.ClaimInputs([r for r in runs if r.horizon == checks.HORIZON], times or {})
    ran = {r.agent for r in known.runs}
    if not ran & set(OURS):
        return []
    return [
        ClaimFinding(where, claim, agent, *measure(known, agent))
        for where, claim, agents, measure in CLAIMS
        for agent in agents
        if agent in ran
    ]


CLAIMS: tuple[tuple[str, str, tuple[str, ...], checks.ClaimCheck], ...] = (
    (
        "Abstract",
        "improves on or matches GP-UCB and CMA-ES on 7 of 9 tasks, paired tests",
        OURS,
        checks.improves_or_matches,
    ),
    ("1, 6.1", "beats the stronger of GP-UCB and CMA-ES on 7 of 9 tasks, p < 0.05", OURS, checks.wins),
    (
        "6.1, Fig. 2",
        "often lower or comparable to the better peer on the six drifting and switching tasks",
        OURS,
        checks.tracks_peers,
    ),
    ("Fig. 2", "smaller spikes than CMA-ES after a switch on several tasks", OURS, checks.softens_switches),
    ("6.1, Fig. 2", "Smooth Quadratic favours the GP", OURS, checks.smooth_favours_gp),
    ("6.1", "none of its three methods dominates every task", OURS, checks.nobody_dominates),
    ("6.1, Fig. 2", "Robot ISP is mixed: who leads depends on the segment", OURS, checks.mixed_by_segment),
    ("6.2, Fig. 3", "regret rises substantially without memory on several switching tasks", OURS, checks.memory_helps),
    (
        "Abstract, 6.2",
        "8 to 12 times lower step time than sliding-window GP-UCB, 500 steps",
        OURS,
        checks.faster(DOMAIN),
    ),
    ("Fig. 3", "RASP and CMA-ES stay in the tens of milliseconds a step, 500 steps", OURS, checks.tens_of_milliseconds),
    ("6.2", "CMA-ES matches RASP's step time", OURS, checks.cma_is_as_fast),
    ("Fig. 3", "adapts within a handful of steps in many scenarios", OURS, checks.adapts_soon),
    ("Fig. 3", "adapts quickly when a known regime comes back", OURS, checks.quick_on_return),
    ("6.2", "adapts before GP-UCB and CMA-ES on switching tasks and the trace", OURS, checks.adapts_before_peers),
    ("Fig. 3", "random search never reliably adapts", ("random",), checks.never_adapts),
    ("6.3, App. B", "does worse than CMA-ES and GP-UCB where context is pure noise", OURS, checks.adversarial),
    ("6.4, Table 4", "the least regret of its four methods on every stream", OURS, checks.least_on_streams),
    ("6.4, Table 4", "15.9 to 19.8% less regret than the best peer on all three streams", OURS, checks.cuts_streams),
    ("6.4, Table 4", "GP-UCB is the best peer on every stream", ("gp-ucb",), checks.best_baseline_on_streams),
    ("6.4, Fig. 5", "random search is the upper envelope on the streams", OURS, checks.random_is_worst_on_streams),
    ("6.4, Fig. 5", "GP-UCB pays more regret early on the streams", OURS, checks.gp_pays_early),
    ("6.4", "8 to 12 times lower step time than GP-UCB on the streams", OURS, checks.faster(STREAM)),
    ("not in the paper", "beats never changing anything on all nine tasks", OURS, checks.beats_static(*SYNTHETIC)),
    ("not in the paper", "beats never changing anything on all three streams", OURS, checks.beats_static(*STREAMS)),
)
