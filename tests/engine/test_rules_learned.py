"""Knobs that are tied together are learned: words, conditions, an optimum on the edge of what is allowed."""

import numpy as np
import pytest

from rasp_tuner import Auto, Bool, Categorical, Float, Int, PowerOfTwo, Tuner
from rasp_tuner.space import Space

STEPS, SEEDS, NOISE = 50, 4, 0.02


def auto_is_best(p):
    return (1.0 if p["threads"] == "auto" else 1.3 + 0.2 * abs(np.log2(p["threads"]) - 3)) + (p["x"] - 0.8) ** 2


def a_number_is_best(p):
    return (1.5 if p["threads"] == "auto" else 1.0 + 0.25 * abs(np.log2(p["threads"]) - 5)) + (p["x"] - 0.8) ** 2


def wal_is_best(p):
    level = {"DELETE": 2.0, "OFF": 1.8, "WAL": 1.0}[p["journal"]] + (p["x"] - 0.3) ** 2
    if p["journal"] != "WAL":
        return level
    return level + {"OFF": 0.0, "NORMAL": 0.2, "FULL": 0.8}[p["sync"]] + 0.1 * abs(np.log((p["pages"] + 1) / 1001))


def more_is_better(p):
    return 4.0 - np.log10(p["a"]) - 0.6 * np.log10(p["b"]) + 0.2 * p["slow"]


THREADS = {"threads": Auto(Int(1, 64, log=True)), "x": Float(0, 1)}
PRAGMAS = {
    "journal": Categorical(["DELETE", "WAL", "OFF"]),
    "sync": Categorical(["OFF", "NORMAL", "FULL"], ordered=True, when={"journal": "WAL"}),
    "pages": Int(0, 4096, log=True, when={"journal": "WAL"}),
    "x": Float(0, 1),
}
EDGE = {"a": Int(1, 64, log=True), "b": PowerOfTwo(1, 1024), "slow": Bool()}
LEAST_ON_EDGE = more_is_better({"a": 64, "b": 32, "slow": False})
WORLDS = {  # knobs, constraints, default, loss, its minimum
    "auto": (THREADS, [], {"threads": 8, "x": 0.2}, auto_is_best, 1.0),
    "number": (THREADS, [], {"threads": "auto", "x": 0.2}, a_number_is_best, 1.0),
    "condition": (PRAGMAS, [], {"journal": "DELETE", "x": 0.8}, wal_is_best, 1.0),
    "edge": (EDGE, ["a * b <= 2048"], {"a": 2, "b": 16, "slow": True}, more_is_better, LEAST_ON_EDGE),
}


@pytest.mark.parametrize("name", WORLDS)
def test_it_does_far_better_than_the_default_and_than_chance(name):
    knobs, rules, default, loss, least = WORLDS[name]
    space, rng = Space(knobs, rules, default), np.random.default_rng(0)
    chance = np.mean([loss(space.from_unit(rng.random(space.dim))) for _ in range(1000)]) - least
    regrets, ends = [], []
    for seed in range(SEEDS):
        tuner, noise = (
            Tuner(knobs, {"ms": "min"}, None, default, seed=seed, constraints=rules),
            np.random.default_rng(seed),
        )
        for _ in range(STEPS):
            s = tuner.ask()
            regrets.append(loss(s.params) - least)
            tuner.tell(s.id, {"ms": loss(s.params) * float(np.exp(NOISE * noise.normal()))})
        ends.append(loss(tuner.recommend()) - least)
    assert np.mean(regrets) < 0.5 * min(chance, loss(default) - least)
    assert np.median(ends) < 0.2 * min(chance, loss(default) - least)
