import math

import numpy as np
import pytest

from rasp_tuner import InvalidSpace, InvalidValue
from rasp_tuner.base.numerics import RunningEMA, entropy, logistic, softmax


def test_logistic_at_known_points():
    assert logistic(0.0) == 0.5
    assert logistic(math.log(3.0)) == pytest.approx(0.75)
    assert logistic(-math.log(3.0)) == pytest.approx(0.25)


@pytest.mark.parametrize("z", [1e300, -1e300, 800.0, -800.0, math.inf, -math.inf])
def test_logistic_survives_any_size(z):
    assert logistic(z) == (1.0 if z > 0 else 0.0)


def test_ema_moves_the_mean_first_then_the_variance_around_it():
    ema = RunningEMA(momentum=0.9)
    z = ema.observe(10.0)
    assert ema.mean == pytest.approx(1.0)  # 0.9 * 0 + 0.1 * 10
    assert ema.var == pytest.approx(0.9 * 1.0 + 0.1 * (10.0 - 1.0) ** 2)
    assert z == pytest.approx(9.0 / (math.sqrt(9.0) + 1e-8))


def test_ema_starts_at_zero_mean_and_unit_variance_with_the_papers_momentum():
    ema = RunningEMA()
    assert (ema.momentum, ema.mean, ema.var) == (0.97, 0.0, 1.0)


def test_ema_peek_tells_what_observe_will_say_and_moves_nothing():
    ema = RunningEMA()
    ema.observe(3.0)
    before = ema.moments.tolist()
    expected = ema.peek(7.0)
    assert ema.moments.tolist() == before
    assert ema.observe(7.0) == expected


@pytest.mark.parametrize("momentum", [0.0, 1.0, -0.5, 2.0, math.nan, "a", None])
def test_ema_refuses_a_momentum_outside_the_open_unit_interval(momentum):
    with pytest.raises(InvalidSpace, match="momentum"):
        RunningEMA(momentum)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_ema_refuses_what_would_poison_it(value):
    ema = RunningEMA()
    with pytest.raises(InvalidValue, match="finite"):
        ema.observe(value)
    assert ema.moments.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "stream", [[5.0] * 500, [0.0] * 500, [1.0, 1e6, -1e6, 1.0], [1e300, -1e300, 1e308, 0.0, 5e-324]]
)
def test_ema_never_leaves_the_finite_numbers(stream):
    ema = RunningEMA()
    for value in stream:
        assert math.isfinite(ema.observe(value))
        assert math.isfinite(ema.mean)
        assert math.isfinite(ema.var)
        assert ema.var >= 0.0


def test_softmax_of_huge_gaps_is_one_hot():
    assert softmax(np.array([0.0, -1e100])).tolist() == [1.0, 0.0]


def test_entropy_of_one_and_of_equal_weights():
    assert entropy(np.array([1.0, 0.0])) == 0.0
    assert entropy(np.full(4, 0.25)) == pytest.approx(math.log(4))
