"""How many steps tuners need to recommend settings within 5% of the best, with a control beside every run and without.

python -m rasp_lab.experiments.paired_tells

Noise that a run shares with its control has a deviation of 20%, that of each alone 3%. `found` are the runs in which
the recommendation was within 5% of the best for ten steps in a row, `steps` the median step at which that began (runs
that did not find it count as the last step), `loss` the mean of what ran over the best, and `saved` what
`Tuner.savings()` says at the end of the first seed.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner import Bool, Categorical, Float, Int, Tuner
from rasp_tuner.space import Knob

COMMON, OWN = 0.2, 0.03  # deviations of logarithms
NEAR = 1.05  # times the best
IN_A_ROW = 10  # steps that the recommendation must stay there


class World(NamedTuple):
    knobs: dict[str, Knob]
    default: dict[str, Any]
    log: Callable[[Mapping[str, Any], float], float]  # of the loss above the best, at settings and a load
    loads: tuple[float, ...]


def _smooth(p: Mapping[str, Any], load: float) -> float:
    return (p["x"] - 0.75) ** 2 + (p["y"] - 0.3 - 0.2 * load) ** 2


def _server(p: Mapping[str, Any], load: float) -> float:
    best = 24.0 if load else 6.0
    mode = {"round robin": 0.1, "least busy": 0.0, "random": 0.15}[p["balance"]]
    return 0.15 * math.log(p["threads"] / best) ** 2 + mode + 0.08 * (not p["cache"])


WORLDS = {
    "smooth": World({"x": Float(0, 1), "y": Float(0, 1)}, {"x": 0.4, "y": 0.7}, _smooth, (0.0, 1.0)),
    "server": World(
        {
            "threads": Int(1, 64, log=True),
            "balance": Categorical(["round robin", "least busy", "random"]),
            "cache": Bool(),
        },
        {"threads": 2, "balance": "round robin", "cache": False},
        _server,
        (0.0, 1.0),
    ),
}


def play(world: World, seed: int, steps: int, paired: bool) -> tuple[int | None, float, str]:
    rng = np.random.default_rng([seed, 3])
    tuner = Tuner(world.knobs, {"ms": "min"}, ["load"], world.default, seed=seed)
    since, losses = None, []
    for step in range(steps):
        load = world.loads[step % len(world.loads)]
        shared, own, beside = COMMON * rng.normal(), OWN * rng.normal(), OWN * rng.normal()
        asked = tuner.ask([load])
        loss = world.log(asked.params, load)
        losses.append(math.expm1(loss))
        control = {"ms": 100.0 * math.exp(world.log(world.default, load) + shared + beside)}
        tuner.tell(asked.id, {"ms": 100.0 * math.exp(loss + shared + own)}, control=control if paired else None)
        if since is not None and step - since >= IN_A_ROW:
            continue
        near = all(world.log(tuner.recommend([load]), load) <= math.log(NEAR) for load in world.loads)
        since = (step if since is None else since) if near else None
    found = since if since is not None and steps - since > IN_A_ROW else None
    return found, float(np.mean(losses)), str(tuner.savings() or "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    print(f"{options.seeds} seeds, {options.steps} steps\n| world | control | found | steps | loss | saved |")
    print("|---|---|---|---|---|---|")
    for name, world in WORLDS.items():
        for paired in (False, True):
            runs = [play(world, seed, options.steps, paired) for seed in range(options.seeds)]
            began = [options.steps if since is None else since for since, _, _ in runs]
            found = sum(since is not None for since, _, _ in runs)
            print(
                f"| {name} | {'yes' if paired else 'no'} | {found} of {len(runs)} | {np.median(began):.0f} |"
                f" {np.mean([loss for _, loss, _ in runs]):.1%} | {runs[0][2]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
