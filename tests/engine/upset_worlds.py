"""Small worlds in which one thing goes wrong: an absurd context, an absurd metric, a metric that changes its unit.

Two situations, told apart by a context of 0 or 1, take turns. The metric is a cost with 10% noise; what runs today is
far from the best. A run is judged by the true cost of what was suggested, beside that of the best.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rasp_tuner import Categorical, Float, Int, Tuner

TURN_STEPS = 15
NOISE = 0.1
LEVEL = 100.0
FLOAT_OPTIMA = np.array([[0.75, 0.3, 0.6], [0.35, 0.8, 0.6]])  # of each situation


def float_cost(params: dict, situation: int) -> float:
    x = np.array([params["a"], params["b"], params["c"]])
    return LEVEL * (1.0 + 4.0 * float(((x - FLOAT_OPTIMA[situation]) ** 2).sum()))


def discrete_cost(params: dict, situation: int) -> float:
    codec = {"none": (0.6, 0.5), "lz4": (0.0, 0.4), "zstd": (0.4, 0.0)}[params["codec"]][situation]
    return LEVEL * (1.0 + codec + 0.12 * abs(params["workers"] - (6, 2)[situation]))


@dataclass
class World:
    """What is tuned, and what it costs."""

    space: dict
    default: dict
    cost: Callable[[dict, int], float]


WORLDS = {
    "floats": World({"a": Float(0, 1), "b": Float(0, 1), "c": Float(0, 1)}, {"a": 0.1, "b": 0.1, "c": 0.1}, float_cost),
    "discrete": World(
        {"workers": Int(1, 8), "codec": Categorical(["none", "lz4", "zstd"])},
        {"workers": 4, "codec": "none"},
        discrete_cost,
    ),
}


@dataclass
class Upset:
    """What goes wrong, by step: a context or a value that is told once, and a factor from then on."""

    contexts: dict[int, float] = field(default_factory=dict)
    values: dict[int, float] = field(default_factory=dict)
    factors: dict[int, float] = field(default_factory=dict)


def situation_of(step: int) -> int:
    return step // TURN_STEPS % 2


def run(kind: str, seed: int, steps: int, upset: Upset, *, with_context: bool = True, **settings) -> np.ndarray:
    """[steps] the true cost of every suggestion over the best possible there, less one: 0.02 is two percent worse."""
    world, rng = WORLDS[kind], np.random.default_rng([seed, 17])
    context = ["load"] if with_context else None
    tuner = Tuner(world.space, {"cost": "min"}, context, world.default, seed=seed, **settings)
    excess, factor = np.empty(steps), 1.0
    for step in range(steps):
        situation = situation_of(step) if with_context else 0
        factor *= upset.factors.get(step, 1.0)
        told = upset.contexts.get(step, float(situation))
        s = tuner.ask({"load": told} if with_context else None)
        cost = world.cost(s.params, situation)
        excess[step] = cost / LEVEL - 1.0
        measured = factor * cost * np.exp(NOISE * rng.normal())
        tuner.tell(s.id, {"cost": upset.values.get(step, measured)})
    return excess


def standing_still(kind: str) -> float:
    """Excess of the default, over both situations."""
    world = WORLDS[kind]
    return float(np.mean([world.cost(world.default, s) / LEVEL - 1.0 for s in (0, 1)]))
