import numpy as np
import pytest
from teaching import teach

from rasp_tuner import Float, Tuner
from rasp_tuner.base.common_constants import RECENT_STEPS
from rasp_tuner.engine.kernel import choose, memory, native, pooled_prior
from rasp_tuner.engine.kernel.belief import SlotBelief, shapes
from rasp_tuner.engine.kernel.believe import NARROW_WIDTH, box, minimisers
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.masks import ALL_ROWS
from rasp_tuner.engine.kernel.outliers import targets
from rasp_tuner.engine.kernel.pooled_prior import COMMON_DEVIATION, LEVEL_VARIANCE, OPTIMUM_VARIANCE, OWN_DEVIATION
from rasp_tuner.engine.kernel.predict import each, experts_of, features
from rasp_tuner.engine.kernel.state import Dims, E, blank
from rasp_tuner.engine.quadratic.family import QuadraticFamily

DEFAULT = np.array([0.5, 0.3])
BOTH = pytest.mark.usefixtures("kernel")


def taught(samples, loss, default=DEFAULT, context=lambda _: np.zeros(1), seed=0):
    """A family that saw `loss(point)` at random points, and the points."""
    family, rng = QuadraticFamily(default, 1, 1), np.random.default_rng(seed)
    points = rng.random((samples, len(default)))
    for t, point in enumerate(points):
        teach(family, point, context(t), np.array([loss(point)]), False)
    return family, points


def bowl(point, centre=(0.7, 0.2)):
    return 3.0 + 2.0 * float(((point - centre) ** 2).sum())


def trust(family):
    """[L, N] in the slots in use."""
    return family.tuners.trust[0, :, : int(family.tuners.count[0])]


@BOTH
def test_one_expert_is_bayesian_regression():
    """The blind expert, before curvature and level are tracked, against the textbook posterior."""
    family, points = taught(3, bowl)
    belief, u = family.believe(np.zeros(1)).arrays, 2.0 * (points - DEFAULT)
    phi = np.column_stack([np.ones(3), u, u**2])
    y = np.array([bowl(point) for point in points])
    a = belief.a[0]
    prior_mean = a * np.array([2 * OPTIMUM_VARIANCE, 0.0, 0.0, 1.0, 1.0])
    prior = np.zeros((5, 5))
    prior[0, 0], prior[1, 1], prior[2, 2] = LEVEL_VARIANCE, OPTIMUM_VARIANCE / 0.25, OPTIMUM_VARIANCE / 0.25
    prior[3:, 3:] = OWN_DEVIATION**2 * np.eye(2) + COMMON_DEVIATION**2
    where = np.random.default_rng(1).random((6, 2))
    f = np.column_stack([np.ones(6), 2.0 * (where - DEFAULT), (2.0 * (where - DEFAULT)) ** 2])
    mean, variance = each(family.dims, family.tuners, belief, DEFAULT, where[None])
    data = np.linalg.inv(phi @ (a**2 * prior) @ phi.T + belief.noises[0, 0] * a**2 * np.eye(3))  # not by precision
    cross = f @ (a**2 * prior) @ phi.T
    expected = y.mean() + f @ prior_mean + cross @ data @ (y - y.mean() - phi @ prior_mean)
    doubt = np.diag(f @ (a**2 * prior) @ f.T - cross @ data @ cross.T)
    assert mean[0, 0] == pytest.approx(expected, rel=1e-6)
    assert variance[0, 0] == pytest.approx(doubt, rel=1e-5)


@BOTH
def test_what_is_predicted_is_the_mixture_of_the_experts():
    family, points = taught(12, bowl)
    belief = family.believe(np.zeros(1))
    means, variances = each(family.dims, family.tuners, belief.arrays, DEFAULT, points[None])
    mean, variance = belief.predict(points)
    assert mean == pytest.approx(belief.weights @ means[0])
    assert variance == pytest.approx(belief.weights @ (variances[0] + (means[0] - mean) ** 2))


@BOTH
@pytest.mark.parametrize("centre", [(0.7, 0.2), (0.05, 0.95)])
def test_the_minimum_of_a_bowl_is_found(centre):
    family, _ = taught(25, lambda point: bowl(point, centre))
    belief = family.believe(np.zeros(1))
    assert belief.best() == pytest.approx(centre, abs=0.02)
    assert belief.predict(np.array([centre]))[0][0] == pytest.approx(3.0, abs=0.05)


@BOTH
@pytest.mark.parametrize("default", [[0.5, 0.5], [0.0, 1.0], [0.1, 0.9]])
@pytest.mark.parametrize("loss", [bowl, lambda p: -float(p.sum()), lambda p: -bowl(p), lambda p: bowl(p, (3.0, -2.0))])
def test_whatever_it_saw_its_points_lie_in_the_box(default, loss):
    rng = np.random.default_rng(0)
    for samples in (1, 2, 3, 10, 30):
        belief = taught(samples, loss, np.array(default))[0].believe(np.zeros(1))
        for point in (belief.best(), *(belief.choose(rng)[0] for _ in range(5))):
            assert ((point >= 0.0) & (point <= 1.0)).all()


@BOTH
def test_believing_is_pure():
    family, _ = taught(20, bowl)
    before = {name: array.tobytes() for name, array in family.state().items()}
    first = family.believe(np.array([0.3])).predict(DEFAULT[None])
    for context in (5.0, -1e50, 0.3):
        belief = family.believe(np.array([context]))
        belief.choose(np.random.default_rng(0))
        belief.best()
        belief.forecast(DEFAULT, 3.0)
    assert {name: array.tobytes() for name, array in family.state().items()} == before
    assert all(np.array_equal(a, b) for a, b in zip(first, belief.predict(DEFAULT[None]), strict=True))


@BOTH
def test_a_gross_outlier_is_hardly_trusted_and_moves_little():
    family, _ = taught(30, bowl)
    teach(family, np.array([0.7, 0.2]), np.zeros(1), np.array([300.0]), False)
    assert trust(family)[:, -1].max() < 0.01
    assert trust(family)[0, :-1].min() > 0.5
    assert family.believe(np.zeros(1)).best() == pytest.approx([0.7, 0.2], abs=0.05)


@BOTH
@pytest.mark.parametrize(("samples", "row"), [(60, 2), (30, 3)])
def test_odd_samples_in_a_row_are_no_mistake(samples, row):
    """Two of them later on, three among the first samples."""
    family, _ = taught(samples, bowl)
    for _ in range(row):
        teach(family, np.array([0.7, 0.2]), np.zeros(1), np.array([300.0]), False)
    assert trust(family)[0, -1] == 1.0


@BOTH
def test_weights_sum_to_one_and_every_expert_has_a_name():
    for samples in (1, 2, 30):
        belief = taught(samples, bowl)[0].believe(np.zeros(1))
        assert belief.weights.sum() == pytest.approx(1.0)
        assert len(belief.weights) == len(belief.arrays.noises[0]) == len(QuadraticFamily.experts)
        assert belief.forecast(DEFAULT, 3.0).log_densities.shape == belief.weights.shape
        assert belief.similar().shape == (samples,)
        assert ((belief.similar() >= 0.0) & (belief.similar() <= 1.0)).all()


@BOTH
def test_other_weights_are_another_target_for_all_samples():
    rng = np.random.default_rng(0)
    both, second = QuadraticFamily(DEFAULT, 1, 2), QuadraticFamily(DEFAULT, 1, 1)
    both.reweigh(np.array([1.0, 0.0]))
    for point in rng.random((40, 2)):
        values = np.array([bowl(point), bowl(point, (0.1, 0.9))])
        teach(both, point, np.zeros(1), values, False, np.array([1.0, 0.0]))
        teach(second, point, np.zeros(1), values[1:], False)
    assert both.believe(np.zeros(1)).best() == pytest.approx([0.7, 0.2], abs=0.02)
    both.reweigh(np.array([0.0, 1.0]))
    y, expected = (targets(family.dims, family.tuners, ALL_ROWS, 40) for family in (both, second))
    assert y == pytest.approx(expected)
    assert both.believe(np.zeros(1)).best() == pytest.approx([0.1, 0.9], abs=0.1)


@BOTH
def test_restored_it_goes_on_in_the_same_way():
    family, _ = taught(60, bowl, context=lambda t: np.array([float(t % 3)]))
    other = QuadraticFamily(DEFAULT, 1, 1)
    other.restore({name: array.copy() for name, array in family.state().items()})
    for part in (family, other):
        teach(part, np.array([0.2, 0.2]), np.ones(1), np.array([9.0]), False)
    assert all(np.array_equal(array, other.state()[name]) for name, array in family.state().items())


@BOTH
@pytest.mark.parametrize("failed", [False, True])
def test_false_measurements_among_the_first_samples_do_not_bend_what_is_shared(failed):
    """Two hide each other; but a failure is no false measurement."""
    rng, family = np.random.default_rng(5), QuadraticFamily(DEFAULT, 1, 1)
    for t in range(14):
        point = np.clip(DEFAULT + 0.2 * rng.normal(size=2), 0.0, 1.0)
        odd = t in (3, 6)
        teach(family, point, np.zeros(1), np.array([bowl(point) + 9.0 * odd]), odd and failed)
    blind = trust(family)[0]
    assert (blind[[3, 6]] < 0.01).all() == (not failed)
    if not failed:
        assert blind.sum() > 11.0
        belief = family.believe(np.zeros(1))
        assert belief.arrays.a[0] < 2.0  # bowl: 0.5 in u
        assert np.sqrt(belief.noise) < 0.05  # nor are they noise


@BOTH
def test_one_odd_sample_later_on_counts_for_nothing_and_scores_no_expert():
    family, _ = taught(60, bowl)  # past the first samples, which are looked at together
    scores = family.tuners.scores.copy()
    teach(family, np.array([0.7, 0.2]), np.zeros(1), np.array([300.0]), False)
    assert trust(family)[:, -1].max() < 1e-6
    assert family.tuners.window_weights[0, 60] < 1e-6
    assert np.array_equal(family.tuners.scores, scores)


@BOTH
def test_odd_samples_that_were_believed_lose_trust_once_others_disagree():
    rng = np.random.default_rng(0)
    family, _ = taught(60, lambda point: bowl(point) + 0.02 * rng.normal())
    for _ in range(2):  # the second clears itself
        teach(family, np.array([0.7, 0.2]), np.zeros(1), np.array([9.0]), False)
    assert trust(family)[0, 61] == 1.0
    for point in rng.random((6, 2)):
        teach(family, point, np.zeros(1), np.array([bowl(point) + 0.02 * rng.normal()]), False)
    assert trust(family)[:, 60:62].max() < 0.01
    assert trust(family)[0, :60].mean() > 0.9


@BOTH
def test_situations_count_by_wobble_and_the_most_similar_ones_by_spread():
    rng = np.random.default_rng(0)
    family, _ = taught(50, bowl, context=lambda t: np.array([t // 10 % 2 + 0.1 * rng.normal()]))
    wobbles, spreads = memory.gaps(family.dims, family.tuners, np.array([[0.3]]))[0, :, :50]
    kernels = family.believe(np.array([0.3])).arrays.kernels[0]
    blind, recent, wide, narrow = kernels[:, :50]
    assert blind == pytest.approx(np.ones(50))
    assert recent == pytest.approx(np.exp(-np.arange(49.0, -1.0, -1.0) / RECENT_STEPS))
    assert wide == pytest.approx(np.exp(-((wobbles / memory.reach(family.tuners)) ** 2)))
    assert narrow == pytest.approx(np.exp(-((spreads / (2.0 * NARROW_WIDTH**2)) ** 2)))
    assert not np.allclose(wide, narrow)
    assert not kernels[:, 50:].any()


@BOTH
def test_a_second_odd_sample_restores_the_trust_in_the_first():
    family, _ = taught(121, bowl)  # by now trust is looked at one step in four, and not in this one
    for _ in range(2):
        teach(family, np.array([0.7, 0.2]), np.zeros(1), np.array([300.0]), False)
    assert trust(family)[:, -2:].min() == 1.0
    assert family.tuners.window_weights[0, 121:123].tolist() == [1.0, 1.0]


@BOTH
def test_a_new_situation_is_expected_to_have_the_least_value_of_the_others():
    family, rng = QuadraticFamily(DEFAULT, 1, 1), np.random.default_rng(0)
    for t in range(80):
        point, situation = rng.random(2), t // 10 % 2
        told = bowl(point, ((0.7, 0.2), (0.2, 0.6))[situation])  # 3 at best, in both
        teach(family, point, np.array([situation + 0.05 * rng.normal()]), np.array([told]), False)
    belief = family.believe(np.array([40.0])).arrays
    coefficients = belief.mean[:, 2:3]  # of the situations like this one: none
    least = coefficients @ features(minimisers(*box(DEFAULT), coefficients, belief.a))
    assert least[0, 0, 0] + belief.offset[0] + belief.origin[0] == pytest.approx(3.0, abs=0.1)


@BOTH
def test_in_a_situation_like_no_other_experts_weigh_what_they_did_at_first():
    """And so what is expected there is far from sure: those who know only what is like this know nothing."""
    family, rng = QuadraticFamily(DEFAULT, 1, 1), np.random.default_rng(0)
    for t in range(60):
        point, situation = rng.random(2), t // 10 % 2
        told = bowl(point, ((0.7, 0.2), (0.2, 0.6))[situation])
        teach(family, point, np.array([situation + 0.05 * rng.normal()]), np.array([told]), False)
    known, new = family.believe(np.array([1.0])), family.believe(np.array([40.0]))
    scores = family.tuners.scores[0]
    assert known.weights == pytest.approx(np.exp(scores) / np.exp(scores).sum(), rel=1e-9)
    first = np.exp(pooled_prior.EXPERT_PRIOR)
    assert new.weights == pytest.approx(first / first.sum(), rel=1e-9)
    (expected,), (variance,) = known.predict(known.best()[None])
    (_,), (unsure,) = new.predict(known.best()[None])
    assert unsure > 20.0 * max(variance, 1e-9)
    assert expected == pytest.approx(3.0, abs=0.1)


@BOTH
@pytest.mark.parametrize(
    ("kernel", "seed"), [("arrays", 2), *(("compiled", seed) for seed in (2, 6, 10))], indirect=["kernel"]
)
def test_the_same_few_points_again_and_again_do_not_make_a_wrong_bowl_certain(seed):
    """Batches of fifty at one point: what they leave open, as which knob is the steep one, must stay open."""
    rng = np.random.default_rng(seed)
    family, best = QuadraticFamily(np.full(3, 0.95), 1, 1), rng.uniform(0.15, 0.4, 3)

    def cost(point):
        return 1.0 + 10.0 * ((point - best) ** 2).mean()

    def try_(times):
        point = family.believe(np.zeros(1)).choose(rng).point if family.samples else family.default
        for _ in range(times):
            teach(family, point, np.zeros(1), np.array([cost(point) * (1.0 + 0.1 * rng.normal())]), False)

    for times in [50] * 10 + [1] * 10:
        try_(times)
    assert cost(family.believe(np.zeros(1)).best()) < 1.1  # 6 at the default


def test_false_measurements_found_late_unbend_the_shared_curvature():
    dims, found = Dims(2, 0, 1), np.array([True])
    state = blank(dims, 1, start(dims))
    pooled_prior.outliers_found(state, ALL_ROWS, found, np.array([1.0]))
    assert state.curvature[0] == 0.0  # it was not known yet
    for _ in range(5):
        pooled_prior.track(state, np.zeros(1), np.array([40.0]), np.array([9.0]), np.ones(1, dtype=bool))
    state.noises[:] = -np.arange(9.0)
    bent = state.curvature[0]
    pooled_prior.outliers_found(state, ALL_ROWS, ~found, np.array([2.0]))
    assert state.curvature[0] == bent > 2.0
    pooled_prior.outliers_found(state, ALL_ROWS, found, np.array([2.0]))
    assert (state.curvature[0], state.largest[0]) == (2.0, 0.0)
    assert np.array_equal(state.noises[0], np.tile(start(dims)["noises"], (E, 1)))  # they were taken for noise
    pooled_prior.outliers_found(state, ALL_ROWS, found, np.array([3.0]))
    assert state.curvature[0] == 2.0  # at most: without them it is no steeper


@BOTH
@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 0.0, 0.06), (0.5, 0.3, 0.8)])
def test_noise_is_told_from_what_is_not_known_yet(noise, least, most):
    rng = np.random.default_rng(3)
    family, _ = taught(80, lambda point: bowl(point) + noise * rng.normal())
    assert least < np.sqrt(family.believe(np.zeros(1)).noise) < most


def worths(family, u):
    """[n] of one observation at u [n, 2]."""
    arrays, (low, high) = family.believe(np.zeros(1)).arrays, box(DEFAULT)
    belief = SlotBelief(**{name: getattr(arrays, name) for name in shapes(family.dims)})
    centres = choose._centres(belief, low, high)
    inside = (centres[:, :E] > low) & (centres[:, :E] < high)
    bowl = experts_of(family.dims, family.tuners, belief)
    return (belief.weights[:, None] @ choose._experts_at(family.dims, belief, u[None], centres, inside, bowl)[2])[0, 0]


@BOTH
def test_an_observation_is_worth_more_where_less_is_known_and_nothing_where_the_optimum_is_at_the_edge():
    family, _ = taught(25, lambda point: bowl(point) + 0.1 * np.random.default_rng(int(1e6 * point[0])).normal())
    near, far = worths(family, np.array([[0.4, -0.2], [1.0, 1.4]]))
    assert 0.0 < near < far
    edge, _ = taught(25, lambda point: float(point.sum()))
    assert worths(edge, np.array([[0.4, -0.2]]))[0] == pytest.approx(0.0, abs=1e-12)


def test_the_longer_the_horizon_the_farther_it_looks(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)  # compiled code has its own horizon
    rng = np.random.default_rng(0)
    belief = taught(12, lambda point: bowl(point) + 0.3 * rng.normal())[0].believe(np.zeros(1))
    expected = []
    for steps in (0.0, 10.0, 1000.0):
        monkeypatch.setattr(choose, "HORIZON_STEPS", steps)
        expected.append(belief.choose(np.random.default_rng(1)).mean)
    assert expected[0] <= expected[1] < expected[2]


@BOTH
def test_two_metrics_without_noise_that_take_few_values_go_on():
    """Rounded answers are fitted exactly: a curvature of zero must not be divided by."""
    tuner, rng = Tuner({f"x{i}": Float(0.0, 1.0) for i in range(5)}, {"a": "max", "b": "min"}), np.random.default_rng(0)
    for _ in range(40):
        s = tuner.ask()
        value = round(float(rng.random()), 1)
        tuner.tell(s.id, {"a": 1e-12 * value, "b": 1e-12 * (value + 3.0)})
    assert np.isfinite(tuner.expected_of_default())


def test_a_curvature_of_nothing_is_tiny_instead():
    dims = Dims(2, 0, 1)
    G = np.zeros((1, 5, 5))
    G[0, 0, 0] = 3.0
    prior = pooled_prior.prior(dims, blank(dims, 1, start(dims)))
    assert 0.0 < pooled_prior.estimate(prior, G, 1e30 * np.eye(5)[:1], np.zeros(1), np.zeros(1))[0] < np.inf


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_a_default_at_the_edge_of_its_range_is_left(edge):
    """Nothing is known of the only way in which such a knob can move: that is worth a look."""
    rng = np.random.default_rng(0)
    tuner = Tuner({name: Float(0, 1) for name in "xyz"}, {"loss": "min"}, None, {"x": edge, "y": 0.5, "z": edge})
    losses = []
    for _ in range(60):
        s = tuner.ask()
        losses.append(sum((value - 0.6) ** 2 for value in s.params.values()))
        tuner.tell(s.id, {"loss": 1.0 + losses[-1] + 0.01 * rng.normal()})
    assert np.mean(losses[40:]) < 0.1 * losses[0]
