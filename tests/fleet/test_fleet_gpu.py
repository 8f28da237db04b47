"""A fleet on a GPU suggests what it suggests on the CPU; where there is no GPU, nothing of this runs."""

import numpy as np
import pytest
from fleet_worlds import Worlds
from fleet_worlds import fleet as small

from rasp_tuner import Float
from rasp_tuner.fleet import Fleet


@pytest.fixture(scope="module", autouse=True)
def a_gpu() -> None:
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no GPU")


@pytest.mark.parametrize(("knobs", "context", "metrics"), [(1, 0, 1), (2, 1, 2), (5, 3, 1), (8, 40, 1), (9, 2, 1)])
def test_suggestions_are_those_of_the_cpu(knobs: int, context: int, metrics: int):
    size, steps, rng = 40, 60, np.random.default_rng(0)
    space = {f"x{i}": Float(0.0, 1.0) for i in range(knobs)}
    names = {f"m{i}": "min" for i in range(metrics)}
    given = (space, names, context or None, dict.fromkeys(space, 0.5), size)
    fleets = [Fleet(*given, device=where) for where in ("cpu", "cuda")]
    best = rng.uniform(0.2, 0.8, (size, knobs))
    for _ in range(steps):
        contexts = rng.normal(size=(size, context)) if context else None
        asked = [fleet.ask(contexts) for fleet in fleets]
        assert np.abs(asked[0].points - asked[1].points).max() < 1e-6
        regret = ((asked[0].points - best) ** 2).sum(axis=1)
        told = {name: (i + 1.0) * regret + 0.01 * rng.normal(size=size) for i, name in enumerate(names)}
        for fleet in fleets:
            fleet.observe(contexts, asked[0].params, told)


def test_some_tuners_at_a_time_go_as_on_the_cpu():
    """Rows of a batch that are no neighbours, draws, failures, tuners that come and go."""
    both, rng, worlds = (
        [small(12, device=where, share=True) for where in ("cpu", "cuda")],
        np.random.default_rng(0),
        Worlds(13),
    )
    for many in both:
        many.ask(np.zeros((12, 2)))
        many.tell({"ms": np.full(12, 11.0)}, failed=np.arange(12) < 3)
    for step in range(40):
        if step == 30:
            for many in both:
                many.add(3)
                many.remove([0, 5])
        rows = np.sort(rng.permutation(len(both[0]))[:7])
        contexts = worlds.contexts(rows)
        one, other = (many.ask(contexts, rows) for many in both)
        assert np.abs(one.points - other.points).max() < 1e-6, step
        told = worlds.metrics(one.points, contexts, rows)
        for many in both:
            many.observe(contexts, one.params, told, rows)
