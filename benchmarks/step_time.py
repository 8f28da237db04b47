"""Time of one step (ask + tell) beside a peer in the same run; printed as a ratio, because machines differ and jitter.

Run: make speed, or python benchmarks/step_time.py --steps 1000
"""

import argparse
import json
import time
from collections.abc import Callable

import cmaes
import numpy as np

from rasp_tuner import Float, Tuner

DIM, CONTEXT_DIM = 5, 3


Step = Callable[[np.ndarray], str]  # runs one step in a context and names its kind


def rasp(preset: str) -> Step:
    tuner = Tuner({f"x{i}": Float(0, 1) for i in range(DIM)}, {"loss": "min"}, context=CONTEXT_DIM, preset=preset)

    def step(context: np.ndarray) -> str:
        s = tuner.ask(context)
        tuner.tell(s.id, {"loss": sum((x - 0.3) ** 2 for x in s.params.values())})
        return f"rasp {preset}, {tuner.explain(s.id).path} path"

    return step


def cma_es() -> Step:
    bounds = np.array([[0.0, 1.0]] * DIM)
    optimizer = cmaes.CMA(mean=np.full(DIM, 0.5), sigma=0.2, bounds=bounds, seed=0)
    population: list[tuple[np.ndarray, float]] = []

    def step(_context: np.ndarray) -> str:
        x = optimizer.ask()
        population.append((x, float(((x - 0.3) ** 2).sum())))
        if len(population) == optimizer.population_size:
            optimizer.tell(population)
            population.clear()
        return "cmaes"

    return step


def milliseconds(step: Step, steps: int) -> dict[str, list[float]]:
    """Times of the steps in milliseconds, by kind of step."""
    rng, took = np.random.default_rng(0), {}
    for _ in range(steps):
        context = rng.normal(size=CONTEXT_DIM)
        started = time.perf_counter()
        kind = step(context)
        took.setdefault(kind, []).append(1e3 * (time.perf_counter() - started))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    arguments = parser.parse_args()
    took: dict[str, list[float]] = {}
    for step in (cma_es(), rasp("paper"), rasp("default")):
        took |= milliseconds(step, arguments.steps)
    for preset in ("paper", "default"):
        own = [times for name, times in took.items() if name.startswith(f"rasp {preset},")]
        took[f"rasp {preset}, all"] = [ms for times in own for ms in times]
    peer = float(np.median(took["cmaes"]))
    rows = [
        {
            "agent": name,
            "steps": len(times),
            "median_ms": float(np.median(times)),
            "p99_ms": float(np.percentile(times, 99)),
            "ratio_to_cmaes": float(np.median(times)) / peer,
        }
        for name, times in took.items()
    ]
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"One step (ask + tell), d = {DIM}, d_c = {CONTEXT_DIM}, {arguments.steps} steps")
    print(f"{'agent':<24} {'steps':>6} {'median ms':>10} {'p99 ms':>10} {'x cmaes':>10}")
    for row in rows:
        print(
            f"{row['agent']:<24} {row['steps']:>6} {row['median_ms']:>10.4f} {row['p99_ms']:>10.4f}"
            f" {row['ratio_to_cmaes']:>10.1f}"
        )


if __name__ == "__main__":
    main()
