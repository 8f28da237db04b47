"""The bookkeeping of B tuners at once is that of B single ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner import Metric
from rasp_tuner.base.state_checks import Field
from rasp_tuner.engine.budget import BudgetLedger
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.metric_evidence import changes, leaps, observe_extreme, says_nothing
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Against, Calibration
from rasp_tuner.engine.scalar_or_batch import Floats, erfc, found_among, numbers_of, restored, saved
from rasp_tuner.engine.scale import levels_apart
from rasp_tuner.errors import SnapshotError

B, STEPS = 7, 60
METRICS = {
    "open": {"ms": "min"},
    "open, more is better": {"tps": "max"},
    "linear": {"ms": Metric("min", scale="linear")},
    "log": {"tps": Metric("max", scale="log")},
    "several": {"ms": "min", "tps": Metric("max", weight=3.0), "mb": Metric("min", scale="log")},
}


class Close:
    """What equals numbers to twelve digits: pytest.approx takes ten times as long, and most of these tests' time."""

    __array_ufunc__ = None  # an array leaves the comparison to it

    def __init__(self, numbers):
        self.numbers = np.array(numbers, dtype=np.float64)

    def __eq__(self, other):
        other = np.asarray(other)
        return other.shape == self.numbers.shape and np.allclose(other, self.numbers, rtol=1e-12, atol=1e-300)

    def __repr__(self):
        return f"close to {self.numbers!r}"


def close(numbers):
    return Close(numbers)


def one_of(state, i):
    """The state of tuner i, out of that of all."""
    return {name: array[..., i] for name, array in state.items()}


def assert_same_states(together, singles):
    for i, single in enumerate(singles):
        for name, array in single.state().items():
            assert one_of(together.state(), i)[name] == close(array), name


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100), st.booleans())
def test_functions_of_floats_are_those_of_arrays(a, b, condition):
    x, y = np.array([a]), np.array([b])
    for name in ("minimum", "maximum"):
        assert getattr(Floats, name)(a, b) == getattr(np, name)(x, y)[0]
    for low, high in ((None, b), (b, None), (-abs(b), abs(b))):
        assert Floats.clip(a, low, high) == np.clip(x, low, high)[0]
    assert Floats.where(condition, a, b) == np.where([condition], x, y)[0]
    assert Floats.logical_not(condition) == np.logical_not([condition])[0]
    assert Floats.any(condition) is Floats.all(condition) is condition


def test_a_number_knows_its_functions():
    assert numbers_of(1.0) is numbers_of(3) is numbers_of(np.float64(2.0)) is Floats
    assert numbers_of(np.ones(2)) is np


def test_the_error_function_is_accurate_where_it_is_tiny():
    x = np.array([-30.0, -1.0, 0.0, 0.5, 5.0, 26.0])
    assert np.asarray(erfc(x)) == close([math.erfc(value) for value in x])


def test_numbers_are_saved_and_restored():
    numbers = [np.arange(3.0), np.ones(3)]
    assert saved(numbers).tolist() == [[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]
    fields = {"two": Field((2,), 0.0, 2.0), "one": Field((), 1.0, 1.0)}
    read = restored({"two": saved(numbers), "one": saved(numbers[1:])[0]}, fields, numbers[0])
    assert saved(read["two"]).tolist() == saved(numbers).tolist()
    assert saved(read["one"]).tolist() == [[1.0, 1.0, 1.0]]
    with pytest.raises(SnapshotError, match=r"'one' must hold numbers from 1 to 1, got 0.0"):
        restored({"two": saved(numbers), "one": saved(numbers)[0]}, fields, numbers[0])


def test_numbers_of_one_tuner_are_restored_as_floats():
    fields = {"all": Field((3,)), "one": Field(())}
    state = {"all": saved([1.0, True, 3]), "one": saved([2.0])[0, ...]}
    assert restored(state, fields, 0.0) == {"all": [1.0, 1.0, 3.0], "one": [2.0]}


def test_only_the_tuners_in_question_are_looked_at():
    seen = []

    def large(values):
        seen.append(values.shape[0])
        return values[:, 0] > 1.0

    values, asked = np.array([[0.0], [2.0], [3.0], [4.0]]), np.array([True, True, False, True])
    assert found_among(asked, large, values).tolist() == [False, True, False, True]
    assert not found_among(asked & False, large, values).any()
    assert found_among(True, large, values[1])
    assert not found_among(False, large, values[1])
    assert seen == [3, 1]


@pytest.mark.parametrize("seed", range(3))
def test_budgets_of_many(seed):
    rng = np.random.default_rng(seed)
    singles, together = [BudgetLedger(0.02) for _ in range(B)], BudgetLedger.of_many(0.02, np.zeros(B))
    for _ in range(STEPS):
        price, deviation, told = 2.0 * rng.normal(size=B), rng.exponential(size=B), rng.random(B) < 0.8
        allowed = together.allows(price, deviation).tolist()
        assert allowed == [
            one.allows(*at) for one, *at in zip(singles, price.tolist(), deviation.tolist(), strict=True)
        ]
        together.record(price, told)
        for i in np.flatnonzero(told):
            singles[i].record(float(price[i]))
        assert np.asarray(together.left(together.steps)) == close([one.left(one.steps) for one in singles])
    assert_same_states(together, singles)
    again = BudgetLedger.of_many(0.02, np.zeros(B))
    again.restore(together.state())
    for name, array in together.state().items():
        assert again.state()[name].tolist() == array.tolist(), name


def test_comparisons_of_many():
    rng = np.random.default_rng(0)
    level, mean, expected, y = rng.normal(size=(4, B))
    deviation, own, default, noise = rng.exponential(size=(4, B))
    deviation[:3], mean[:3] = 0.0, (-0.1, 0.0, 0.1)
    together = Against(level, mean, deviation, expected, (own, default))
    singles = [
        Against(*map(float, (level[i], mean[i], deviation[i], expected[i])), (float(own[i]), float(default[i])))
        for i in range(B)
    ]
    assert np.asarray(together.better) == close([one.better for one in singles])
    assert [one.better for one in singles[:3]] == [1.0, 0.0, 0.0]
    after = [one.after(float(y[i]), float(noise[i])) for i, one in enumerate(singles)]
    assert np.asarray(together.after(y, noise)) == close(after)


def test_calibrations_of_many():
    rng = np.random.default_rng(0)
    singles, together = [Calibration() for _ in range(B)], Calibration(np.ones(B))
    for _ in range(STEPS):
        surprise, told = 3.0 * rng.exponential(size=B), rng.random(B) < 0.8
        together.observe(surprise, told)
        for i in np.flatnonzero(told):
            singles[i].observe(float(surprise[i]))
    assert_same_states(together, singles)


def values_of(rng, step, metrics):
    """[K, B] positive values; those of some tuners fall below zero, leap, or change their level, where they may."""
    values = np.exp(0.3 * rng.normal(size=(len(metrics), B)) + 2.0 * (step // 5 % 2) * (np.arange(B) == 4))
    if metrics is METRICS["log"]:
        return values
    values[0, 1] *= 1e4 if step in (20, 22) else 1.0
    values[0, 2] *= -1.0 if step in (10, 12) else 1.0
    values[0, 6] *= 1e4 if step == 40 else 1.0
    values[0, 3] -= 2.0
    return values


@pytest.mark.parametrize("logs_first", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_objectives_of_many(name, logs_first):
    metrics, rng = METRICS[name], np.random.default_rng(3)
    singles = [Objective(metrics, logs_first=logs_first) for _ in range(B)]
    together = Objective(metrics, logs_first=logs_first, zero=np.zeros(B))
    bounds, own_bounds = LossBounds(together.logs, B), [LossBounds(together.logs, 1) for _ in range(B)]
    for step in range(STEPS):
        values, told = values_of(rng, step, metrics), rng.random(B) < 0.8
        losses = together.losses_of(list(values))
        bounds.observe(losses, told)
        leap = leaps(together, bounds, losses) & (np.arange(B) == 6)
        extreme = observe_extreme(together, bounds, leap, told)
        nothing = says_nothing(together, losses)
        gaps = rng.exponential(size=(2, B))
        causes = changes(together, losses, bounds, *gaps)
        changed = together.observe(losses, told)
        level, gap = rng.normal(size=(2, B))
        together.observe_level(level, told & (np.arange(B) != 5))
        for i, single in enumerate(singles):
            own = single.to_minimise(dict(zip(metrics, values[:, i].tolist(), strict=True)))
            assert np.asarray(losses)[i] == close(own)
            if told[i]:
                own_bounds[i].observe(own[None], np.ones(1, dtype=bool))
                assert bool(extreme[i]) == observe_extreme(single, own_bounds[i], bool(leap[i]))
                assert bool(nothing[i]) == says_nothing(single, own)
                for many, one in zip(causes, changes(single, own, own_bounds[i], *gaps[:, i].tolist()), strict=True):
                    assert [np.broadcast_to(number, B)[i] for number in (*many, many.large)] == close([*one, one.large])
                assert bool(changed[i]) == single.observe(own)
                if i != 5:
                    single.observe_level(float(level[i]))
            else:
                assert not extreme[i]
                assert not changed[i]
        assert np.asarray(together.weights) == close([single.weights for single in singles])
        failures = [single.of_failure(at) for single, at in zip(singles, level.tolist(), strict=True)]
        assert np.asarray(together.of_failure(level)) == close(failures)
        both = list(zip(singles, gap.tolist(), level.tolist(), strict=True))
        assert np.asarray(together.relative(gap, level)) == close([s.relative(a, b) for s, a, b in both])
        assert np.asarray(together.own_units(gap)) == close([s.own_units(a) for s, a, _ in both])
    assert_same_states(together, singles)
    again = Objective(metrics, logs_first=logs_first, zero=np.zeros(B))
    again.restore(together.state())
    assert np.asarray(again.weights).tolist() == np.asarray(together.weights).tolist()
    singles[1].restore(one_of(together.state(), 0))
    assert singles[1].weights == close(np.asarray(together.weights)[0])


def samples(rng, n):
    """Contexts [n, 2] and logarithms [n] of a metric, on levels that may differ by far."""
    contexts, points = rng.normal(size=(n, 2)), rng.random((n, 3))
    apart, deep, noise = rng.choice([0.1, 3.0]), rng.choice([0.3, 6.0]), rng.choice([0.01, 0.2])
    contexts[:, 0] += 9.0 * (contexts[:, 0] > 0.0)
    levels = apart * (contexts[:, 0] > 0.0)
    return contexts, levels + deep * ((points - 0.4) ** 2).sum(axis=1) + noise * rng.normal(size=n)


def test_scales_of_many():
    """Samples that are not in use may hold anything, and their places too."""
    rng, n, tuners = np.random.default_rng(0), 64, 60
    contexts, logs = np.full((tuners, n, 2), 1e50), np.full((tuners, n), 1e9)
    used, single = np.zeros((tuners, n), dtype=bool), []
    for i, count in enumerate(rng.integers(10, n + 1, size=tuners)):
        at, (x, y) = np.sort(rng.permutation(n)[:count]), samples(rng, count)
        contexts[i, at], logs[i, at] = x, y
        used[i, at] = True
        single.append(bool(levels_apart(x[None], y[None], np.ones((1, count), dtype=bool))[0]))
    assert levels_apart(contexts, logs, used).tolist() == single
    assert 0 < sum(single) < tuners


def test_the_scales_of_many_are_chosen_as_those_of_each():
    rng, n = np.random.default_rng(1), 40
    singles = [Objective({"ms": "min"}) for _ in range(B)]
    together = Objective({"ms": "min"}, zero=np.zeros(B))
    for step in range(10):
        own = [samples(rng, n) for _ in range(B)]
        contexts, logs = (np.stack(part) for part in zip(*own, strict=True))
        losses = np.stack([np.exp(logs), logs], axis=2)
        levels, looked = rng.normal(size=B), rng.random(B) < 0.7
        together.observe_level(np.exp(2.0 * levels))
        used = np.ones((B, n), dtype=bool)
        changed = together.choose_scale(contexts, losses, used, looked).tolist()
        for i, single in enumerate(singles):
            single.observe_level(float(np.exp(2.0 * levels[i])))
            expected = bool(looked[i]) and single.choose_scale(contexts[i], losses[i])
            assert changed[i] == expected, (step, i)
    assert np.asarray(together.weights).tolist() == [single.weights.tolist() for single in singles]
