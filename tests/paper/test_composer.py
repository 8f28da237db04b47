import math

import pytest

from rasp_tuner import InvalidSpace, InvalidValue, Metric
from rasp_tuner.paper import RealErrorComposer


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


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), "1"])
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
