"""The table that a notebook shows of a tuner."""

import re
from html import unescape

import pytest

from rasp_tuner import Categorical, Float, Int, Tuner

SPACE = {"pool": Int(1, 64, log=True), "rate": Float(0.0, 1.0), "codec": Categorical(["<b>lz4</b>", "zstd"])}
TODAY = {"pool": 8, "rate": 0.5, "codec": "<b>lz4</b>"}
CHOICES = {"codec": Categorical(["<b>lz4</b>", "zstd"]), "level": Categorical([1, 2, 3])}


def cells(tuner):
    """Rows of the table as texts."""
    rows = re.findall(r"<tr>(.*?)</tr>", tuner._repr_html_())
    return [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def taught(space, default, context=None, preset="default"):
    tuner = Tuner(space, {"ms": "min"}, context, default, preset=preset)
    for step in range(40):
        load = 9.0 if step % 10 > 4 else 1.0
        s = tuner.ask(None if context is None else {"load": load, "kb": 1000.0})
        best = 40 if load > 5 else 2
        away = (
            abs(s.params.get("pool", 0) - best) if "pool" in s.params else s.params["level"] * (1 if load > 5 else -1)
        )
        tuner.tell(s.id, {"ms": 50.0 + away + (s.params["codec"] != "zstd")})
    return tuner


def test_a_new_tuner_shows_its_knobs_and_recommends_the_default():
    tuner = Tuner(SPACE, {"ms": "min"}, default=TODAY)
    assert cells(tuner) == [
        ["knob", "range", "default", "recommended"],
        ["pool", "whole numbers from 1 to 64, on a log scale", "8", "8"],
        ["rate", "numbers from 0 to 1", "0.5", "0.5"],
        ["codec", "<b>lz4</b> or zstd", "<b>lz4</b>", "<b>lz4</b>"],
    ]
    assert "<b>" not in tuner._repr_html_()
    assert "0 runs learned; 0 waiting for an answer; Exploring may cost 2.0%" in tuner._repr_html_()
    assert repr(tuner) in unescape(tuner._repr_html_())
    assert "\n" not in repr(tuner)


@pytest.mark.parametrize(("space", "default"), [(SPACE, TODAY), (CHOICES, {"codec": "zstd", "level": 2})])
def test_it_recommends_for_the_situation_met_last(space, default):
    tuner = taught(space, default, ["load", "kb"])
    head, *rows = cells(tuner)
    recommended = tuner.recommend({"load": 9.0, "kb": 1000.0})
    assert recommended != tuner.recommend({"load": 1.0, "kb": 1000.0})
    assert head[3] == "recommended in the latest situation"
    shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in recommended.values()]
    one = min(tuner.situations(), key=lambda one: abs(one.context["load"] - 9.0))
    idle = [name in one.unproven for name in recommended]
    assert [row[3] for row in rows] == ["-" if left else text for left, text in zip(idle, shown, strict=True)]
    assert ("no effect shown: " in tuner._repr_html_()) == any(idle)


def test_it_shows_what_is_learned_and_waits_and_changes_nothing():
    tuner = taught(SPACE, TODAY)
    tuner.ask()
    before = tuner.to_bytes()
    assert "40 runs learned; 1 waiting for an answer; Exploring" in tuner._repr_html_()
    assert tuner.to_bytes() == before


def test_a_long_context_is_not_kept_so_nothing_is_recommended_for_it():
    tuner = Tuner(SPACE, {"ms": "min"}, 200, TODAY)
    tuner.tell(tuner.ask([1.0] * 200).id, {"ms": 1.0})
    assert {row[3] for row in cells(tuner)[1:]} <= {"-", *map(str, TODAY.values())}


def test_preset_paper_has_a_table_too():
    tuner = taught(SPACE, TODAY, ["load", "kb"], "paper")
    assert len(cells(tuner)) == 4
    assert "Budget" not in tuner._repr_html_()
    assert [row["expected_default"] for row in tuner.history()] == [None] * 40  # steps, but no forecasts of it


def test_of_many_knobs_some_are_shown():
    tuner = Tuner({f"k{i}": Float(0.0, 1.0) for i in range(60)}, {"ms": "min"})
    assert len(cells(tuner)) == 41
    assert "20 more knobs; 0 runs learned" in tuner._repr_html_()
