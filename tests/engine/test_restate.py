"""What a quadratic family learned, restated: as if it had been told in other units, or without absurd contexts."""

import numpy as np
import pytest
from teaching import teach

from rasp_tuner import Float, Tuner
from rasp_tuner.engine.quadratic.family import QuadraticFamily

FACTORS, SHIFTS = np.array([60.0, 1.0]), np.array([5.0, -2.0])


def taught(columns, change=lambda losses: losses, steps=230):
    """A family that was told of a bowl in two situations, its losses changed; the first of them weigh."""
    family, rng = QuadraticFamily(np.full(2, 0.5), 2, columns), np.random.default_rng(0)
    weights = np.eye(columns)[0]
    family.reweigh(weights)
    for step in range(steps):
        situation = step // 10 % 2
        point, context = rng.uniform(size=2), situation + 0.1 * rng.normal(size=2)
        loss = 3.0 + ((point - 0.3 - 0.4 * situation) ** 2).sum() + 0.02 * rng.normal()
        losses = np.array([loss, np.log(loss)])[:columns]
        teach(family, point, context, change(losses), weights=weights)
    return family


@pytest.mark.usefixtures("kernel")
def test_it_is_as_if_all_had_been_told_in_the_new_unit():
    family, other = taught(2), taught(2, lambda losses: losses * FACTORS + SHIFTS)
    family.restate(FACTORS, SHIFTS, np.array([1.0, 0.0]))
    for name, array in other.state().items():
        np.testing.assert_allclose(family.state()[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.usefixtures("kernel")
def test_a_target_that_stays_the_same_stays_what_is_believed():
    family, context, points = taught(1), np.zeros(2), np.random.default_rng(1).uniform(size=(5, 2))
    before = family.believe(context).predict(points)
    family.restate(np.array([1000.0]), np.zeros(1), np.array([0.001]))
    np.testing.assert_allclose(family.believe(context).predict(points), before, rtol=1e-9)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("when", [0, 7])
def test_scales_are_mended(when):
    """An absurd context in a dimension that was constant: it is unlike the others, but others are alike no more."""
    family, rng = QuadraticFamily(np.full(1, 0.5), 2, 1), np.random.default_rng(0)
    for step in range(30):
        context = np.array([1e6 if step == when else float(step >= 20), rng.normal()])
        teach(family, rng.uniform(size=1), context, rng.uniform(size=1))
    blind = family.believe(np.array([0.0, 0.0])).similar()[20:].copy()
    least, most = np.array([-1.0, -1e100]), np.array([2.0, 1e100])
    family.bound_contexts(least, most, mend=True)
    seen = family.believe(np.array([0.0, 0.0])).similar()
    assert blind.max() > 0.5
    assert seen[20:].max() < 0.3
    assert seen[when] < 1e-6
    assert seen[8:20].max() > 0.5
    mean, spread = family.tuners.mean[0, 0] + family.tuners.origin[0, 0], family.tuners.moment - family.tuners.mean**2
    inside = np.array([2.0] + [0.0] * 19 + [1.0] * 10)
    assert mean == pytest.approx(inside.mean())
    assert spread[0, 0] == pytest.approx(inside.var())
    teach(family, np.full(1, 0.5), np.array([-1e9, 0.0]), np.ones(1))  # from now on, none moves a scale
    assert (family.tuners.moment - family.tuners.mean**2)[0, 0] < 2.0 * inside.var()


def test_two_situations_that_look_alike_are_no_change_of_the_unit(caplog):
    """Their contexts are a tenth of a deviation apart, and their costs two hundred times."""
    rng, names, left, situation = np.random.default_rng(7), [f"k{i}" for i in range(6)], 0, -1
    best = rng.random(6)
    tuner = Tuner(dict.fromkeys(names, Float(0.0, 1.0)), {"ms": "min"}, 1, dict.fromkeys(names, 0.5), seed=7)
    for _ in range(300):
        if not left:
            situation, left = (situation + 1) % 3, int(rng.integers(1, 21))
        left -= 1
        context, level = ((32.2, 0.04), (39.2, 7.7), (-111.0, 1.6))[situation]
        asked = tuner.ask([context])
        off = float(np.abs(np.array(list(asked.params.values())) - best).sum())
        tuner.tell(asked.id, {"ms": level * float(np.exp(off + 0.1 * rng.standard_normal()))})
    assert "a metric has changed" not in caplog.text
