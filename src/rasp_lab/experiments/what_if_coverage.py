"""How often the interval of `what_if` holds the mean of a metric, and how often a single run, where both are known.

python -m rasp_lab.experiments.what_if_coverage
python -m rasp_lab.experiments.what_if_coverage --seeds 40 --steps 300

Intervals are of the mean: nine in ten should hold it. A run scatters around the mean by its own noise, which is no
part of them.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from math import exp, log
from typing import Any

import numpy as np

from rasp_tuner import Float, Tuner

KNOBS = {"cache_gb": Float(1, 64, log=True), "timeout_s": Float(0.1, 10, log=True)}
DEFAULT = {"cache_gb": 8, "timeout_s": 1}
FIRST, EVERY = 30, 5  # steps: the first forecast that counts, and how often
SITUATION_STEPS = 6  # after which the other situation comes
Hits = defaultdict[str, list[tuple[bool, bool]]]


def mean_of(params: Mapping[str, Any], busy: bool) -> float:
    """What settings give on average: the README's example, with a second knob that counts."""
    return 20 + 10 * log(params["cache_gb"] / (40 if busy else 4)) ** 2 + 3 * log(params["timeout_s"] / 2) ** 2


def play(hits: Hits, seed: int, steps: int, noise: float) -> None:
    """Add, for each forecast, whether its interval held the mean, and whether it held a run."""
    rng = np.random.default_rng(seed)
    tuner = Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], DEFAULT, seed=seed)
    for step in range(steps):
        busy = step // SITUATION_STEPS % 2 == 1
        context = {"qps": (900 if busy else 100) * (1 + 0.05 * rng.normal())}
        suggestion = tuner.ask(context)
        anywhere = {"cache_gb": exp(rng.uniform(0, log(64))), "timeout_s": exp(rng.uniform(log(0.1), log(10)))}
        asked = {"the suggestion": suggestion.params, "the default": DEFAULT, "random settings": anywhere}
        for what, params in asked.items() if step >= FIRST and step % EVERY == 0 else ():
            expected = tuner.what_if(context, params).given.metrics["p99_ms"]
            mean = mean_of(params, busy)
            run = mean + noise * rng.normal()
            hits[what].append((expected.low <= mean <= expected.high, expected.low <= run <= expected.high))
        tuner.tell(suggestion.id, {"p99_ms": mean_of(suggestion.params, busy) + noise * rng.normal()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=150)
    asked = parser.parse_args()
    print(f"{asked.seeds} seeds of {asked.steps} steps; shares of intervals of 90% that hold")
    print(f"{'noise (p99 is 20 at best)':26} {'settings':16} {'the mean':>9} {'one run':>9} {'forecasts':>10}")
    for noise in (0.0, 1.0, 5.0):
        hits: Hits = defaultdict(list)
        for seed in range(asked.seeds):
            play(hits, seed, asked.steps, noise)
        for what, found in hits.items():
            mean, run = np.mean(found, axis=0)
            print(f"{noise:<26g} {what:16} {mean:9.2f} {run:9.2f} {len(found):10d}")


if __name__ == "__main__":
    main()
