"""Worlds in which the model is wrong on purpose: how far above 2% of the steps so far the true bill ever is.

The bill is in steps of the default's cost: what a run costs on average, its stop included, less what the default does
there. With stops it should stay within the allowance, a stake and the error of the default's level.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_tuner import Categorical, Float, Int, Tuner

STEPS = 250
SHARE = 0.02  # of the default's cost, that the budget allows a step
DRAWS = 500  # of noise, for the mean of what a run costs that may be ended
RARE = 0.05  # share of contexts in which one setting is good
Params = Mapping[str, Any]
Rng = np.random.Generator


class World(NamedTuple):
    """Of one seed; a cost is a multiple of the default's, there and then."""

    cost: Callable[[Params, float, int], float]  # of params that are not the default, in a context, at a step
    noise: Callable[[Rng], float]  # a factor of mean 1
    drift: float = 0.0  # deviation of one step of the logarithm of all costs
    jumps: float = 0.0  # probability of a step at which all costs double, or halve


def unbeatable(rng: Rng) -> World:
    """All other settings are about 20% worse, however near they are."""
    bumps = rng.normal(size=8)
    return World(lambda params, *_: 1.2 + 0.03 * float(bumps[hash_of(params) % 8]), lognormal(0.05))


def unbeatable_noisy(rng: Rng) -> World:
    """The same, and noise as large."""
    return unbeatable(rng)._replace(noise=lognormal(0.2))


def ruinous(rng: Rng) -> World:
    """Nine settings in ten are far worse, up to ten times; the others a little."""
    salt = int(rng.integers(1000))
    return World(
        lambda params, *_: 1.05 if hash_of(params, salt) % 10 == 0 else 2.0 + hash_of(params, salt) % 9, lognormal(0.1)
    )


def drifting(rng: Rng) -> World:
    """The level of all settings wanders by 10% a step; all but the default are 15% worse."""
    del rng
    return World(lambda *_: 1.15, lognormal(0.05), 0.1)


def heavy(rng: Rng) -> World:
    """Whatever runs, one value in fifty is ten times the others; all but the default are 15% worse."""
    del rng
    return World(lambda *_: 1.15, lambda rng: (10.0 if rng.random() < 0.02 else 1.0) / 1.18)


def rare(rng: Rng) -> World:
    """One setting in eight is twice as good, in one context of twenty; elsewhere all are 20% worse."""
    good = int(rng.integers(8))

    def cost(params: Params, context: float, step: int) -> float:
        del step
        return 0.5 if context < RARE and hash_of(params) % 8 == good else 1.2

    return World(cost, lognormal(0.05))


def trap(rng: Rng) -> World:
    """Every setting is 30% better for its first four runs, then three times worse."""
    del rng
    runs: dict[int, int] = {}

    def cost(params: Params, context: float, step: int) -> float:
        del context, step
        key = hash_of(params)
        runs[key] = runs.get(key, 0) + 1
        return 0.7 if runs[key] <= 4 else 3.0

    return World(cost, lognormal(0.05))


def turning(rng: Rng) -> World:
    """All but the default are 20% better for sixty steps, then 50% worse."""
    del rng
    return World(lambda *at: 0.8 if at[-1] < 60 else 1.5, lognormal(0.1))


def away(params: Params) -> float:
    """How far the farthest knob is from the default, of knobs from 0 to 1."""
    return max(abs(float(value) - 0.5) for value in params.values())


def cliff(rng: Rng) -> World:
    """The farther away the better, by up to 15%; then a cliff, behind which all costs three times as much."""
    edge = float(rng.uniform(0.15, 0.35))
    return World(lambda params, *_: 1.0 - 0.5 * away(params) if away(params) < edge else 3.0, lognormal(0.05))


def ridge(rng: Rng) -> World:
    """A ridge of 10% around the default, a valley that is 5% better, and ruin behind it."""
    ends = 0.1 + float(rng.uniform(0.0, 0.1)), 0.3
    return World(lambda params, *_: (1.1, 0.95, 5.0)[sum(away(params) > end for end in ends)], lognormal(0.1))


def moving(rng: Rng) -> World:
    """A bowl whose optimum jumps to the other side every fifty steps: what was 25% better is 77% worse."""
    side = float(rng.choice([-0.2, 0.2]))

    def cost(params: Params, context: float, step: int) -> float:
        del context
        best = 0.5 + side * (-1.0) ** (step // 50)
        return (0.7 + 2.0 * sum((float(value) - best) ** 2 for value in params.values())) / 0.94

    return World(cost, lognormal(0.05))


def shifting(rng: Rng) -> World:
    """All costs double or halve, every forty steps or so; all but the default are 15% worse."""
    del rng
    return World(lambda *_: 1.15, lognormal(0.05), jumps=0.025)


ANY_SPACE = (unbeatable, unbeatable_noisy, ruinous, drifting, heavy, rare, trap, turning)
CONTINUOUS = (cliff, ridge, moving, shifting)
WORLDS = {made.__name__: made for made in (*ANY_SPACE, *CONTINUOUS)}
SPACES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "choices": (
        {"plan": Categorical(list("abcdefgh")), "size": Int(1, 12), "fast": Categorical([True, False])},
        {"plan": "a", "size": 4, "fast": False},
    ),
    "floats": ({name: Float(0.0, 1.0) for name in "xyz"}, dict.fromkeys("xyz", 0.5)),
}


def hash_of(params: Params, salt: int = 0) -> int:
    """The same for settings that are about the same."""
    number = salt
    for value in params.values():
        rounded = round(6.0 * value) if isinstance(value, float) else sum(map(ord, str(value)))
        number = (number * 31 + rounded * 7 + 3) % 9973
    return number


def lognormal(deviation: float) -> Callable[[Rng], float]:
    return lambda rng: math.exp(deviation * rng.standard_normal() - 0.5 * deviation**2)


def play(world: World, space: str, seed: int, stops: bool, steps: int = STEPS) -> list[float]:
    """What each step cost more than the default, in steps of the default's cost."""
    knobs, default = SPACES[space]
    tuner = Tuner(knobs, {"cost": "min"}, ["load"], default, seed=seed)
    rng, level, paid = np.random.default_rng([seed, 1]), 0.0, []
    factors = np.array([world.noise(rng) for _ in range(DRAWS)])
    for step in range(steps):
        load = float(rng.random())
        level += world.drift * rng.standard_normal()
        if world.jumps and rng.random() < world.jumps:
            level += float(rng.choice([-1.0, 1.0])) * math.log(2.0)
        own = tuner.ask({"load": load})
        usual = math.exp(level) * (1.0 + load)
        true = usual * (1.0 if own.params == default else world.cost(own.params, load, step))
        came = true * world.noise(rng)
        ended = bool(stops and own.stop is not None and came >= own.stop)
        tuner.tell(own.id, {"cost": own.stop if ended and own.stop is not None else came}, stopped=ended)
        usually = np.minimum(true * factors, own.stop).mean() if stops and own.stop is not None else true
        paid.append(float(usually) / usual - 1.0)
    return paid


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    name, space, stops = cell.split(", ")
    world = WORLDS[name](np.random.default_rng(seed))
    bills = np.cumsum(play(world, space, seed, stops == "stops"))
    peak = float((bills - SHARE * np.arange(1, STEPS + 1)).max())
    return {line(name, space, stops): peak}


def line(name: str, space: str, stops: str) -> str:
    return f"{name}: peak bill over 2%, {space}, {stops}"


def cells() -> list[tuple[str, str, str]]:
    """World, space, whether runs are ended; of knobs without levels the contract is one of runs that are."""
    spaces = {made.__name__: list(SPACES) for made in ANY_SPACE} | {made.__name__: ["floats"] for made in CONTINUOUS}
    ways = {"choices": ("stops", "none"), "floats": ("stops",)}
    return [(name, space, stops) for name in WORLDS for space in spaces[name] for stops in ways[space]]


BED = Bed(
    "contract",
    8,
    {line(*cell): Measure("mean", wanted=10.0, worst="run") for cell in cells()},
    lambda _: [", ".join(cell) for cell in cells()],
    run,
)
