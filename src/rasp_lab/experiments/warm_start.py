"""What a log is worth on day one: regret of the first 100 steps after 0, 50, 500 and 5,000 logged records.

The log: an earlier stretch of the same stream (another seed), run by someone who strays from the default by a
deviation of 0.2 of each knob's range. Regret is given relative to never changing anything, mean over seeds.

    python -m rasp_lab.experiments.warm_start            # minutes; prints the table of docs/PRIVACY.md
    python -m rasp_lab.experiments.warm_start --seeds 1 --points 0 50
"""

import argparse
from typing import Any

import numpy as np

from rasp_lab.bench import domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_tuner import Tuner

DOMAINS = ("3_Robot_ISP_Tuning", "6_Smooth_Quadratic", "8_Server_Flash_Crowd", "H1_Recurring_Regimes")
POINTS = (0, 50, 500, 5000)
HORIZON = 100
STRAY = 0.2
ANOTHER = 1000  # added to the seed of the stream that was logged


def logged(world: ExperimentDomain[Any], count: int, seed: int) -> list[dict[str, Any]]:
    """Records of someone who strays around the default."""
    rng = np.random.default_rng([seed, 77])
    records = []
    for step, omega in enumerate(world.build_sequence(count, seed + ANOTHER) if count else ()):
        point = world.space.snap(np.clip(world.default + rng.normal(0.0, STRAY, world.space.dim), 0.0, 1.0))
        metrics = world.metric_fn(world.theta(point), omega, rng)
        context = world.context_fn(omega)
        records.append({"context": context, "params": world.space.from_unit(point), "metrics": metrics, "step": step})
    return records


def regret(name: str, count: int, seed: int, time: str | None) -> float:
    """Regret of the first steps after the log, over that of standing still."""
    world = domains.create(name)
    tuner, _ = Tuner.from_log(
        logged(world, count, seed),
        space=world.space.knobs,
        metrics=world.metrics,
        context=world.context_dim or None,
        default=world.space.from_unit(world.default),
        time=time,
        seed=seed,
    )
    own = still = 0.0
    for step, omega in enumerate(world.build_sequence(HORIZON, seed)):
        suggestion = tuner.ask(world.context_fn(omega) if world.context_dim else None)
        theta = world.theta(world.space.to_unit(suggestion.params))
        tuner.tell(suggestion.id, world.metric_fn(theta, omega, np.random.default_rng([seed, step, 1])))
        own += world.true_loss(theta, omega) - world.minimum(omega)
        still += world.true_loss(world.theta(world.default), omega) - world.minimum(omega)
    return own / still


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", default=list(DOMAINS))
    parser.add_argument("--points", nargs="+", type=int, default=list(POINTS))
    parser.add_argument("--seeds", type=int, default=3)
    wanted = parser.parse_args()
    heads = [f"{count:,}" for count in wanted.points]
    print(f"| domain | order of the log | {' | '.join(heads)} |\n|---|---|{'---:|' * len(heads)}", flush=True)
    for name in wanted.domains:
        for said, time in (("time", "step"), ("shuffled", None)):
            means = [np.mean([regret(name, n, seed, time) for seed in range(wanted.seeds)]) for n in wanted.points]
            print(f"| {name} | {said} | {' | '.join(f'{mean:.3f}' for mean in means)} |", flush=True)


if __name__ == "__main__":
    main()
