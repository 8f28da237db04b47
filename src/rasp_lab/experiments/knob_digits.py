"""How many digits a float knob needs: regret on the paper's nine domains, and how many values are tried.

Runs agent RASP with knobs of few digits and of all twelve on the same streams and noise. A ratio is the summed regret
over that with twelve digits; the interval is one standard error of the mean of logarithms over all domains.

python -m rasp_lab.experiments.knob_digits --seeds 100   # about half an hour
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace

import numpy as np

from rasp_lab.bench import domains
from rasp_lab.bench.agents.rasp import Rasp
from rasp_tuner.space import DIGITS, MOST_DIGITS, Float, Space

STEPS, COUNTED = 100, 60  # of a run; of which different values are counted


def run(name: str, digits: int, seed: int) -> tuple[float, int]:
    """Regret of one run, and how many values its first knob had in the first steps."""
    domain = domains.create(name).drawn(seed)
    knobs = domain.space.knobs.items()
    domain.space = Space({k: replace(knob, digits=digits) if isinstance(knob, Float) else knob for k, knob in knobs})
    agent, regret, values = Rasp(domain.task(), seed), 0.0, []
    for step, omega in enumerate(domain.build_sequence(STEPS, seed)):
        id, point = agent.ask(domain.context_fn(omega))
        theta = domain.theta(point)
        values.append(float(theta[0]))
        regret += domain.true_loss(theta, omega) - domain.minimum(omega)
        agent.tell(id, domain.metric_fn(theta, omega, np.random.default_rng([seed, step, 1])))
    return regret, len(set(values[:COUNTED]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8, help="even ones are taken, on which constants are chosen")
    parser.add_argument("--digits", type=int, nargs="+", default=[DIGITS, DIGITS + 1])
    given = parser.parse_args()
    logs: dict[int, list[list[float]]] = {digits: [] for digits in given.digits}
    for name in domains.SYNTHETIC:
        all_digits = [run(name, MOST_DIGITS, 2 * i) for i in range(given.seeds)]
        line = f"{name:24s} {MOST_DIGITS} digits: {np.mean([count for _, count in all_digits]):3.0f} values"
        for digits in given.digits:
            few = [run(name, digits, 2 * i) for i in range(given.seeds)]
            logs[digits].append([float(np.log(a / b)) for (a, _), (b, _) in zip(few, all_digits, strict=True)])
            ratio = sum(a for a, _ in few) / sum(b for b, _ in all_digits)
            line += f" | {digits}: {np.mean([count for _, count in few]):3.0f} values, regret {ratio:.3f}"
        print(line, flush=True)
    for digits, rows in logs.items():
        table = np.array(rows)
        error = np.sqrt((table.var(axis=1) / max(given.seeds - 1, 1)).sum()) / len(table)
        print(f"{digits} digits: regret {np.exp(table.mean()):.3f} of that with all, +- {error:.3f}")


if __name__ == "__main__":
    main()
