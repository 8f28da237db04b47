"""Systems drawn at random, as nobody planned them: knobs of all kinds and shapes, defaults anywhere.

The logarithm of a cost is a sum of what the knobs do. Each has a shape, a strength, which may be none, and a best value
that may differ between situations, as their levels do. Bowls are rare: most knobs have a kink, a side that hardly
matters, or a cliff beside their best value. A default may lie at an end of its range. Where runs can fail they do so
beyond a plane through up to three knobs, and a failure costs two runs of the default.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.costs import values_of
from rasp_tuner import Bool, Categorical, Float, Int, Tuner
from rasp_tuner.space import Params, Value

FAILURE = 2.0  # what one costs, in runs of the default
STEPS, RUNS = 200, 30  # of a live tuner; of a search, on each input
SEARCH_NOISE = 0.02
MARGIN, NEAR = 1.02, 1.1  # times the default's cost: no harm; times the least cost: found
WIDE = 4096  # the largest value of a knob in powers of two

Rng = np.random.Generator
Knob = Int | Float | Categorical
Fence = Callable[[Params], bool]  # whether a run fails
Effect = Callable[[Value, int], float]  # what a value adds to the logarithm of the cost, in a situation

SHAPES: dict[str, Callable[[float, float], float]] = {  # by the value and how far it is above the best one, from 0 to 1
    "bowl": lambda _, x: 3.0 * x * x,
    "kink": lambda _, x: 1.5 * abs(x),
    "one side": lambda _, x: 2.0 * max(-x, 0.0) + 0.2 * max(x, 0.0),
    "cliff": lambda u, x: 0.8 * (1.0 - u) if x <= 0.0 else 2.5,
}


class System(NamedTuple):
    """Of one seed."""

    space: dict[str, Knob]
    default: Params
    effects: dict[str, Effect]
    levels: np.ndarray  # [K] of the situations
    contexts: np.ndarray  # [K, c]
    jitter: float  # deviation of a context around its situation's
    noise: float  # deviation of the logarithm of a measured cost
    turn: int  # steps that a situation lasts; 1: drawn at each step

    def cost(self, params: Params, situation: int) -> float:
        logs = sum(effect(params[name], situation) for name, effect in self.effects.items())
        return float(self.levels[situation] * math.exp(logs))

    def best(self, situation: int) -> float:
        """The least cost: knobs do not interact."""
        logs = sum(
            min(self.effects[name](value, situation) for value in values_of(knob)) for name, knob in self.space.items()
        )
        return float(self.levels[situation] * math.exp(logs))


def drawn(kind: str, seed: int) -> System:
    """`kind`: "mixed", with knobs that have levels, or "continuous"."""
    rng = np.random.default_rng([seed, 0x575, kind == "mixed"])
    situations = int(rng.integers(1, 4))
    kinds = ("whole", "wide", "float", "choice", "switch") if kind == "mixed" else ("wide", "float")
    shapes = [name for name in SHAPES if kind == "continuous" or name != "cliff"]
    space, default, effects = dict[str, Knob](), dict[str, Value](), dict[str, Effect]()
    for name in (f"k{i}" for i in range(rng.integers(2, 7 if kind == "mixed" else 9))):
        strength, moves = float(rng.choice([0.0, 0.1, 0.3, 0.8])), rng.random() < 1.0 / 3.0
        space[name], default[name] = _knob(str(rng.choice(kinds)), rng)
        draw = rng.uniform if isinstance(space[name], Int | Float) else rng.standard_normal
        size = 1 if isinstance(space[name], Int | Float) else len(list(values_of(space[name])))
        places = np.array([draw(size=size) for _ in range(situations)] if moves else [draw(size=size)] * situations)
        effects[name] = _effect(space[name], strength, places, SHAPES[str(rng.choice(shapes))])
    return System(
        space,
        default,
        effects,
        np.exp(rng.choice([0.0, 0.5, 2.0]) * rng.standard_normal(situations)),
        rng.choice([1.0, 100.0]) * rng.standard_normal((situations, int(rng.integers(1, 4)))),
        float(rng.choice([0.0, 0.1])),
        float(rng.choice([0.02, 0.1, 0.3])),
        int(rng.choice([1, 7, 20])),
    )


def fence(system: System, seed: int) -> Fence:
    """The default does not fail."""
    rng = np.random.default_rng([seed, 0xFA])
    names = [str(name) for name in rng.permutation(list(system.space))[:3]]
    ways = dict(zip(names, rng.choice([-1.0, 1.0], len(names)).tolist(), strict=True))

    def place(params: Params) -> float:
        return float(sum(way * system.space[name].to_unit(params[name]) for name, way in ways.items()))

    most = place(system.default) + float(rng.uniform(0.1, 0.6))
    return lambda params: place(params) > most


def never(params: Params) -> bool:
    """A run that fails."""
    del params
    return False


def _knob(kind: str, rng: Rng) -> tuple[Knob, Value]:
    """A knob and its default; one in two of continuous ones at an end of its range."""
    if kind == "whole":
        knob = Int(1, int(rng.integers(4, 40)))
        return knob, int(rng.integers(1, knob.high + 1))
    if kind == "choice":
        return Categorical(list("abcde")[: rng.integers(3, 6)]), "a"
    if kind == "switch":
        return Bool(), False
    at = float(rng.choice([0.0, 1.0, rng.random(), rng.random()]))
    scale: Int | Float = Int(1, WIDE, log=True) if kind == "wide" else Float(0.0, 1.0)
    return scale, scale.from_unit(at)


def _effect(knob: Knob, strength: float, places: np.ndarray, shape: Callable[[float, float], float]) -> Effect:
    """`places` [K, m]: best values of numbers; what values of others add."""
    if isinstance(knob, Int | Float):
        return lambda value, s: strength * shape(knob.to_unit(value), knob.to_unit(value) - float(places[s, 0]))
    values = list(values_of(knob))
    return lambda value, s: strength * float(places[s, values.index(value)])


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    kind, _, goal = cell.partition(", ")
    system = drawn(kind, seed)
    if goal == "search":
        return searched(system, kind, seed)
    if goal == "failing":
        values = live(system, cell, seed, fence(system, seed))
        return {name: values[name] for name in (f"{cell}: {line}" for line in FAILING)}
    return live(system, kind, seed)


def live(system: System, kind: str, seed: int, fails: Fence = never) -> Values:
    """A tuner in turns of situations, or at random."""
    rng, names = np.random.default_rng([seed, 3]), [f"c{i}" for i in range(system.contexts.shape[1])]
    tuner = Tuner(system.space, {"ms": "min"}, names, system.default, seed=seed)
    count, reach = len(system.levels), system.jitter * float(np.abs(system.contexts).max())
    costs = []
    for step in range(STEPS):
        s = step // system.turn % count if system.turn > 1 else int(rng.integers(count))
        context = system.contexts[s] + reach * rng.standard_normal(len(names))
        own = tuner.ask(dict(zip(names, context.tolist(), strict=True)))
        level, true, failed = system.cost(system.default, s), system.cost(own.params, s), fails(own.params)
        noise = math.exp(system.noise * rng.standard_normal())
        if failed:
            tuner.tell_failed(own.id)
        else:
            tuner.tell(own.id, {"ms": true * noise})
        costs.append((FAILURE if failed else true / level, system.best(s) / level, failed))
    paid, least, failures = np.mean(costs, axis=0)
    found = [
        system.cost(tuner.recommend(dict(zip(names, context.tolist(), strict=True))), s) <= NEAR * system.best(s)
        for s, context in enumerate(system.contexts)
    ]
    return {
        f"{kind}: cost / default": float(paid),
        f"{kind}: possible": float(least),
        f"{kind}: found, of situations": float(np.mean(found)),
        f"{kind}: over {MARGIN}": paid > MARGIN,
        f"{kind}: failures, of runs": float(failures),
    }


def searched(system: System, kind: str, seed: int) -> Values:
    """So many runs on each input, beside as many drawn at random; the default runs first."""
    rng, names = np.random.default_rng([seed, 4]), [f"c{i}" for i in range(system.contexts.shape[1])]
    tuner = Tuner(system.space, {"ms": "min"}, names, system.default, seed=seed, goal="find")
    count = len(system.levels)
    tried: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for step in range(RUNS * count):
        s = step % count
        own = tuner.ask(dict(zip(names, system.contexts[s].tolist(), strict=True)))
        tuner.tell(own.id, {"ms": system.cost(own.params, s) * math.exp(SEARCH_NOISE * rng.standard_normal())})
        random = {name: knob.from_unit(float(rng.random())) for name, knob in system.space.items()}
        true = system.cost(system.default if step < count else random, s)
        tried[s].append((true * math.exp(SEARCH_NOISE * rng.standard_normal()), true))
    over = []
    for s, context in enumerate(system.contexts):
        recommended = tuner.recommend(dict(zip(names, context.tolist(), strict=True)))
        over.append((system.cost(recommended, s) / system.best(s), min(tried[s])[1] / system.best(s)))
    ours, chance = np.mean(over, axis=0)
    return {
        f"{kind}, search: cost / best": float(ours),
        f"{kind}, search: cost / best, random": float(chance),
        f"{kind}, search: 2% behind random": ours > MARGIN * chance,
    }


FAILING = {
    "cost / default": Measure(worst="run"),
    f"over {MARGIN}": Measure("count", wanted=0.0),
    "failures, of runs": Measure("mean", worst="run"),
}
BED = Bed(
    "systems",
    24,
    {
        name: measure
        for kind in ("mixed", "continuous")
        for name, measure in {
            **{f"{kind}, failing: {line}": measure for line, measure in FAILING.items()},
            f"{kind}: cost / default": Measure(worst="run"),
            f"{kind}: possible": Measure(),
            f"{kind}: found, of situations": Measure("mean", more=True),
            f"{kind}: over {MARGIN}": Measure("count", wanted=0.0),
            f"{kind}, search: cost / best": Measure(worst="run"),
            f"{kind}, search: cost / best, random": Measure(),
            f"{kind}, search: 2% behind random": Measure("count", wanted=0.0),
        }.items()
    },
    lambda _: [f"{kind}{goal}" for kind in ("mixed", "continuous") for goal in ("", ", search", ", failing")],
    run,
)
