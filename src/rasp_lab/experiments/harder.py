"""What noise, outliers, late answers and other units cost: the paper's domains made harder in one way at a time.

Regret is relative to never changing anything: a geometric mean over the nine domains. A failure of one domain hides in
it, so the worst domain stands beside it.

    python -m rasp_lab.experiments.harder             # the table of docs/BENCHMARKS.md
    python -m rasp_lab.experiments.harder --seeds 2 --steps 50
"""

import argparse

from joblib import Parallel, delayed

from rasp_lab.bench.analysis.metrics import geometric_mean
from rasp_lab.bench.domains import SYNTHETIC
from rasp_lab.bench.runner import suites
from rasp_lab.bench.runner.protocol import Cell, play

WAYS = ("", "rescaled", "mixed", "outliers", "delay=5", "noise=0.5")
STILL, OURS, PEERS = "static", "rasp", ("warm-cma-es", "cma-es")


def total(cell: Cell) -> float:
    """Cumulative regret of a run."""
    return sum(row.regret for row in play(cell))


def ratios(way: str, agents: tuple[str, ...], steps: int, seeds: int) -> dict[str, dict[str, float]]:
    """Agent -> domain -> mean regret over that of standing still."""
    cells = suites.cells("", (STILL, *agents), seeds, steps, domains=SYNTHETIC, harder=way)
    totals = Parallel(n_jobs=-1)(delayed(total)(cell) for cell in cells)
    sums: dict[tuple[str, str], float] = {}
    for cell, regret in zip(cells, totals, strict=True):
        name = cell.domain.split("+")[0]
        sums[cell.agent, name] = sums.get((cell.agent, name), 0.0) + regret
    return {agent: {name: sums[agent, name] / sums[STILL, name] for name in SYNTHETIC} for agent in agents}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=suites.SHORT)
    chosen = parser.parse_args()
    columns = [f"`{OURS}`", "its worst", *(f"`{agent}`" for agent in PEERS)]
    print(f"| made harder by | {' | '.join(columns)} |")
    print("|---|" + "---:|" * len(columns))
    for way in WAYS:
        found = ratios(way, (OURS, *PEERS), chosen.steps, chosen.seeds)
        worst = max(found[OURS], key=found[OURS].__getitem__)
        level = {agent: f"{geometric_mean(by_domain.values()):#.3g}" for agent, by_domain in found.items()}
        cells = [level[OURS], f"{found[OURS][worst]:.2f} {worst}", *(level[agent] for agent in PEERS)]
        print(f"| {f'`{way}`' if way else '(none)'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
