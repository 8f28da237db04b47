import math

import numpy as np
import pytest

from rasp_tuner import InvalidSpace, InvalidValue, Metric, RealErrorComposer
from rasp_tuner.paper.composer import RescoringComposer


def test_one_metric_step_by_step():
    composer = RealErrorComposer({"ms": "min"})
    mean = 0.03 * 10.0
    sigma = math.sqrt(0.97 + 0.03 * (10.0 - mean) ** 2)
    z = (10.0 - mean) / (sigma + 1e-8)  # under the moments that have just moved
    assert composer.compose({"ms": 10.0}) == pytest.approx(1.0 / (1.0 + math.exp(-z)))


def test_higher_is_better_is_the_mirror_image():
    low, high = RealErrorComposer({"m": "min"}), RealErrorComposer({"m": "max"})
    for value in (3.0, -1.0, 4.0, 1.0, -5.0):
        assert low.compose({"m": value}) + high.compose({"m": value}) == pytest.approx(1.0)


def test_weights_average_the_badness_of_each_metric():
    both = RealErrorComposer({"a": Metric("min", weight=3.0), "b": Metric("max", weight=1.0)})
    a, b = RealErrorComposer({"a": "min"}), RealErrorComposer({"b": "max"})
    for x, y in ((1.0, 2.0), (-3.0, 0.5), (10.0, -4.0)):
        expected = (3.0 * a.compose({"a": x}) + b.compose({"b": y})) / 4.0
        assert both.compose({"a": x, "b": y}) == pytest.approx(expected)


def test_anomaly_score_tracks_the_errors_own_average():
    composer = RealErrorComposer({"m": "min"})
    for _ in range(300):
        composer.anomaly(0.5)
    assert abs(composer.anomaly(0.5)) < 0.1
    assert composer.anomaly(0.9) > 2.0


@pytest.mark.parametrize(
    "stream", [[7.0] * 2000, [0.0] * 2000, [1.0, 1e6, 1.0, -1e6] * 50, [1e308, -1e308, 5e-324] * 50]
)
def test_constant_and_wild_metrics_stay_in_the_unit_interval(stream):
    composer = RealErrorComposer({"m": "min"})
    for value in stream:
        error = composer.compose({"m": value})
        assert 0.0 <= error <= 1.0
        assert math.isfinite(composer.anomaly(error))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"a": 1.0}, r"metrics lacks \['b'\]"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, r"unknown names \['c'\]"),
        ({"a": float("nan"), "b": 2.0}, r"metrics\['a'\] must be a finite number, got nan"),
        ({"a": 1.0, "b": float("inf")}, r"metrics\['b'\] must be a finite number, got inf"),
        ({"a": 1.0, "b": "2"}, r"metrics\['b'\]"),
        ({"a": 1.0, "b": None}, r"metrics\['b'\]"),
        ([1.0, 2.0], "must be a mapping"),
        (None, "must be a mapping"),
    ],
)
def test_bad_metrics_are_refused_and_nothing_moves(values, says):
    composer = RealErrorComposer({"a": "min", "b": "max"})
    composer.compose({"a": 1.0, "b": 1.0})
    before = composer.state()["moments"].tobytes()
    with pytest.raises(InvalidValue, match=says):
        composer.compose(values)
    assert composer.state()["moments"].tobytes() == before


@pytest.mark.parametrize("metrics", [{}, None, ["a"], {"a": "down"}, {"a": 1}, {"": "min"}, {1: "min"}, {"a": ["min"]}])
def test_ill_defined_metrics_are_refused(metrics):
    with pytest.raises(InvalidSpace, match="metric"):
        RealErrorComposer(metrics)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), "1", None])
def test_weights_must_be_positive(weight):
    with pytest.raises(InvalidSpace, match="weight"):
        Metric("min", weight=weight)


def test_direction_must_be_min_or_max():
    with pytest.raises(InvalidSpace, match="'min' or 'max', got 'up'"):
        Metric("up")


def test_state_restores_the_moments():
    composer, other = RealErrorComposer({"a": "min"}), RealErrorComposer({"a": "min"})
    for value in (1.0, 5.0, -2.0):
        composer.anomaly(composer.compose({"a": value}))
    other.restore(composer.state())
    assert other.compose({"a": 3.0}) == composer.compose({"a": 3.0})
    assert other.anomaly(0.2) == composer.anomaly(0.2)


def test_rescoring_turns_metrics_so_that_lower_is_better():
    composer = RescoringComposer({"ms": "min", "tps": Metric("max", weight=3.0)})
    assert composer.turn({"tps": 5.0, "ms": 2.0}).tolist() == [2.0, -5.0]
    assert composer.weights.tolist() == [0.25, 0.75]
    with pytest.raises(InvalidValue, match="lacks"):
        composer.turn({"ms": 2.0})
    assert composer.seen == 0


def test_the_target_of_one_metric_is_that_metric():
    composer = RescoringComposer({"ms": Metric("min", weight=7.0)})
    for value in (1.0, 5.0, 100.0, -3.0):
        assert not composer.observe(composer.turn({"ms": value}))
    assert composer.weights.tolist() == [1.0]


def test_several_metrics_are_weighed_by_their_deviation_looked_at_when_samples_double():
    composer, rng = RescoringComposer({"a": "min", "b": "min"}), np.random.default_rng(0)
    values = rng.normal(size=(40, 2)) * [1.0, 1000.0] + [0.0, 5e4]
    changed = [composer.observe(composer.turn({"a": a, "b": b})) for a, b in values]
    assert [i + 1 for i, did in enumerate(changed) if did] == [2, 4, 8, 16, 32]
    assert composer.weights == pytest.approx(0.5 / values[:32].std(axis=0))


def test_a_constant_metric_does_not_divide_by_zero():
    composer = RescoringComposer({"a": "min", "b": "min"})
    for value in range(8):
        composer.observe(composer.turn({"a": float(value), "b": 0.1}))
    assert composer.weights[1] == 0.5


def test_a_failure_is_a_deviation_worse_than_the_worst():
    composer = RescoringComposer({"a": "min", "b": "max"})
    values = np.array([[1.0, 4.0], [3.0, 2.0], [2.0, 9.0]])
    for a, b in values:
        composer.observe(composer.turn({"a": a, "b": b}))
    assert composer.worst() == pytest.approx(np.array([3.0, -2.0]) + values.std(axis=0))


def test_weights_may_change_for_some_metrics_and_bad_ones_change_nothing():
    composer = RescoringComposer({"a": "min", "b": "max"})
    composer.reweigh({"b": 3.0})
    assert composer.weights.tolist() == [0.25, 0.75]
    bad = [
        ({"c": 1.0}, "no metric 'c'"),
        ({"a": 2.0, "b": -1.0}, "weights.'b'"),
        ([1.0], "must map"),
        (None, "must map"),
    ]
    for weights, says in bad:
        with pytest.raises(InvalidValue, match=says):
            composer.reweigh(weights)
    assert composer.weights.tolist() == [0.25, 0.75]
    assert composer.metrics["b"] == Metric("max", 3.0)


def test_a_rescoring_composer_restored_is_the_same():
    composer, other = (RescoringComposer({"a": "min", "b": "max"}) for _ in range(2))
    for t in range(11):
        composer.observe(composer.turn({"a": t**2, "b": -t}))
    other.restore({name: array.copy() for name, array in composer.state().items()})
    for part in (composer, other):
        for t in range(11):
            part.observe(part.turn({"a": -t, "b": t**2}))
    assert np.array_equal(composer.weights, other.weights)
    assert np.array_equal(composer.worst(), other.worst())
    assert composer.seen == other.seen == 22
