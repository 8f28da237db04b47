"""What every kind of random world promises."""

import doctest

import numpy as np
import pytest

from rasp_lab.bench.domains import WORLDS, create, worlds
from rasp_lab.bench.domains.worlds import CHEAP, KINDS, is_world, world_seeds
from rasp_tuner import Categorical, Float, InvalidValue

RELATIVE = ("W_Near", "W_Scales")
NOISY = ("W_Discrete-0.02", "W_Discrete-0.3", "W_Discrete-1")
POSITIVE = ("W_Categorical", "W_Mixed", "W_Near", "W_Scales", "W_Choices")


def seen(domain, theta, omega, times=1, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([next(iter(domain.metric_fn(theta, omega, rng).values())) for _ in range(times)])


def random_thetas(domain, count=200, seed=1):
    """Every level as often as any other: a point of the unit box would meet the ends of an Int half as often."""
    rng = np.random.default_rng(seed)
    columns = [
        rng.uniform(size=count) if k.levels is None else rng.integers(k.levels, size=count) for k in knobs(domain)
    ]
    return list(np.column_stack(columns).astype(float))


def knobs(domain):
    return domain.space.knobs.values()


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_a_function_of_its_seed(name):
    first, again, other = create(name, 3), create(name, 3), create(name, 4)
    np.testing.assert_array_equal(first.default, again.default)
    assert first.space.to_json() == again.space.to_json()
    omega, theta = first.build_sequence(10, 3)[5], first.theta(first.default)
    assert seen(first, theta, omega) == seen(again, theta, again.build_sequence(10, 3)[5])
    assert seen(other, other.theta(other.default), other.build_sequence(10, 4)[5]) != seen(first, theta, omega)
    assert first.name == name


def test_worlds_of_one_kind_differ_in_size():
    sizes = {create("W_Discrete-0", seed).space.dim for seed in range(60)}
    assert sizes == set(range(3, 12))
    levels = {knob.levels for seed in range(20) for knob in create("W_Discrete-0", seed).space.knobs.values()}
    assert levels == {2, 3, 4, 5}
    choices = [create("W_Choices", seed).space.knobs["choice"].levels for seed in range(60)]
    assert 20 <= min(choices) < max(choices) <= 40


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("seed", range(5))
def test_regret_is_never_negative_and_the_default_is_legal(name, seed):
    domain = create(name, seed)
    np.testing.assert_array_equal(domain.space.snap(domain.default), domain.default)
    stream = domain.build_sequence(40, seed)
    for omega in stream[::13]:
        losses = [domain.true_loss(theta, omega) for theta in random_thetas(domain)]
        assert min(losses) >= domain.minimum(omega)
        assert domain.context_fn(omega).shape == (domain.context_dim,)


# Of worlds that differ in their noise alone, one: the true loss has none.
@pytest.mark.parametrize("name", [name for name in KINDS if name not in RELATIVE and name not in NOISY])
def test_the_loss_is_one_at_the_median_and_zero_at_the_best_of_random_settings(name):
    bests = []
    for seed in range(3):
        domain = create(name, seed)
        omega = domain.build_sequence(4, seed)[0]
        losses = [domain.true_loss(theta, omega) for theta in random_thetas(domain, 3000)]
        low, high = np.quantile(losses, [0.45, 0.55])  # a world of few settings has a median of few values
        assert low <= 1.0 <= high
        bests.append(min(losses))
        assert domain.minimum(omega) <= 0.0
    np.testing.assert_allclose(bests, 0.0, atol=0.15)


def test_noise_of_a_discrete_world_is_its_share_of_median_less_best():
    quiet, loud = create("W_Discrete-0", 1), create("W_Discrete-0.3", 1)
    omega, theta = quiet.build_sequence(1, 1)[0], quiet.theta(quiet.default)
    other = next(t for t in random_thetas(quiet) if quiet.true_loss(t, omega) != quiet.true_loss(theta, omega))
    assert seen(quiet, theta, omega, 5).std() == 0.0
    gap = quiet.true_loss(other, omega) - quiet.true_loss(theta, omega)
    unit = (seen(quiet, other, omega)[0] - seen(quiet, theta, omega)[0]) / gap
    assert seen(loud, theta, omega, 4000).std() == pytest.approx(0.3 * unit, rel=0.05)
    assert seen(loud, theta, omega, 4000).mean() == pytest.approx(seen(quiet, theta, omega)[0], abs=0.03 * unit)


@pytest.mark.parametrize("name", POSITIVE)
def test_costs_are_positive_and_right_on_average(name):
    domain = create(name, 2)
    omega, theta = domain.build_sequence(5, 2)[0], random_thetas(domain)[0]
    costs = seen(domain, theta, omega, 4000)
    assert costs.min() > 0.0
    other = domain.theta(domain.default)
    known = seen(domain, other, omega, 4000).mean()
    if name in RELATIVE:
        assert costs.mean() / known == pytest.approx(domain.true_loss(theta, omega), rel=0.05)


def test_half_of_the_knobs_of_useless_worlds_do_nothing():
    for seed in range(5):
        domain = create("W_Useless", seed)
        omega, at = domain.build_sequence(1, seed)[0], domain.theta(domain.default)
        idle = 0
        for i, knob in enumerate(domain.space.knobs.values()):
            moved = at.copy()
            moved[i] = (at[i] + 1) % knob.levels
            idle += domain.true_loss(moved, omega) == domain.true_loss(at, omega)
        assert idle == domain.space.dim // 2


def test_near_worlds_start_at_the_optimum_or_close_to_it():
    regrets = []
    for seed in range(30):
        domain = create("W_Near", seed)
        omega, theta = domain.build_sequence(1, seed)[0], domain.theta(domain.default)
        assert domain.true_loss(theta, omega) == 1.0
        regrets.append(1.0 - domain.minimum(omega))
    assert 5 <= sum(regret == 0.0 for regret in regrets) <= 25
    assert max(regrets) < 0.25
    spread = [seen(create("W_Near", seed), create("W_Near", seed)._default, omega, 500).std() for seed in range(3)]
    assert len(set(np.round(spread, 6))) == 3


def test_workloads_differ_a_thousandfold_and_the_context_tells_which():
    domain = create("W_Scales", 1)
    stream = domain.build_sequence(300, 1)
    cheap = np.array([domain.regime(omega) == CHEAP for omega in stream])
    contexts = np.array([domain.context_fn(omega) for omega in stream])
    assert 0.2 < cheap.mean() < 0.8
    assert contexts[cheap, 0].min() > 0.5 > contexts[~cheap, 0].max()
    levels = [seen(domain, domain._at[int(now)].optimum, stream[list(cheap).index(not now)])[0] for now in (0, 1)]
    assert 300 < levels[1] / levels[0] < 3000
    assert np.abs(np.diff(cheap.astype(int))).sum() >= 10  # they come back


def test_effects_change_halfway_through_a_drift_unannounced():
    domain = create("W_Drift", 1)
    stream = domain.build_sequence(160, 1)
    assert [domain.regime(omega) for omega in stream] == [0] * 80 + [1] * 80
    assert domain.context_dim == 0
    thetas = random_thetas(domain)
    before, after = ([domain.true_loss(t, omega) for t in thetas] for omega in (stream[0], stream[-1]))
    assert abs(np.corrcoef(before, after)[0, 1]) < 0.9


def test_the_default_choice_is_the_best_that_ignores_the_context_and_the_context_says_more():
    domain = create("W_Choices", 1)
    stream = domain.build_sequence(2000, 1)
    costs = np.array([omega.costs for omega in stream])
    default = int(domain.theta(domain.default)[0])
    assert costs.mean(axis=0)[default] <= 1.03 * costs.mean(axis=0).min()
    assert costs.min(axis=1).mean() < 0.8 * costs.mean(axis=0)[default]
    assert [domain.true_loss(np.array([o.costs.argmin()]), o) for o in stream[:5]] == [0.0] * 5


def test_kinds_of_knobs_are_what_the_names_say():
    for seed in range(5):
        words = create("W_Categorical", seed).space.knobs.values()
        assert all(isinstance(knob, Categorical) for knob in words)
        assert any(20 <= knob.levels <= 40 for knob in words)
        assert {type(knob) for knob in create("W_Mixed", seed).space.knobs.values()} >= {Float, Categorical}


def test_made_harder_a_world_is_still_that_of_its_seed():
    plain, wrapped = create("W_Mixed", 7), create("W_Mixed+delay=3", 7)
    assert wrapped.space.to_json() == plain.space.to_json()
    assert is_world("W_Mixed+delay=3")
    assert not is_world("H1_Recurring_Regimes")


def test_even_seeds_are_for_choosing_and_odd_ones_for_reporting():
    assert world_seeds(3, "develop") == [0, 2, 4]
    assert world_seeds(3) == world_seeds(3, "report") == [1, 3, 5]
    with pytest.raises(InvalidValue, match=r"half \(--half\) must be one of .*develop.*report.*got 'both'"):
        world_seeds(3, "both")
    assert doctest.testmod(worlds).failed == 0


@pytest.mark.parametrize("horizon", [0, -1, 1.5])
def test_a_bad_horizon_is_refused(horizon):
    for name in ("W_Drift", "W_Scales", "W_Choices"):
        with pytest.raises(InvalidValue, match="horizon"):
            create(name).build_sequence(horizon, 0)
