"""Laws the paper states for RealErrorComposer and RunningEMA (Proposition composer; Appendix D)."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner import Metric
from rasp_tuner.base.numerics import EPSILON, entropy, logistic, softmax
from rasp_tuner.paper import RealErrorComposer, RunningEMA

finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6)
streams = st.lists(moderate, min_size=1, max_size=60)


@given(
    stream=st.lists(st.tuples(finite, finite), min_size=1, max_size=40), weights=st.tuples(*[st.floats(1e-6, 1e6)] * 2)
)
def test_error_stays_in_the_unit_interval(stream, weights):
    composer = RealErrorComposer({"a": Metric("min", weights[0]), "b": Metric("max", weights[1])})
    for a, b in stream:
        assert 0.0 <= composer.compose({"a": a, "b": b}) <= 1.0


@given(past=streams, a=moderate, b=moderate, direction=st.sampled_from(["min", "max"]))
def test_error_is_monotone_in_each_metric(past, a, b, direction):
    """A worse value never composes to a smaller error, though it also moves the moments it is judged by."""
    better, worse = sorted((a, b), reverse=direction == "max")
    errors = []
    for last in (better, worse):
        composer = RealErrorComposer({"m": Metric(direction), "n": Metric("min")})
        for value in past:
            composer.compose({"m": value, "n": 1.0})
        errors.append(composer.compose({"m": last, "n": 1.0}))
    assert errors[0] <= errors[1] + 1e-12


@given(
    metrics=st.lists(
        st.tuples(streams, moderate, moderate, st.floats(1e-6, 1e6), st.sampled_from(["min", "max"])),
        min_size=1,
        max_size=6,
    )
)
def test_if_every_metric_is_worse_so_is_the_error(metrics):
    """Proposition composer (ii), through the composer: all badnesses grow together."""
    past = min(len(history) for history, *_ in metrics)
    errors = []
    for pick in (min, max):  # the better of two values for every metric, then the worse
        composer = RealErrorComposer({str(i): Metric(d, w) for i, (_, _, _, w, d) in enumerate(metrics)})
        for t in range(past):
            composer.compose({str(i): history[t] for i, (history, *_) in enumerate(metrics)})
        last = {str(i): (pick(a, b) if d == "min" else -pick(-a, -b)) for i, (_, a, b, _, d) in enumerate(metrics)}
        errors.append(composer.compose(last))
    assert errors[0] <= errors[1] + 1e-12


@given(x=finite, y=finite)
def test_logistic_is_quarter_lipschitz(x, y):
    assert abs(logistic(x) - logistic(y)) <= 0.25 * abs(x - y) + 1e-15


@given(past=streams, value=moderate, delta=moderate, weights=st.tuples(*[st.floats(0.01, 100)] * 2))
def test_one_metric_moves_the_error_by_at_most_its_stability_bound(past, value, delta, weights):
    """Eq. composer_local_stability sets aside that the value moves the moments too. It holds all the same with sigma
    from *before* the step: z = d / sqrt(m s^2 + (1 - m) d^2) with d = m (v - mu) grows no faster than 1 / s in v."""
    errors = []
    for last in (value, value + delta):
        composer = RealErrorComposer({"m": Metric("min", weights[0]), "n": Metric("min", weights[1])})
        for v in past:
            composer.compose({"m": v, "n": 0.0})
        sigma = math.sqrt(composer.emas["m"].var)
        errors.append(composer.compose({"m": last, "n": 0.0}))
    bound = weights[0] / sum(weights) * abs(delta) / (4.0 * (sigma + EPSILON))
    assert abs(errors[1] - errors[0]) <= bound * (1 + 1e-6) + 1e-12


@given(stream=streams, momentum=st.floats(0.01, 0.99), start=moderate)
def test_ema_mean_equals_its_unrolled_form(stream, momentum, start):
    """Eq. ema_unroll: mu_t = (1 - m) sum_j m^(t-j) v_j + m^t mu_0."""
    ema = RunningEMA(momentum, mean=start)
    for value in stream:
        ema.observe(value)
    t = len(stream)
    unrolled = (1 - momentum) * sum(momentum ** (t - 1 - j) * v for j, v in enumerate(stream)) + momentum**t * start
    assert math.isclose(ema.mean, unrolled, rel_tol=1e-9, abs_tol=1e-6)


@given(stream=streams, momentum=st.floats(0.01, 0.99))
def test_ema_score_is_bounded_by_the_momentum_alone(stream, momentum):
    """z uses the updated variance, which holds (1 - m)(v - mu)^2: so |z| <= 1 / sqrt(1 - m)."""
    ema = RunningEMA(momentum)
    for value in stream:
        assert abs(ema.observe(value)) <= 1.0 / math.sqrt(1.0 - momentum) + 1e-9


@given(logits=st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=10), shift=st.floats(-1e3, 1e3))
def test_softmax_weights_are_a_distribution_in_the_order_of_their_logits(logits, shift):
    values = np.array(logits)
    weights = softmax(values)
    assert np.all(weights >= 0.0)
    assert math.isclose(weights.sum(), 1.0, rel_tol=1e-12)
    assert np.all(np.diff(weights[np.argsort(values, kind="stable")]) >= -1e-15)
    assert 0.0 <= entropy(weights) <= math.log(len(logits)) + 1e-12
    if np.abs(values).max() < 1e3:
        assert np.allclose(softmax(values + shift), weights, rtol=1e-9)


def test_ema_mean_concentrates_as_stated():
    """Eq. ema_conc for Gaussian metrics, at several deviations: the measured frequency stays below a bound below 1."""
    rng, m, runs, steps = np.random.default_rng(0), 0.9, 4000, 60
    ends = np.empty(runs)
    for i, stream in enumerate(rng.normal(size=(runs, steps))):
        ema = RunningEMA(m)
        for value in stream:
            ema.observe(float(value))
        ends[i] = ema.mean
    for epsilon in (0.3, 0.5, 0.7):
        bound = 2 * math.exp(-(epsilon**2) * (1 - m**2) / (2 * (1 - m) ** 2))
        measured = float((np.abs(ends) >= epsilon).mean())
        assert measured <= bound + 3 * math.sqrt(bound / runs)
        assert bound < 1.0
