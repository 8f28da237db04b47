"""Time of one step (ask + tell) beside CMA-ES in the same run; printed as a ratio, because machines differ and jitter.

make speed
python -m rasp_lab.speed.step_time --steps 1000 --long 100000
RASP_NATIVE=0 python -m rasp_lab.speed.step_time     # without the compiled kernel

The tuner and CMA-ES take turns of a few steps, so that other load slows both alike. Every world is a noisy bowl.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence

import cmaes
import numpy as np

from rasp_tuner import Categorical, Float, Int, Tuner
from rasp_tuner.space import Knob

TURN_STEPS = 25
PEER = "cmaes, d = 5"

Step = Callable[[], None]


def floats(count: int) -> dict[str, Knob]:
    return {f"x{i}": Float(0.0, 1.0) for i in range(count)}


def eleven_discrete() -> dict[str, Knob]:
    ints = {f"i{i}": Int(0, 4) for i in range(6)}
    choices = {f"c{i}": Categorical(["a", "b", "c"]) for i in range(3)}
    return {**ints, **choices, **{f"s{i}": Categorical([False, True]) for i in range(2)}}


def mixed() -> dict[str, Knob]:
    """With a knob that exists only sometimes."""
    several = {"i0": Int(0, 4), "c0": Categorical(["a", "b", "c"]), "s0": Categorical([False, True])}
    return {**floats(2), **several, "i1": Int(0, 100, when={"s0": True})}


def tuner(
    space: Mapping[str, Knob], context_dim: int, preset: str = "default", constraints: Sequence[str] = ()
) -> Step:
    middle = Tuner(space, {"loss": "min"}, preset=preset).recommend()  # what runs today
    rasp = Tuner(
        space, {"loss": "min"}, context=context_dim, default=middle, preset=preset, constraints=list(constraints)
    )
    rng = np.random.default_rng(0)

    def step() -> None:
        suggestion = rasp.ask(rng.normal(size=context_dim))
        loss = 1.0 + sum((distance(value) - 0.3) ** 2 for value in suggestion.params.values())
        rasp.tell(suggestion.id, {"loss": loss + 0.05 * rng.normal()})

    return step


def distance(value: object) -> float:
    if value is None:  # a knob that does not exist now
        return 0.3
    return float(value) if isinstance(value, (int, float)) else {"a": 0.0, "b": 0.5, "c": 1.0}[str(value)]


def cma_es(count: int = 5) -> Step:
    bounds = np.array([[0.0, 1.0]] * count)
    optimizer = cmaes.CMA(mean=np.full(count, 0.5), sigma=0.2, bounds=bounds, seed=0)
    population: list[tuple[np.ndarray, float]] = []

    def step() -> None:
        x = optimizer.ask()
        population.append((x, float(((x - 0.3) ** 2).sum())))
        if len(population) == optimizer.population_size:
            optimizer.tell(population)
            population.clear()

    return step


def milliseconds(agents: Mapping[str, Step], steps: int) -> dict[str, list[float]]:
    """Time of every step of every agent; they take turns."""
    took: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(0, steps, TURN_STEPS):
        for name, step in agents.items():
            for _ in range(TURN_STEPS):
                started = time.perf_counter()
                step()
                took[name].append(1e3 * (time.perf_counter() - started))
    return took


def rows(steps: int, long: int) -> list[dict[str, object]]:
    agents = {
        PEER: cma_es(),
        "rasp, 5 floats, 3 context dimensions": tuner(floats(5), 3),
        "rasp, 5 floats, 768 context dimensions": tuner(floats(5), 768),
        "rasp, 11 discrete knobs": tuner(eleven_discrete(), 3),
        "rasp, 11 discrete, 768 context dimensions": tuner(eleven_discrete(), 768),
        "rasp, mixed, a condition, a constraint": tuner(mixed(), 3, constraints=["x0 + x1 <= 1.5"]),
        "rasp, 64 floats": tuner(floats(64), 3),
    }
    took = milliseconds(agents, steps)
    peer = float(np.median(took[PEER]))
    found = [row(name, times[len(times) // 2 :], peer) for name, times in took.items()]  # the first half warms up
    if long:
        found += aged(long)
    return found


def aged(long: int) -> list[dict[str, object]]:
    """A tuner around its step 100 and one around step `long`, in turns."""
    old, young = tuner(floats(5), 3), tuner(floats(5), 3)
    for _ in range(long):
        old()
    for _ in range(100):
        young()
    took = milliseconds({"rasp, 5 floats, steps 100 to 300": young, f"rasp, 5 floats, after step {long:,}": old}, 200)
    first = float(np.median(next(iter(took.values()))))
    return [row(name, times, first, "x step 100") for name, times in took.items()]


def row(name: str, times: list[float], peer: float, ratio: str = "x cmaes") -> dict[str, object]:
    median = float(np.median(times))
    return {
        "agent": name,
        "steps": len(times),
        "median_ms": median,
        "p99_ms": float(np.percentile(times, 99)),
        "ratio": median / peer,
        "to": ratio,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="of every agent; the second half is reported")
    parser.add_argument("--long", type=int, default=20_000, help="steps that the old tuner is given; 0: none")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    arguments = parser.parse_args()
    table = rows(arguments.steps, arguments.long)
    if arguments.json:
        print(json.dumps(table))
        return
    print(f"{'one step (ask + tell)':<42} {'steps':>6} {'median ms':>10} {'p99 ms':>10}  ratio")
    for line in table:
        print(
            f"{line['agent']:<42} {line['steps']:>6} {line['median_ms']:>10.4f} {line['p99_ms']:>10.4f}"
            f"  {line['ratio']:.1f} {line['to']}"
        )


if __name__ == "__main__":
    main()
