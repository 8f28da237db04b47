"""What a report shows first: cumulative regret of a few agents relative to never changing anything, and one paragraph.

symbol  shape  meaning
curve   [T]    geometric mean over domains of (cumulative regret so far) / (that of `static` at step T)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rasp_lab.bench.analysis.metrics import Runs, select
from rasp_lab.bench.analysis.summary import OURS, is_peer
from rasp_lab.bench.domains import SYNTHETIC
from rasp_tuner.base.numerics import Array

PLAIN_NAMES = {
    "rasp": "RASP-Tuner",
    "rasp-paper": "paper's RASP",
    "static": "no tuning",
    "random": "random search",
    "cma-es": "CMA-ES",
    "gp-ucb": "GP-UCB",
    "botorch": "BoTorch",
    "tpe": "TPE",
    "turbo": "TuRBO",
}
ALWAYS_SHOWN = ("cma-es", "random", "gp-ucb")  # peers, beside the best one
MAX_PEERS = 4  # more lines cannot be told apart


@dataclass(frozen=True, slots=True)
class Overview:
    """Curves of the agents shown, the lowest at the end first."""

    horizon: int
    domains: tuple[str, ...]
    seeds: tuple[int, int]  # the fewest and the most that an agent ran
    curves: dict[str, Array]

    @property
    def ends(self) -> dict[str, float]:
        """Regret at the end relative to never changing anything."""
        return {agent: float(curve[-1]) for agent, curve in self.curves.items()}

    @property
    def systems(self) -> str:
        """How many domains there are, and whether all are simulated."""
        simulated = all(domain.split("+")[0] in SYNTHETIC for domain in self.domains)
        return f"{len(self.domains)} {'simulated ' if simulated else ''}system{'s' if len(self.domains) > 1 else ''}"


def overview(runs: Sequence[Runs]) -> Overview | None:
    """The horizon with the most domains to compare on, the shortest of equals; None without `static` or an opponent."""
    found = [_at(runs, horizon) for horizon in sorted({r.horizon for r in runs})]
    known = [view for view in found if view is not None]
    return max(known, key=lambda view: len(view.domains), default=None)


def paragraph(view: Overview) -> str:
    """What the picture shows, for a reader who knows nothing of it."""
    fewest, most = view.seeds
    seeds = f"{most} random seed{'s' if most > 1 else ''}" if fewest == most else f"{fewest} to {most} random seeds"
    mean = "; the numbers are geometric means over the systems" if len(view.domains) > 1 else ""
    (first, least), *others = ((plain_name(a), f"{end:.2f} times") for a, end in view.ends.items() if a != "static")
    said = [f"{first} has {least} the regret of never changing a setting", *(f"{name} {end}" for name, end in others)]
    listed = " and ".join([", ".join(said[:-1]), said[-1]]) if others else said[0]
    return (
        f"After {view.horizon:,} steps {listed}: lower is better. Regret adds up how much worse each step was than the"
        f" best possible settings. Each method tuned {view.systems} whose conditions change, with {seeds}{mean}."
    )


def plain_name(agent: str) -> str:
    return PLAIN_NAMES.get(agent, agent)


def _at(runs: Sequence[Runs], horizon: int) -> Overview | None:
    here = [r for r in runs if r.horizon == horizon]
    movable = [r.domain for r in here if r.agent == "static" and r.totals.sum() > 0]
    nine = [domain for domain in movable if domain.split("+")[0] in SYNTHETIC]
    domains = tuple(nine if len(nine) == len(SYNTHETIC) else movable)
    agents = dict.fromkeys(r.agent for r in here)
    curves = {agent: curve for agent in agents if (curve := _curve(here, agent, domains)) is not None}
    order = sorted(curves, key=lambda agent: float(curves[agent][-1]))
    peers = [agent for agent in order if is_peer(agent) and agent != "static"]
    wanted = dict.fromkeys([*peers[:1], *(agent for agent in ALWAYS_SHOWN if agent in peers), *peers])  # the best first
    shown = {*[*wanted][:MAX_PEERS], "static", *OURS}
    kept = {agent: curves[agent] for agent in order if agent in shown}
    if len(kept) < 2:
        return None
    counts = [len(r.seeds) for r in here if r.agent in kept and r.domain in domains]
    return Overview(horizon, domains, (min(counts), max(counts)), kept)


def _curve(here: Sequence[Runs], agent: str, domains: Sequence[str]) -> Array | None:
    """Over the seeds that the agent shares with `static`; None if there are none on a domain."""
    logs: list[Array] = []
    for domain in domains:
        own, static = (select(here, domain=domain, agent=a, horizon=here[0].horizon) for a in (agent, "static"))
        shared = [seed for seed in own.seeds if seed in static.seeds] if own and static else []
        if not own or not static or not shared:
            return None
        mean = np.mean([np.cumsum(own["regret"][own.seeds.index(seed)]) for seed in shared], axis=0)
        base = np.mean([static.totals[static.seeds.index(seed)] for seed in shared])
        with np.errstate(divide="ignore"):  # no regret yet: zero, also in the mean
            logs.append(np.log(np.maximum(mean, 0.0) / base))
    return np.exp(np.mean(logs, axis=0)) if logs else None
