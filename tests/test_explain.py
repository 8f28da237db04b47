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
    assert told.startswith("Runs ")


def test_the_first_suggestion_is_the_default_and_nothing_is_known():
    tuner = Tuner(SPACE, {"ms": "min"}, ["load"], TODAY)
    assert str(tuner.explain(tuner.ask({"load": 1.0}).id)) == (
        "Runs the default. Chosen because nothing is known yet. How good it is will be known once it has run."
    )


@pytest.mark.parametrize(("direction", "sign"), [("min", 1.0), ("max", -1.0)])
def test_it_expects_the_metric_by_its_name_and_in_its_own_unit_beside_the_default(direction, sign):
    tuner = taught({"speed": direction}, value=lambda ms: {"speed": 100.0 + sign * ms})
    s = tuner.ask({"load": 9.0})
    why = tuner.explain(s.id)
    said = r"speed is expected to be (\S+) \+- ([^ ,]+), (\d+)% (less|more) than the default's (\S+)\. Better than"
    told = re.search(said, str(why))
    expected, deviation, default = (float(told[i]) for i in (1, 2, 5))
    assert (expected, default) == (pytest.approx(sign * why.predicted, 1e-3), pytest.approx(sign * why.level, 1e-3))
    assert deviation > 0.0
    assert default == pytest.approx(sign * tuner.expected_of_default({"load": 9.0}), 1e-3)
    assert int(told[3]) == round(100 * abs(expected / default - 1.0))
    assert (told[4] == "less") == (expected < default)
    assert "Better than the default with a probability of over 99%; known from 20 runs before with load=9." in str(why)
    tuner.tell(s.id, {"speed": 123.0})
    assert str(tuner.explain(s.id)).endswith("; it came to speed 123.")


def test_it_is_three_sentences_without_words_of_the_engine():
    tuner = taught({"ms": "min"})
    for id in [f"s{i}" for i in range(40)] + [tuner.ask({"load": load}).id for load in (1.0, 9.0, 500.0)]:
        why = tuner.explain(id)
        assert len(re.findall(r"[.](?: [A-Z]|$)", str(why))) == 3, str(why)
        for word in ("expert", "elite", "probe", "in memory", "alike", "slot", "path", "error"):
            assert word not in f"{why} {why.details}", word


def test_no_table_or_page_has_words_of_the_engine(tmp_path):
    tuner, rng = Tuner({"x": Float(0, 1), "y": Float(0, 1)}, {"ms": "min"}, ["load"], {"x": 0.5, "y": 0.5}), 0
    for step in range(40):
        s = tuner.ask({"load": float(step % 2)})
        tuner.tell(s.id, {"ms": 20.0 * (1.0 + (s.params["x"] - 0.2) ** 2) if step % 9 else 500.0 + rng})
    assert any("probe" in tuner.explain(f"s{i}").source for i in range(40))  # so it is about something
    tuner.report(tmp_path / "page.html")
    shown = [str(tuner.history()), (tmp_path / "page.html").read_text(), *map(str, tuner.situations())]
    shown += [row["chosen_by"] for row in tuner.history()]
    for word in ("probe", "elite", "expert count", "in memory", "steps of the default's loss"):
        assert not any(word in text for text in shown), word


def test_what_costs_many_times_the_default_is_no_percentage():
    tuner = Tuner({"mode": Categorical(["fast", "slow"])}, {"ms": "min"}, None, {"mode": "fast"})
    for step in range(40):
        slow = step % 2
        tuner.observe(None, {"mode": "slow" if slow else "fast"}, {"ms": (210.0 if slow else 10.0) + 0.1 * (step % 5)})
    s = tuner.ask_for(None, {"mode": "slow"})
    assert re.search(r", [12]\d times the default's 1\d", str(tuner.explain(s.id)))


def test_details_say_which_knobs_the_expected_gain_comes_from():
    tuner = taught({"ms": "min"}, steps=80)
    tuner.freeze()
    why = tuner.explain(tuner.ask({"load": 9.0}).id)
    assert sum(why.knobs.shares.values()) == pytest.approx(1.0)
    assert next(iter(why.knobs.shares)) == "pool"  # 40 instead of 8; the codec does a little, and the timeout nothing
    assert why.knobs.shares["pool"] > 0.5
    assert "timeout" not in why.knobs.shares
    assert why.context == {"load": 9.0}
    shown = [one for one in why.details if one.startswith("What it is expected to gain comes from pool ")]
    assert len(shown) == (len(why.knobs.shares) + len(why.knobs.not_shown) > 1)


def test_of_several_metrics_it_compares_their_sum():
    tuner = taught({"ms": "min", "speed": "max"}, value=lambda ms: {"ms": ms, "speed": 100.0 - ms})
    why = tuner.explain(tuner.ask({"load": 9.0}).id)
    assert why.metric is None
    assert re.search(
        r"the objective is expected to be \S+ \+- \S+, where the default would give \S+\. Better", str(why)
    )


def test_it_says_how_well_the_situation_is_known():
    tuner = taught({"ms": "min"})
    known = tuner.explain(tuner.ask({"load": 1.0}).id)
    assert (known.runs, known.ago) == (20.0, 6.0)  # the last five runs were of the other situation
    assert "known from 20 runs before with load=1." in str(known)
    assert "The situation (load=1) is known; the latest run like it was 6 runs ago." in known.details
    strange = tuner.explain(tuner.ask({"load": 500.0}).id)
    assert str(strange).endswith("he situation is new.")
    assert "The situation (load=500) is new." in strange.details


def test_without_a_context_there_are_no_situations():
    tuner = taught({"ms": "min"}, context=None)
    assert "situation" not in str(tuner.explain(tuner.ask().id)).replace("situations like this one", "")


def test_it_says_how_far_limits_are_kept():
    metrics = {"ms": "min", "memory": Metric("min", max=200)}
    tuner = taught(metrics, value=lambda ms: {"ms": ms, "memory": 5.0 * ms})
    s = tuner.ask({"load": 9.0})
    margin = tuner.margins({"load": 9.0}, s.params)["memory"]
    assert f"Limit of memory: {margin}." in tuner.explain(s.id).details


def test_preset_paper_gives_no_forecast_of_the_default():
    tuner = taught({"ms": "min"}, steps=4, preset="paper")
    told = str(tuner.explain(tuner.ask({"load": 9.0}).id))
    assert "the objective is expected to be" in told
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
    assert told.startswith("Runs k0=0.25 instead of 0.5, k1=0.25 instead of 0.5, ")
    assert " and 13 more. Chosen because of its kind: hint." in told


def test_knobs_that_only_one_side_has():
    why = Explanation("hint", params={"wal": "on", "sync": "normal"}, default={"wal": "off", "journal": 3})
    assert str(why).startswith("Runs wal=on instead of off, sync=normal instead of none, without journal. Chosen")


def test_notebooks_get_the_same_words_escaped():
    why = Explanation("hint", path="fast", failure="<script>", error=1.0)
    assert why._repr_html_().endswith("Chosen because of its kind: hint. It failed: &lt;script&gt;.</p>")


def test_reasons_are_the_same_numbers_without_names():
    tuner = taught({"ms": "min"})
    why, reasons = tuner.explain("s39"), tuner.reasons("s39").explanation()
    assert (reasons.params, reasons.default, reasons.metric) == (None, None, None)
    named = {name: getattr(why, name) for name in ("params", "default", "metric", "seen", "context")}
    assert replace(reasons, **named) == why


def blocks(tuner, steps, start=0, length=20, look=False):
    """Two situations in turns; the loss of one is far from its default's optimum. Ids and suggestions."""
    rng, made = np.random.default_rng(start), []
    for step in range(start, start + steps):
        load = (9.0 if step // length % 2 else 1.0) + 0.05 * float(rng.normal())
        s = tuner.ask({"load": load})
        if look:
            tuner.explain(s.id)
        tuner.tell(s.id, {"ms": run(s.params, load, rng)})
        made.append(s)
    return made


def test_it_says_when_a_known_situation_returns():
    tuner = Tuner(SPACE, {"ms": "min"}, ["load"], TODAY)
    made = blocks(tuner, 40)
    assert all(tuner.explain(s.id).seen is None for s in made)  # first visits
    coming = tuner.ask({"load": 1.0})
    seen = tuner.explain(coming.id).seen
    assert (seen.visits, seen.last_step, seen.ago, seen.took, seen.last_at) == (1, 19, 21, None, None)
    assert "Seen once before, last 21 steps earlier." in " ".join(tuner.explain(coming.id).details)
    assert tuner.explain(tuner.ask({"load": 500.0}).id).seen is None
    made = blocks(tuner, 40, 40)
    back = [tuner.explain(s.id).seen for s in made]
    assert [(one.visits, one.ago) for one in back] == [(1, 21)] * 40
    assert all(one.first_took is not None and one.took is not None for one in back)


def test_it_names_the_earlier_settings_that_a_return_started_from():
    tuner = Tuner({"x": Float(0, 1), "y": Float(0, 1)}, {"ms": "min"}, ["load"], {"x": 0.5, "y": 0.5})
    for step in range(90):
        load = float(step // 30 % 2)
        s = tuner.ask({"load": load})
        best = 0.2 + 0.6 * load
        tuner.tell(s.id, {"ms": (s.params["x"] - best) ** 2 + (s.params["y"] - best) ** 2})
    why = tuner.explain(s.id)
    assert why.seen.started_from == pytest.approx({"x": 0.2, "y": 0.2}, abs=0.1)
    assert "Started from the settings of then (x=0." in " ".join(why.details)


def test_looking_at_returns_changes_nothing_and_survives_a_snapshot():
    quiet, looked = (Tuner(SPACE, {"ms": "min"}, ["load"], TODAY) for _ in range(2))
    assert blocks(quiet, 100) == blocks(looked, 100, look=True)
    assert quiet.to_bytes() == looked.to_bytes()
    loaded = Tuner.from_bytes(looked.to_bytes())
    assert [loaded.explain(f"s{i}") for i in range(100)] == [quiet.explain(f"s{i}") for i in range(100)]
    assert quiet.explain("s99", visits=False) == replace(quiet.explain("s99"), seen=None, context=None)


def test_steps_that_are_no_longer_on_record_are_not_called_the_first():
    tuner = Tuner({"x": Float(0, 1)}, {"ms": "min"}, ["load"], {"x": 0.5})
    for step in range(1_100):
        s = tuner.ask({"load": float(step // 50 % 2)})
        tuner.tell(s.id, {"ms": (s.params["x"] - 0.2) ** 2})
    seen = tuner.explain(s.id).seen
    assert (seen.at_least, seen.first_took, seen.saved) == (True, None, None)
    assert str(seen).startswith("Seen at least 9 times before, last ")


def test_with_several_metrics_returns_are_measured_by_their_sum_and_without_context_there_are_none():
    tuner, rng = Tuner(SPACE, {"ms": "min", "speed": "max"}, ["load"], TODAY), np.random.default_rng(0)
    for step in range(80):
        load = 9.0 if step // 20 % 2 else 1.0
        s = tuner.ask({"load": load})
        ms = run(s.params, load, rng)
        tuner.tell(s.id, {"ms": ms, "speed": 100.0 - ms})
    assert tuner.explain(s.id).seen.first_took is not None
    blind = taught({"ms": "min"}, context=None)
    assert blind.explain("s39").seen is None


def test_with_one_knob_nobody_speaks_of_several():
    why = Explanation(source="several knobs moved", slots=(0,), params={"a": 2}, default={"a": 1})
    assert "it shows what is far from all that ran" in str(why)
    assert "several knobs do together" in str(replace(why, params={"a": 2, "b": 1}, default={"a": 1, "b": 0}))
