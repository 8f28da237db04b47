"""The moving optimum: a linear map from context to optimum is recovered, and false samples count little."""

import numpy as np
import pytest
from teaching import teach

from rasp_tuner.engine.kernel import memory, moving, outliers
from rasp_tuner.engine.kernel.believe import believe
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.predict import each, experts_of
from rasp_tuner.engine.kernel.state import Dims, L, blank
from rasp_tuner.engine.quadratic.family import QuadraticFamily

CURVATURE = 2.0
DEFAULT = np.full(2, 0.5)
SLOPES = np.array([[0.3, -0.1], [0.05, 0.25]])
START = np.array([0.2, -0.3])


def observe(dims, state, u, context, y, trust=1.0):
    state.steps += 1.0
    moving.observe(dims, state, u[None], context[None], np.array([[y]]), np.array([trust]))


def fit(dims, state):
    moving.fit(dims, state, np.array([CURVATURE]), np.zeros(1), np.ones(1, dtype=bool))


def fitted(samples=60, context_dim=2):
    """A tuner that saw noise-free samples of a bowl of this curvature whose optimum is linear in the context."""
    dims, rng = Dims(2, context_dim, 1), np.random.default_rng(0)
    state = blank(dims, 1, start(dims))
    state.curvature[:] = CURVATURE
    state.noises[:, :, 1:] = -100.0  # only the least noise is likely
    for t in range(samples):
        context, u = rng.normal(size=context_dim), rng.uniform(-1.0, 1.0, size=2)
        observe(dims, state, u, context, optimal_at(context, u))
        if t >= 3:
            fit(dims, state)
    return dims, state


def optimal_at(context, u):
    return 5.0 + CURVATURE * ((u - START - SLOPES @ context[:2]) ** 2).sum()


def believed(dims, state, context):
    return believe(dims, state, DEFAULT, np.asarray(context, dtype=float)[None])


def predicted(dims, state, context, u):
    """Mean and variance [n] of the moving optimum at u [n, 2]."""
    means, variances = each(dims, state, believed(dims, state, context), DEFAULT, (DEFAULT + u / 2.0)[None])
    return means[0, L], variances[0, L]


@pytest.mark.parametrize("context", [[0.0, 0.0], [1.0, -1.0], [-0.5, 1.5]])
def test_a_linear_map_is_recovered_from_sixty_samples(context):
    belief = believed(*fitted(), context)
    assert belief.optimum[0] == pytest.approx(START + SLOPES @ context, abs=0.01)
    assert belief.level[0] * CURVATURE == pytest.approx(5.0, abs=0.02)
    assert belief.curvatures[0] == pytest.approx([1.0, 1.0], abs=0.02)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("context", [[0.0, 0.0], [1.0, -1.0], [-0.5, 1.5]])
def test_a_family_finds_an_optimum_that_moves(context):
    family, rng = QuadraticFamily(DEFAULT, 2, 1), np.random.default_rng(0)
    for _ in range(60):
        now, u = rng.normal(size=2), rng.uniform(-1.0, 1.0, size=2)
        teach(family, DEFAULT + u / 2.0, now, np.array([optimal_at(now, u)]))
    belief = family.believe(np.array(context))
    assert belief.weights.argmax() == L
    assert belief.arrays.optimum[0] == pytest.approx(START + SLOPES @ context, abs=0.01)
    assert belief.best() == pytest.approx(DEFAULT + (START + SLOPES @ context) / 2.0, abs=0.01)


def test_what_is_predicted_does_not_depend_on_the_units_asked_for():
    dims, state = fitted(20)
    context, u = np.array([0.3, -0.4]), np.random.default_rng(1).uniform(-1.0, 1.0, size=(5, 2))
    mean, variance = predicted(dims, state, context, u)
    state.curvature[:] = 0.5
    psi = np.array([[1.0, 0.1, 0.2, 0.01, 0.04, 3.0]])
    memory.write(dims, state, context[None], psi, np.ones(1))  # y is now less an offset of 3
    belief = believed(dims, state, context)
    assert (belief.a[0], belief.offset[0]) == (0.5, 3.0)
    other_mean, other_variance = predicted(dims, state, context, u)
    assert other_mean == pytest.approx(mean)
    assert other_variance == pytest.approx(variance)


def test_unsure_falls_with_samples_and_where_it_has_looked():
    here = np.zeros((1, 2))
    few, many = (predicted(*fitted(n), np.zeros(2), here)[1][0] for n in (8, 60))
    assert many < few
    dims, state = fitted()
    covariance = experts_of(dims, state, believed(dims, state, [0.0, 0.0])).location[0]
    assert np.linalg.eigvalsh(covariance).min() > 0.0


def test_a_long_context_is_sketched_and_the_window_is_bounded():
    dims, state = fitted(150, context_dim=40)
    assert state.window_contexts.shape == (1, 128, 32)
    assert state.encode.shape == (1, 32, 3)
    assert np.isfinite(believed(dims, state, np.full(40, 1e6)).optimum).all()


def test_a_sample_whose_trust_is_restored_counts_again():
    dims, state = fitted(20)
    observe(dims, state, np.zeros(2), np.zeros(2), 50.0, trust=0.0)
    assert state.window_weights[0, 20] == 0.0
    outliers.restore_trust(state, np.ones(1, dtype=bool))
    assert state.window_weights[0, 20] == 1.0


def test_a_false_sample_hardly_moves_the_optimum():
    (dims, state), context = fitted(), np.array([1.0, -1.0])
    observe(dims, state, np.zeros(2), context, 30.0)
    for _ in range(5):
        fit(dims, state)
    assert believed(dims, state, context).optimum[0] == pytest.approx(START + SLOPES @ context, abs=0.01)
