"""Tuner-steps a second: a fleet, tuners one after the other, CMA-ES in a loop, and evosax's where it is installed.

python -m rasp_lab.speed.fleet                                   # two cores, 10,000 tuners
python -m rasp_lab.speed.fleet --device cuda --size 100000       # on a GPU
python -m rasp_lab.speed.fleet --shards 2 --loop 0               # beside the same in two processes, by Ray
python -m rasp_lab.speed.fleet --shared                          # what a new tuner gains from the others
python -m rasp_lab.speed.fleet --device cuda --parity            # how far suggestions are from those of the CPU

Every tuner has a noisy bowl of its own with five knobs, whose optimum depends on a context of three dimensions. A step
is an ask and a tell of one tuner; a generation of CMA-ES with eight members counts as eight steps. Times are of whole
steps, checks of what comes in included; the worlds' own arithmetic is not counted.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator

import cmaes
import numpy as np

from rasp_tuner import Float, Tuner
from rasp_tuner.engine.kernel import native
from rasp_tuner.fleet import Fleet
from rasp_tuner.fleet.ray import RayFleet

DIM, CONTEXT_DIM = 5, 3
SPACE = {f"x{i}": Float(0.0, 1.0) for i in range(DIM)}
DEFAULT = dict.fromkeys(SPACE, 0.5)
METRICS = {"loss": "min"}


class Worlds:
    """A bowl for each tuner; deviations of their optima around a common one, and of how contexts move them all."""

    def __init__(self, size: int, seed: int = 0, own: float = 0.2, moves: float = 0.1, noise: float = 0.02) -> None:
        self.rng = np.random.default_rng(seed)
        self.size, self.noise = size, noise
        self.optima = np.clip(0.35 + own * self.rng.normal(size=(size, DIM)), 0.05, 0.95)
        self.slopes = moves * self.rng.normal(size=(DIM, CONTEXT_DIM))  # shared by all

    def contexts(self) -> np.ndarray:
        return self.rng.normal(size=(self.size, CONTEXT_DIM))

    def losses(self, contexts: np.ndarray, points: np.ndarray) -> np.ndarray:
        """What is measured [size]."""
        return 1.0 + self.regrets(contexts, points) + self.noise * self.rng.normal(size=len(points))

    def regrets(self, contexts: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Above the least that can be had in this context."""
        best = np.clip(self.optima[: len(points)] + contexts @ self.slopes.T, 0.0, 1.0)
        return 4.0 * ((points - best) ** 2).sum(axis=1)


def fleet_seconds(fleet: Fleet | RayFleet, steps: int) -> Iterator[float]:
    """Seconds of every step of the whole fleet; a GPU is done with a step when its time is taken."""
    worlds, finish = Worlds(len(fleet)), _finisher(fleet)
    for _ in range(steps):
        contexts = worlds.contexts()
        started = time.perf_counter()
        points = fleet.ask(contexts).points
        asked = time.perf_counter() - started
        losses = worlds.losses(contexts, points)
        started = time.perf_counter()
        fleet.tell({"loss": losses})
        finish()
        yield asked + time.perf_counter() - started


def _finisher(fleet: Fleet | RayFleet) -> Callable[[], None]:
    """What waits for the GPU of a fleet that has one."""
    if "device='cuda" not in repr(fleet):
        return lambda: None
    import torch

    return torch.cuda.synchronize


def loop_seconds(make: Callable[[], Callable[[np.ndarray], np.ndarray]], size: int, steps: int) -> float:
    """Seconds a step of one optimizer, where `size` of them take turns."""
    agents = [make() for _ in range(size)]
    rng, spent = np.random.default_rng(0), 0.0
    for _ in range(steps):
        for agent in agents:
            context = rng.normal(size=CONTEXT_DIM)
            started = time.perf_counter()
            agent(context)
            spent += time.perf_counter() - started
    return spent / (size * steps)


def tuner() -> Callable[[np.ndarray], np.ndarray]:
    rasp = Tuner(SPACE, METRICS, CONTEXT_DIM, DEFAULT)

    def step(context: np.ndarray) -> np.ndarray:
        suggestion = rasp.ask(context)
        point = np.array(list(suggestion.params.values()))
        rasp.tell(suggestion.id, {"loss": 1.0 + float(((point - 0.35) ** 2).sum())})
        return point

    return step


def cma_es() -> Callable[[np.ndarray], np.ndarray]:
    optimizer = cmaes.CMA(mean=np.full(DIM, 0.5), sigma=0.2, bounds=np.array([[0.0, 1.0]] * DIM), seed=0)
    population: list[tuple[np.ndarray, float]] = []

    def step(_: np.ndarray) -> np.ndarray:
        point = optimizer.ask()
        population.append((point, float(((point - 0.35) ** 2).sum())))
        if len(population) == optimizer.population_size:
            optimizer.tell(population)
            population.clear()
        return point

    return step


def evosax_rate(size: int, generations: int = 20) -> float | None:
    """Steps a second of so many CMA-ES at once (float32); None where evosax is not installed."""
    try:
        import jax
        import jax.numpy as jnp
        from evosax.algorithms import CMA_ES
    except ImportError:
        return None
    algorithm = CMA_ES(population_size=8, solution=jnp.zeros(DIM))
    params = algorithm.default_params
    keys = jax.random.split(jax.random.key(0), size)
    state = jax.vmap(lambda key: algorithm.init(key, jnp.full(DIM, 0.5), params))(keys)

    @jax.jit
    def generation(keys, state):
        def one(key, own):
            points, own = algorithm.ask(key, own, params)
            return algorithm.tell(key, points, ((points - 0.35) ** 2).sum(axis=1), own, params)[0]

        return jax.vmap(one)(keys, state)

    state = jax.block_until_ready(generation(keys, state))  # compiles
    started = time.perf_counter()
    for _ in range(generations):
        state = generation(keys, state)
    jax.block_until_ready(state)
    return 8.0 * size * generations / (time.perf_counter() - started)


def speed(size: int, steps: int, device: str, loop: int, shards: int) -> list[dict[str, object]]:
    """Rows of the table: who, on what, tuner-steps a second."""
    fleets: dict[str, Fleet | RayFleet] = {"fleet": Fleet(SPACE, METRICS, CONTEXT_DIM, DEFAULT, size, device=device)}
    if shards:
        sharded = RayFleet(SPACE, METRICS, CONTEXT_DIM, DEFAULT, size, shards=shards, device=device)
        fleets[f"fleet in {shards} shards"] = sharded
    turns = [fleet_seconds(fleet, steps) for fleet in fleets.values()]
    times = np.array([[next(turn) for turn in turns] for _ in range(steps)])  # they take turns: the same load for both
    rows: list[dict[str, object]] = []
    for who, took in zip(fleets, times.T, strict=True):
        settled = took[steps // 2 :]
        for part, seconds in ((f"all {steps} steps", took), (f"from step {steps // 2} on", settled)):
            rate = size * len(seconds) / seconds.sum()
            rows.append({"who": f"{who} of {size:,}, {part}", "where": device, "rate": float(rate)})
    if loop:
        for who, make in (("tuners in a loop", tuner), ("cmaes in a loop", cma_es)):
            rows.append({"who": who, "where": "cpu", "rate": 1.0 / loop_seconds(make, loop, steps)})
    peer = evosax_rate(size)
    if peer is not None:
        rows.append({"who": f"evosax, {size:,} CMA-ES at once, float32", "where": device, "rate": peer})
    return rows


def shared(size: int, own: float, moves: float, steps: int = 30, fresh: int = 64) -> dict[str, object]:
    """Regret of new tuners in their first steps: in a fleet of `size` others, and alone."""
    worlds = Worlds(size + fresh, seed=1, own=own, moves=moves)
    fleet = Fleet(SPACE, METRICS, CONTEXT_DIM, DEFAULT, size, seed=1)
    known = np.arange(size)
    for _ in range(steps):
        contexts = worlds.contexts()[:size]
        fleet.tell({"loss": worlds.losses(contexts, fleet.ask(contexts).points)}, known)
    alone = Fleet(SPACE, METRICS, CONTEXT_DIM, DEFAULT, fresh, seed=2)
    new = fleet.add(fresh)
    worlds.optima = worlds.optima[size:]
    regrets = np.zeros(2)
    for _ in range(steps):
        contexts = worlds.contexts()[:fresh]
        for i, (those, which) in enumerate(((fleet, new), (alone, None))):
            points = those.ask(contexts, which).points
            regrets[i] += worlds.regrets(contexts, points).mean()
            those.tell({"loss": worlds.losses(contexts, points)}, which)
    return {
        "others": size, "deviation of optima": own, "moved by contexts": moves, "steps": steps,
        "regret in the fleet": float(regrets[0]), "regret alone": float(regrets[1]),
        "ratio": float(regrets[0] / regrets[1]),
    }  # fmt: skip


def parity(device: str, size: int = 64, steps: int = 150) -> dict[str, object]:
    """How far suggestions on a device are from those on the CPU, where both observe the same runs: those of the CPU."""
    worlds = Worlds(size)
    cpu, other = (Fleet(SPACE, METRICS, CONTEXT_DIM, DEFAULT, size, device=where) for where in ("cpu", device))
    apart = np.zeros(size)
    for _ in range(steps):
        contexts = worlds.contexts()
        asked, points = cpu.ask(contexts), other.ask(contexts).points
        apart = np.maximum(apart, np.abs(asked.points - points).max(axis=1))
        losses = worlds.losses(contexts, asked.points)
        for fleet in (cpu, other):
            fleet.observe(contexts, asked.params, {"loss": losses})
    kernel = "compiled code" if native.available() else "arrays"
    return {
        "tuners": size, "steps": steps, "device": device, "cpu": kernel,
        "largest difference": float(apart.max()), "tuners that differ by more than 1e-6": int((apart > 1e-6).sum()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--loop", type=int, default=20, help="tuners in the loops beside it; 0: none")
    parser.add_argument("--shards", type=int, default=0, help="processes of a fleet on Ray beside it; 0: none")
    parser.add_argument("--shared", action="store_true", help="measure what new tuners gain from the others instead")
    parser.add_argument("--parity", action="store_true", help="compare the device's suggestions with the CPU's instead")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.shared:
        rows = [shared(1000, *world) for world in ((0.05, 0.0), (0.2, 0.0), (0.5, 0.0), (0.05, 0.1), (0.2, 0.1))]
    elif given.parity:
        rows = [parity(given.device)]
    else:
        rows = speed(given.size, given.steps, given.device, given.loop, given.shards)
    if given.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{value:,.3g}" if isinstance(value, float) else f"{value}" for value in row.values()))


if __name__ == "__main__":
    main()
