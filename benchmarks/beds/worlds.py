"""Random worlds of the library's benchmark: each seed is a world of its own."""

from benchmarks.beds.bed import Bed, Measure, Options, Values
from benchmarks.beds.loop import play
from rasp_tuner.bench import domains
from rasp_tuner.bench.domains.worlds import CHEAP

STEPS, MIXED_STEPS = 80, 300
LAST_STEPS, STUCK = 20, 0.5  # stuck: the last steps are, on average, above half of the median setting's loss
START_STEPS, MARGIN = 50, 1.02  # on W_Near a tuner may look around first; then it should do no harm
NOISES = ("0", "0.02", "0.3")


def run(cell: str, seed: int, options: Options) -> Values:
    """Discrete knobs; the loss of a step is (f - best) / (median - best) of random settings."""
    del options
    loss = play(domains.create(cell, seed), seed, STEPS).loss
    noise = cell.rpartition("-")[2]
    return {f"loss, noise {noise}": loss.mean(), f"stuck, noise {noise}": loss[-LAST_STEPS:].mean() > STUCK}


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
    | {f"stuck, noise {noise}": Measure("count", 0.0) for noise in NOISES},
    lambda _: [f"W_Discrete-{noise}" for noise in NOISES],
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
