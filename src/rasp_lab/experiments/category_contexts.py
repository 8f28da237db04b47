"""How well a category serves as context: the table of docs/CONTEXT.md.

Run: python -m rasp_lab.experiments.category_contexts

Each category has an optimum and a level of its own. Mean regret per step of the tuner: without the context, with one
column of zeros and ones for each category made by hand, and with the kinds of rasp_tuner.contexts. Seeds are odd; the
width of a hash was chosen on even ones.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rasp_tuner import Category, Float, Name, Number, Tuner

Encode = Callable[[int], dict[str, Any]]
NOISE = 0.02
ROWS = [(kinds, block, load) for kinds in (2, 5, 50) for block in (1, 15) for load in (False, True)]


def ways(kinds: int) -> dict[str, tuple[Any, Encode]]:
    """Name -> what the tuner is told the context is, and the context of a category."""
    hand = [f"is_{i}" for i in range(kinds)]
    texts = [f"tenant-{i}" for i in range(kinds)]
    return {
        "no context": ({}, lambda _: {}),
        "by hand": (
            dict.fromkeys(hand, Number()),
            lambda own: {name: float(i == own) for i, name in enumerate(hand)},
        ),
        "Category(values)": ({"tenant": Category(texts)}, lambda own: {"tenant": texts[own]}),
        "Category()": ({"tenant": Category()}, lambda own: {"tenant": texts[own]}),
        "Name(4)": ({"tenant": Name(4)}, lambda own: {"tenant": texts[own]}),
        "Name(16)": ({"tenant": Name(16)}, lambda own: {"tenant": texts[own]}),
    }


def regret(way: str, kinds: int, block: int, load: bool, seed: int, horizon: int) -> float:
    """Per step; `load` adds a number that says nothing."""
    rng = np.random.default_rng([seed, kinds, block])
    optima, levels = rng.uniform(0.1, 0.9, size=(kinds, 2)), 0.3 * rng.normal(size=kinds)
    lengths = np.ones(horizon, dtype=int) if block == 1 else rng.integers(5, 2 * block, size=horizon)
    order = np.repeat(rng.integers(kinds, size=horizon), lengths)[:horizon].tolist()
    loads, noise = rng.normal(size=horizon), NOISE * rng.normal(size=horizon)
    schema, encode = ways(kinds)[way]
    schema = {**schema, "load": Number()} if load and schema else schema
    tuner, total = Tuner({"x": Float(0, 1), "y": Float(0, 1)}, {"loss": "min"}, schema or None, seed=seed), 0.0
    for step, own in enumerate(order):
        context = encode(own) | ({"load": float(loads[step])} if "load" in schema else {})
        s = tuner.ask(context or None)
        far = float(((np.array([s.params["x"], s.params["y"]]) - optima[own]) ** 2).sum())
        tuner.tell(s.id, {"loss": far + float(levels[own] + noise[step])})
        total += far
    return total / horizon


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=12, help="how many of each kind")
    parser.add_argument("--horizon", type=int, default=200, help="steps of each stream")
    given = parser.parse_args(arguments)
    names = list(ways(2))
    print("| categories | change | besides |", " | ".join(names), "|\n|---|---|---|" + "---|" * len(names))
    for kinds, block, load in ROWS:
        found = [
            float(np.mean([regret(way, kinds, block, load, 2 * i + 1, given.horizon) for i in range(given.streams)]))
            for way in names
        ]
        said = [str(kinds), "every step" if block == 1 else "in blocks", "a noisy number" if load else "nothing"]
        print("|", " | ".join([*said, *(f"{value:.3f}" for value in found)]), "|", flush=True)


if __name__ == "__main__":
    main()
