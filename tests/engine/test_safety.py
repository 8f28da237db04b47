"""The guard, the cost of switching and calibrated intervals: alone, and through the public Tuner."""

import math

import numpy as np
import pytest

from rasp_tuner import Float, Tuner
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.safety import (
    CALIBRATION_RATE,
    EARN_BACK_STEPS,
    MISSED_SHARE,
    NORMAL_90,
    Calibration,
    guarded,
    worth_switching,
)

TRIED, BEST, DEFAULT = np.array([0.9]), np.array([0.4]), np.array([0.5])


class Belief:
    """Means and variances by point; nothing else is asked of it."""

    def __init__(self, default=(10.0, 0.0), best=None):
        self._known = {DEFAULT.tobytes(): default}
        self._best = None
        if best is not None:
            self._best = BEST
            self._known[BEST.tobytes()] = best

    def best(self):
        return self._best

    def predict(self, points):
        means, variances = zip(*(self._known[point.tobytes()] for point in points), strict=True)
        return np.array(means), np.array(variances)

    def predict_one(self, point):
        return self._known[point.tobytes()]


def offered(mean, variance):
    return Choice(TRIED, "probe", mean, variance)


def test_the_guard_lets_a_choice_pass_that_is_surely_good_enough():
    choice = offered(10.5, 0.24)  # 10.5 + 0.49 is within 10% of 10
    assert guarded(Belief(best=(9.0, 0.0)), choice, DEFAULT, 0.1) is choice


@pytest.mark.parametrize("choice", [offered(10.5, 0.26), offered(11.01, 0.0), offered(2.0, 100.0)])
def test_the_guard_takes_the_best_known_point_for_one_that_is_bad_or_too_uncertain(choice):
    taken = guarded(Belief(best=(9.0, 1.0)), choice, DEFAULT, 0.1)
    assert taken == Choice(BEST, "best known (guard)", 9.0, 1.0)


@pytest.mark.parametrize("best", [(9.0, 4.1), (11.5, 0.0)])
def test_the_guard_takes_the_default_where_the_best_known_is_no_safer(best):
    taken = guarded(Belief(best=best), offered(5.0, 100.0), DEFAULT, 0.1)
    assert taken == Choice(DEFAULT, "default (guard)", 10.0, 0.0)


def test_the_guard_takes_the_default_while_nothing_is_known_and_the_default_is_uncertain():
    taken = guarded(Belief(default=(10.0, 9.0)), offered(5.0, 100.0), DEFAULT, 0.1)
    assert taken == Choice(DEFAULT, "default (guard)", 10.0, 9.0)


@pytest.mark.parametrize(("mean", "passes"), [(-9.1, True), (-8.9, False)])
def test_the_margin_of_a_negative_loss_is_a_share_of_its_size(mean, passes):
    taken = guarded(Belief(default=(-10.0, 0.0)), offered(mean, 0.0), DEFAULT, 0.1)
    assert (taken.source == "probe") == passes


def test_a_change_is_made_where_it_earns_its_cost_back():
    belief, choice = Belief(default=(10.0, 2.0)), offered(9.5, 0.25)
    hoped = 10.0 - 9.5 + 0.5  # its own uncertainty is hope
    assert worth_switching(belief, choice, DEFAULT, EARN_BACK_STEPS * hoped) is choice
    stayed = worth_switching(belief, choice, DEFAULT, EARN_BACK_STEPS * hoped + 0.01)
    assert (stayed.mean, stayed.variance) == (10.0, 2.0)
    assert stayed.source.startswith("stay")
    assert np.array_equal(stayed.point, DEFAULT)
    assert stayed.point is not DEFAULT  # the caller's array stays the caller's


def test_to_stay_costs_nothing():
    choice = Choice(DEFAULT.copy(), "predicted optimum", 10.0, 0.0)
    assert worth_switching(Belief(), choice, DEFAULT, 1e9) is choice


def test_a_missed_outcome_widens_and_a_held_one_narrows():
    calibration = Calibration()
    calibration.observe(NORMAL_90 + 0.01)
    assert calibration.factor == pytest.approx(math.exp(CALIBRATION_RATE * (1.0 - MISSED_SHARE)))
    held = Calibration()
    held.observe(NORMAL_90 - 0.01)
    assert held.factor == pytest.approx(math.exp(-CALIBRATION_RATE * MISSED_SHARE))


@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_the_factor_finds_how_many_times_too_narrow_intervals_are(times):
    calibration, rng, factors, missed = Calibration(), np.random.default_rng(0), [], []
    for surprise in np.abs(times * rng.normal(size=3000)):
        missed.append(surprise > NORMAL_90 * calibration.factor)
        calibration.observe(surprise)
        factors.append(calibration.factor)
    assert np.median(factors[500:]) == pytest.approx(times, rel=0.15)
    assert np.mean(missed[500:]) == pytest.approx(MISSED_SHARE, abs=0.01)


def test_the_factor_stays_within_sane_limits_and_is_saved():
    calibration = Calibration()
    for surprise, limit in ((0.0, 0.2), (1e6, 20.0)):
        for _ in range(1000):
            calibration.observe(surprise)
        assert calibration.factor == limit
    other = Calibration()
    other.restore(calibration.state())
    assert other == calibration


def covered(seed, steps=200, young=50):
    """Whether each outcome lay within the interval said before; the noise is more than the engine reckons with."""
    tuner, rng = Tuner({"x": Float(0, 1), "y": Float(0, 1)}, {"loss": "min"}, seed=seed), np.random.default_rng(seed)
    for step in range(steps):
        s = tuner.ask()
        loss = (s.params["x"] - 0.3) ** 2 + (s.params["y"] - 0.6) ** 2 + rng.uniform(-1.0, 1.0)
        tuner.tell(s.id, {"loss": loss})
        why = tuner.explain(s.id)
        if step >= young:
            yield abs(loss - why.predicted) <= NORMAL_90 * why.deviation


def test_intervals_hold_nine_outcomes_in_ten_where_believed_ones_would_not():
    """Uncalibrated ones hold about two in three here."""
    share = np.mean([inside for seed in range(3) for inside in covered(seed)])
    assert 0.86 < share < 0.94


def test_with_the_guard_noise_does_not_lead_far_from_a_default_that_is_optimal():
    """Without the guard seven steps in ten are more than the margin worse."""
    margin, space, worse = 0.05, {f"x{i}": Float(0.0, 1.0) for i in range(6)}, []
    for seed in range(2):
        tuner, rng = Tuner(space, {"loss": "min"}, guard=margin, seed=seed), np.random.default_rng(seed)
        for step in range(60):
            s = tuner.ask()
            loss = 1.0 + 8.0 * sum((value - 0.5) ** 2 for value in s.params.values())
            tuner.tell(s.id, {"loss": loss + 0.2 * rng.normal()})
            if step >= len(space) + 2:
                worse.append(loss > 1.0 + margin)
    assert np.mean(worse) < 0.25


@pytest.mark.parametrize("seed", range(3))
def test_an_optimum_that_drifts_untold_is_followed(seed):
    """The short memory pays: with all of history the loss is ten times as large."""
    tuner, rng, losses = (
        Tuner({"x": Float(0, 1), "y": Float(0, 1)}, {"loss": "min"}, seed=seed),
        np.random.default_rng(seed),
        [],
    )
    for step in range(160):
        s = tuner.ask()
        losses.append(sum((value - 0.15 - 0.7 * step / 160) ** 2 for value in s.params.values()))
        tuner.tell(s.id, {"loss": 1.0 + losses[-1] + 0.01 * rng.normal()})
    assert np.mean(losses[80:]) < 0.25
