"""Pairs, intervals, situations and the words for them."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner.page.words import duration_words, number_words
from rasp_tuner.report.paired import effect, t_quantile
from rasp_tuner.report.situations import clusters
from rasp_tuner.tune import tune
from rasp_tuner.tune.metric_sources import metric_of
from rasp_tuner.tune.paired_comparison import PairedRun
from rasp_tuner.tune.verdict import judge, log_cost

TIME = {"time_s": metric_of("time_s", "min")}
POSITIVE = st.floats(1e-3, 1e3)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (120, 1.9799), (5000, 1.96)]
)
def test_t_quantiles_are_those_of_the_tables(freedom, t):
    assert t_quantile(freedom) == pytest.approx(t, abs=2e-4)


@pytest.mark.parametrize("groups", [1, 3])
def test_intervals_hold_the_truth_as_often_as_they_say(groups):
    """Situations of different level and noise; 95% of 1,000 intervals, within four deviations of that count."""
    rng = np.random.default_rng(0)
    held, truth = 0, math.log(0.8)
    for _ in range(1000):
        pairs = []
        for g in range(groups):
            default = np.exp(rng.normal(g, 0.3, 6))
            other = default * np.exp(truth + rng.normal(0.0, 0.05 * (g + 1), 6))
            pairs.append(list(zip(default, other, strict=True)))
        found = effect(pairs)
        held += found.low <= 0.8 <= found.high
    assert 922 <= held <= 985


def test_nothing_is_claimed_from_too_little():
    assert effect([]) is None
    assert effect([[(1.0, 0.5)]]).high == math.inf
    assert not effect([[(1.0, 0.5)]]).is_clear


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=12), st.floats(1e-3, 1e3))
def test_units_do_not_matter_and_swapping_sides_inverts_the_ratio(pairs, unit):
    found = effect([pairs])
    scaled = effect([[(unit * a, unit * b) for a, b in pairs]])
    swapped = effect([[(b, a) for a, b in pairs]])
    for x, y in ((found.value, scaled.value), (found.low, scaled.low), (found.low * swapped.high, 1.0)):
        assert x == pytest.approx(y, rel=1e-6)
    assert found.low <= found.value <= found.high


def pairs_of(ratios, failed_default=0, failed_recommended=0, input=None):
    fine = [PairedRun(0, input, {"time_s": 2.0}, {"time_s": 2.0 * ratio}, 1.0) for ratio in ratios]
    lost = [PairedRun(0, input, None, {"time_s": 1.0}, 1.0)] * failed_default
    return [*fine, *lost, *[PairedRun(0, input, {"time_s": 1.0}, None, 1.0)] * failed_recommended]


@pytest.mark.parametrize(
    ("pairs", "outcome", "words"),
    [
        (pairs_of([0.76, 0.77, 0.78]), "better", "faster by 23% (20 to 25%)"),
        (pairs_of([4e-4, 5e-4, 6e-4]), "better", "faster: 0.00049 times the default (0.0003 to 0.00082)"),
        (pairs_of([1e-27] * 3), "better", "faster: 1e-27 times the default (1e-27 to 1e-27)"),
        (pairs_of([0.9, 1.1, 1.0, 0.95]), "same", "no difference can be shown: between 14% faster and 13% slower"),
        (pairs_of([1.5, 1.55, 1.52]), "worse", "worse: keep the default; slower by 52% (46 to 59%)"),
        (pairs_of([0.8] * 5, 0, 2), "worse", "worse: keep the default; 2 of 7 runs failed with the"),
        (pairs_of([0.8, 0.81], 6, 0), "better", "more reliable: 0 of 8 runs failed with the recommendation, 6"),
        (pairs_of([1.5, 1.55, 1.52], 2, 0), "worse", "worse: keep the default; slower by 52%"),  # twice may be chance
        (pairs_of([], 1, 1), "same", "no difference can be shown: in no pair both ran"),
        ([PairedRun(0, None, None, None, 1.0)] * 9, "same", "no difference can be shown: every run failed"),
        (pairs_of([0.5]), "same", "no difference can be shown (1 pair)"),
        ([], "untested", "not compared"),
    ],
)  # fmt: skip
def test_the_verdict_in_words(pairs, outcome, words):
    found = judge([pairs], TIME)
    assert found.outcome == outcome
    assert found.words.startswith(words)


def test_a_default_that_always_fails_is_not_what_to_keep():
    assert (
        judge([pairs_of([], 20)], TIME).words
        == "more reliable: 0 of 20 runs failed with the recommendation, 20 with the default"
    )
    few = pairs_of([], 2)
    assert judge([few], TIME).outcome == "same"  # twice may be chance
    assert judge([few], TIME, default_ran=False).outcome == "better"  # but not where it never ran before either
    assert judge([[*few, *pairs_of([1.0])]], TIME, default_ran=False).outcome == "same"
    assert judge([pairs_of([], 2, 1)], TIME, default_ran=False).outcome == "same"


@pytest.mark.parametrize("final", [2, None])
def test_a_study_of_a_default_that_always_fails_recommends_what_runs(final, tmp_path):
    def work(n):
        if n == 2:
            raise ValueError("no")
        return float(n)

    result = tune(
        work, {"n": "int:1..4"}, {"cost": "min"}, default={"n": 2}, steps=15, final=final, out=tmp_path, quiet=True
    )
    assert result.verdict.outcome == "better"
    assert result.verdict.words.startswith("more reliable: 0 of ")
    assert "where both ran" not in result.verdict.words
    assert result.settings == {"all": {"n": 1}}


def test_metrics_to_maximise_and_differences():
    fps = {"fps": metric_of("fps", "max")}
    more = [PairedRun(0, None, {"fps": 10.0}, {"fps": x}, 1.0) for x in (12.0, 12.1, 11.9)]
    assert judge([more], fps).words == "higher by 20% (18 to 23%)"
    less = [PairedRun(0, None, {"fps": 10.0}, {"fps": x}, 1.0) for x in (8.0, 8.1, 7.9)]
    assert judge([less], fps).outcome == "worse"
    score = [PairedRun(0, None, {"fps": -1.0}, {"fps": x}, 1.0) for x in (2.0, 2.1, 1.9)]
    assert judge([score], fps).words == "higher by 3 (2.75 to 3.25)"


def test_several_metrics_are_one_objective_and_each_by_itself():
    metrics = {**TIME, "size": metric_of("size", {"goal": "min", "from": "json:size", "weight": 3.0})}
    pairs = [
        PairedRun(0, None, {"time_s": 1.0, "size": 100.0}, {"time_s": 2.0 * x, "size": 50.0}, 1.0)
        for x in (0.9, 1.0, 1.1)
    ]
    found = judge([pairs], metrics)
    assert list(found.effects) == ["time_s", "size", "objective"]
    assert found.effects["objective"].value == pytest.approx(2.0**-0.5, rel=0.01)
    assert found.outcome == "better"
    assert found.words.startswith("better by 29%")


def test_inputs_of_one_situation_are_compared_within_themselves():
    """The same gain on two inputs of very different noise: the quiet one is not drowned."""
    quiet = pairs_of([0.8, 0.81, 0.79, 0.8], input="a")
    apart = pairs_of([0.5, 0.51, 0.49, 0.5], input="b")
    found = judge([[*quiet, *apart]], TIME).effects["time_s"]
    assert found.value == pytest.approx(math.sqrt(0.8 * 0.5), rel=1e-3)
    assert found.high / found.low < 1.05


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 6))
def test_clusters_hold_every_row_once(rows, count):
    points = np.array(rows, dtype=float)
    found = clusters(points, count)
    assert sorted(i for group in found for i in group) == list(range(len(rows)))
    assert len(found) <= count
    assert found == clusters(points, count)


@given(st.floats(-1e12, 1e12))
def test_numbers_in_words_keep_three_digits(x):
    assert float(number_words(x).replace(",", "")) == pytest.approx(x, rel=0.006, abs=1e-300)


@given(st.floats(0.001, 1e6))
def test_durations_in_words_say_about_how_long(s):
    words = duration_words(s)
    total = sum(float(n) * {"h": 3600, "m": 60, "s": 1}[u] for n, u in re.findall(r"([\d.e+-]+)([hms])", words))
    assert total == pytest.approx(s, rel=0.08, abs=60 if s >= 3600 else 0.5)


def limited(spec, *pairs):
    metrics = {**TIME, "p99": metric_of("p99", spec)}
    return judge(
        [[PairedRun(0, None, {"time_s": 2.0, "p99": a}, {"time_s": 1.0, "p99": b}, 1.0) for a, b in pairs]], metrics
    )


def test_limits_come_before_the_objective():
    kept = limited("min<=1.05 default", *[(100.0, 104.0)] * 9, (100.0, 106.0))
    assert kept.outcome == "better"
    assert kept.words == "faster by 50% (50 to 50%); p99 within its limit in 9 of 10 runs"
    broken = limited("min<=1.05 default", *[(100.0, 104.0)] * 8, *[(100.0, 106.0)] * 2)
    assert (broken.outcome, broken.words) == ("worse", "worse: keep the default; p99 within its limit in 8 of 10 runs")
    mended = limited("min<=100", *[(120.0, 90.0)] * 6)
    assert mended.outcome == "better"
    assert mended.words.startswith(
        "p99 within its limit in 6 of 6 runs, with the default in 0; where both ran: faster by"
    )
    slower = judge(
        [[PairedRun(0, None, {"time_s": 1.0, "p99": 120.0}, {"time_s": 1.5, "p99": 90.0}, 1.0)] * 6],
        {**TIME, "p99": metric_of("p99", "min<=100")},
    )
    assert slower.outcome == "better"
    assert slower.words.endswith("where both ran: slower by 50% (50 to 50%)")  # not "keep the default"
    both = limited("min<=100", *[(120.0, 115.0)] * 6)
    assert both.outcome == "worse"
    assert "objective" not in kept.effects  # what only has a limit is no goal


@given(st.floats(-10.0, 10.0), st.floats(-10.0, 10.0), st.floats(-10.0, 10.0))
def test_what_is_lower_costs_less_also_around_zero(default, one, other):
    """A setting without errors is better than one with few, whatever the default has."""
    errors = {"errors": metric_of("errors", "min")}
    low, high = (log_cost({"errors": default}, {"errors": x}, errors) for x in sorted([one, other]))
    assert low <= high
    assert log_cost({"errors": default}, {"errors": default}, errors) == 0.0
    if abs(one - other) > 1e-3:
        assert low < high


def test_of_two_tiny_costs_the_lower_is_lower():
    errors = {"errors": metric_of("errors", "min")}
    costs = [log_cost({"errors": 1.0}, {"errors": x}, errors) for x in (1e-3, 1e-20, 1e-27, 1e-300, 0.0, -1.0)]
    assert costs == sorted(set(costs), reverse=True)


def test_several_metrics_count_also_where_one_of_them_reaches_zero():
    """Times stay as they are and errors go from 4 to 0: better."""
    metrics = {**TIME, "errors": metric_of("errors", "min")}
    pairs = [PairedRun(0, None, {"time_s": 1.0, "errors": 4.0}, {"time_s": 1.0, "errors": 0.0}, 1.0)] * 6
    assert judge([pairs], metrics).outcome == "better"
