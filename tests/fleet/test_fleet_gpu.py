"""A fleet on a GPU suggests what it suggests on the CPU; where there is no GPU, nothing of this runs."""

import numpy as np
import pytest

from rasp_tuner import Float
from rasp_tuner.engine.kernel import gpu
from rasp_tuner.fleet import Fleet

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize(("knobs", "context", "metrics"), [(1, 0, 1), (2, 1, 2), (5, 3, 1), (8, 40, 1), (9, 2, 1)])
def test_suggestions_are_those_of_the_cpu(knobs: int, context: int, metrics: int):
    size, steps, rng = 40, 60, np.random.default_rng(0)
    space = {f"x{i}": Float(0.0, 1.0) for i in range(knobs)}
    names = {f"m{i}": "min" for i in range(metrics)}
    given = (space, names, context or None, dict.fromkeys(space, 0.5), size)
    fleets = [Fleet(*given, device=where) for where in ("cpu", "cuda")]
    assert gpu.why_not(fleets[1]._plan.dims, fleets[1]._engine.default) is None
    best = rng.uniform(0.2, 0.8, (size, knobs))
    for _ in range(steps):
        contexts = rng.normal(size=(size, context)) if context else None
        asked = [fleet.ask(contexts) for fleet in fleets]
        assert np.abs(asked[0].points - asked[1].points).max() < 1e-6
        regret = ((asked[0].points - best) ** 2).sum(axis=1)
        told = {name: (i + 1.0) * regret + 0.01 * rng.normal(size=size) for i, name in enumerate(names)}
        for fleet in fleets:
            fleet.observe(contexts, asked[0].params, told)
