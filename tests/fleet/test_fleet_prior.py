"""A new tuner begins with what the others have learned; where they are not alike, that does no harm."""

import numpy as np
import pytest
from fleet_worlds import Worlds, fleet, teach

OLD, STEPS = 40, 30


def regrets(own, share, seed=0, new=20):
    """A step, of new tuners in a fleet whose optima have this deviation of their own; and the fleet."""
    worlds, taught = Worlds(OLD + new, seed, own), fleet(OLD, share=share)
    teach(taught, worlds, 20, np.arange(OLD))
    rows = taught.add(new)
    return np.mean([worlds.regrets(points, rows) for points in teach(taught, worlds, STEPS, rows)]), taught


def test_a_new_tuner_among_its_like_saves_half_the_regret():
    shared, taught = regrets(0.03, True)
    assert shared <= 0.5 * regrets(0.03, False)[0]
    assert (np.abs(taught._prior.location - 2.0 * (0.6 - taught._plan.default)) < 0.15).all()


@pytest.mark.slow
def test_tuners_that_are_not_alike_do_no_harm():
    shared, alone = (np.mean([regrets(None, share, seed, new=100)[0] for seed in range(3)]) for share in (True, False))
    assert shared <= 1.05 * alone


def test_a_young_fleet_shares_nothing():
    taught = fleet(10, share=True)
    teach(taught, Worlds(10), 9)
    taught.add(2)
    assert taught.ask(np.zeros((2, 2)), [10, 11]).params["a"].tolist() == [0.4, 0.4]


def test_those_with_samples_are_left_alone():
    worlds, one, other = Worlds(12), fleet(12, share=True), fleet(12)
    for taught in (one, other):
        teach(taught, Worlds(12), 12)
        taught.add(1)
    contexts = worlds.contexts()
    assert (one.ask(contexts, np.arange(12)).points == other.ask(contexts, np.arange(12)).points).all()
