"""Wrappers change what the agent sees, and nothing that regret is counted in."""

import numpy as np
import pytest

from rasp_lab.bench.domains import create
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.wrappers import Delayed, MixedPolarity, Noisy, Outliers, Rescaled, metric_size
from rasp_tuner.errors import InvalidValue

NAME = "6_Smooth_Quadratic"  # noise-free, so that every deviation is the wrapper's
WRAPPED = {
    "noise": lambda inner: Noisy(inner, 0.5),
    "outliers": Outliers,
    "rescaled": lambda inner: Rescaled(inner, 1000.0, -5.0),
    "mixed": MixedPolarity,
    "delay": lambda inner: Delayed(inner, 3),
}


def answers(domain: ExperimentDomain, times: int) -> tuple[dict[str, np.ndarray], float]:
    """Many answers at one point of one condition, and the true loss there."""
    omega, rng = domain.build_sequence(1, 0)[0], np.random.default_rng(0)
    theta = domain.theta(np.full(domain.space.dim, 0.3))
    seen = [domain.metric_fn(theta, omega, rng) for _ in range(times)]
    return {name: np.array([metrics[name] for metrics in seen]) for name in domain.metrics}, domain.true_loss(
        theta, omega
    )


@pytest.mark.parametrize("suffix", WRAPPED)
@pytest.mark.parametrize("name", [NAME, "H1_Recurring_Regimes", "A1_Adversarial_Context"])
def test_loss_minimum_and_regimes_are_those_of_the_inner_domain(name: str, suffix: str) -> None:
    inner = create(name)
    outer = WRAPPED[suffix](inner)
    assert outer.name == f"{name}+{suffix}"
    assert outer.space is inner.space
    np.testing.assert_array_equal(outer.default, inner.default)
    theta = outer.theta(np.full(outer.space.dim, 0.2))
    for a, b in zip(outer.build_sequence(50, 4), inner.build_sequence(50, 4), strict=True):
        assert outer.true_loss(theta, a) == inner.true_loss(theta, b)
        assert outer.minimum(a) == inner.minimum(b)
        assert outer.regime(a) == inner.regime(b)
        assert outer.context_fn(a).shape == (outer.context_dim,)
        assert set(outer.metric_fn(theta, a, np.random.default_rng(0))) == set(outer.metrics)


def test_noise_has_the_size_asked_for_and_no_bias() -> None:
    inner = create(NAME)
    seen, loss = answers(Noisy(inner, 0.5), 4000)
    wanted = 0.5 * metric_size(inner)["mse"]
    assert seen["mse"].std() == pytest.approx(wanted, rel=0.05)
    assert seen["mse"].mean() == pytest.approx(loss, abs=4 * wanted / np.sqrt(4000))


def test_one_answer_in_ten_is_an_outlier_of_five_to_ten_times_the_static_loss() -> None:
    inner = create(NAME)
    seen, loss = answers(Outliers(inner), 4000)
    shift = (seen["mse"] - loss) / metric_size(inner)["mse"]
    struck = np.abs(shift) > 1e-9
    assert struck.mean() == pytest.approx(0.1, abs=0.02)
    assert 5.0 <= shift[struck].min() < 5.3
    assert 9.7 < shift[struck].max() <= 10.0


def test_outliers_make_every_metric_worse_whichever_way_it_points() -> None:
    seen, loss = answers(Outliers(MixedPolarity(create(NAME), noise=0.0)), 500)
    struck = seen["mse"] > loss + 1e-9
    assert 0 < struck.sum() < 500
    assert seen["throughput"][struck].max() < seen["throughput"][~struck].min()


def test_the_size_of_a_metric_is_its_mean_under_the_static_default() -> None:
    domain = create(NAME)
    theta = domain.theta(domain.default)
    losses = [domain.true_loss(theta, omega) for omega in domain.build_sequence(100, 0)]
    assert metric_size(domain) == {"mse": pytest.approx(np.mean(losses))}


def test_where_the_default_is_optimal_the_size_is_that_of_random_settings() -> None:
    assert metric_size(create("A1_Adversarial_Context"))["loss"] == pytest.approx(5 / 12, rel=0.2)


def test_context_changes_its_units() -> None:
    inner = create(NAME)
    omega = inner.build_sequence(1, 0)[0]
    np.testing.assert_allclose(Rescaled(inner, 1000.0, -5.0).context_fn(omega), 1000.0 * omega.context - 5.0)
    np.testing.assert_allclose(Rescaled(inner, [1, 2, 3]).context_fn(omega), omega.context * [1, 2, 3])


def test_the_second_metric_is_better_when_the_loss_is_less() -> None:
    domain = MixedPolarity(create(NAME), offset=50.0, slope=2.0, noise=0.3)
    assert {name: metric.direction for name, metric in domain.metrics.items()} == {"mse": "min", "throughput": "max"}
    seen, loss = answers(domain, 4000)
    assert seen["throughput"].mean() == pytest.approx(50.0 - 2.0 * loss, abs=0.03)
    assert seen["throughput"].std() == pytest.approx(0.3, rel=0.05)


def test_what_the_paper_changes_for_a_domain_survives_wrapping() -> None:
    wrapped = Noisy(Delayed(create("8_Server_Flash_Crowd"), 1), 2.0)
    assert wrapped.task().paper_constants == {"base_step": 0.25}


def test_delay_is_visible_adds_up_and_survives_other_wrappers() -> None:
    assert getattr(create(NAME), "delay", 0) == 0
    assert Noisy(Delayed(create(NAME), 3), 0.1).delay == 3
    assert Delayed(Delayed(create(NAME), 3), 2).delay == 5
    assert Noisy(create(NAME), 0.1).delay == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda d: Noisy(d, -1.0), "factor must not be negative, got -1.0"),
        (lambda d: Noisy(d, float("nan")), "factor must be a finite number"),
        (lambda d: Delayed(d, -1), "delay must be a whole number"),
        (lambda d: Rescaled(d, [1.0, 2.0]), "scale must hold 3 numbers, got 2"),
        (lambda d: MixedPolarity(d, slope=-1.0), "slope must not be negative"),
        (lambda d: MixedPolarity(d, metric="mse"), "metric must be a new name, got 'mse'"),
    ],
)
def test_bad_settings_are_refused(build: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        build(create(NAME))
