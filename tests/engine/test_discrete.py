import numpy as np
import pytest
from teaching import teach

from rasp_tuner import Categorical, Int, Tuner
from rasp_tuner.engine.discrete.belief import BASELINE, SETTLED
from rasp_tuner.engine.discrete.family import DiscreteFamily
from rasp_tuner.engine.discrete.here import knowledge_gradient
from rasp_tuner.engine.discrete.target import warped

LEVELS = [np.linspace(0.0, 1.0, n) for n in (2, 2, 5, 9)] + [(np.arange(4) + 0.5) / 4, None]
UNORDERED = [False, False, False, False, True, False]
DEFAULT = np.array([0.0, 1.0, 0.5, 0.5, 0.125, 0.5])
FIRST_LOOK = "first look at a knob"
CONTEXTS = np.array([[0.0, 3.0], [2.0, -1.0], [-1.0, 1.0]])


def family(**constants):
    made = DiscreteFamily(LEVELS, UNORDERED, DEFAULT, 2, **constants)
    made.reweigh(np.ones(1))
    return made


def loss(point, context):
    """Main effects, an interaction, and a share that depends on the context."""
    third = abs(point[2] - (0.25 if context[0] > 0.5 else 0.75))
    return float(point[0] * (0.5 - point[1]) + third + (point[3] - 0.25) ** 2 + 0.3 * (point[4] > 0.5) + 0.2 * point[5])


def random_point(rng):
    return np.array([rng.uniform() if own is None else rng.choice(own) for own in LEVELS])


def chosen_point(made, context, rng):
    """What it would try next; the default before anything is known, as the engine has it."""
    return made.believe(context).choose(rng).point if made.samples else made._knobs.default


def play(made, steps, seed=0, first=0, turn=lambda y: y, look=lambda context: context, failing=None):
    """Points chosen [steps, d] on a stream of three contexts that come back in blocks of seven."""
    chosen = []
    for t in range(first, first + steps):
        context = CONTEXTS[t // 7 % 3] + 0.05 * np.random.default_rng([seed, t]).normal(size=2)
        point = chosen_point(made, look(context), np.random.default_rng([seed, t, 1]))
        failed = failing is not None and failing(point)
        y = 5.0 if failed else loss(point, context)
        teach(made, point, look(context), np.array([turn(y)]), failed)
        chosen.append(point)
    return np.array(chosen)


def taught(samples, contexts=CONTEXTS, seed=0, made=None, **constants):
    """A family that has seen random points in all of some contexts."""
    made, rng = made or family(**constants), np.random.default_rng(seed)
    for t in range(samples):
        point, context = random_point(rng), contexts[t % len(contexts)]
        teach(made, point, context, np.array([loss(point, context)]), False)
    return made


def test_nothing_is_best_before_anything_is_known():
    assert family().believe(CONTEXTS[0]).best() is None


def test_what_was_never_tried_is_expected_to_be_worse_the_further_it_is_from_the_default():
    made = family()
    teach(made, DEFAULT, CONTEXTS[0], np.array([3.0]), False)
    near, far = DEFAULT.copy(), DEFAULT.copy()
    near[2], far[[2, 3, 4]] = 0.75, (1.0, 0.0, 0.875)
    means = made.believe(CONTEXTS[0]).predict(np.array([DEFAULT, near, far]))[0]
    assert means[0] < means[1] < means[2]


def test_choices_are_legal_and_their_sources_are_named():
    made, sources = family(), set()
    for t in range(80):
        point, source, *_ = made.believe(CONTEXTS[t % 3]).choose(np.random.default_rng(t))
        sources.add(source)
        assert np.all((point >= 0.0) & (point <= 1.0))
        assert all(own is None or u in own for own, u in zip(LEVELS, point, strict=True))
        teach(made, point, CONTEXTS[t % 3], np.array([loss(point, CONTEXTS[t % 3])]), False)
    looks = {FIRST_LOOK, BASELINE, "first look at a level"}
    assert sources <= looks | {SETTLED, "elite", "default", "mutation", "crossover", "main effects"}
    assert len(sources) >= 3


def test_finds_better_points_than_random_search():
    ours, others, best, luck = [], [], [], []
    for seed in range(8):
        made, rng = family(), np.random.default_rng(seed)
        chosen = play(made, 90, seed)
        ours += [loss(point, CONTEXTS[t // 7 % 3]) for t, point in enumerate(chosen)][45:]
        others += [loss(random_point(rng), CONTEXTS[t // 7 % 3]) for t in range(90)]
        best += [loss(made.believe(context).best(), context) for context in CONTEXTS]
        luck += [min(loss(random_point(rng), context) for _ in range(30)) for context in CONTEXTS]
    assert np.mean(ours) < np.mean(others) - 0.9  # once it has learned
    assert np.mean(best) < np.mean(luck)


def test_contexts_get_different_answers():
    made = taught(120)
    points = np.array([[1.0, 1.0, 0.25, 0.25, 0.125, 0.0], [1.0, 1.0, 0.75, 0.25, 0.125, 0.0]])
    first, second = (made.believe(context).predict(points)[0] for context in CONTEXTS[:2])
    assert first[0] > first[1]
    assert second[0] < second[1]


def test_what_holds_everywhere_is_known_in_a_new_context():
    good, bad = [0.0, 1.0, 0.5, 0.25, 0.125, 0.0], [0.0, 1.0, 0.5, 1.0, 0.875, 1.0]
    mean, _ = taught(120).believe(np.array([8.0, 8.0])).predict(np.array([good, bad]))
    assert mean[0] < mean[1] - 0.5  # the true gap is 1.06


def test_predictions_are_in_units_of_y():
    made = family()
    play(made, 100)
    belief = made.believe(CONTEXTS[0])
    points = np.array([belief.best(), DEFAULT])
    mean, variance = belief.predict(points)
    assert mean.shape == variance.shape == (2,)
    truth = [loss(point, CONTEXTS[0]) for point in points]
    assert np.all(np.abs(mean - truth) < 0.1 + 3.0 * np.sqrt(variance))
    assert np.all(variance < 0.5)
    assert 0.0 < belief.noise < 0.1


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_log_density_is_a_density_over_y(scale):
    made = family()
    play(made, 40, turn=lambda y: scale * y + 3.0)
    belief = made.believe(CONTEXTS[1])
    mean, variance = (float(a[0]) for a in belief.predict(DEFAULT[None]))
    near = mean + np.sqrt(variance + belief.noise) * np.linspace(-20.0, 20.0, 2001)
    y = np.sort(np.concatenate([near, scale * np.linspace(-30.0, 200.0, 5001) + 3.0]))
    heights = np.exp([float(belief.forecast(DEFAULT, value).log_densities[0]) for value in y])
    area = float(((heights[1:] + heights[:-1]) / 2.0) @ np.diff(y))
    assert area == pytest.approx(1.0, abs=0.03)


def test_an_outlier_costs_a_bounded_density():
    made = family()
    play(made, 40)
    assert made.believe(CONTEXTS[0]).forecast(DEFAULT, 1e6).log_densities[0] > -100.0


@pytest.mark.parametrize(("scale", "shift"), [(1000.0, 500.0), (1e-3, 0.0), (1e-90, 0.0), (1e90, 0.0)])
def test_scale_and_shift_of_y_change_no_choice(scale, shift):
    plain = play(family(), 60)
    np.testing.assert_allclose(play(family(), 60, turn=lambda y: scale * y + shift), plain, atol=1e-6)


def test_units_of_the_context_change_no_choice():
    plain = play(family(), 60)
    units, shift = np.array([1e4, 1e-4]), np.array([-3.0, 5.0])
    np.testing.assert_allclose(play(family(), 60, look=lambda c: units * c + shift), plain, atol=1e-6)


def test_reweigh_takes_effect_on_all_history():
    made = family()
    rng = np.random.default_rng(0)
    for _ in range(60):
        point = random_point(rng)
        teach(made, point, CONTEXTS[0], np.array([point[0], 1.0 - point[0]]), False)
    for weights, best in (([1.0, 0.0], 0.0), ([0.0, 1.0], 1.0), ([2.0, 1.0], 0.0)):
        made.reweigh(np.array(weights))
        assert made.believe(CONTEXTS[0]).best()[0] == best


def test_believe_is_pure_and_a_belief_outlives_learning():
    made, untouched = taught(30, capacity=20), taught(30, capacity=20)  # full: from now on rows are replaced
    before = made.state()
    belief = made.believe(CONTEXTS[0])
    seen = belief.predict(DEFAULT[None]), belief.forecast(DEFAULT, 1.0).log_densities, belief.best()
    belief.choose(np.random.default_rng(0))
    for name, array in made.state().items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(play(made, 20, first=30), play(untouched, 20, first=30))
    taught(30, made=made)  # replaces every row
    np.testing.assert_array_equal(belief.predict(DEFAULT[None]), seen[0])
    np.testing.assert_array_equal(belief.forecast(DEFAULT, 1.0).log_densities, seen[1])
    np.testing.assert_array_equal(belief.best(), seen[2])


@pytest.mark.parametrize("steps", [0, 1, 37, 120])
def test_a_restored_family_goes_on_bit_by_bit(steps):
    made = family(capacity=60)
    play(made, steps)
    state = made.state()
    assert all(array.dtype == np.float64 and np.all(np.isfinite(array)) for array in state.values())
    other = family(capacity=60)
    play(other, 5, seed=9)
    other.restore(state)
    np.testing.assert_array_equal(
        other.believe(CONTEXTS[0]).predict(DEFAULT[None]), made.believe(CONTEXTS[0]).predict(DEFAULT[None])
    )
    np.testing.assert_array_equal(play(other, 40, first=steps), play(made, 40, first=steps))
    for name, array in made.state().items():
        np.testing.assert_array_equal(array, other.state()[name])


def test_memory_is_bounded_and_what_was_best_is_kept():
    for seed in range(4):
        made = taught(30, CONTEXTS[:1], seed, capacity=40)
        best = min(made.state()["points"].tolist(), key=lambda point: loss(point, CONTEXTS[0]))
        taught(200, CONTEXTS[1:2], seed + 10, made)  # the first context stays away for long
        assert len(made.state()["points"]) == 40
        assert all(array.size <= 40**2 for array in made.state().values())
        assert best in made.state()["points"].tolist()


def test_equal_points_of_a_similar_context_share_a_row():
    made = family()
    for t in range(30):
        teach(made, DEFAULT, CONTEXTS[0] + 0.01 * np.sin(t), np.array([1.0]), False)
    assert len(made.state()["points"]) < 15  # the first few come before a context's spread is known


def test_failed_points_are_avoided_where_they_failed():
    def failing(point):
        return point[0] == 1.0

    made = family()
    chosen = play(made, 120, failing=failing)
    assert np.mean([failing(point) for point in chosen[60:]]) < 0.1
    assert not any(failing(made.believe(context).best()) for context in CONTEXTS)


def test_the_only_point_ever_tried_failed():
    made = DiscreteFamily([np.array([0.0, 1.0])], [False], np.array([0.0]), 0)
    made.reweigh(np.ones(1))
    teach(made, np.array([0.0]), np.zeros(0), np.array([1.0]), True)
    belief = made.believe(np.zeros(0))
    assert belief.best() is None
    for seed in range(20):
        point, *_ = belief.choose(np.random.default_rng(seed))
        assert point[0] == 1.0


def test_a_point_that_failed_elsewhere_is_not_recommended():
    made, other = family(), np.array([1.0, 1.0, 0.5, 0.5, 0.125, 0.5])
    teach(made, DEFAULT, CONTEXTS[0], np.array([1.0]), True)
    teach(made, other, CONTEXTS[1], np.array([2.0]), False)
    np.testing.assert_array_equal(made.believe(CONTEXTS[1]).best(), other)


def test_a_point_that_works_again_is_recommended_again():
    made = family()
    for failed in (True, True, False):
        teach(made, DEFAULT, CONTEXTS[0], np.array([1.0]), failed)
    np.testing.assert_array_equal(made.believe(CONTEXTS[0]).best(), DEFAULT)


@pytest.mark.parametrize(
    ("levels", "unordered", "context_dim"),
    [
        ([np.array([0.0, 1.0])], [False], 0),
        ([None], [False], 1),
        ([np.linspace(0.0, 1.0, 64)], [False], 2),
        ([(np.arange(3) + 0.5) / 3], [True], 768),
        ([None, np.array([0.0, 1.0])], [False, False], 0),
    ],
)
def test_small_spaces_and_any_context_work(levels, unordered, context_dim):
    default = np.array([0.5 if own is None else own[0] for own in levels])
    for answer in (lambda _: 7.0, lambda point: float(point.sum()), lambda point: 1e100 * float(point.sum() - 0.5)):
        made = DiscreteFamily(levels, unordered, default, context_dim)
        made.reweigh(np.ones(1))
        for t in range(45):
            context = np.full(context_dim, 3.0) if t < 20 else np.random.default_rng(t).normal(size=context_dim)
            belief = made.believe(context)
            point, *_ = belief.choose(np.random.default_rng(t))
            mean, variance = belief.predict(point[None])
            numbers = [mean[0], variance[0], belief.noise, belief.forecast(point, answer(point)).log_densities[0]]
            assert np.all(np.isfinite(numbers))
            teach(made, point, context, np.array([answer(point)]), False)


def test_extreme_values_leave_everything_finite():
    made = family()
    rng = np.random.default_rng(0)
    for _ in range(60):
        y = rng.standard_cauchy() * 10.0 ** rng.uniform(-100.0, 100.0)
        context = rng.standard_cauchy(size=2) * 10.0 ** rng.uniform(-100.0, 100.0)
        belief = made.believe(context)
        point, *_ = belief.choose(rng)
        assert np.all(np.isfinite(belief.predict(point[None])))
        assert np.isfinite(belief.forecast(point, y).log_densities[0])
        teach(made, point, context, np.array([y]), False)
    assert all(np.all(np.isfinite(array)) for array in made.state().values())


def test_the_inverse_stays_one_through_merges_and_replacements():
    made = family(capacity=50)
    play(made, 200)
    belief = made.believe(CONTEXTS[0])
    _, variance = belief.predict(made.state()["points"])
    assert np.all(variance >= 0.0)
    assert np.linalg.eigvalsh(made.state()["inverse"]).min() > 0.0


def test_hyperparameters_are_learned():
    """Knobs differ in how much they matter and there is no noise: predictions become sharper than with fixed ones."""
    rng = np.random.default_rng(5)
    held_out = [(random_point(rng), CONTEXTS[i % 3]) for i in range(40)]

    def score(made):
        return np.mean([made.believe(c).forecast(p, loss(p, c)).log_densities[0] for p, c in held_out])

    assert score(taught(100)) > score(taught(100, loose=1e-6)) + 0.5


def test_what_is_bad_is_compressed():
    made = taught(40, CONTEXTS[:1])
    usual = made._target()[0].max()
    point = random_point(np.random.default_rng(9))
    teach(made, point, CONTEXTS[0], np.array([1e6]), False)  # 6 deviations of all from the median
    assert usual < 4.0
    assert made._target()[0].max() < 4.0
    values = np.array([-3.0, 0.0, 1e-6, 2.0, 1e6])
    expected = [-3.0, 0.0, 1e-6, 2.0 * np.log(2.0), 2.0 * np.log(1.0 + 5e5)]
    np.testing.assert_allclose(warped(values, 2.0), expected, rtol=1e-6)


def test_a_row_follows_what_drifts():
    made, rng = family(), np.random.default_rng(0)
    for t in range(60):
        point = DEFAULT if t % 2 else random_point(rng)
        level = 0.0 if t < 36 else 2.0
        teach(made, point, CONTEXTS[0], np.array([level + loss(point, CONTEXTS[0])]), False)
    now = made.believe(CONTEXTS[0]).predict(DEFAULT[None])[0][0] - loss(DEFAULT, CONTEXTS[0])
    assert now > 1.2  # the mean of all its thirty samples is 0.8


def noisy(tuner, steps, noise, seed=0, size=1.0):
    """What was suggested, where knob k0 is all that matters."""
    rng, asked = np.random.default_rng(seed), []
    for _ in range(steps):
        s = tuner.ask()
        tuner.tell(s.id, {"loss": size * (1.0 + 0.3 * (s.params["k0"] - 1) + noise * rng.normal())})
        asked.append(s)
    return asked


FIVE = {f"k{i}": Int(1, 3) for i in range(4)} | {"c": Categorical(["a", "b", "c"])}
TODAY = dict.fromkeys(list(FIVE)[:4], 2) | {"c": "a"}


@pytest.mark.parametrize("seed", range(3))
def test_first_every_knob_is_moved_once(seed):
    tuner = Tuner(FIVE, {"loss": "min"}, default=TODAY, seed=seed)
    asked = noisy(tuner, 1 + len(FIVE), 0.0)
    assert asked[0].params == TODAY
    moved = {name for name in FIVE for s in asked if s.params[name] != TODAY[name]}
    assert moved == set(FIVE)
    assert {tuner.explain(s.id).source for s in asked[1:]} == {FIRST_LOOK}
    assert tuner.explain(tuner.ask().id).source != FIRST_LOOK


def test_a_first_look_is_not_repeated_at_a_point_that_failed():
    tuner = Tuner({"a": Int(1, 2), "b": Int(1, 3)}, {"loss": "min"}, default={"a": 1, "b": 2})
    tuner.tell(tuner.ask().id, {"loss": 1.0})
    for _ in range(12):
        s = tuner.ask()
        if s.params["a"] == 2:
            tuner.tell_failed(s.id, "no")
        else:
            tuner.tell(s.id, {"loss": 1.0})
    assert tuner.ask().params["a"] == 1


def test_what_one_look_is_worth():
    mean = np.array([1.0, 1.1, 5.0])
    known, unsure, far = np.zeros((3, 3)), np.diag([0.0, 0.5, 0.0]), np.diag([0.0, 0.0, 0.5])
    assert knowledge_gradient(mean, known, 0.1) == pytest.approx(np.zeros(3), abs=1e-9)
    value = knowledge_gradient(mean, unsure, 0.1)
    assert value[1] > 0.1
    assert value[[0, 2]] == pytest.approx(np.zeros(2), abs=1e-9)  # nothing is learned of what is known
    assert knowledge_gradient(mean, far, 0.1)[2] < 1e-6  # what is far worse is not worth a look
    assert knowledge_gradient(mean, unsure, 10.0)[1] < value[1]  # noise hides the outcome


@pytest.mark.parametrize("seed", range(20))
def test_knowledge_is_never_worth_less_than_nothing(seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(12, 1 + seed % 12)) * 10.0 ** rng.integers(-6, 3)
    value = knowledge_gradient(rng.normal(size=12), root @ root.T, float(10.0 ** rng.integers(-6, 3)))
    assert np.isfinite(value).all()
    assert (value >= 0.0).all()


@pytest.mark.parametrize("noise", [0.03, 0.3])
def test_noise_is_known_from_repeats(noise):
    made, rng, points = family(), np.random.default_rng(0), [random_point(np.random.default_rng(i)) for i in range(6)]
    for t in range(90):
        point = points[t % 6]
        teach(made, point, CONTEXTS[0], np.array([loss(point, CONTEXTS[0]) + noise * rng.normal()]), False)
    assert made.believe(CONTEXTS[0]).noise == pytest.approx(noise**2, rel=0.5)


@pytest.mark.parametrize("size", [1.0, 1e-300, -1e-300, 1e300, -1e300, 0.0])
def test_without_noise_and_at_any_size_it_goes_on(size):
    tuner = Tuner(FIVE, {"loss": "min"}, default=TODAY)
    asked = noisy(tuner, 40, 0.0, size=size)
    if size == 1.0:
        assert all(s.params["k0"] == 1 for s in asked[-10:])
    assert np.isfinite(tuner.expected_of_default())
    assert Tuner.from_bytes(tuner.to_bytes()).ask().params == tuner.ask().params


def test_repeats_of_tiny_values_go_on():
    """The square of their scale is zero."""
    made, points = family(), [random_point(np.random.default_rng(i)) for i in range(3)]
    for t in range(12):
        teach(made, points[t % 3], CONTEXTS[0], np.array([1e-300 * (1.0 + t % 3 + t % 2)]), False)
    assert np.isfinite(made.believe(CONTEXTS[0]).noise)
