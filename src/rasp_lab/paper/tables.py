"""The tables of docs/PAPER.md, as text in rows, from runs."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rasp_lab.bench.analysis import claim_checks
from rasp_lab.bench.analysis.claim_checks import PAPERS_PEERS, ClaimInputs
from rasp_lab.bench.analysis.metrics import Runs, geometric_mean, select, shared_totals
from rasp_lab.bench.domains import SYNTHETIC, short_name
from rasp_lab.bench.report import paper_tables, tables
from rasp_lab.bench.runner.timing import DOMAIN, StepTimes
from rasp_lab.paper.plan import (
    BRIDGE,
    BRIDGE_OF_ENGINE,
    CHOSEN_ON,
    COMPOSED,
    HORIZON,
    PEERS,
    READINGS,
    REPAIRED,
    odd,
    taken_back,
)
from rasp_tuner.base.numerics import Array
from rasp_tuner.page.html_page import Table

Times = Mapping[str, Mapping[str, StepTimes]]
FILES = {  # name -> what it has
    "readings": "as above",
    "bridge": "as above",
    "repaired": "by domain, with p of a paired t-test against the better of CMA-ES and GP-UCB",
    "taken-back": "`rasp-repaired` without one of its changes",
    "claims": "each claim and what was measured",
    "streams": "Table 4 as printed and as measured",
    "ratios": "every agent on every domain and stream",
}


def of_runs(runs: Sequence[Runs], times: Times, engine_only: bool = False) -> dict[str, Table]:
    """All tables that the runs are enough for. `engine_only`: the bridge from the row before the engine's on."""
    found = {
        "readings": readings(runs, times),
        "bridge": bridge(runs, BRIDGE_OF_ENGINE if engine_only else BRIDGE),
        "repaired": repaired(_odd_seeds(runs)),
        "taken-back": without_one(_odd_seeds(runs)),
        "claims": tables.claims_table(runs, times),
        "streams": paper_tables.streams_table(runs, HORIZON),
        "ratios": tables.ratio_table(runs, HORIZON),
    }
    return {name: table for name, table in found.items() if table[1]}


def readings(runs: Sequence[Runs], times: Times) -> Table:
    """Regret of each reading and peer, and on how many of the nine it is ahead of both of the paper's peers."""
    words = {
        **READINGS,
        "cma-es": "peer",
        "gp-ucb": "peer, kappa 2",
        "gp-ucb-0.25": "peer, its best kappa",
        **dict.fromkeys(COMPOSED, "peer that is fed the composed error"),
        "rasp": "preset `default`",
    }
    rows = []
    for agent, reading in words.items():
        level = _level(runs, agent, "static")
        if level is not None:
            peer = agent.split("[")[0] in (*PAPERS_PEERS, *PEERS)
            step = times.get(DOMAIN, {}).get(agent)
            rows.append(
                [
                    f"`{agent}`",
                    reading,
                    _with_error(*level),
                    "" if peer else _ahead(runs, agent, PAPERS_PEERS),
                    "" if peer else _ahead(runs, agent, PEERS),
                    tables.number(step.median_ms if step else None),
                    str(len(_seeds(runs, agent))),
                ]
            )
    return [
        "agent",
        "reading",
        "regret / static",
        "ahead of both peers",
        "and at their best",
        "ms a step",
        "seeds",
    ], rows


def bridge(runs: Sequence[Runs], steps: Mapping[str, tuple[str, str]] = BRIDGE) -> Table:
    """One more component of the engine a row, and by which factor it moves regret."""
    rows, before = [], ""
    for agent, (component, instead) in steps.items():
        level, effect = _level(runs, agent, "static"), _level(runs, agent, before) if before else None
        if level is None:
            return [], []
        said = "" if effect is None else f"x {_with_error(*effect)}"
        rows.append([component or "start", instead, _with_error(*level), said])
        before = agent
    return ["swapped", "instead", "regret / static", "effect"], rows


def repaired(runs: Sequence[Runs]) -> Table:
    """Domain by domain: `rasp-repaired` beside the better of the paper's two peers, and of GP-UCB with two kappas."""
    data, rows = ClaimInputs(_whole_seeds(runs, "static", REPAIRED, *PEERS), {}), []
    told, best = (claim_checks.against_peers(data, REPAIRED, peers) for peers in (PAPERS_PEERS, PEERS))
    if told is None or best is None:
        return [], []
    for domain, (ahead, p), (ahead_of_best, _) in zip(SYNTHETIC, told, best, strict=True):
        means = data.means(domain, "static", REPAIRED, *PEERS) or {}
        shown = [tables.number(means[agent] / means["static"]) for agent in (REPAIRED, *PEERS)]
        unseen = "" if domain in CHOSEN_ON else "yes"
        marks = ["yes" if yes else "no" for yes in (ahead, ahead_of_best)]
        rows.append([short_name(domain), unseen, *shown, marks[0], f"{p:.3f}", marks[1]])
    return ["domain", "unseen", REPAIRED, *PEERS, "ahead of both", "p", "and of the best kappa"], rows


def without_one(runs: Sequence[Runs]) -> Table:
    """By which factor regret grows without one change."""
    rows = []
    for agent, change in taken_back().items():
        level, effect = _level(runs, agent, "static"), _level(runs, agent, REPAIRED)
        if level is not None and effect is not None:
            row = [change, _with_error(*level), f"x {_with_error(*effect)}"]
            rows.append([*row, _ahead(runs, agent, PAPERS_PEERS), _ahead(runs, agent, PEERS)])
    return ["without", "regret / static", "effect", "ahead of both peers", "and at their best"], rows


def verdict(runs: Sequence[Runs], times: Times) -> str:
    """What was wanted of `rasp-repaired`, and what it does."""
    few = _odd_seeds(runs)
    head, rows = repaired(few)
    unseen = [row for row in rows if row[1]]
    own, gp = (times.get(DOMAIN, {}).get(agent) for agent in (REPAIRED, "gp-ucb"))
    said = (
        f"On odd seeds `{REPAIRED}` is ahead of the better of CMA-ES and GP-UCB on {_yes(rows, 0)} of 9 domains,"
        f" {_yes(unseen, 0)} of the {len(unseen)} unseen ones;"
        f" where GP-UCB has the better of two kappas, on {_yes(rows, 1)} and {_yes(unseen, 1)}."
    )
    sure = sum(row[head.index("ahead of both")] == "yes" and float(row[head.index("p")]) < 0.05 for row in rows)
    said += f" It is so at p < 0.05 on {sure}."
    if own is None or gp is None:
        return said
    factor = gp.median_ms / own.median_ms
    return (
        f"{said} A step takes {own.median_ms:.2g} ms, {factor:.0f} times less than GP-UCB's (medians of {own.steps} and"
        f" {gp.steps} steps, taken in turns)."
    )


def _yes(rows: Sequence[Sequence[str]], which: int) -> int:
    """In how many rows the first or the second answer is yes."""
    return sum([cell for cell in row[2:] if cell in ("yes", "no")][which] == "yes" for row in rows)


def _odd_seeds(runs: Sequence[Runs]) -> list[Runs]:
    """The runs with seeds that nothing was chosen on."""
    return [_only(r, odd(max(r.seeds) + 1)) for r in runs if any(seed % 2 for seed in r.seeds)]


def _whole_seeds(runs: Sequence[Runs], *agents: str) -> list[Runs]:
    """The runs of the agents with the seeds that all of them ran on all of the nine."""
    kept = set.intersection(*(_seeds(runs, agent) for agent in agents))
    return [_only(r, kept) for r in runs if r.agent in agents and r.domain in SYNTHETIC] if kept else []


def _only(r: Runs, seeds: Collection[int]) -> Runs:
    places = [i for i, seed in enumerate(r.seeds) if seed in seeds]
    columns = {name: values[places] for name, values in r.columns.items()}
    return Runs(r.domain, r.agent, r.horizon, tuple(r.seeds[i] for i in places), columns)


def _ahead(runs: Sequence[Runs], agent: str, peers: Sequence[str]) -> str:
    told = claim_checks.against_peers(ClaimInputs(_whole_seeds(runs, agent, *peers), {}), agent, peers)
    return "-" if told is None else str(sum(less for less, _ in told))


def _seeds(runs: Sequence[Runs], agent: str) -> set[int]:
    """That the agent ran on all of the nine."""
    own = {r.domain: set(r.seeds) for r in runs if r.agent == agent and r.domain in SYNTHETIC}
    return set.intersection(*own.values()) if len(own) == len(SYNTHETIC) else set()


def _level(runs: Sequence[Runs], agent: str, base: str) -> tuple[float, float] | None:
    """Geometric mean over the nine of the ratio of mean regrets, and its standard error over the seeds both ran."""
    ratios: list[float] = []
    logs: list[Array] = []
    runs = _whole_seeds(runs, agent, base)
    for domain in SYNTHETIC:
        own, other = (select(runs, domain=domain, agent=name, horizon=HORIZON) for name in (agent, base))
        if own is None or other is None:
            return None
        a, b = shared_totals(own, other)
        ratios.append(float(a.mean() / b.mean()))
        logs.append(np.log(a / b))
    by_seed = np.mean(logs, axis=0)
    mean = geometric_mean(ratios)
    return mean, mean * float(by_seed.std(ddof=1) / np.sqrt(len(by_seed))) if len(by_seed) > 1 else float("nan")


def _with_error(mean: float, error: float) -> str:
    return f"{mean:.2f}" + ("" if error != error else f" ± {error:.2f}")
