"""Emulated SQLite, PostgreSQL, Blosc2 and web server: cost relative to the default's, with the noise of real runs."""

from functools import cache

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.forest import Emulator, fit
from rasp_tuner import Tuner

SYSTEMS = ("sqlite", "postgres", "compression", "web")
STEPS, FIRST_STEPS = 150, 50
NEW = 100  # added to seeds: sequences of work that no recorded run had


def prepare() -> None:
    for name in SYSTEMS:
        fit(name)


def run(cell: str, seed: int, options: Options) -> Values:
    del options
    emulator, rng = _emulator(cell), np.random.default_rng([seed, 5])
    system = emulator.system
    tuner = Tuner(
        system.space, {"cost_ms": "min"}, system.context, system.default, seed=seed, constraints=system.constraints
    )
    gained, at_default = [], []
    for work in system.sequence(STEPS, NEW + seed):
        suggestion = tuner.ask(work.context)
        log_cost = emulator.log_cost(suggestion.params, work)
        tuner.tell(suggestion.id, {"cost_ms": float(np.exp(log_cost + emulator.noise(work.kind, rng)))})
        gained.append(log_cost - emulator.log_cost(system.default, work))
        at_default.append(suggestion.params == system.default)
    return {
        "cost / default": float(np.exp(np.mean(gained))),
        "cost / default, last third": float(np.exp(np.mean(gained[-STEPS // 3 :]))),
        "cost / default, first 50": float(np.exp(np.mean(gained[:FIRST_STEPS]))),
        "steps at the default": float(np.mean(at_default)),
    }


@cache
def _emulator(name: str) -> Emulator:
    return Emulator(name)


BED = Bed(
    "emulated",
    8,
    {
        "cost / default": Measure(),
        "cost / default, last third": Measure(),
        "cost / default, first 50": Measure(worst="run"),
        "steps at the default": Measure("mean"),
    },
    lambda _: SYSTEMS,
    run,
    prepare,
)
