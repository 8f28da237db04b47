"""The least value of a landscape is exact."""

from itertools import product

import numpy as np
import pytest

from rasp_lab.bench.domains.landscape import draw, least
from rasp_tuner import Categorical, Float, Int

DISCRETE = [Int(0, 2), Categorical(["a", "b", "c", "d"]), Int(0, 1), Int(0, 4), Int(0, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_is_the_best_of_all_settings(seed: int) -> None:
    landscape = draw(DISCRETE, np.random.default_rng(seed))
    everything = np.array(list(product(*(range(knob.levels) for knob in DISCRETE))), dtype=float)
    values = landscape.values(everything)
    np.testing.assert_array_equal(landscape.optimum(), everything[values.argmin()])


@pytest.mark.parametrize("seed", range(5))
def test_tables_over_every_pair_are_minimised_exactly(seed: int) -> None:
    """A full graph: nothing can be decided knob by knob."""
    rng, sizes = np.random.default_rng(seed), (2, 3, 4, 3)
    factors = [((i, j), rng.normal(size=(sizes[i], sizes[j]))) for j in range(4) for i in range(j)]
    found = least(factors)
    best = min(product(*map(range, sizes)), key=lambda x: sum(table[x[i], x[j]] for (i, j), table in factors))
    assert tuple(found[i] for i in range(4)) == best


@pytest.mark.parametrize("seed", range(5))
def test_a_float_is_best_where_its_partner_says(seed: int) -> None:
    landscape = draw([Float(0.0, 1.0), Categorical(["a", "b", "c"]), Float(0.0, 1.0)], np.random.default_rng(seed))
    best = landscape.optimum()
    value = landscape.values(best[None])[0]
    rng = np.random.default_rng(1)
    others = np.column_stack([rng.uniform(size=5000), rng.integers(3, size=5000), rng.uniform(size=5000)])
    assert landscape.values(others).min() >= value
    bowl = landscape.bowls[0]
    assert len(set(bowl.targets)) == 3
    assert best[0] == bowl.targets[int(best[1])]


def test_floats_alone_need_no_partner() -> None:
    landscape = draw([Float(0.0, 1.0)] * 2, np.random.default_rng(0))
    assert landscape.values(landscape.optimum()[None])[0] == 0.0
    assert landscape.values(np.zeros((1, 2)))[0] > 0.0


def test_useless_knobs_add_nothing() -> None:
    landscape = draw([*DISCRETE, Float(0.0, 1.0)], np.random.default_rng(3), useless=[1, 3, 5])
    at = np.zeros((1, 6))
    for knob, level in ((1, 3), (3, 4), (5, 1)):
        moved = at.copy()
        moved[0, knob] = level
        assert landscape.values(moved) == landscape.values(at)
    moved = at.copy()
    moved[0, 0] = 1
    assert landscape.values(moved) != landscape.values(at)
