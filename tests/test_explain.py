"""What an explanation says in the user's words: which knobs, compared with what, how sure, how well known."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rasp_tuner import Categorical, Explanation, Float, Int, Metric, Tuner

SPACE = {"pool": Int(1, 64, log=True), "timeout_s": Float(0.1, 10.0, log=True), "codec": Categorical(["lz4", "zstd"])}
TODAY = {"pool": 8, "timeout_s": 1.0, "codec": "lz4"}


def run(params, load, rng):
    away = abs(np.log(params["pool"] / (40 if load > 5 else 4))) + 0.2 * (params["codec"] != "zstd")
    return 20.0 + 10.0 * float(away) + 0.1 * float(rng.normal())


def taught(metrics, steps=40, value=lambda ms: {"ms": ms}, context=("load",), **settings):
    tuner, rng = Tuner(SPACE, metrics, context and list(context), TODAY, **settings), np.random.default_rng(0)
    for step in range(steps):
        load = 9.0 if step % 10 > 4 else 1.0
        s = tuner.ask({"load": load} if context else None)
        tuner.tell(s.id, value(run(s.params, load, rng)))
    return tuner


def test_it_names_the_knobs_that_changed_and_what_they_are_in_the_default():
    tuner = taught({"ms": "min"})
    s = tuner.ask({"load": 9.0})
    told = str(tuner.explain(s.id))
    for name, value in s.params.items():
        shown, today = (f"{v:.6g}" if isinstance(v, float) else str(v) for v in (value, TODAY[name]))
        assert (f"{name}={shown} instead of {today}" in told) == (value != TODAY[name])
    assert s.params != TODAY
    assert told.startswith("Changed: ")


def test_the_first_suggestion_is_the_default_and_nothing_is_known():
    tuner = Tuner(SPACE, {"ms": "min"}, ["load"], TODAY)
    assert str(tuner.explain(tuner.ask({"load": 1.0}).id)) == (
        "All settings are those of the default. Chosen as default. Nothing is known yet. Not answered yet."
    )


@pytest.mark.parametrize(("direction", "sign"), [("min", 1.0), ("max", -1.0)])
def test_it_expects_the_metric_by_its_name_and_in_its_own_unit_beside_the_default(direction, sign):
    tuner = taught({"speed": direction}, value=lambda ms: {"speed": 100.0 + sign * ms})
    s = tuner.ask({"load": 9.0})
    why = tuner.explain(s.id)
    told = re.search(r"Expected speed (\S+) \+- (\S+); the default would give (\S+): (\d+)% (less|more)\.", str(why))
    expected, deviation, default = (float(told[i]) for i in (1, 2, 3))
    assert (expected, default) == (pytest.approx(sign * why.predicted, 1e-3), pytest.approx(sign * why.level, 1e-3))
    assert deviation > 0.0
    assert default == pytest.approx(sign * tuner.expected_of_default({"load": 9.0}), 1e-3)
    assert int(told[4]) == round(100 * abs(expected / default - 1.0))
    assert (told[5] == "less") == (expected < default)
    assert "Better than the default with a probability of over 99%." in str(why)
    tuner.tell(s.id, {"speed": 123.0})
    assert "Observed speed 123. Learned." in str(tuner.explain(s.id))


def test_of_several_metrics_it_compares_their_sum():
    tuner = taught({"ms": "min", "speed": "max"}, value=lambda ms: {"ms": ms, "speed": 100.0 - ms})
    why = tuner.explain(tuner.ask({"load": 9.0}).id)
    assert why.metric is None
    assert re.search(r"Expected error \S+ \+- \S+; the default would give \S+\. Better than", str(why))


def test_it_says_how_well_the_situation_is_known():
    tuner = taught({"ms": "min"})
    known = tuner.explain(tuner.ask({"load": 1.0}).id)
    assert (known.runs, known.ago) == (20.0, 6.0)  # the last five runs were of the other situation
    assert "The situation is known: like 20 runs before, the latest 6 runs ago (100% alike to situation" in str(known)
    strange = tuner.explain(tuner.ask({"load": 500.0}).id)
    assert "The situation is new (0% alike" in str(strange)


def test_without_a_context_there_are_no_situations():
    tuner = taught({"ms": "min"}, context=None)
    assert "situation" not in str(tuner.explain(tuner.ask().id)).replace("situations like this one", "")


def test_it_says_how_far_limits_are_kept():
    metrics = {"ms": "min", "memory": Metric("min", max=200)}
    tuner = taught(metrics, value=lambda ms: {"ms": ms, "memory": 5.0 * ms})
    s = tuner.ask({"load": 9.0})
    margin = tuner.margins({"load": 9.0}, s.params)["memory"]
    assert f"Limit of memory: {margin}." in str(tuner.explain(s.id))


def test_preset_paper_gives_no_forecast_of_the_default():
    tuner = taught({"ms": "min"}, steps=4, preset="paper")
    told = str(tuner.explain(tuner.ask({"load": 9.0}).id))
    assert "Expected error" in told
    assert "would give" not in told


def test_a_snapshot_keeps_what_was_suggested():
    tuner = taught({"ms": "min"})
    tuner.ask({"load": 9.0})
    again = Tuner.from_bytes(tuner.to_bytes())
    for id in ("s0", "s20", "s40"):
        assert again.explain(id) == tuner.explain(id)
        assert again.explain(id).params is not None
    assert again.to_bytes() == tuner.to_bytes()


def test_many_changes_are_not_all_listed():
    space = {f"k{i}": Float(0.0, 1.0) for i in range(20)}
    params, default = dict.fromkeys(space, 0.25), {**dict.fromkeys(space, 0.5), "extra": 1}
    told = str(Explanation("hint", params=params, default=default))
    assert told.startswith("Changed: k0=0.25 instead of 0.5, k1=0.25 instead of 0.5, ")
    assert " and 13 more. Chosen as hint." in told


def test_knobs_that_only_one_side_has():
    why = Explanation("hint", params={"wal": "on", "sync": "normal"}, default={"wal": "off", "journal": 3})
    assert str(why).startswith("Changed: wal=on instead of off, sync=normal instead of none, without journal. Chosen")


def test_notebooks_get_the_same_words_escaped():
    why = Explanation("hint", path="fast", failure="<script>", error=1.0)
    assert why._repr_html_() == "<p>Chosen as hint. Failed: &lt;script&gt;. Learned.</p>"


def test_reasons_are_the_same_numbers_without_names():
    tuner = taught({"ms": "min"})
    why, reasons = tuner.explain("s39"), tuner.reasons("s39").explanation()
    assert (reasons.params, reasons.default, reasons.metric) == (None, None, None)
    assert replace(reasons, params=why.params, default=why.default, metric=why.metric, seen=why.seen) == why
