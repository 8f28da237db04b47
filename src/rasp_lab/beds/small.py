"""Small worlds: eight systems as users have them, two situations in turns; is the best found, and at what price?

A world's numbers are drawn from its seed. A recommendation counts as found if its cost without noise is within 10% of
the least cost of all settings in that situation.
"""

import math
from collections.abc import Callable

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.costs import System, noisy, number, situations
from rasp_tuner import Bool, Categorical, Float, Int, Tuner
from rasp_tuner.space import Params
from rasp_tuner.types import Explanation

STEPS = 150
NEAR = 1.1  # times the least cost: found
MARGIN = 1.02  # times the default's cost: no harm
KNOWN_VISITS, SURPRISE = 20, 2.0  # a situation is known for long; times the default's cost: no step for curiosity
GOOD_HERE, BAD_THERE, RUIN = 0.25, 2.0, 10.0  # times the default's cost, of the ruinous world

Rng = np.random.Generator


def choice_and_float(rng: Rng) -> System:
    """Three methods, each with a rate of its own that suits it; which method is best depends on the situation."""
    levels = np.array([[1.0, 0.6, 1.4], [1.0, 1.5, 0.7]])  # cost at the best rate, by situation
    rates = rng.uniform(0.15, 0.85, (2, 3))
    methods = ["plain", "eager", "lazy"]

    def cost(p: Params, s: int) -> float:
        i = methods.index(str(p["method"]))
        return float(levels[s, i] + 1.5 * (number(p["rate"]) - rates[s, i]) ** 2)

    return System({"method": Categorical(methods), "rate": Float(0.0, 1.0)}, {"method": "plain", "rate": 0.5}, cost)


def ruinous_choice(rng: Rng) -> System:
    """One choice is good in situation 0 and bad in 1, one is ten times worse in both. Possible: 0.63 of the default."""
    good, ruin = rng.permutation(["b", "c"]).tolist()
    costs = {"a": (1.0, 1.0), good: (GOOD_HERE, BAD_THERE), ruin: (RUIN, RUIN)}
    return System({"plan": Categorical(["a", "b", "c"])}, {"plan": "a"}, lambda p, s: costs[str(p["plan"])][s])


def threads(rng: Rng) -> System:
    """One to sixteen threads: a parallel situation and one in which each thread more is a cost."""
    cores, each = float(rng.integers(6, 13)), float(rng.uniform(0.1, 0.2))

    def cost(p: Params, s: int) -> float:
        n = number(p["threads"])
        return 0.2 + 4.0 / min(n, cores) + 0.1 * max(n - cores, 0.0) if s == 0 else 1.0 + each * (n - 1.0)

    return System({"threads": Int(1, 16)}, {"threads": 4}, cost)


def cache_size(rng: Rng) -> System:
    """Misses fall until the working set fits; memory has a small price. The working sets differ by a factor of 64."""
    large = float(rng.uniform(4000.0, 16000.0))
    sets = (large, large / 64.0)

    def cost(p: Params, s: int) -> float:
        size = number(p["cache_kb"])
        return 1.0 + 0.25 * max(math.log2(sets[s] / size), 0.0) + 0.05 * max(math.log2(size / sets[s]), 0.0)

    return System({"cache_kb": Int(16, 65_536, log=True)}, {"cache_kb": 1024}, cost)


def two_switches(rng: Rng) -> System:
    """Exclusive or: in situation 0 the switches should differ; in 1 both should be on, and one alone is worse."""
    del rng

    def cost(p: Params, s: int) -> float:
        on = int(bool(p["a"])) + int(bool(p["b"]))
        return ((1.0, 0.5, 1.0), (1.0, 1.3, 0.5))[s][on]

    return System({"a": Bool(), "b": Bool()}, {"a": False, "b": False}, cost)


def ten_flags(rng: Rng) -> System:
    """Ten flags, all off; each changes the cost by a factor, four of them in opposite ways in the two situations."""
    shared = rng.permutation([-0.25, -0.2, -0.15, 0.2, 0.15, 0.1, 0.0, 0.0, 0.0, 0.0])
    own = rng.permutation([-0.2, 0.2, -0.15, 0.15, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    names = [f"f{i}" for i in range(10)]

    def cost(p: Params, s: int) -> float:
        return float(np.exp(sum((shared[i] + (own[i], -own[i])[s]) for i, name in enumerate(names) if p[name])))

    return System({name: Bool() for name in names}, dict.fromkeys(names, False), cost)


def codecs(rng: Rng) -> System:
    """Eight codecs of level 1 to 9: time to pack plus time to send, over a fast and a slow link."""
    speed = rng.permutation(np.geomspace(0.03, 1.0, 8))  # time at level 1
    size = 1.0 / (1.0 + 4.0 * speed**0.5 * rng.uniform(0.7, 1.3, 8))  # slower codecs pack better, more or less
    names = [f"codec{i}" for i in range(8)]

    def cost(p: Params, s: int) -> float:
        i, level = names.index(str(p["codec"])), number(p["level"])
        packed = size[i] * (1.0 - 0.04 * (level - 1.0))
        return float(speed[i] * 1.25 ** (level - 1.0) + packed * (0.5, 8.0)[s])

    middle = names[int(np.argsort(speed)[4])]
    return System({"codec": Categorical(names), "level": Int(1, 9)}, {"codec": middle, "level": 6}, cost)


def already_best(rng: Rng) -> System:
    """The default is the best of four plans and eight sizes, in both situations."""
    worse, slope = rng.uniform(1.2, 3.0, (2, 4)), rng.uniform(0.1, 0.3, 2)
    plans, best = ["a", "b", "c", "d"], int(rng.integers(2, 7))
    worse[:, 0] = 1.0

    def cost(p: Params, s: int) -> float:
        return float(worse[s, plans.index(str(p["plan"]))] * (1.0 + slope[s] * abs(number(p["size"]) - best)))

    return System({"plan": Categorical(plans), "size": Int(1, 8)}, {"plan": "a", "size": best}, cost)


WORLDS: dict[str, Callable[[Rng], System]] = {
    "choice and float": choice_and_float,
    "ruinous choice": ruinous_choice,
    "threads": threads,
    "cache size": cache_size,
    "two switches": two_switches,
    "ten flags": ten_flags,
    "codecs": codecs,
    "already best": already_best,
}
NO_BUDGET = "ruinous choice, no budget"
NASTY = "steps expected over twice the default, known for long"
WITH_STOPS = "ruinous choice, with stops"  # a run is ended where its suggestion says so, and costs what it came to then


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    system = WORLDS[cell.partition(",")[0]](np.random.default_rng([seed, 0x5A11]))
    limits = {"budget": None} if cell == NO_BUDGET else {}
    tuner = Tuner(system.space, {"cost": "min"}, ["situation"], system.default, seed=seed, **limits)  # type: ignore[arg-type]
    return play(cell, system, tuner, seed)


def play(cell: str, system: System, tuner: Tuner, seed: int) -> Values:
    """What a run adds to the lines of the table; two neighbours of a half start in different situations."""
    order = situations(STEPS, seed // 2 % 2)
    ran, paid, visits, surprises = [], 0.0, [0, 0], 0
    for step, s in enumerate(order):
        suggestion = tuner.ask({"situation": s})
        ran.append(suggestion.params)
        truth = system.cost(suggestion.params, s)
        came, stop = noisy(truth, seed, step), suggestion.stop
        if cell == WITH_STOPS and stop is not None and came >= stop:
            tuner.tell(suggestion.id, {"cost": stop}, stopped=True)
            paid += stop
        else:
            tuner.tell(suggestion.id, {"cost": came})
            paid += truth
        surprises += visits[s] >= KNOWN_VISITS and is_nasty(tuner.explain(suggestion.id, visits=False))
        visits[s] += 1
    recommended = [tuner.recommend({"situation": s}) for s in (0, 1)]
    cost = paid / sum(system.cost(system.default, s) for s in order)
    found = sum(system.cost(p, s) <= NEAR * system.cost(system.best(s), s) for s, p in enumerate(recommended))
    got: Values = {NASTY: surprises}
    if cell not in (NO_BUDGET, WITH_STOPS):
        got |= {"found": found, "cost / default": cost, "over 1.02": cost > MARGIN}
    if cell.startswith("ruinous"):
        tried = any(system.cost(p, 0) == GOOD_HERE for p, s in zip(ran, order, strict=True) if s == 0)
        got |= {f"{cell}: cost / default": cost, f"{cell}: good one never tried": not tried}
    return got


def is_nasty(why: Explanation) -> bool:
    """Whether a step was expected to cost over twice as much as the default."""
    return why.predicted is not None and why.level is not None and why.predicted > SURPRISE * why.level


BED = Bed(
    "small",
    6,
    {
        "found": Measure("count", wanted=94 / 96, of=2, more=True),
        "cost / default": Measure(worst="run"),
        "over 1.02": Measure("count", wanted=0.0),
        NASTY: Measure("count", wanted=0.0, of=STEPS - 2 * KNOWN_VISITS),
        "ruinous choice: cost / default": Measure(wanted=0.72, worst="run"),
        "ruinous choice: good one never tried": Measure("count", wanted=0.0),
        f"{WITH_STOPS}: cost / default": Measure(wanted=0.72, worst="run"),
        f"{WITH_STOPS}: good one never tried": Measure("count", wanted=0.0),
        f"{NO_BUDGET}: cost / default": Measure(worst="run"),
        f"{NO_BUDGET}: good one never tried": Measure("count", wanted=0.0),
    },
    lambda _: [*WORLDS, WITH_STOPS, NO_BUDGET],
    run,
)
