"""Regret of edges that decide by a policy which is made anew after so many outcomes, beside asking for each.

python -m rasp_lab.experiments.edge_regret
python -m rasp_lab.experiments.edge_regret --steps 300 --every 10,100 --seeds 4
python -m rasp_lab.experiments.edge_regret --late            # ask for each, and answer all of them after so many

Eight of the paper's nine domains: contexts of 768 numbers are not for a tree. Regret is a share of that of the default.
The last line is the geometric mean over domains, and how many times that of asking each time it is. Every outcome has
a key of its own.
"""

import argparse
from typing import Any

import numpy as np

from rasp_lab.bench import domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_tuner import Tuner
from rasp_tuner.policy.evaluate import pick_of
from rasp_tuner.policy.sums import OutcomeSums
from rasp_tuner.records.step_record import LONGEST_CONTEXT

ASK = 0  # every time


def regret(name: str, seed: int, steps: int, every: int, late: bool = False) -> float:
    """Of the runs, as a share of the default's; `every` so many outcomes there is a new policy, or asks.

    `late`: no policy, but asks whose outcomes are all told after so many: what waiting for outcomes costs by itself.
    """
    domain = domains.create(name)
    rng = np.random.default_rng(seed)
    default = domain.space.from_unit(domain.default)
    tuner = Tuner(domain.space.knobs, domain.metrics, domain.context_dim or None, default, seed=seed)
    spent = static = 0.0
    sums = policy = None
    waiting: list[tuple[str, dict[str, float]]] = []
    asks = late or every == ASK
    for step, omega in enumerate(domain.build_sequence(steps, seed)):
        context = domain.context_fn(omega).tolist() if domain.context_dim else None
        if every == ASK or (late and step % every == 0):
            for id, told in waiting:
                tuner.tell(id, told)
            waiting = []
        if asks:
            asked = tuner.ask(context)
            params = asked.params
        else:
            if step % every == 0:
                if sums is not None:
                    tuner.tell_sums(sums.take())
                policy = tuner.policy(explore=every).policy
                sums = OutcomeSums(policy, seed)
            pick = pick_of(policy or {}, context, f"{seed}/{step}")
            params = pick.params
        theta = _theta(domain, params)
        metrics = domain.metric_fn(theta, omega, rng)
        if asks:
            waiting.append((asked.id, metrics))
        elif sums is not None:
            sums.add(pick, context, metrics)
        least = domain.minimum(omega)
        spent += domain.true_loss(theta, omega) - least
        static += domain.true_loss(_theta(domain, default), omega) - least
    return spent / static


def _theta(domain: ExperimentDomain[Any], params: dict[str, Any]) -> Any:
    return domain.theta(domain.space.to_unit(params))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", default="100,300")
    parser.add_argument("--late", action="store_true", help="no policies, but asks that are answered as late")
    options = parser.parse_args()
    ways = [ASK, *map(int, options.every.split(","))]
    print("| domain | asking each time | " + " | ".join(f"every {way}" for way in ways[1:]) + " |")
    print("|---" * (len(ways) + 1) + "|")
    rows = []
    for name in domains.SYNTHETIC:
        if domains.create(name).context_dim > LONGEST_CONTEXT:
            continue
        own = [
            float(np.mean([regret(name, seed, options.steps, way, options.late) for seed in range(options.seeds)]))
            for way in ways
        ]
        rows.append(own)
        print(f"| {name} | " + " | ".join(f"{one:.3f}" for one in own) + " |", flush=True)
    means = np.exp(np.log(rows).mean(axis=0))
    print("| geometric mean | " + " | ".join(f"{one:.3f} ({one / means[0]:.2f})" for one in means) + " |")


if __name__ == "__main__":
    main()
