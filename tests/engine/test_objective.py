import numpy as np
import pytest

from rasp_tuner import InvalidValue, Metric
from rasp_tuner.engine.objective import Objective


def test_metrics_become_losses_where_lower_is_better():
    objective = Objective({"ms": "min", "tps": Metric("max", weight=3.0)})
    assert objective.to_minimise({"tps": 5.0, "ms": 2.0}).tolist() == [2.0, -5.0]
    assert objective.weights.tolist() == [0.25, 0.75]
    with pytest.raises(InvalidValue, match="lacks"):
        objective.to_minimise({"ms": 2.0})
    assert objective.seen == 0


def test_the_target_of_one_metric_is_that_metric():
    objective = Objective({"ms": Metric("min", weight=7.0)})
    for value in (1.0, 5.0, 100.0, -3.0):
        assert not objective.observe(objective.to_minimise({"ms": value}))
    assert objective.weights.tolist() == [1.0]


def test_several_metrics_are_weighed_by_their_deviation_looked_at_when_samples_double():
    objective, rng = Objective({"a": "min", "b": "min"}), np.random.default_rng(0)
    values = rng.normal(size=(40, 2)) * [1.0, 1000.0] + [0.0, 5e4]
    changed = [objective.observe(objective.to_minimise({"a": a, "b": b})) for a, b in values]
    assert [i + 1 for i, did in enumerate(changed) if did] == [2, 4, 8, 16, 32]
    assert objective.weights == pytest.approx(0.5 / values[:32].std(axis=0))


def test_a_constant_metric_does_not_divide_by_zero():
    objective = Objective({"a": "min", "b": "min"})
    for value in range(8):
        objective.observe(objective.to_minimise({"a": float(value), "b": 0.1}))
    assert objective.weights[1] == 0.5


def test_a_failure_is_a_deviation_worse_than_the_worst():
    objective = Objective({"a": "min", "b": "max"})
    values = np.array([[1.0, 4.0], [3.0, 2.0], [2.0, 9.0]])
    for a, b in values:
        objective.observe(objective.to_minimise({"a": a, "b": b}))
    assert objective.worst() == pytest.approx(np.array([3.0, -2.0]) + values.std(axis=0))


def test_weights_may_change_for_some_metrics_and_bad_ones_change_nothing():
    objective = Objective({"a": "min", "b": "max"})
    objective.reweigh({"b": 3.0})
    assert objective.weights.tolist() == [0.25, 0.75]
    bad = [
        ({"c": 1.0}, "no metric 'c'"),
        ({"a": 2.0, "b": -1.0}, "weights.'b'"),
        ([1.0], "must map"),
        (None, "must map"),
    ]
    for weights, says in bad:
        with pytest.raises(InvalidValue, match=says):
            objective.reweigh(weights)
    assert objective.weights.tolist() == [0.25, 0.75]
    assert objective.metrics["b"] == Metric("max", 3.0)


def test_an_objective_restored_is_the_same():
    objective, other = (Objective({"a": "min", "b": "max"}) for _ in range(2))
    for t in range(11):
        objective.observe(objective.to_minimise({"a": t**2, "b": -t}))
    other.restore({name: array.copy() for name, array in objective.state().items()})
    for part in (objective, other):
        for t in range(11):
            part.observe(part.to_minimise({"a": -t, "b": t**2}))
    assert np.array_equal(objective.weights, other.weights)
    assert np.array_equal(objective.worst(), other.worst())
    assert objective.seen == other.seen == 22


def test_a_metric_that_differs_by_rounding_alone_does_not_outweigh_the_other():
    objective = Objective({"a": "min", "b": "min"})
    for a, b in ((0.1 + 0.2, 5.0), (0.3, 7.0)):
        objective.observe(objective.to_minimise({"a": a, "b": b}))
    assert objective.weights.tolist() == [0.5, 0.5]
