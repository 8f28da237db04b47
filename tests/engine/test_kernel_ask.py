"""The ask side of the kernel: a batch of tuners is each of them alone, and the formulas hold."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner.engine.kernel import choose as choosing
from rasp_tuner.engine.kernel.belief import SlotBelief, shapes
from rasp_tuner.engine.kernel.believe import believe, box, minimisers
from rasp_tuner.engine.kernel.choose import FIRST, best, candidates, choose
from rasp_tuner.engine.kernel.pooled_prior import prior
from rasp_tuner.engine.kernel.predict import against, each, experts_of, features, forecast, predict
from rasp_tuner.engine.kernel.state import Dims, E, L, State, blank

SIZES = [Dims(1, 0, 1), Dims(2, 1, 2), Dims(5, 3, 1), Dims(3, 40, 3)]
STEPS = [0, 1, 2, 5, 101, 300]
STARTS = {"distance": [2.0, 6.0], "level_variance": 4.0, "location_variance": 0.25, "weights": 1.0}


def tuners(dims: Dims, steps: list[int], seed: int = 0) -> State:
    """Tuners that have learned from so many samples; what rows not in use hold is random."""
    rng, state = np.random.default_rng(seed), blank(dims, len(steps), {**STARTS, "unit": 1.0})
    d, upper = dims.knobs, np.triu_indices(dims.sample)
    for name in ("keys", "prompts", "trust", "counts", "last"):
        getattr(state, name)[:] = rng.normal(size=getattr(state, name).shape)
    for i, n in enumerate(steps):
        rows = min(n, 192)
        u, context = rng.uniform(-1.0, 1.0, size=(rows, d)), rng.normal(size=(rows, dims.context))
        losses = (u**2).sum(axis=1, keepdims=True) + rng.normal(size=(rows, dims.columns))
        psi = np.concatenate([np.ones((rows, 1)), u, u**2, losses], axis=1)
        state.keys[i, :rows], state.counts[i, :rows], state.trust[i, :, :rows] = context, 1.0, rng.random((L, rows))
        state.prompts[i, :rows] = psi[:, upper[0]] * psi[:, upper[1]]
        state.last[i, :rows], state.count[i], state.steps[i] = n - rows + np.arange(rows), rows, n
        state.moment[i], state.changes[i] = 1.0, max(n - 1.0, 0.0)
        state.scores[i], state.noises[i] = -3.0 * rng.random(E), -rng.random(state.noises.shape[1:])
        state.first[i] = rng.normal(size=dims.columns)
        if n > 3:  # what is shared is known
            state.curvature[i], state.level[i], state.largest[i], state.tracked[i] = 1.3, -0.5, 1.0, n - 3.0
            state.centre[i], state.encode[i] = 0.1, rng.normal(size=state.encode.shape[1:])
            state.theta[i] = 0.3 * rng.normal(size=dims.coefficients)
            state.theta[i, 1 : 1 + d] = rng.uniform(-0.1, 1.5, size=d)
            half = rng.normal(size=(dims.coefficients, dims.coefficients))
            state.covariance[i], state.unit[i], state.fitted[i] = 0.01 * half @ half.T, 0.9, 1.0
    return state


def questions(dims: Dims, size: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "contexts": rng.normal(size=(size, dims.context)),
        "points": rng.random((size, 4, dims.knobs)),
        "y": rng.normal(size=size),
        "draws": rng.random((size, dims.knobs + candidates(dims))),
    }


def answers(dims: Dims, state: State, default: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Everything the ask side says, by name; every array begins with the axis of tuners."""
    belief = believe(dims, state, default, asked["contexts"])
    points = asked["points"]
    said = {field.name: getattr(belief, field.name) for field in fields(belief) if field.name != "experts"}
    several = {
        "predict": predict(dims, state, belief, default, points),
        "each": each(dims, state, belief, default, points),
        "against": against(dims, state, belief, default, points[:, 0]),
        "forecast": forecast(dims, state, belief, default, points[:, 0], asked["y"]),
        "choose": choose(dims, state, belief, default, asked["draws"]),
    }
    said |= {f"{name} {i}": array for name, arrays in several.items() for i, array in enumerate(arrays)}
    return said | {"best": best(dims, state, belief, default)}


def asked_of(dims: Dims, steps: list[int], seed: int = 0) -> tuple[State, np.ndarray, dict[str, Any], SlotBelief]:
    """Tuners, their default, questions, and what they believe."""
    state, asked = tuners(dims, steps, seed), questions(dims, len(steps), seed)
    default = np.random.default_rng(seed).uniform(0.2, 0.8, size=dims.knobs)
    return state, default, asked, believe(dims, state, default, asked["contexts"])


@pytest.mark.parametrize("dims", SIZES)
def test_a_batch_of_tuners_is_each_of_them_alone(dims):
    state, default, asked, _ = asked_of(dims, STEPS)
    together = answers(dims, state, default, asked)
    for i in range(len(STEPS)):
        rows = slice(i, i + 1)
        alone = answers(dims, state.map(lambda x, rows=rows: x[rows]), default, {k: v[rows] for k, v in asked.items()})
        for name, array in together.items():
            np.testing.assert_allclose(alone[name][0], array[i], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dims", SIZES)
def test_asking_changes_nothing(dims):
    state, default, asked, _ = asked_of(dims, STEPS)
    before = state.map(np.copy)
    answers(dims, state, default, asked)
    assert all(np.array_equal(array, getattr(before, name)) for name, array in state.items())


@pytest.mark.parametrize("dims", SIZES)
def test_a_tuner_without_samples_says_something_finite(dims):
    state = blank(dims, 2, {**STARTS, "unit": 1.0})
    asked, default = questions(dims, 2), np.full(dims.knobs, 0.5)
    said = answers(dims, state, default, asked)
    assert all(np.isfinite(array).all() for array in said.values())
    assert (said["choose 1"] == FIRST).all()
    assert not said["kernels"].any()


@pytest.mark.parametrize("dims", SIZES)
def test_a_belief_has_the_shapes_it_says(dims):
    *_, belief = asked_of(dims, STEPS)
    for name, shape in shapes(dims).items():
        assert getattr(belief, name).shape == (len(STEPS), *shape), name


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), dims=st.sampled_from(SIZES), edge=st.floats(0.0, 1.0))
def test_every_choice_lies_in_the_box(seed, dims, edge):
    state, _, asked, _ = asked_of(dims, [0, 1, 2, 20], seed)
    default = np.full(dims.knobs, edge)
    belief = believe(dims, state, default, asked["contexts"])
    points, sources, _, variances = choose(dims, state, belief, default, asked["draws"])
    for some in (points, best(dims, state, belief, default)):
        assert ((some >= 0.0) & (some <= 1.0)).all()
    assert (sources[:2] == FIRST).all()
    assert (sources[2:] < FIRST).all()
    assert (variances >= 0.0).all()


def test_the_first_probe_moves_one_knob_and_turns_back_at_the_edge():
    dims, default = Dims(2, 0, 1), np.array([0.0, 1.0])
    state, asked = tuners(dims, [1, 1]), questions(dims, 2)
    belief = believe(dims, state, default, asked["contexts"])
    asked["draws"][:, :2] = [[0.1, 0.1], [0.9, 0.9]]  # the first knob down, the second up: neither can be had
    points = choose(dims, state, belief, default, asked["draws"])[0]
    np.testing.assert_allclose(points, [[0.175, 1.0], [0.0, 0.825]])


def test_a_local_expert_is_a_weighted_regression():
    dims = Dims(2, 1, 2)
    state, _, _, belief = asked_of(dims, [3, 3])  # nothing is shared yet, so that nothing pins the level
    p, upper, known = dims.features, np.triu_indices(dims.sample), prior(dims, state)
    for i in range(2):
        psi = np.zeros((3, dims.sample, dims.sample))
        psi[:, upper[0], upper[1]] = state.prompts[i, :3]
        phi, y = psi[:, 0, :p], psi[:, 0, p:] @ state.weights[i] - belief.offset[i]
        for expert in range(L):
            rho, a = belief.noises[i, expert], belief.a[i]
            w = (belief.kernels * state.trust)[i, expert, :3]
            precision = phi.T * w @ phi / rho + known.precision[i]
            mean = np.linalg.solve(precision, phi.T * w @ y / rho + a * known.pull[i])
            np.testing.assert_allclose(belief.mean[i, expert], mean, rtol=1e-8)
            np.testing.assert_allclose(belief.S[i, expert], np.linalg.inv(precision), rtol=1e-8, atol=1e-12)


def test_the_moving_optimum_is_linearised_in_its_coefficients():
    dims = Dims(3, 5, 1)
    state, default, asked, belief = asked_of(dims, [20, 50])
    means, variances = each(dims, state, belief, default, asked["points"])
    for i in range(2):
        a, x, q = belief.a[i], belief.x[i], belief.curvatures[i]
        gaps = 2.0 * (asked["points"][i] - default) - belief.optimum[i]
        mean = a * (belief.level[i] + gaps**2 @ q) + belief.offset[i] + belief.origin[i]
        slopes = ((-2.0 * q * gaps)[..., None] * x).reshape(len(gaps), -1)
        J = np.concatenate([np.full((len(gaps), 1), belief.ratio[i]), belief.ratio[i] * gaps**2, slopes], axis=1)
        np.testing.assert_allclose(means[i, L], mean, rtol=1e-10)
        np.testing.assert_allclose(variances[i, L], a**2 * np.einsum("nm,mk,nk->n", J, state.covariance[i], J))


@pytest.mark.parametrize("dims", SIZES)
def test_a_comparison_is_a_difference_of_predictions(dims):
    state, default, asked, belief = asked_of(dims, STEPS)
    own = np.broadcast_to(default, asked["points"][:, 0].shape)
    both = np.stack([asked["points"][:, 0], own], axis=1)
    means, variances = predict(dims, state, belief, default, both)
    level, mean, variance, expected, *each_variance = against(dims, state, belief, default, both[:, 0])
    np.testing.assert_allclose(mean, means[:, 0] - means[:, 1], atol=1e-10)
    np.testing.assert_allclose([expected, level], means.T, atol=1e-10)
    np.testing.assert_allclose(each_variance, variances.T, atol=1e-10)
    assert (variance >= 0.0).all()
    _, mean, variance, *_ = against(dims, state, belief, default, own)
    assert not mean.any()
    assert not variance.any()


def test_without_a_say_the_moving_optimum_counts_as_the_blind_expert():
    dims = Dims(2, 1, 1)
    state, default, asked, _ = asked_of(dims, [101, 101])
    state.scores[:, L] = [-7.5, -6.5]  # only the first is idle
    belief = believe(dims, state, default, asked["contexts"])
    means, _ = each(dims, state, belief, default, asked["points"])
    np.testing.assert_array_equal(belief.moving, [0.0, 1.0])
    assert belief.weights[0, L] == 0.0
    np.testing.assert_array_equal(means[0, L], means[0, 0])
    assert not np.allclose(means[1, L], means[1, 0])


def test_an_observation_is_worth_what_it_moves_the_minimisers_by():
    dims = Dims(2, 3, 1)
    state, default, asked, belief = asked_of(dims, [60])
    d, (low, high), a = dims.knobs, box(default), belief.a[0]
    u, f = asked["points"][:, :1], features(asked["points"][:, :1])[0, :, 0]
    centres = np.concatenate([minimisers(low, high, belief.mean, belief.a), belief.optimum[:, None]], axis=1)
    inside = (centres > low) & (centres < high)
    bowl = experts_of(dims, state, belief)
    _, variances, worths = choosing._experts_at(dims, belief, u, centres, inside, bowl)
    for expert in range(L):
        bend = np.eye(dims.features) * 1e-6
        up, down = (minimisers(low, high, belief.mean[:, expert, None] + s * bend, belief.a) for s in (a, -a))
        moved = (up - down)[0].T / 2e-6 @ belief.S[0, expert] @ f  # how the minimiser covaries with y
        q = np.maximum(belief.mean[0, expert, 1 + d :] / a, 0.15)
        unsure = f @ belief.S[0, expert] @ f
        np.testing.assert_allclose(worths[0, expert, 0], q @ moved**2 / (unsure + belief.noises[0, expert]), rtol=1e-5)
    q = np.maximum(belief.curvatures[0], 0.15) * inside[0, L]
    worth = q @ (bowl.along[0] @ f) ** 2 / (variances[0, L, 0] + belief.noises[0, L])
    np.testing.assert_allclose(worths[0, L, 0], worth)


def test_the_best_point_is_expected_to_be_no_worse_than_the_default():
    dims = Dims(2, 1, 1)
    state, default, _, belief = asked_of(dims, [20, 50, 300])
    points = np.stack([best(dims, state, belief, default), np.broadcast_to(default, (3, 2))], axis=1)
    mean, _ = predict(dims, state, belief, default, points)
    assert (mean[:, 0] <= mean[:, 1] + 1e-9).all()
