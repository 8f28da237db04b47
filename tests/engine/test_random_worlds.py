"""Random discrete worlds with exact answers, through the public Tuner: whatever they are, no call may fail."""

import numpy as np
import pytest

from rasp_tuner import Int, Tuner


def world(seed):
    """Levels of each knob, the loss of a setting, and a random default."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(2, 6, size=int(rng.integers(3, 12)))
    effects = [rng.normal(size=n) * rng.exponential(0.3) for n in levels]
    pairs = {
        (i, j): 0.1 * rng.normal(size=(levels[i], levels[j]))
        for i in range(len(levels))
        for j in range(i)
        if rng.random() < 0.3
    }

    def loss(setting):
        own = sum(effect[place] for effect, place in zip(effects, setting, strict=True))
        return float(own + sum(table[setting[i], setting[j]] for (i, j), table in pairs.items()))

    return levels, loss, [int(rng.integers(n)) for n in levels]


@pytest.mark.parametrize("seed", [0, 3, 41])
def test_exact_answers_of_a_discrete_world_raise_nothing(seed):
    levels, loss, default = world(seed)
    names = [f"k{i}" for i in range(len(levels))]
    space = {name: Int(0, int(n) - 1) for name, n in zip(names, levels, strict=True)}
    tuner = Tuner(space, {"y": "min"}, default=dict(zip(names, default, strict=True)), seed=seed)
    for _ in range(80):
        s = tuner.ask()
        tuner.tell(s.id, {"y": loss([s.params[name] for name in names])})
    assert tuner.learned == 80
