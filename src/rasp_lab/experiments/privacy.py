"""What a shield costs: same-regime retrieval and regret, of contexts that are turned by a key, projected, or noised.

Retrieval: how often the nearest context kept so far is one of the same regime. Regret: of the first 200 steps, over
that of never changing anything; `blind` is the tuner that sees no context at all: what costs more is not worth it.
Epsilon is that of one record at delta = 1e-6; `all` that of every record of the run, were they one person's (zCDP).
Ranges come from a stream with another seed, a tenth wider.

    python -m rasp_lab.experiments.privacy               # minutes; prints the table of docs/PRIVACY.md
    python -m rasp_lab.experiments.privacy --seeds 1 --domains 7_Regime_Switch_Simple
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from rasp_lab.bench import domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_tuner import ContextShield, GaussianNoise, Tuner
from rasp_tuner.privacy import epsilon_of

DOMAINS = ("3_Robot_ISP_Tuning", "8_Server_Flash_Crowd", "H1_Recurring_Regimes")
EPSILONS = (1, 4, 16, 64, 256, 1024, 4096)
DELTA = 1e-6
HORIZON = 200
KEY = "for this benchmark: not a secret"
ANOTHER = 1000


def ranges(world: ExperimentDomain[Any], seed: int) -> list[tuple[float, float]]:
    """What somebody who knows the system would state."""
    seen = np.array([world.context_fn(omega) for omega in world.build_sequence(HORIZON, seed + ANOTHER)])
    low, high = seen.min(axis=0), seen.max(axis=0)
    wider = 0.1 * np.where(high > low, high - low, 1.0)
    return [(float(a), float(b)) for a, b in zip(low - wider, high + wider, strict=True)]


def shields(world: ExperimentDomain[Any], seed: int) -> Iterator[tuple[str, ContextShield | None]]:
    limits, dim = ranges(world, seed), world.context_dim
    yield "raw", None
    yield "key", ContextShield(limits, key=KEY)
    yield "key, no ranges stated", ContextShield([(-1.0, 1.0)] * dim, key=KEY)
    if dim > 1:
        yield "key, half the dimensions", ContextShield(limits, key=KEY, dim=max(dim // 2, 1))
    for epsilon in EPSILONS:
        noise = GaussianNoise(epsilon, DELTA, seed=seed)
        total = epsilon_of(HORIZON * noise.rho, DELTA)
        yield (
            f"noise, epsilon {epsilon:,} a record, {total:,.0f} for all {HORIZON}",
            ContextShield(limits, key=KEY, noise=noise),
        )
    yield "blind", None


def play(world: ExperimentDomain[Any], shield: ContextShield | None, seed: int, blind: bool) -> tuple[float, float]:
    """Same-regime retrieval and regret over that of standing still. The shield stands at the door, as of a service."""
    dim = None if blind else world.context_dim if shield is None else shield.dim
    default = world.space.from_unit(world.default)
    tuner = Tuner(world.space.knobs, world.metrics, dim, default, seed=seed)
    keys: list[np.ndarray] = []
    regimes: list[int] = []
    same, own, still = [], 0.0, 0.0
    for step, omega in enumerate(world.build_sequence(HORIZON, seed)):
        context = world.context_fn(omega)
        seen = None if blind else context if shield is None else shield.encode(context)
        regime = world.regime(omega)
        if seen is not None and regime in regimes:
            near = int(np.argmin(((np.array(keys) - seen) ** 2).sum(axis=1)))
            same.append(regimes[near] == regime)
        if seen is not None:
            keys.append(seen)
            regimes.append(regime)
        suggestion = tuner.ask(seen)
        theta = world.theta(world.space.to_unit(suggestion.params))
        tuner.tell(suggestion.id, world.metric_fn(theta, omega, np.random.default_rng([seed, step, 1])))
        own += world.true_loss(theta, omega) - world.minimum(omega)
        still += world.true_loss(world.theta(world.default), omega) - world.minimum(omega)
    return (float(np.mean(same)) if same else float("nan")), own / still


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", default=list(DOMAINS))
    parser.add_argument("--seeds", type=int, default=3)
    wanted = parser.parse_args()
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    heads = []
    for name in wanted.domains:
        world = domains.create(name)
        heads.append(f"{name}, {world.context_dim} dimensions")
        for seed in range(wanted.seeds):
            for said, shield in shields(world, seed):
                own = found.setdefault(said, {}).setdefault(heads[-1], [])
                own.append(play(world, shield, seed, said == "blind"))
    print(f"| contexts | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for said, by_domain in found.items():
        cells = [_shown(*np.mean(by_domain[head], axis=0)) if head in by_domain else "-" for head in heads]
        print(f"| {said} | {' | '.join(cells)} |")


def _shown(retrieval: float, regret: float) -> str:
    return f"{regret:.3f}" if np.isnan(retrieval) else f"{retrieval:.0%}, {regret:.3f}"


if __name__ == "__main__":
    main()
