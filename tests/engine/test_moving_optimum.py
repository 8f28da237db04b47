import numpy as np
import pytest

from rasp_tuner.engine.quadratic.moving_optimum import MovingOptimum, Shared

NOISE = 1e-4
SLOPES = np.array([[0.3, -0.1], [0.05, 0.25]])
START = np.array([0.2, -0.3])


def shared(curvature=1.0, d=2):
    return Shared(curvature, 0.0, 4.0, np.ones(d), np.eye(d) / 0.09, 0.25, NOISE)


def fitted(samples=60, offset=0.0, curvature=2.0, context_dim=2):
    """A model that saw noise-free samples of a bowl of this curvature whose optimum is linear in the context."""
    model, rng = MovingOptimum(2, context_dim, 1), np.random.default_rng(0)
    for t in range(samples):
        context, u = rng.normal(size=context_dim), rng.uniform(-1.0, 1.0, size=2)
        y = 5.0 + curvature * ((u - START - SLOPES @ context[:2]) ** 2).sum()
        model.observe(u, context, np.array([y]), 1.0)
        if t >= 3:
            model.fit(np.ones(1), offset, shared(curvature))
    return model


@pytest.mark.parametrize("context", [[0.0, 0.0], [1.0, -1.0], [-0.5, 1.5]])
def test_a_linear_map_is_recovered_from_sixty_samples(context):
    belief = fitted().believe(np.array(context), 0.0, 2.0)
    assert belief.optimum == pytest.approx(START + SLOPES @ context, abs=0.01)
    assert belief.level * 2.0 == pytest.approx(5.0, abs=0.02)
    assert belief.curvatures == pytest.approx([1.0, 1.0], abs=0.02)


def test_what_is_predicted_does_not_depend_on_the_units_asked_for():
    model, context, u = fitted(20), np.array([0.3, -0.4]), np.random.default_rng(1).uniform(-1.0, 1.0, size=(5, 2))
    mean, variance = model.believe(context, 0.0, 2.0).predict(u)[:2]
    other_mean, other_variance = model.believe(context, 3.0, 0.5).predict(u)[:2]
    assert other_mean * 0.5 + 3.0 == pytest.approx(mean * 2.0)
    assert other_variance * 0.5**2 == pytest.approx(variance * 2.0**2)


def test_unsure_falls_with_samples_and_where_it_has_looked():
    context, here = np.zeros(2), np.zeros((1, 2))
    few, many = (fitted(n).believe(context, 0.0, 2.0).predict(here)[1][0] for n in (8, 60))
    assert many < few
    covariance = fitted().believe(context, 0.0, 2.0).location_covariance()
    assert np.linalg.eigvalsh(covariance).min() > 0.0


def test_a_long_context_is_sketched_and_the_window_is_bounded():
    model = fitted(150, context_dim=40)
    sizes = {name: array.shape for name, array in model.state().items()}
    assert sizes["contexts"] == (128, 32)
    assert sizes["encode"] == (32, 3)
    assert np.isfinite(model.believe(np.full(40, 1e6), 0.0, 2.0).optimum).all()


def test_state_restores_it():
    model, other = fitted(30), MovingOptimum(2, 2, 1)
    other.restore({name: array.copy() for name, array in model.state().items()})
    context, u = np.array([0.1, 0.2]), np.zeros((1, 2))
    for a, b in zip(
        model.believe(context, 1.0, 2.0).predict(u)[:2],
        other.believe(context, 1.0, 2.0).predict(u)[:2],
        strict=True,
    ):
        assert np.array_equal(a, b)


def test_a_sample_whose_trust_is_restored_counts_again():
    model = fitted(20)
    model.observe(np.zeros(2), np.zeros(2), np.array([50.0]), 0.0)
    model.restore_trust()
    assert model.state()["weights"][20] == 1.0


def test_a_false_sample_hardly_moves_the_optimum():
    model, context = fitted(), np.array([1.0, -1.0])
    model.observe(np.zeros(2), context, np.array([30.0]), 1.0)
    for _ in range(5):
        model.fit(np.ones(1), 0.0, shared(2.0))
    assert model.believe(context, 0.0, 2.0).optimum == pytest.approx(START + SLOPES @ context, abs=0.01)
