"""Everyday systems with knobs on a continuum, as their manuals describe them: valleys with a cliff beside them.

Each is a formula of textbooks (queues, caches, retries, a control loop), with numbers drawn from the seed and a load
that changes. Defaults are those of people who were careful: some stand close to the cliff, since the best is close to
it. Beyond a cliff a run costs a multiple and is neither a failure nor a false measurement.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.costs import number
from rasp_tuner import Float, Int, Tuner
from rasp_tuner.space import Params

STEPS = 200
NOISE = 0.05  # deviation of the logarithm of a measured cost
MARGIN = 1.02  # times the default's cost: no harm
LATE = 3  # the last part in so many
PERIOD = 60  # steps of a day
GRID = 600  # settings at random that are looked at for the best

Rng = np.random.Generator
Knob = Int | Float


class World(NamedTuple):
    """Of one seed."""

    space: dict[str, Knob]
    default: Params
    cost: Callable[[dict[str, float], float], float]  # of settings under a load from 0 to 1


def wide(low: float, high: float) -> Float:
    return Float(low, high, log=True)


def heap(rng: Rng) -> World:
    """A garbage collector: a larger heap costs less, until the machine swaps. The default leaves a tenth free."""
    limit, live = rng.uniform(3000.0, 6000.0), rng.uniform(300.0, 600.0)

    def cost(p: dict[str, float], load: float) -> float:
        data = live * (1.0 + load)
        gc = 1.0 + 2.0 * data / max(p["heap_mb"] - data, 0.1 * data) + 2.0 * (p["young"] - 0.4) ** 2
        return gc * (12.0 if p["heap_mb"] + 100.0 * load > limit else 1.0)

    return World({"heap_mb": wide(500, 16000), "young": Float(0.05, 0.9)}, {"heap_mb": 0.9 * limit, "young": 0.3}, cost)


def keep_alive(rng: Rng) -> World:
    """Idle connections: too short and clients connect again, too long and the server has no room for new ones."""
    room, pause = rng.uniform(2000.0, 5000.0), rng.uniform(5.0, 20.0)

    def cost(p: dict[str, float], load: float) -> float:
        again = math.exp(-p["keep_s"] / pause)
        busy = (20.0 + 80.0 * load) * p["keep_s"] / room
        return 10.0 + 30.0 * again + (40.0 * (busy - 1.0) + 60.0 if busy > 1.0 else 0.0)

    return World({"keep_s": wide(0.5, 600)}, {"keep_s": 15.0}, cost)


def timeouts(rng: Rng) -> World:
    """A request is tried again after a while: too late costs those that hang, too early doubles the load."""
    usual, hangs = rng.uniform(50.0, 200.0), rng.uniform(0.02, 0.1)

    def cost(p: dict[str, float], load: float) -> float:
        takes = usual * (1.0 + 2.0 * load)
        early = math.exp(-p["timeout_ms"] / takes)
        used = (0.3 + 0.4 * load) * (1.0 + early * p["retries"])
        return float(takes / max(1.0 - used, 0.05) + hangs * p["timeout_ms"] * (1.0 + 3.0 * hangs ** p["retries"]))

    return World(
        {"timeout_ms": wide(20, 20000), "retries": Float(0.0, 5.0)}, {"timeout_ms": 1000.0, "retries": 2.0}, cost
    )


def backoff(rng: Rng) -> World:
    """Writers that collide wait for longer and longer, with jitter."""
    best, need = rng.uniform(10.0, 80.0), rng.uniform(0.3, 0.7)

    def cost(p: dict[str, float], load: float) -> float:
        wait = p["base_ms"] * p["factor"] * (1.0 - 0.5 * p["jitter"])
        crowd = (1.0 + 9.0 * load) * best / wait * (1.0 + 2.0 * max(need - p["jitter"], 0.0))
        return 5.0 + 0.3 * wait + 10.0 * crowd + (100.0 if crowd > 4.0 else 0.0)

    space: dict[str, Knob] = {"base_ms": wide(1, 2000), "factor": Float(1.1, 4.0), "jitter": Float(0.0, 1.0)}
    return World(space, {"base_ms": 100.0, "factor": 2.0, "jitter": 0.0}, cost)


def database(rng: Rng) -> World:
    """Memory for sorts and for pages, the price of a random read, time between checkpoints; too much memory swaps."""
    rows, edge = rng.uniform(50.0, 300.0), rng.uniform(1.5, 3.5)

    def cost(p: dict[str, float], load: float) -> float:
        sessions = 5.0 + 35.0 * load
        spill = 0.4 * max(math.log2(rows * (1.0 + load) / p["work_mb"]), 0.0)
        misses = 1.5 * (1.0 - p["shared"]) ** 2
        plan = 0.0 if p["page_cost"] < edge else 0.8
        log = 0.5 * (60.0 / p["checkpoint_s"]) + 0.05 * p["checkpoint_s"] / 300.0
        full = sessions * p["work_mb"] / 8000.0 + p["shared"] > 1.0
        return (2.0 + spill + misses + plan + log) * (5.0 if full else 1.0)

    space: dict[str, Knob] = {
        "work_mb": wide(1, 4096),
        "shared": Float(0.05, 0.9),
        "page_cost": Float(1.0, 8.0),
        "checkpoint_s": wide(30, 3600),
    }
    return World(space, {"work_mb": 4.0, "shared": 0.15, "page_cost": 4.0, "checkpoint_s": 300.0}, cost)


def thread_pool(rng: Rng) -> World:
    """Threads and a queue: too few wait, too many get in each other's way."""
    cores, wait = rng.uniform(8.0, 32.0), rng.uniform(2.0, 8.0)

    def cost(p: dict[str, float], load: float) -> float:
        n, useful = p["threads"], cores * (1.0 + wait)
        rate = min(n, useful) / useful * (1.0 if n < 2.0 * useful else 2.0 * useful / n)
        used = (0.1 + 0.7 * load) / max(rate, 0.01)
        queue = min(used / (1.0 - used), p["queue"]) if used < 1.0 else p["queue"]
        refused = max(used - 1.0, 0.0) + math.exp(-p["queue"] / 10.0)
        return 10.0 + 2.0 * queue + 100.0 * refused + 0.02 * n

    space: dict[str, Knob] = {"threads": Int(1, 1024, log=True), "queue": Int(1, 4096, log=True)}
    return World(space, {"threads": 64, "queue": 1000}, cost)


def control_loop(rng: Rng) -> World:
    """A PID loop: faster is better until it swings."""
    plant = rng.uniform(0.5, 2.0)

    def cost(p: dict[str, float], load: float) -> float:
        gain = plant * (0.7 + 0.6 * load)
        swings = p["kp"] * gain > 2.0 + 4.0 * p["kd"] * gain or p["ki"] > 1.5 * p["kp"]
        error = 1.0 / (0.2 + p["kp"] * gain) + 0.1 / (0.05 + p["ki"]) + 2.0 * (p["kd"] * gain) ** 2
        return error * (8.0 if swings else 1.0)

    space: dict[str, Knob] = {"kp": wide(0.01, 20), "ki": wide(0.001, 10), "kd": wide(0.001, 5)}
    return World(space, {"kp": 0.5, "ki": 0.05, "kd": 0.01}, cost)


def linger(rng: Rng) -> World:
    """A producer that waits for a batch to fill: latency against the price of a request."""
    price = rng.uniform(5.0, 20.0)

    def cost(p: dict[str, float], load: float) -> float:
        rate = 2.0 * 50.0**load  # kB a ms
        held = min(p["linger_ms"], p["batch_kb"] / rate)
        used = price / max(held * rate, 1.0) * rate / 20.0
        return float(2.0 + held + 4.0 * price / max(held, 0.5) ** 0.5 + (80.0 if used > 1.0 else 10.0 * used))

    return World({"linger_ms": wide(0.1, 500), "batch_kb": wide(1, 4096)}, {"linger_ms": 0.5, "batch_kb": 16.0}, cost)


def stream(rng: Rng) -> World:
    """A video: more bits look better until they do not arrive in time."""
    line = rng.uniform(3.0, 8.0)

    def cost(p: dict[str, float], load: float) -> float:
        room = line * (1.0 - 0.6 * load)
        late = max(p["mbit"] / room - 1.0, 0.0)
        ahead = math.exp(-p["buffer_s"] / 5.0)
        stalls = 3.0 + 6.0 * late if late > 0.3 * (1.0 - ahead) else 0.0
        return float(1.0 + 4.0 / p["mbit"] ** 0.7 + 0.05 * p["buffer_s"] + stalls)

    return World({"mbit": wide(0.2, 20), "buffer_s": Float(0.5, 30.0)}, {"mbit": 1.5, "buffer_s": 10.0}, cost)


def time_to_live(rng: Rng) -> World:
    """A cache: old answers are wrong, new ones are dear."""
    changes = rng.uniform(100.0, 2000.0)

    def cost(p: dict[str, float], load: float) -> float:
        asks = 0.02 * 100.0**load
        hits = asks * p["ttl_s"] / (1.0 + asks * p["ttl_s"])
        old = 1.0 - math.exp(-p["ttl_s"] / changes)
        return float(1.0 + 20.0 * (1.0 - hits) + 15.0 * old * hits)

    return World({"ttl_s": wide(1, 100_000)}, {"ttl_s": 300.0}, cost)


def autoscale(rng: Rng) -> World:
    """Machines are dear, waiting is dearer: how full they may be, and how soon a new one starts."""
    machine, jumps = rng.uniform(0.5, 2.0), rng.uniform(0.05, 0.2)

    def cost(p: dict[str, float], load: float) -> float:
        full = p["target"] + jumps * load * math.log10(p["cooldown_s"])
        waits = 20.0 if full >= 0.98 else min(0.3 * full / (1.0 - full), 20.0)
        return float(machine * 4.0 / p["target"] + waits + 3.0 / p["cooldown_s"] ** 0.5)

    space: dict[str, Knob] = {"target": Float(0.1, 0.97), "cooldown_s": wide(5, 1800)}
    return World(space, {"target": 0.5, "cooldown_s": 300.0}, cost)


def hedge(rng: Rng) -> World:
    """A second request after a while against slow answers: it is more load, and too many end in collapse."""
    tail, fill = rng.uniform(300.0, 1200.0), rng.uniform(0.5, 0.7)

    def cost(p: dict[str, float], load: float) -> float:
        twice = math.exp(-p["hedge_ms"] / 30.0) + 0.03 * math.exp(-p["hedge_ms"] / tail)
        used = (0.2 + fill * load) * (1.0 + twice)
        return 20.0 / max(1.0 - used, 0.03) + 0.05 * min(p["hedge_ms"] + 30.0, tail)

    return World({"hedge_ms": wide(1, 5000)}, {"hedge_ms": 1000.0}, cost)


def ridge(rng: Rng) -> World:
    """Two knobs of which only the product must fit, and little else matters."""
    size = rng.uniform(100.0, 1000.0)

    def cost(p: dict[str, float], load: float) -> float:
        off = math.log(p["block"] * p["depth"] / (size * (1.0 + 3.0 * load)))
        return 1.0 + off**2 + 0.1 * math.log(p["depth"] / 8.0) ** 2

    return World({"block": wide(1, 4096), "depth": wide(1, 512)}, {"block": 8.0, "depth": 4.0}, cost)


def send_buffer(rng: Rng) -> World:
    """A buffer in a network: too small and the line stands idle, too large and all wait."""
    line = rng.uniform(50.0, 200.0)

    def cost(p: dict[str, float], load: float) -> float:
        filled = p["buffer"] / (line * (0.5 + load))
        idle = max(1.0 - filled, 0.0)
        return 10.0 / (1.0 - 0.9 * idle) + 5.0 * max(filled - 1.0, 0.0) + 30.0 * (p["window"] > 2.5 * p["buffer"])

    space: dict[str, Knob] = {"buffer": wide(4, 4096), "window": wide(4, 4096)}
    return World(space, {"buffer": 300.0, "window": 64.0}, cost)


WORLDS: dict[str, Callable[[Rng], World]] = {
    "heap": heap,
    "keep alive": keep_alive,
    "timeouts": timeouts,
    "backoff": backoff,
    "database": database,
    "thread pool": thread_pool,
    "control loop": control_loop,
    "linger": linger,
    "stream": stream,
    "time to live": time_to_live,
    "autoscale": autoscale,
    "hedge": hedge,
    "ridge": ridge,
    "send buffer": send_buffer,
}


WITH_STOPS = "with stops"  # a run is ended where its suggestion says so, and costs what it came to then
LINES = {
    "cost / default": Measure(worst="run"),
    "cost / default, last third": Measure(worst="run"),
    f"over {MARGIN}": Measure("count", wanted=0.0),
    "worst overdraft, steps": Measure("mean", worst="run"),
}


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    name, _, ends = cell.partition(", ")
    world = WORLDS[name](np.random.default_rng([seed, 0xE7E]))
    tuner = Tuner(world.space, {"ms": "min"}, ["load"], world.default, seed=seed)
    rng, grid = np.random.default_rng([seed, 5]), np.random.default_rng([seed, 6])
    knobs = world.space.items()
    some = [{name: number(knob.from_unit(float(grid.random()))) for name, knob in knobs} for _ in range(GRID)]
    default = {name: number(value) for name, value in world.default.items()}
    paid = np.empty((STEPS, 3))
    for step in range(STEPS):
        wave = 0.5 - 0.4 * math.cos(2.0 * math.pi * step / PERIOD)
        load = float(np.clip(wave + 0.05 * rng.standard_normal(), 0.0, 1.0))
        own = tuner.ask({"load": load})
        true = world.cost({name: number(value) for name, value in own.params.items()}, load)
        came = true * math.exp(NOISE * rng.standard_normal())
        ended = ends == WITH_STOPS and own.stop is not None and came >= own.stop
        tuner.tell(own.id, {"ms": float(own.stop or 0.0) if ended else came}, stopped=ended)
        ours = min(true, float(own.stop or true)) if ended else true
        paid[step] = ours, world.cost(default, load), min(world.cost(p, load) for p in (default, *some))
    ours, usual, least = paid.sum(axis=0)
    late = paid[-(STEPS // LATE) :].sum(axis=0)
    said = f"{WITH_STOPS}: " if ends else ""
    values = [
        ours / usual,
        late[0] / late[1],
        ours > MARGIN * usual,
        float(np.max(np.cumsum(paid[:, 0] / paid[:, 1] - MARGIN))),
    ]
    found: Values = {said + line: value for line, value in zip(LINES, values, strict=True)}
    return found if ends else found | {"possible": least / usual}


BED = Bed(
    "everyday",
    4,
    {
        "possible": Measure(),
        **LINES,
        **{f"{WITH_STOPS}: {line}": measure for line, measure in LINES.items()},
    },
    lambda _: [*WORLDS, *(f"{name}, {WITH_STOPS}" for name in WORLDS)],
    run,
)
