"""Glitches: a false context, a false metric, another unit, useless contexts, a rare situation, reversed answers.

The least cost of every system here is 1. Standing still means never to leave the default; excess is the cost over the
least one. Values of the step with the glitch itself are left out.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.costs import System, noisy, number, situations
from rasp_tuner import Bool, Categorical, Float, Int, Tuner
from rasp_tuner.space import Knob, Params

Rng = np.random.Generator
Array = NDArray[np.float64]
CONTEXTS = {"1000": 1e3, "-1e9": -1e9, "65535": 65535.0}
CONTEXT_AT, CONTEXT_STEPS = 100, 400
SOON = "next 20 steps"
WINDOWS = {SOON: slice(CONTEXT_AT + 1, CONTEXT_AT + 21), "steps 200 to 400": slice(200, 400)}
METRICS = {"none": None, "1e9": 1e9, "1e300": 1e300, "-1e6": -1e6}
METRIC_AT, METRIC_STEPS = 60, 360
UNITS = {"none": 1.0, "x1000": 1e3, "x0.001": 1e-3}
UNIT_AT, UNIT_STEPS = 150, 350
LAST_STEPS = 40  # of a run, whose mean is the excess at its end
USELESS = (0, 4, 12)  # dimensions
USELESS_STEPS, USELESS_LAST, STUCK = 300, 100, 0.1  # stuck: the last steps are above this share of standing still
RARE = {"10 x level": 10.0}  # how much dearer the rare situation is
RARE_STEPS, RARE_ONE_IN = 300, 12  # one step in so many is in it
REVERSED, AFTER = 500, 50  # answers in reverse order, and steps after them
STEEPNESS = 10.0  # of bowls: a tenth of the range away from the optimum costs 10%, as much as the noise
BATCHES = {"at once": 500, "by 50": 50}  # how many are asked for before the first answer


def floats(rng: Rng) -> System:
    """Three numbers whose optimum is on opposite sides in the two situations; the default is in the middle."""
    best = rng.uniform(0.1, 0.3, 3)
    best = np.where(rng.uniform(size=3) < 0.5, best, 1.0 - best)
    return _bowl((best, 1.0 - best), 0.5)


def far_floats(rng: Rng) -> System:
    """Three numbers with one optimum; the default is far from it and costs five times as much."""
    best = rng.uniform(0.15, 0.4, 3)
    return _bowl((best, best), 0.95)


def levels(rng: Rng) -> System:
    """A choice, two whole numbers and a switch; the best level of each differs between the situations."""
    knobs: dict[str, Knob] = {
        "plan": Categorical(["a", "b", "c", "d"]),
        "size": Int(0, 4),
        "depth": Int(0, 3),
        "fast": Bool(),
    }
    counts = (4, 5, 4, 2)
    effects = [rng.uniform(0.2, 0.5, (2, count)) for count in counts]
    for effect, count in zip(effects, counts, strict=True):
        first = int(rng.integers(count))
        effect[[0, 1], [first, (first + 1 + int(rng.integers(count - 1))) % count]] = 0.0

    def cost(p: Params, s: int) -> float:
        chosen = ("abcd".index(str(p["plan"])), int(number(p["size"])), int(number(p["depth"])), int(bool(p["fast"])))
        return float(np.exp(sum(effect[s, i] for effect, i in zip(effects, chosen, strict=True))))

    every = [
        System(knobs, {"plan": a, "size": b, "depth": c, "fast": d}, cost)
        for a in "abcd"
        for b in range(5)
        for c in range(4)
        for d in (False, True)
    ]
    return max(every, key=lambda system: min(cost(system.default, 0), cost(system.default, 1)))  # bad in both


def _bowl(best: tuple[Array, Array], default: float) -> System:
    names = ["x", "y", "z"]

    def cost(p: Params, s: int) -> float:
        return float(
            1.0 + STEEPNESS * np.mean([(number(p[name]) - b) ** 2 for name, b in zip(names, best[s], strict=True)])
        )

    return System({name: Float(0.0, 1.0) for name in names}, dict.fromkeys(names, default), cost)


KNOBS: dict[str, Callable[[Rng], System]] = {"floats": floats, "levels": levels}
FAR: dict[str, Callable[[Rng], System]] = {"floats": far_floats, "levels": levels}


def cells(options: Options) -> list[str]:
    del options
    kinds: dict[str, Iterable[str]] = {"context": CONTEXTS, "metric": METRICS, "unit": UNITS}
    found = [f"{kind}/{value}/{knobs}" for kind, values in kinds.items() for value in values for knobs in KNOBS]
    return [
        *found,
        *(f"useless/{count}/levels" for count in USELESS),
        *(f"rare/{level}/{knobs}" for level in RARE for knobs in KNOBS),
        *(f"reversed/{batch}/{knobs}" for batch in BATCHES for knobs in FAR),
    ]


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    kind, value, knobs = cell.split("/")
    make = (KNOBS if kind in ("context", "useless", "rare") else FAR)[knobs]
    return RUNS[kind](make(np.random.default_rng([seed, 0x611C])), value, knobs, seed)


def false_context(system: System, value: str, knobs: str, seed: int) -> Values:
    """Regret as a share of standing still, soon and long after one false context, and how much of it the glitch is."""
    order = situations(CONTEXT_STEPS)
    still = np.array([system.cost(system.default, s) - 1.0 for s in order])
    clean: list[float] = [float(s) for s in order]
    glitched = [*clean[:CONTEXT_AT], CONTEXTS[value], *clean[CONTEXT_AT + 1 :]]
    regret = []
    for contexts in (clean, glitched):
        tuner = Tuner(system.space, {"cost": "min"}, ["load"], system.default, seed=seed)
        costs = [_step(system, tuner, {"load": contexts[t]}, s, seed, t) for t, s in enumerate(order)]
        regret.append(np.array(costs) - 1.0)
    found: Values = {}
    for name, steps in WINDOWS.items():
        without, with_glitch = (float(side[steps].sum() / still[steps].sum()) for side in regret)
        found[f"false context, {knobs}, {name}"] = with_glitch
        found[f"false context, {knobs}, {name}, less clean"] = with_glitch - without
    return found


def false_metric(system: System, value: str, knobs: str, seed: int) -> Values:
    """The excess 300 steps after one false metric."""
    del knobs
    tuner, absurd = Tuner(system.space, {"cost": "min"}, None, system.default, seed=seed), METRICS[value]
    excess = []
    for step in range(METRIC_STEPS):
        told = absurd if step == METRIC_AT else None
        excess.append(_step(system, tuner, None, 0, seed, step, told=told) - 1.0)
    return {f"false metric, {value}: excess": float(np.mean(excess[-LAST_STEPS:]))}


def other_unit(system: System, value: str, knobs: str, seed: int) -> Values:
    """The excess 200 steps after the metric's unit changed."""
    del knobs
    tuner = Tuner(system.space, {"cost": "min"}, None, system.default, seed=seed)
    units = [1.0 if step < UNIT_AT else UNITS[value] for step in range(UNIT_STEPS)]
    excess = [_step(system, tuner, None, 0, seed, step, unit) - 1.0 for step, unit in enumerate(units)]
    return {f"unit changes, {value}: excess": float(np.mean(excess[-LAST_STEPS:]))}


def useless_contexts(system: System, value: str, knobs: str, seed: int) -> Values:
    """Regret as a share of standing still at the end, beside dimensions that are noise."""
    del knobs
    names = [f"noise{i}" for i in range(int(value))]
    tuner = Tuner(system.space, {"cost": "min"}, ["load", *names], system.default, seed=seed)
    order, drawn = situations(USELESS_STEPS), np.random.default_rng([seed, 3]).normal(size=(USELESS_STEPS, len(names)))
    contexts = [
        {"load": float(s), **dict(zip(names, row, strict=True))} for s, row in zip(order, drawn.tolist(), strict=True)
    ]
    regret = [_step(system, tuner, contexts[t], s, seed, t) - 1.0 for t, s in enumerate(order)]
    still = sum(system.cost(system.default, s) - 1.0 for s in order[-USELESS_LAST:])
    share = sum(regret[-USELESS_LAST:]) / still
    return {f"{value} useless contexts: regret / still": share, f"{value} useless contexts: stuck": share > STUCK}


def rare_situation(system: System, value: str, knobs: str, seed: int) -> Values:
    """Regret as a share of standing still, in a rare situation that is much dearer and in the usual one."""
    tuner = Tuner(system.space, {"cost": "min"}, ["load"], system.default, seed=seed)
    rare = [step % RARE_ONE_IN == RARE_ONE_IN - 1 for step in range(RARE_STEPS)]
    regret, still = np.zeros(2), np.zeros(2)
    for step, s in enumerate(map(int, rare)):
        unit = RARE[value] if s else 1.0
        regret[s] += _step(system, tuner, {"load": float(s)}, s, seed, step, unit) - 1.0
        still[s] += system.cost(system.default, s) - 1.0
    usual, there = regret / still
    return {f"rare situation, {value}, {knobs}": there, f"rare situation, {value}, {knobs}, usual one": usual}


def reversed_answers(system: System, value: str, knobs: str, seed: int) -> Values:
    """The excess in the steps after 500 answers that came in reverse order."""
    del knobs
    tuner = Tuner(system.space, {"cost": "min"}, None, system.default, seed=seed)
    for first in range(0, REVERSED, BATCHES[value]):
        waiting = [tuner.ask() for _ in range(BATCHES[value])]
        for step, suggestion in enumerate(reversed(waiting), first):
            tuner.tell(suggestion.id, {"cost": noisy(system.cost(suggestion.params, 0), seed, step)})
    excess = [_step(system, tuner, None, 0, seed, REVERSED + step) - 1.0 for step in range(AFTER)]
    return {f"500 answers reversed, {value}: excess": float(np.mean(excess))}


def _step(
    system: System,
    tuner: Tuner,
    context: dict[str, float] | None,
    s: int,
    seed: int,
    step: int,
    unit: float = 1.0,
    told: float | None = None,
) -> float:
    """One step; the true cost of what ran."""
    suggestion = tuner.ask(context)
    cost = system.cost(suggestion.params, s)
    tuner.tell(suggestion.id, {"cost": unit * noisy(cost, seed, step) if told is None else told})
    return cost


RUNS: dict[str, Callable[[System, str, str, int], Values]] = {
    "context": false_context,
    "metric": false_metric,
    "unit": other_unit,
    "useless": useless_contexts,
    "rare": rare_situation,
    "reversed": reversed_answers,
}
BED = Bed(
    "glitches",
    8,
    {
        f"false context, {knobs}, {when}{less}": Measure("mean", wanted=0.02 if less and when != SOON else None)
        for knobs in KNOBS
        for when in WINDOWS
        for less in ("", ", less clean")
    }
    | {f"false metric, {value}: excess": Measure("mean", wanted=0.03) for value in METRICS}
    | {f"unit changes, {value}: excess": Measure("mean", wanted=0.05) for value in UNITS}
    | {f"{count} useless contexts: regret / still": Measure("mean") for count in USELESS}
    | {f"{count} useless contexts: stuck": Measure("count", wanted=0.0) for count in USELESS}
    | {
        f"rare situation, {level}, {knobs}{where}": Measure("mean")
        for level in RARE
        for knobs in KNOBS
        for where in ("", ", usual one")
    }
    | {f"500 answers reversed, {batch}: excess": Measure("mean", wanted=0.04) for batch in BATCHES},
    cells,
    run,
)
