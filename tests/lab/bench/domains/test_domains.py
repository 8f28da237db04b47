"""What every synthetic domain promises, and what the paper writes about each of its ten."""

from itertools import pairwise, product

import numpy as np
import pytest

from rasp_lab.bench.domains import BEYOND, DOMAINS, PAPER, RECURRING, STREAMS, SYNTHETIC, WORLDS, create
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_tuner.errors import InvalidValue

# name: d, d_c, metric, bounds (None: the paper leaves them open), noise-free
WRITTEN = {
    "1_LLM_Inference": (4, 768, "neg_reward", None, False),
    "2_AutoML_HPO": (6, 10, "val_err", (0.0, 1.0), False),
    "3_Robot_ISP_Tuning": (8, 4, "image_quality_loss", (0.0, 1.0), False),
    "4_Wafer_Etching_Drift": (5, 1, "bias", None, False),
    "5_Switching_LQR": (6, 1, "cost", (-5.0, 5.0), True),
    "6_Smooth_Quadratic": (5, 3, "mse", (-2.0, 2.0), True),
    "7_Regime_Switch_Simple": (5, 4, "err", (-2.0, 2.0), False),
    "8_Server_Flash_Crowd": (5, 2, "latency", (0.0, 1.0), False),
    "9_Real_Trace_Replay": (5, 3, "log_latency", (0.0, 1.0), False),
    "A1_Adversarial_Context": (5, 5, "loss", (0.0, 1.0), False),
    "A2_Adversarial_Offcentre": (5, 5, "loss", (0.0, 1.0), False),
    "H1_Recurring_Regimes": (5, 3, "loss", (0.0, 1.0), False),
}


@pytest.fixture(params=list(WRITTEN))
def domain(request: pytest.FixtureRequest) -> ExperimentDomain:
    return create(request.param)


def regimes(name: str, horizon: int, seed: int = 0) -> list[int]:
    domain = create(name)
    return [domain.regime(omega) for omega in domain.build_sequence(horizon, seed)]


def blocks(steps: list[int]) -> list[int]:
    """The regimes in the order they are visited, one entry a visit."""
    return [now for i, now in enumerate(steps) if i == 0 or steps[i - 1] != now]


def contexts(domain: ExperimentDomain, horizon: int, seed: int) -> np.ndarray:
    return np.array([domain.context_fn(omega) for omega in domain.build_sequence(horizon, seed)])


def test_names_dimensions_bounds_and_metrics_are_the_papers(domain: ExperimentDomain) -> None:
    dim, context_dim, metric, bounds, _ = WRITTEN[domain.name]
    assert (domain.space.dim, domain.context_dim) == (dim, context_dim)
    assert {name: spec.direction for name, spec in domain.metrics.items()} == {metric: "min"}
    if bounds is not None:
        assert {(knob.low, knob.high) for knob in domain.space.knobs.values()} == {bounds}


def test_suites_name_registered_domains() -> None:
    assert [*WRITTEN, *STREAMS, *WORLDS] == list(DOMAINS)
    assert [*PAPER, *BEYOND] == list(WRITTEN)
    assert list(PAPER) == list(WRITTEN)[:10]
    assert list(SYNTHETIC) == list(WRITTEN)[:9]
    assert set(RECURRING) <= set(DOMAINS)
    for name in DOMAINS:
        assert create(name).name == name


def test_an_unknown_name_is_answered_with_the_choices() -> None:
    with pytest.raises(InvalidValue, match=r"no domain '10_Cake'; there are .*1_LLM_Inference"):
        create("10_Cake")


@pytest.mark.parametrize(("horizon", "seed"), [(0, 0), (-1, 0), (1.5, 0), (10, -1), (10, 0.5)])
def test_a_bad_horizon_or_seed_is_refused(domain: ExperimentDomain, horizon: int, seed: int) -> None:
    with pytest.raises(InvalidValue, match=r"horizon|seed"):
        domain.build_sequence(horizon, seed)


@pytest.mark.parametrize("horizon", [1, 2, 7, 100])
def test_a_stream_has_one_condition_a_step(domain: ExperimentDomain, horizon: int) -> None:
    stream = domain.build_sequence(horizon, 3)
    assert len(stream) == horizon
    assert all(domain.context_fn(omega).shape == (domain.context_dim,) for omega in stream)
    assert all(np.all(np.isfinite(domain.context_fn(omega))) for omega in stream)


def test_building_a_stream_is_pure(domain: ExperimentDomain) -> None:
    first = contexts(domain, 60, 5)
    contexts(domain, 60, 6)
    np.testing.assert_array_equal(contexts(domain, 60, 5), first)
    np.testing.assert_array_equal(contexts(create(domain.name), 60, 5), first)


def test_seeds_differ_where_contexts_are_random(domain: ExperimentDomain) -> None:
    same = np.array_equal(contexts(domain, 60, 0), contexts(domain, 60, 1))
    assert same == (domain.name in ("4_Wafer_Etching_Drift", "5_Switching_LQR"))  # wear and mode are told exactly


@pytest.mark.parametrize(
    "name", sorted(set(WRITTEN) - {"2_AutoML_HPO", "6_Smooth_Quadratic"})
)  # theta* follows c there
def test_optima_do_not_depend_on_the_seed(name: str) -> None:
    domain = create(name)
    theta = domain.theta(domain.default)
    losses = [{domain.true_loss(theta, omega) for omega in domain.build_sequence(400, seed)} for seed in (0, 1)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("horizon", [100, 1000])
def test_regret_is_never_negative(domain: ExperimentDomain, horizon: int) -> None:
    rng = np.random.default_rng(1)
    dim = domain.space.dim
    points = [domain.default, np.zeros(dim), np.ones(dim), *rng.uniform(size=(8, dim)), *rng.integers(2, size=(8, dim))]
    thetas = [domain.theta(np.asarray(point, dtype=float)) for point in points]
    for seed in range(4):
        for omega in domain.build_sequence(horizon, seed)[:: horizon // 25]:
            least = domain.minimum(omega)
            assert all(domain.true_loss(theta, omega) >= least for theta in thetas)


def search(domain: ExperimentDomain, omega: object, rng: np.random.Generator) -> float:
    """The least loss found by random search and shrinking moves along one or all coordinates, over the unit box."""
    dim = domain.space.dim
    points = list(rng.uniform(size=(200, dim)))
    losses = [domain.true_loss(domain.theta(point), omega) for point in points]
    best, least = points[int(np.argmin(losses))], min(losses)
    moves = np.vstack([np.eye(dim), -np.eye(dim)])
    for width in np.geomspace(0.3, 1e-4, 120):
        for move in np.vstack([moves, rng.normal(size=(4, dim))]):
            point = np.clip(best + width * move, 0.0, 1.0)
            if (loss := domain.true_loss(domain.theta(point), omega)) < least:
                best, least = point, loss
    return least


def test_the_minimum_is_what_a_search_finds(domain: ExperimentDomain) -> None:
    rng = np.random.default_rng(2)
    stream = domain.build_sequence(300, 0)
    worst = np.mean([domain.true_loss(domain.theta(rng.uniform(size=domain.space.dim)), omega) for omega in stream])
    for omega in stream[::99]:
        found, least = search(domain, omega, rng), domain.minimum(omega)
        assert least <= found <= least + 2e-3 * worst


def test_the_minimum_is_exact_where_the_target_leaves_the_box() -> None:
    domain = create("6_Smooth_Quadratic")
    outside = [omega for omega in domain.build_sequence(1000, 0) if np.any(np.abs(omega.target) > 2.0)]
    assert 20 <= len(outside) <= 150
    for omega in outside[:5]:
        assert domain.minimum(omega) > 0.0
        assert search(domain, omega, np.random.default_rng(0)) == pytest.approx(domain.minimum(omega), abs=1e-3)


def test_metrics_are_the_loss_plus_noise(domain: ExperimentDomain) -> None:
    omega, rng = domain.build_sequence(1, 0)[0], np.random.default_rng(0)
    theta = domain.theta(np.full(domain.space.dim, 0.3))
    seen = np.array([sum(domain.metric_fn(theta, omega, rng).values()) for _ in range(2000)])  # there is one metric
    loss, spread = domain.true_loss(theta, omega), seen.std()
    assert abs(seen.mean() - loss) <= 4 * spread / np.sqrt(2000) + 1e-12
    assert (spread < 1e-12) == WRITTEN[domain.name][4]
    assert spread < 0.2 * loss  # mild


@pytest.mark.parametrize("name", sorted(set(WRITTEN) - {"A1_Adversarial_Context"}))  # where the default is optimal
def test_noise_is_mild_beside_the_static_default(name: str) -> None:
    domain = create(name)
    theta = domain.theta(domain.default)
    losses = [domain.true_loss(theta, omega) for seed in range(5) for omega in domain.build_sequence(100, seed)]
    omega, rng = domain.build_sequence(1, 0)[0], np.random.default_rng(0)
    spread = np.std([sum(domain.metric_fn(theta, omega, rng).values()) for _ in range(1000)])
    assert spread < 0.1 * np.mean(losses)


def test_the_default_is_optimal_in_a1_alone(domain: ExperimentDomain) -> None:
    theta = domain.theta(domain.default)
    regret = [domain.true_loss(theta, omega) - domain.minimum(omega) for omega in domain.build_sequence(100, 0)]
    random = np.mean(
        [
            domain.true_loss(domain.theta(u), omega)
            for u, omega in zip(
                np.random.default_rng(0).uniform(size=(100, domain.space.dim)),
                domain.build_sequence(100, 0),
                strict=True,
            )
        ]
    )
    if domain.name == "A1_Adversarial_Context":
        assert max(regret) == 0.0
    else:
        assert np.mean(regret) > 0.02 * random


@pytest.mark.parametrize("name", RECURRING)
def test_regimes_recur_where_said(name: str) -> None:
    visited = blocks(regimes(name, 1000))
    assert len(visited) > len(set(visited)) > 1


@pytest.mark.parametrize("name", sorted(set(WRITTEN) - set(RECURRING)))
def test_regimes_do_not_recur_elsewhere(name: str) -> None:
    visited = blocks(regimes(name, 1000))
    assert len(visited) == len(set(visited))


@pytest.mark.parametrize(("name", "at_1000"), [("2_AutoML_HPO", 10), ("5_Switching_LQR", 10)])
def test_schedules_of_100_steps_never_switch_at_100(name: str, at_1000: int) -> None:
    assert len(blocks(regimes(name, 100))) == 1
    assert len(blocks(regimes(name, 101))) == 2
    assert len(blocks(regimes(name, 1000))) == at_1000


def test_llm_returns_to_the_first_cluster_in_the_last_quarter() -> None:
    assert regimes("1_LLM_Inference", 100) == [0] * 25 + [1] * 25 + [2] * 25 + [0] * 25


def test_llm_contexts_of_one_cluster_are_nearest() -> None:
    domain = create("1_LLM_Inference")
    seen, labels = contexts(domain, 100, 0), np.array(regimes("1_LLM_Inference", 100))
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    same = labels[:, None] == labels[None]
    assert apart[same].max() < apart[~same].min()


def test_isp_drives_by_day_tunnel_day_fog_and_night() -> None:
    assert blocks(regimes("3_Robot_ISP_Tuning", 100)) == [0, 1, 0, 2, 3]


def test_hpo_redraws_features_every_100_steps_and_is_not_convex() -> None:
    domain = create("2_AutoML_HPO")
    features = contexts(domain, 250, 0)
    assert len(np.unique(features, axis=0)) == 3
    omega, rng = domain.build_sequence(1, 0)[0], np.random.default_rng(0)
    points, moves = rng.uniform(0.2, 0.8, size=(2000, 6)), rng.uniform(-0.2, 0.2, size=(2000, 6))
    bulges = [
        domain.true_loss(x, omega) - (domain.true_loss(x + dx, omega) + domain.true_loss(x - dx, omega)) / 2
        for x, dx in zip(points, moves, strict=True)
    ]
    assert max(bulges) > 0.01


def test_hpo_optimum_is_a_function_of_the_features_and_inside_the_box() -> None:
    stream = create("2_AutoML_HPO").build_sequence(100_000, 0)[::100]
    targets = np.array([omega.target for omega in stream])
    assert targets.min() >= 0.15
    assert targets.max() <= 0.85
    assert len(np.unique(targets, axis=0)) == 1000


def test_wear_grows_linearly_and_moves_pressure_and_plasma_only() -> None:
    domain = create("4_Wafer_Etching_Drift")
    np.testing.assert_allclose(contexts(domain, 101, 0)[:, 0], np.linspace(0, 1, 101))
    targets = np.array([omega.target for omega in domain.build_sequence(101, 0)])
    np.testing.assert_allclose(np.diff(targets, 2, axis=0), 0.0, atol=1e-9)
    assert np.all((np.ptp(targets, axis=0) > 1e-9) == [True, True, True, False, False])


def test_lqr_context_is_the_mode_and_loss_a_mean_square() -> None:
    domain = create("5_Switching_LQR")
    assert contexts(domain, 400, 0)[:, 0].tolist() == [0.0] * 100 + [1.0] * 100 + [0.0] * 100 + [1.0] * 100
    omega = domain.build_sequence(1, 0)[0]
    assert domain.true_loss(omega.target + 2.0, omega) == pytest.approx(4.0)


def test_simple_context_is_a_symbol_and_the_regime_bit() -> None:
    seen = contexts(create("7_Regime_Switch_Simple"), 100, 0)
    assert np.all(seen[:, :3].sum(axis=1) == 1.0)
    assert set(seen.ravel()) == {0.0, 1.0}
    assert np.all(seen[:, :3].sum(axis=0) > 0)
    assert seen[:, 3].tolist() == [0.0] * 50 + [1.0] * 50


def test_two_flash_crowds_raise_the_load() -> None:
    panic = np.array(regimes("8_Server_Flash_Crowd", 100))
    assert blocks(panic.tolist()) == [0, 1, 0, 1, 0]
    load, bit = contexts(create("8_Server_Flash_Crowd"), 100, 0).T
    assert np.array_equal(bit, panic)
    assert load[panic == 1].min() > load[panic == 0].max()


def test_the_trace_is_replayed_in_a_circle_and_differs_in_noise() -> None:
    domain = create("9_Real_Trace_Replay")
    targets = np.array([omega.target for omega in domain.build_sequence(2100, 0)])
    np.testing.assert_array_equal(targets[:100], targets[2000:])
    np.testing.assert_array_equal(targets[:50], [omega.target for omega in domain.build_sequence(50, 9)])
    assert 0.0 < targets.min() < targets.max() < 1.0
    assert np.abs(np.diff(targets[:2000], axis=0)).max() < 0.15  # it walks, it does not jump


@pytest.mark.parametrize("name", ["A1_Adversarial_Context", "A2_Adversarial_Offcentre"])
def test_adversarial_context_is_noise_and_the_optimum_fixed(name: str) -> None:
    domain = create(name)
    assert len({tuple(omega.target) for omega in domain.build_sequence(100, 0)}) == 1
    seen = contexts(domain, 4000, 0)
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=0.07)
    np.testing.assert_allclose(np.cov(seen.T), np.eye(5), atol=0.1)


def test_a1_is_the_quadratic_of_appendix_b() -> None:
    domain = create("A1_Adversarial_Context")
    omega = domain.build_sequence(1, 0)[0]
    assert domain.true_loss(np.array([0.5, 0.7, 0.5, 0.1, 1.0]), omega) == pytest.approx(0.04 + 0.16 + 0.25)


def test_h1_visits_four_regimes_in_blocks_of_random_length() -> None:
    for seed, horizon in product(range(3), (100, 1000)):
        steps = regimes("H1_Recurring_Regimes", horizon, seed)
        ends = np.flatnonzero(np.diff(steps)) + 1
        lengths = np.diff([0, *ends])  # the last block may be cut by the horizon
        assert lengths.min() >= 5
        assert lengths.max() <= 20
        assert len(set(lengths)) > 1
    visited = blocks(regimes("H1_Recurring_Regimes", 1000))
    assert len(set(pairwise(visited))) > 8  # of the 12 changes there are: the order is random too


def test_stream_and_agent_with_one_seed_do_not_share_random_numbers() -> None:
    seen = contexts(create("A1_Adversarial_Context"), 100, 0)
    assert not np.isin(seen, np.random.default_rng(0).normal(size=10_000)).any()
