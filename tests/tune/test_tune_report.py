"""The report: one file that needs no network, whatever the numbers and names are."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_parser import Page

from rasp_tuner import Categorical, Float, Int, Tuner
from rasp_tuner.page.axes import Axis, axis_for, shortened
from rasp_tuner.page.charts import Point, forest, timeline
from rasp_tuner.page.parts import key
from rasp_tuner.tune import tune

BAD = '<script>alert("x")</script>'


def report_of(function, tmp_path, knobs, metrics, **more):
    result = tune(function, knobs, metrics, out=tmp_path / "s", quiet=True, name="study", **more)
    return result, Page(result.report.read_text()), result.report.read_text()


def test_a_page_is_one_file_with_every_picture_and_names_are_no_markup(tmp_path):
    knobs = {"x": Float(0.1, 10.0, log=True), "kind": Categorical([BAD, "b", "c", "d", "e"]), "n": Int(1, 4)}
    result, page, text = report_of(
        lambda x, kind, n, input: {"loss": (x - 3) ** 2 + n + len(kind) / len(input)}, tmp_path, knobs, {"loss": "min"},
        default={"x": 1.0, "kind": BAD, "n": 4}, inputs=[BAD, "other"], steps=40, final=3,
    )  # fmt: skip
    assert result.verdict.outcome == "better"
    assert page.links == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == 2 + len(knobs)  # the comparison, the runs, and one for each knob
    assert len(Tuner.load(result.folder / "tuner.rasp").history()) == len(result.runs)
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"https?://", text)
    assert "nan" not in text


@pytest.mark.parametrize(
    "loss", [lambda x: -x, lambda _: 0.0, lambda x: 1e300 * (x + 1), lambda x: x * 1e-300, lambda _: 5]
)
def test_any_numbers_can_be_drawn(loss, tmp_path):
    _, page, text = report_of(
        lambda x: {"loss": loss(x)}, tmp_path, {"x": Int(0, 8)}, {"loss": "min"}, default={"x": 4}, steps=12, final=2
    )
    assert "svg" in page.tags
    assert "nan" not in text


def test_runs_that_fail_are_drawn_as_failures_and_counted(tmp_path):
    def work(x):
        if x > 4:
            raise ValueError("no")
        return 10.0 - x

    _, _, text = report_of(work, tmp_path, {"x": Int(0, 8)}, {"loss": "min"}, default={"x": 1}, steps=20, final=0)
    assert 'class="failed"' in text
    assert "ValueError: no" in text


@settings(max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20), st.booleans())
def test_axes_hold_their_values_and_have_few_round_ticks(values, log):
    axis = axis_for(values, 10.0, 90.0, log)
    assert all(9.9 <= axis(value) <= 90.1 for value in values)
    ticks = axis.ticks()
    assert len(ticks) <= 25
    assert all(axis.low - 1e-9 * abs(axis.low) <= tick <= axis.high * (1 + 1e-9) for tick in ticks)


def test_nothing_to_draw_is_nothing():
    assert timeline([Point(0.0, None, "failed", "")], "loss", None) == ""
    assert forest([("a", 1.0, 0.0, float("inf"), "")], "loss") == ""
    assert Axis(0.0, 10.0, 0.0, 100.0)(5.0) == 50.0


@given(st.text(max_size=40), st.integers(3, 20))
def test_short_names_keep_both_ends(text, most):
    short = shortened(text, most)
    assert len(short) <= max(most, 0)
    assert short == text or (text[0] == short[0] and text[-1] == short[-1])


def test_the_best_run_is_in_the_picture(tmp_path):
    """One value of many is five times better than all others: it is no outlier to be cut off."""

    def work(x, input):
        return {"loss": (0.21 if x == 7 else 1.0 + 0.001 * x) * (2.0 if input == "b" else 1.0)}

    _, _, text = report_of(
        work, tmp_path, {"x": Int(0, 11)}, {"loss": "min"}, default={"x": 0}, inputs=["a", "b"], steps=60, final=2
    )
    picture = re.search(r'aria-label="loss, times the default over steps">.*?</svg>', text, re.DOTALL)
    assert picture is not None
    assert "far" not in picture[0]
    assert "beyond the picture" in text


def test_ratios_that_differ_tenfold_have_a_log_axis():
    near = forest([("a", 0.5, 0.4, 0.6, ""), ("b", 0.9, 0.8, 1.1, "")], "times")
    far = forest([("a", 0.01, 0.009, 0.011, ""), ("b", 0.9, 0.8, 1.1, "")], "times")
    assert ">0.01</text>" in far
    assert ">0.1</text>" in far
    assert ">0.01</text>" not in near


def test_runs_that_are_far_worse_are_arrows():
    points = [Point(float(i), 1.0 + 0.01 * (i % 3), "suggested", "") for i in range(30)] + [
        Point(30.0, 3.0, "suggested", "far away")
    ]
    assert re.search(r'<path class="suggested far".*?<title>far away', timeline(points, "loss", 1.0))
    assert "far" not in timeline(points[:-1], "loss", 1.0)


def test_a_run_that_was_stopped_is_an_arrow_up_and_no_value_for_the_median():
    """What it would have come to is not known: a median that hangs on it is not drawn."""

    def runs(every):
        return [Point(float(i), *((1.0, "suggested", "") if i % every else (0.5, "stopped", ""))) for i in range(30)]

    few = timeline(runs(3), "time_s", 1.0)
    assert few.count('<path class="stopped"') == 10
    [line] = re.findall(r'<polyline class="trend" points="([^"]*)"', few)
    assert len({place.split(",")[1] for place in line.split()}) == 1  # 1.0 all the way, and not pulled down
    assert "trend" not in timeline([*runs(1)[:20], *runs(3)[:5]], "time_s", 1.0)
    assert "stopped early: at least" in key("default", stopped=True)
    assert "stopped" not in key("default")


def test_a_metric_that_is_zero_on_one_input_only_has_an_axis_for_each_kind(tmp_path):
    """Ratios and differences are not drawn on one axis: 1.000 would read as one more than the default."""

    def work(fast, input):
        return {"cost": 1.0 if fast == "yes" else 2.0, "code": 0.0 if input == "found" else 1.0}

    _, _, text = report_of(
        work, tmp_path, {"fast": Categorical(["no", "yes"])}, {"cost": "min", "code": "min<=1"},
        default={"fast": "no"}, inputs=["found", "missing"], steps=12, final=3,
    )  # fmt: skip
    assert "code: difference from the default" in text
    assert "code: times the default" in text
    assert "paired t interval on differences and paired t interval on log ratios" in text
