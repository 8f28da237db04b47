"""What three values say: ranges, bounds of contexts and losses, and which change would explain a surprise."""

import numpy as np
import pytest

from rasp_tuner.base.common_constants import FADING_SAMPLES
from rasp_tuner.base.trusted_range import TrustedRange
from rasp_tuner.contexts.context_bounds import ContextBounds
from rasp_tuner.engine.kernel.state import Dims
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.metric_evidence import by_column, changes, observe_extreme, says_nothing
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.unit_watch import H, UnitWatch

ONE = np.ones(1, dtype=bool)


def shown(values, kind=TrustedRange, *given):
    """A range of one number of one tuner that has seen these values."""
    seen = kind(*(given or (1,)), 1)
    for value in values:
        seen.observe(np.atleast_2d(np.float64(value)), ONE)
    return seen


def ends(seen):
    return seen.low[0, 0], seen.high[0, 0]


def test_the_third_value_from_either_end_is_trusted():
    values = np.random.default_rng(0).permutation(30)
    assert ends(shown(values)) == (2.0, 27.0)


@pytest.mark.parametrize("absurd", [1e9, -1e9, 65535.0])
def test_two_absurd_values_move_nothing_and_three_are_a_regime(absurd):
    values = [0.0, 1.0] * 10
    assert ends(shown([*values, absurd, absurd])) == (0.0, 1.0)
    low, high = ends(shown([*values, absurd, absurd, absurd]))
    assert absurd in (low, high)


def test_values_that_are_far_apart_in_time_do_not_count_together():
    rare = [0.0, 1.0] * int(FADING_SAMPLES / 2.0 + 1.0)
    assert ends(shown([*rare, 1e9, *rare, 1e9, *rare, 1e9, *rare])) == (0.0, 1.0)


def test_a_range_is_known_once_values_differ_and_there_are_enough():
    assert not shown([0.0, 1.0] * 5).known
    assert shown([0.0, 1.0] * 6).known
    assert not shown([3.0] * 30).known
    assert not shown([3.0] * 30 + [4.0] * 2).known
    assert shown([3.0] * 30 + [4.0] * 3).known


def test_tuners_that_are_not_told_learn_nothing():
    both, rng = TrustedRange(2, 2), np.random.default_rng(0)
    for _ in range(20):
        assert both.observe(rng.normal(size=(2, 2)), np.array([True, False])) is None or both.seen[1] == 0.0
    assert both.known.tolist() == [[True, True], [False, False]]


def test_a_merged_range_holds_both():
    one, other = shown([0.0, 1.0] * 10), shown([5.0, 6.0] * 10)
    one.merge(other)
    assert ends(one) == (0.0, 6.0)
    assert one.seen[0] == 40.0


def test_a_context_may_move_a_scale_by_one_width():
    bounds = shown([0.0, 1.0] * 10, ContextBounds)
    assert (bounds.least[0, 0], bounds.most[0, 0]) == (-1.0, 2.0)
    assert bounds.outside(np.array([[2.1]]))[0]
    constant = shown([7.0] * 20, ContextBounds)
    assert not constant.outside(np.array([[1e9]]))[0]  # no scale is known
    assert constant.new(np.array([[7.1]]))[0]


@pytest.mark.parametrize("trend", [np.arange(40.0), 1.1 ** np.arange(60.0), np.sin(np.arange(60.0) / 10.0)])
def test_contexts_with_a_trend_stay_inside(trend):
    bounds = ContextBounds(1, 1)
    for i, value in enumerate(trend):
        bounds.observe(np.array([[value]]), ONE)
        assert i < 12 or not bounds.outside(np.array([[value]]))[0]


def losses_of(value):
    return np.array([[value, np.log(value)]])


def test_a_hundred_times_as_much_is_believed_and_a_million_times_is_not():
    bounds = shown([losses_of(value) for value in [100.0, 110.0] * 10], LossBounds, [False, True])
    for value in (1e4, 20.0):
        np.testing.assert_array_equal(bounds.bounded(losses_of(value)), losses_of(value))
    worst = bounds.bounded(losses_of(1e9))[0]
    assert 1e5 < worst[0] < 2e5
    assert np.log(1e5) < worst[1] < np.log(2e5)


def test_a_metric_around_zero_is_bounded_by_its_width():
    rng = np.random.default_rng(0)
    bounds = shown([[value] for value in rng.normal(size=30)], LossBounds, [False])
    assert bounds.bounded(np.array([[100.0]])) == 100.0
    assert 100.0 < bounds.bounded(np.array([[1e9]]))[0, 0] < 1e4
    assert -1e3 < bounds.bounded(np.array([[-1e9]]))[0, 0] < -10.0


def objective_of(metrics, values, **settings):
    """An objective and its bounds, after values of its metrics."""
    objective = Objective(metrics, **settings)
    bounds = LossBounds(objective.logs, 1)
    for row in values:
        losses = objective.to_minimise(dict(zip(metrics, row, strict=True)))
        bounds.observe(losses[None], ONE)
        observe_extreme(objective, bounds, leap=False)
        if not says_nothing(objective, losses):
            objective.observe(losses)
    return objective, bounds


def test_one_value_that_is_not_positive_is_left_out_and_two_make_a_metric_linear():
    values = [[float(value)] for value in range(10, 20)]
    objective, _ = objective_of({"ms": "min"}, [*values, [-5.0], *values], logs_first=True)
    assert objective.scales == {"ms": "log"}
    assert objective.seen == 20
    objective, _ = objective_of({"ms": "min"}, [*values, [-5.0], [-4.0]], logs_first=True)
    assert objective.scales == {"ms": "linear"}
    objective, _ = objective_of({"ms": "min"}, [[3.0], [0.0]], logs_first=True)  # what is normal is not known yet
    assert objective.scales == {"ms": "linear"}


def test_two_values_fifty_times_as_large_call_for_logarithms():
    values = [[float(value)] for value in range(10, 20)]
    assert objective_of({"ms": "min"}, [*values, [1e6]])[0].scales == {"ms": "linear"}
    assert objective_of({"ms": "min"}, [*values, [1e6], [2e3]])[0].scales == {"ms": "log"}


@pytest.mark.parametrize("direction", ["min", "max"])
@pytest.mark.parametrize("logs_first", [False, True])
def test_a_change_of_the_unit_is_found_from_a_gap_in_the_target(direction, logs_first):
    rng = np.random.default_rng(0)
    objective, bounds = objective_of({"m": direction}, rng.uniform(90, 110, (20, 1)), logs_first=logs_first)
    before, after = (objective.to_minimise({"m": value}) for value in (100.0, 6000.0))
    gap = objective.target(after) - objective.target(before)
    (change,) = changes(objective, after, bounds, gap, 1.0 if not logs_first else 0.01)
    assert change.factor
    assert np.exp(change.size) == pytest.approx(60.0)
    assert change.deviation == pytest.approx(0.01)
    assert change.large
    factors, shifts = by_column(objective, np.array([60.0]), np.zeros(1))
    np.testing.assert_allclose(before * factors + shifts, after)


def test_of_several_metrics_one_that_stayed_in_its_range_is_no_cause():
    rng = np.random.default_rng(0)
    objective, bounds = objective_of({"a": "min", "b": "min"}, rng.uniform(90, 110, (32, 2)))
    before, after = (objective.to_minimise({"a": value, "b": 100.0}) for value in (100.0, 1e5))
    a, b = changes(objective, after, bounds, objective.target(after) - objective.target(before), 0.1)
    assert np.exp(a.size) == pytest.approx(1000.0)
    assert a.large
    assert not b.large


def test_a_restated_objective_is_one_that_was_told_in_the_new_unit():
    values = np.random.default_rng(0).uniform(90, 110, (32, 2))
    for metrics in ({"a": "min"}, {"a": "min", "b": "max"}):
        told = values[:, : len(metrics)]
        objective, bounds = objective_of(metrics, told)
        other, others = objective_of(metrics, told * np.array([1000.0, 1.0])[: len(metrics)])
        factors = by_column(objective, np.array([1000.0, 1.0])[: len(metrics)], np.zeros(len(metrics)))
        objective.restate(*factors)
        bounds.restate(*(array[None] for array in factors))
        for name, array in other.state().items():
            np.testing.assert_allclose(objective.state()[name], array, rtol=1e-9, err_msg=name)
        for name, array in others.state().items():
            np.testing.assert_allclose(bounds.state()[name], array, rtol=1e-9, err_msg=name)


def surprises(factors, points, watch=None):
    """A watch of one metric and one knob that was told of such changes."""
    watch = UnitWatch(Dims(1, 0, 0), 1, 1) if watch is None else watch
    rng = np.random.default_rng(0)
    objective, bounds = objective_of({"m": "min"}, rng.uniform(90, 110, (20, 1)))
    for factor, point in zip(factors, points, strict=True):
        losses = objective.to_minimise({"m": 100.0 * factor})
        found = changes(objective, losses, bounds, 100.0 * factor - 100.0, 5.0)
        watch.put_aside(np.full((1, 4), point), found, watch.agreeing(found))
    return watch


def test_changes_that_agree_at_two_settings_are_confirmed():
    watch = surprises([1000.0, 1030.0, 980.0, 1010.0, 990.0], [0.1, 0.1, 0.7, 0.1, 0.1])
    assert watch.confirmed(1)[0]
    assert watch.change()[0] == pytest.approx(1000.0, rel=0.02)
    assert watch.at_default(np.array([0.7]))[0] == 1.0


def test_changes_at_one_setting_may_be_of_the_world():
    assert not surprises([1000.0] * H, [0.1] * H).confirmed(1)[0]


def test_a_change_that_does_not_agree_is_not_put_aside():
    watch = surprises([1000.0, 1000.0, 300.0], [0.1, 0.1, 0.7])
    assert watch.count[0] == 2.0
    assert surprises([4.0], [0.1]).count[0] == 0.0  # settings do that, too
