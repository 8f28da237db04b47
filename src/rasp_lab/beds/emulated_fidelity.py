"""Do emulated systems tell agents apart as the real ones do? Costs over the default's, as recorded and as emulated.

The emulators (beds/forest.py) are fitted to the recorded runs of all agents. Here the same agents run on them, on new
sequences of work, with the residuals of the runs as noise.

    python -m rasp_lab.beds.emulated_fidelity            # the table of docs/BENCHMARKS.md; a few minutes
    python -m rasp_lab.beds.emulated_fidelity --seeds 1
"""

import argparse

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import spearmanr

from rasp_lab.beds.emulated import NEW, STEPS, SYSTEMS
from rasp_lab.beds.forest import Emulator, fit
from rasp_lab.real import harness
from rasp_lab.real.__main__ import KEPT
from rasp_lab.real.analysis import summaries

AGENTS = {
    "random": "random search",
    "cma-es": "CMA-ES",
    "tpe": "TPE",
    "tpe-each": "TPE for each kind",
    "rasp-budget": "RASP-Tuner",
    "rasp": "budget off",
}


def emulated(name: str, agent_name: str, seed: int) -> float:
    """Mean logarithm of an agent's cost over the default's on the emulated system, without noise."""
    emulator, rng = Emulator(name), np.random.default_rng([seed, 5])
    system, gained = emulator.system, []
    agent = harness.build(agent_name, system, seed)
    for work in system.sequence(STEPS, NEW + seed):
        id, params = agent.ask(work)
        cost = emulator.log_cost(params, work)
        agent.tell(id, float(np.exp(cost + emulator.noise(work.kind, rng))))
        gained.append(cost - emulator.log_cost(system.default, work))
    return float(np.mean(gained))


def recorded(name: str) -> dict[str, float]:
    """Each agent's cost over the default's in the recorded runs."""
    runs = [harness.read(file) for file in sorted(KEPT.glob(f"{name}-[0-9]*.csv.gz"))]
    return {summary.agent: summary.overall.value for summary in summaries(runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(parser.parse_args().seeds)
    print(f"| system, recorded / emulated | R2 | {' | '.join(AGENTS.values())} | rank correlation |")
    print("|---|" + "---:|" * (len(AGENTS) + 2))
    for name in SYSTEMS:
        fit(name)
        cells = [(agent, seed) for agent in AGENTS for seed in seeds]
        logs = Parallel(n_jobs=-1)(delayed(emulated)(name, agent, seed) for agent, seed in cells)
        means = np.exp(np.reshape(logs, (len(AGENTS), -1)).mean(axis=1))
        found, emulator = recorded(name), Emulator(name)
        beside = [f"{found[agent]:.2f} / {mean:.2f}" for agent, mean in zip(AGENTS, means, strict=True)]
        rank = float(spearmanr([found[agent] for agent in AGENTS], means)[0])
        print(f"| {emulator.system.title} | {emulator.explained:.2f} | {' | '.join(beside)} | {rank:.2f} |", flush=True)


if __name__ == "__main__":
    main()
