"""Many clients at once: each answers its suggestion after so many others were asked for.

Systems are those of the bed `systems`, without failures. The peak bill is how far the cost so far ever was above that
of the default and 2% more, in steps of the default.
"""

from collections import deque
from itertools import pairwise

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.systems import drawn
from rasp_tuner import Tuner

STEPS = 400
CLIENTS = (8, 32)
BUDGET = 0.02
CELLS = [f"{kind}, {clients} clients" for kind in ("mixed", "continuous") for clients in CLIENTS]


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    kind, _, clients = cell.partition(", ")
    system, rng = drawn(kind, seed), np.random.default_rng([seed, 5])
    names = [f"c{i}" for i in range(system.contexts.shape[1])]
    tuner = Tuner(system.space, {"ms": "min"}, names, system.default, seed=seed)
    starts = np.cumsum([0, *rng.integers(1, 3 * system.turn + 1, STEPS)])  # of turns, which others do not share
    order = [s % len(system.levels) for s, (a, b) in enumerate(pairwise(starts.tolist())) for _ in range(a, b)]
    waiting: deque[tuple[str, dict[str, float]]] = deque()
    costs = []
    for s in order[:STEPS]:
        if len(waiting) == int(clients.split()[0]):
            tuner.tell(*waiting.popleft())
        suggestion = tuner.ask(dict(zip(names, system.contexts[s].tolist(), strict=True)))
        cost, noise = system.cost(suggestion.params, s), float(np.exp(system.noise * rng.standard_normal()))
        waiting.append((suggestion.id, {"ms": cost * noise}))
        costs.append(cost / system.cost(system.default, s))
    bill = np.cumsum(costs) - (1.0 + BUDGET) * np.arange(1, STEPS + 1)
    return {f"{cell}: cost / default": float(np.mean(costs)), f"{cell}: peak bill": max(float(bill.max()), 0.0)}


BED = Bed(
    "clients",
    12,
    {
        name: measure
        for cell in CELLS
        for name, measure in {
            f"{cell}: cost / default": Measure(worst="run"),
            f"{cell}: peak bill": Measure("mean", worst="run"),
        }.items()
    },
    lambda _: CELLS,
    run,
)
