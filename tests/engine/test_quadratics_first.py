"""Two families learn the first samples of knobs on a continuum: quadratics, and a process where no bowl fits."""

import numpy as np
import pytest

from rasp_tuner import Float, SnapshotError, Tuner, presets
from rasp_tuner.files import snapshot

HEAP = {"heap_mb": Float(500.0, 16_000.0, log=True, digits=12), "young": Float(0.05, 0.9, digits=12)}
CAREFUL = {"heap_mb": 3600.0, "young": 0.3}  # a tenth below what the machine has: beyond, it swaps
BOWL = {"x": Float(0.0, 1.0, digits=12), "y": Float(0.0, 1.0, digits=12)}
MIDDLE = {"x": 0.5, "y": 0.5}


def beside_a_cliff(params):
    heap = params["heap_mb"]
    return (1.0 + 800.0 / heap + 2.0 * (params["young"] - 0.4) ** 2) * (12.0 if heap > 4000.0 else 1.0)


def bowl(params):
    return 1.0 + (params["x"] - 0.2) ** 2 + 2.0 * (params["y"] - 0.7) ** 2


def play(tuner, cost, steps, noise=0.05, seed=0):
    """The settings that ran, and what they cost without noise."""
    rng, ran = np.random.default_rng(seed), []
    for _ in range(steps):
        own = tuner.ask()
        ran.append(own.params)
        tuner.tell(own.id, {"ms": cost(own.params) * float(np.exp(noise * rng.normal()))})
    return ran, np.array([cost(params) for params in ran])


def heap_tuner(seed=0, **settings):
    return Tuner(HEAP, {"ms": "min"}, default=CAREFUL, seed=seed, **settings)


def bowl_tuner(seed=0, **settings):
    return Tuner(BOWL, {"ms": "min"}, default=MIDDLE, seed=seed, **settings)


@pytest.mark.parametrize("seed", range(4))
def test_who_stands_beside_a_cliff_stays_on_the_good_side(seed):
    """Quadratics alone call what lies beyond it false, and go there again."""
    usual = beside_a_cliff(CAREFUL)
    costs = {
        alone: play(heap_tuner(seed, preset=presets.default(quadratic=alone)), beside_a_cliff, 90, seed=seed)[1]
        for alone in (False, True)
    }
    assert costs[False][45:].mean() < 1.02 * usual
    assert costs[False].sum() < costs[True].sum()


@pytest.mark.parametrize("seed", range(4))
def test_in_a_bowl_all_is_as_if_there_were_no_process(seed):
    ran = [
        play(bowl_tuner(seed, preset=presets.default(quadratic=alone)), bowl, 60, seed=seed)[0]
        for alone in (False, True)
    ]
    assert ran[0] == ran[1]


@pytest.mark.parametrize("steps", [5, 20, 60])
def test_it_is_saved_and_goes_on_bit_for_bit(steps):
    """While both learn, and after."""
    for tuner, cost in ((heap_tuner(), beside_a_cliff), (bowl_tuner(), bowl)):
        play(tuner, cost, steps)
        loaded = Tuner.from_bytes(tuner.to_bytes())
        assert loaded.to_bytes() == tuner.to_bytes()
        assert play(loaded, cost, 30)[0] == play(tuner, cost, 30)[0]


def test_once_it_is_decided_a_snapshot_holds_one_of_both():
    sizes = {}
    for steps in (30, 40):
        tuner = bowl_tuner()
        play(tuner, bowl, steps)
        sizes[steps] = sum(name.startswith("family/process/") for name in snapshot.decode(tuner.to_bytes())[1])
    assert sizes[30] > 0
    assert sizes[40] == 0


def test_it_is_decided_even_if_nothing_could_be_compared():
    """Failures and ended runs are not; two families would learn for ever."""
    tuner = bowl_tuner()
    play(tuner, bowl, 1)
    for _ in range(70):
        tuner.tell_failed(tuner.ask().id)
    assert not any(name.startswith("family/process/") for name in snapshot.decode(tuner.to_bytes())[1])


def test_a_file_whose_two_families_disagree_is_refused():
    tuner = bowl_tuner()
    play(tuner, bowl, 10)
    header, arrays = snapshot.decode(tuner.to_bytes())
    arrays = {**arrays, "family/process/clock": arrays["family/process/clock"] + 1.0}
    with pytest.raises(SnapshotError, match="process/clock"):
        Tuner.from_bytes(snapshot.encode(header, arrays))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_tuners_of_which_one_has_left_its_quadratics_merge(order):
    """What either has seen of the cliff is known to both."""
    usual = beside_a_cliff(CAREFUL)
    tuners = [heap_tuner(0), heap_tuner(1)]
    play(tuners[0], beside_a_cliff, 60)
    play(tuners[1], beside_a_cliff, 6)  # too few to decide
    one, two = (tuners[i] for i in order)
    one.merge(two)
    assert one.learned == 66
    assert beside_a_cliff(one.recommend()) <= 1.02 * usual
    assert play(one, beside_a_cliff, 30)[1].mean() < 1.05 * usual


def test_a_metric_in_another_unit_is_not_taken_for_a_bad_forecast():
    """Densities of both units are not compared."""
    ran = []
    for alone in (False, True):
        tuner = bowl_tuner(preset=presets.default(quadratic=alone))
        first, _ = play(tuner, bowl, 15)
        second, _ = play(tuner, lambda params: 1000.0 * bowl(params), 45)
        ran.append(first + second)
    assert ran[0] == ran[1]
