"""RA-GD: contraction, sandwich, regret, misretrieval, gradient error. Mended bounds hold; printed ones break."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import points, regimes, relative_steps, worlds

from rasp_lab.theory import gradient_error, misretrieval, regret, sandwich
from rasp_lab.theory.claim import ROUNDING, BrokenAssumption
from rasp_lab.theory.descent import DescentConstants
from rasp_lab.theory.problems import Regime, quadratic_1d
from rasp_lab.theory.ragd import play

UP = 1.0 + ROUNDING


@settings(max_examples=100)
@given(data=st.data(), dim=st.integers(1, 3), step=relative_steps)
def test_a_step_contracts_by_kappa_wherever_the_minimiser_is(data, dim, step):
    regime, point = data.draw(regimes(dim)), data.draw(points(dim))
    descent = DescentConstants.on(regime, relative_step=step)
    after = regime.distance(descent.move(point, regime.gradient(point)))
    assert after <= descent.kappa * regime.distance(point) * UP + 1e-14
    assert descent.kappa**2 <= descent.q * UP + 1e-15
    assert 0.0 <= descent.q < 1.0


def test_q_is_zero_for_a_round_bowl_and_the_step_that_ends_in_its_middle():
    assert DescentConstants(mu=1.0, smoothness=1.0, step=1.0).q == 0.0  # the paper has q in the open interval (0, 1)


@settings(max_examples=100)
@given(data=st.data(), dim=st.integers(1, 3))
def test_the_sandwich_with_the_tilt_holds_on_both_sides(data, dim):
    regime, point = data.draw(regimes(dim)), data.draw(points(dim))
    distance, excess = regime.distance(point), regime.excess(point)
    assert sandwich.lower(regime.mu, distance) <= excess * UP + 1e-14
    assert excess <= sandwich.upper(regime.smoothness, distance, regime.tilt) * UP + 1e-14


@settings(max_examples=40)
@given(world=worlds(), seed=st.integers(0, 2**32 - 1))
def test_the_regret_stays_below_the_mended_constants_for_ever(world, seed):
    chosen, descent, starts = world
    active = np.random.default_rng(seed).integers(len(chosen), size=80).tolist()
    total = play(chosen, descent, starts, active).sum()
    assert total <= regret.total(chosen, descent, starts, printed=False) * UP + 1e-12


@settings(max_examples=40)
@given(world=worlds(interior=True), seed=st.integers(0, 2**32 - 1))
def test_the_printed_constants_are_right_for_interior_minimisers(world, seed):
    chosen, descent, starts = world
    active = np.random.default_rng(seed).integers(len(chosen), size=80).tolist()
    total = play(chosen, descent, starts, active).sum()
    assert total <= regret.total(chosen, descent, starts, printed=True) * UP + 1e-12


@settings(max_examples=50)
@given(data=st.data(), dim=st.integers(1, 3), step=relative_steps, distance=st.floats(1e-3, 2.0))
def test_regret_to_go_pays_for_a_contracted_step_exactly(data, dim, step, distance):
    """V(kappa d) + G* d + L d^2 / 2 = V(d): what the proof of the misretrieval theorem lives on."""
    regime = data.draw(regimes(dim))
    descent = DescentConstants.on(regime, relative_step=step)
    paid = sandwich.upper(descent.smoothness, distance, regime.tilt)
    later = regret.regret_to_go(descent, descent.kappa * distance, regime.tilt)
    assert math.isclose(later + paid, regret.regret_to_go(descent, distance, regime.tilt), rel_tol=1e-9)


@settings(max_examples=40)
@given(world=worlds(), seed=st.integers(0, 2**32 - 1), rate=st.floats(0.0, 1.0))
@pytest.mark.parametrize("which", ["frozen", "mended"])
def test_mistakes_cost_at_most_the_mended_bound(world, seed, rate, which):
    chosen, descent, starts = world
    rng = np.random.default_rng(seed)
    active = rng.integers(len(chosen), size=60)
    retrieved = np.where(rng.uniform(size=60) < rate, rng.integers(len(chosen), size=60), active)
    trial = misretrieval.measure(chosen, descent, starts, active.tolist(), retrieved.tolist(), which)
    assert trial.measured <= trial.bound * UP + 1e-12


@settings(max_examples=60)
@given(data=st.data(), dim=st.integers(1, 3), step=relative_steps, size=st.floats(0.0, 2.0), steps=st.integers(1, 80))
@pytest.mark.parametrize("kind", ["noise", "constant", "outward", "rocking"])
def test_gradient_errors_cost_at_most_the_mended_bound(data, dim, step, size, steps, kind):
    regime, start = data.draw(regimes(dim)), data.draw(points(dim))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    push = size * data.draw(points(dim))
    errors = {
        "noise": lambda *_: size * rng.normal(size=dim),
        "constant": lambda *_: push,
        "outward": lambda _, x: -size * x,
        "rocking": lambda n, _: push * (-1) ** n,
    }[kind]
    descent = DescentConstants.on(regime, relative_step=step)
    trial = gradient_error.measure(regime, descent, start, errors, steps, printed=False)
    assert trial.measured <= trial.bound * UP + 1e-12


@pytest.mark.parametrize(
    ("trial", "ratio"),
    [
        (sandwich.tilted_quadratic(printed=True), 21.0),  # (x + x^2/2) / (x^2/2) at x = 0.1
        (regret.one_step_home(printed=True), 21.0),
        (misretrieval.paid_twice(which="printed"), 2.0),
        (gradient_error.outward_errors(printed=True), 1.31092),
    ],
)
def test_the_printed_bounds_break_where_the_counterexamples_say(trial, ratio):
    assert trial.ratio == pytest.approx(ratio, rel=1e-5)


def test_large_steps_break_the_printed_bounds_without_limit():
    """Poisoned states come home as 1 / (1 - kappa^2), rocked ones are amplified as 1 / (2 - eta L)^2."""
    assert misretrieval.slow_recovery(which="printed").ratio > 2.3
    assert gradient_error.oscillating_errors(printed=True).ratio > 17.0
    for make in (misretrieval.slow_recovery, misretrieval.paid_twice):
        assert make(which="mended").ratio <= 1.0
    assert gradient_error.oscillating_errors(printed=False).ratio <= 1.0


@pytest.mark.parametrize("which", ["frozen", "mended"])
def test_the_mended_bounds_of_mistakes_cannot_be_less(which):
    """Bowls at both ends of Theta, eta = 1: the wrong state costs Delta_max, and if it learns, as much again."""
    assert misretrieval.paid_twice(which=which).ratio == pytest.approx(1.0)


def test_a_constant_error_reaches_the_mended_factor():
    assert gradient_error.constant_error().ratio == pytest.approx(1.0)


@settings(max_examples=50)
@given(world=worlds(most=1))
def test_without_errors_the_bound_is_the_regret_theorems_for_usual_steps(world):
    (regime,), descent, _ = world
    usual = DescentConstants(descent.mu, descent.smoothness, min(descent.step, 1.0 / descent.smoothness))
    distance, tilt = 0.7, regime.tilt
    assert gradient_error.bound(usual, distance, tilt, 0.0) >= regret.constant(usual, distance, tilt)
    telescoped = sandwich.upper(usual.smoothness, distance, tilt) + (1.0 / usual.step - usual.mu) * distance**2 / 2.0
    assert math.isclose(gradient_error.bound(usual, distance, tilt, 0.0), telescoped, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (
            lambda: DescentConstants(mu=1.0, smoothness=4.0, step=0.5),
            "strictly between 0 and 2 / L, got step = 0.5, L = 4.0",
        ),
        (lambda: DescentConstants(mu=5.0, smoothness=4.0, step=0.1), "0 < mu <= L"),
        (lambda: quadratic_1d(0.5, slope=1.0), "no feasible direction may go down"),
        (lambda: quadratic_1d(-1.0, slope=-1.0), "no feasible direction may go down"),
        (lambda: quadratic_1d(1.5), "must lie in Theta"),
        (lambda: quadratic_1d(0.0, curvature=0.0), "strongly convex"),
        (lambda: sandwich.upper(1.0, 1.0, -1.0), "tilt"),
        (lambda: regret.printed_constant(DescentConstants(1.0, 1.0, 1.0), -1.0), "distance"),
        (
            lambda: play([quadratic_1d(0.0)], DescentConstants(1.0, 1.0, 1.0), np.array([[2.0]]), [0]),
            "start must lie in Theta",
        ),
        (
            lambda: play([quadratic_1d(0.0)], DescentConstants(1.0, 1.0, 1.0), np.zeros((1, 1)), [0], []),
            "one retrieval a step",
        ),
    ],
)
def test_outside_its_assumptions_there_is_no_bound(broken, words):
    with pytest.raises(BrokenAssumption, match=words):
        broken()


@settings(max_examples=50)
@given(data=st.data(), dim=st.integers(1, 3))
def test_a_regime_is_what_it_says(data, dim):
    """The slope of f is its gradient, no point of Theta is below the minimiser, worse than `worst`, or steeper."""
    regime, point = data.draw(regimes(dim)), data.draw(points(dim))
    assert -1e-15 <= regime.excess(point) <= regime.worst + 1e-12
    assert np.linalg.norm(regime.gradient(point)) <= regime.steepest * UP
    assert regime.distance(point) <= regime.reach * UP
    width = 1e-5
    slopes = [(regime.excess(point + e) - regime.excess(point - e)) / (2 * width) for e in width * np.eye(dim)]
    assert np.allclose(slopes, regime.gradient(point), atol=1e-6)
    assert isinstance(regime, Regime)
