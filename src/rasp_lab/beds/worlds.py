"""Random worlds of the library's benchmark: each seed is a world of its own."""

from typing import Any

import numpy as np

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_lab.beds.loop import Array, play
from rasp_lab.bench import domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.worlds import CHEAP
from rasp_lab.bench.domains.wrappers import Wrapper

STEPS, MIXED_STEPS = 80, 300
LAST_STEPS, STUCK = 20, 0.5  # stuck: the last steps are, on average, above half of the median setting's loss
START_STEPS, MARGIN = 50, 1.02  # on W_Near a tuner may look around first; then it should do no harm
NOISES = ("0", "0.02", "0.3")
DISCRETE_CELL = "discrete, noise "
OUTLIERS_CELL = "discrete, one answer in ten is false"


class Blurred(Wrapper[Any]):
    """A world with noise in units of its effects; that of W_Discrete-0.3 is a share of (median - best)."""

    def __init__(self, inner: ExperimentDomain[Any], deviation: float) -> None:
        super().__init__(inner, "blurred")
        self._deviation = deviation

    def metric_fn(self, theta: Array, omega: Any, rng: np.random.Generator) -> dict[str, float]:
        seen = self.inner.metric_fn(theta, omega, rng)
        return {name: value + self._deviation * float(rng.normal()) for name, value in seen.items()}


def run(cell: str, seed: int, options: Options) -> Values:
    """Discrete knobs; the loss of a step is (f - best) / (median - best) of random settings."""
    del options
    if cell == OUTLIERS_CELL:
        way, world = "one answer in ten is false", Blurred(domains.create("W_Discrete-0+outliers", seed), 0.02)
    else:
        noise = cell.removeprefix(DISCRETE_CELL)
        way, world = f"noise {noise}", Blurred(domains.create("W_Discrete-0", seed), float(noise))
    loss = play(world, seed, STEPS).loss
    return {f"loss, {way}": loss.mean(), f"stuck, {way}": loss[-LAST_STEPS:].mean() > STUCK}


def run_mixed(cell: str, seed: int, options: Options) -> Values:
    """Mixed knobs; the loss of a step is its cost divided by the default's."""
    del options
    done = play(domains.create(cell, seed), seed, MIXED_STEPS)
    if cell == "W_Near":
        later = done.loss[START_STEPS:].mean()
        return {"near: cost / default": later, "near: over 1.02": later > MARGIN}
    here = done.regime == CHEAP
    return {"scales: cost / default, cheap": done.loss[here].mean(), "scales: possible": done.least[here].mean()}


DISCRETE = Bed(
    "worlds",
    60,
    {f"loss, noise {noise}": Measure("mean", wanted) for noise, wanted in zip(NOISES, (0.12, 0.12, 0.19), strict=True)}
    | {f"stuck, noise {noise}": Measure("count", 0.0) for noise in NOISES}
    | {
        "loss, one answer in ten is false": Measure("mean"),
        "stuck, one answer in ten is false": Measure("count", 0.0),
    },
    lambda _: [*(f"{DISCRETE_CELL}{noise}" for noise in NOISES), OUTLIERS_CELL],
    run,
)
MIXED = Bed(
    "mixed",
    12,
    {
        "near: cost / default": Measure(wanted=1.02, worst="run"),
        "near: over 1.02": Measure("count"),
        "scales: cost / default, cheap": Measure("mean", wanted=0.32, worst="run"),
        "scales: possible": Measure("mean"),
    },
    lambda _: ["W_Near", "W_Scales"],
    run_mixed,
)
