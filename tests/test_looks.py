"""tuner.looks(): whether it still tries what is less known, or uses what it knows."""

import numpy as np

from rasp_tuner import Categorical, Float, Int, Tuner

CHOICES = {"mode": Categorical(["a", "b", "c"])}
LEVELS = {"n": Int(1, 8), "mode": Categorical(["a", "b", "c"])}


def play(tuner, steps, cost, noise=0.02, seed=0):
    drawn = np.random.default_rng(seed)
    for _ in range(steps):
        s = tuner.ask()
        tuner.tell(s.id, {"ms": cost(s.params) * float(np.exp(noise * drawn.normal()))})


def levels_cost(params):
    return 10.0 + abs(params["n"] - 5) + 5.0 * (params["mode"] == "b")


def test_at_first_it_looks_and_later_it_says_that_no_look_is_worth_its_price():
    tuner = Tuner(LEVELS, {"ms": "min"}, default={"n": 4, "mode": "a"})
    assert tuner.looks() is None
    play(tuner, 12, levels_cost)
    early = tuner.looks()
    assert early.looks >= 3
    assert not early.ended
    assert str(early) == f"{early.looks} of the latest 12 steps tried something less known"


def choice_cost(params):
    return {"a": 10.0, "b": 20.0, "c": 30.0}[params["mode"]]


def test_it_says_that_no_look_is_worth_its_price_and_wakes_on_drift():
    tuner = Tuner(CHOICES, {"ms": "min"}, default={"mode": "a"})
    play(tuner, 40, choice_cost)
    found = tuner.looks()
    assert found.ended
    assert str(found).startswith(f"no look is worth its price now: the latest {found.quiet} steps used what is known")
    play(tuner, 25, lambda p: {"a": 40.0, "b": 20.0, "c": 30.0}[p["mode"]])
    woken = tuner.looks()
    assert not woken.ended
    assert woken.quiet < 25


def test_what_the_budget_forbids_is_not_called_worthless():
    tuner = Tuner(LEVELS, {"ms": "min"}, default={"n": 5, "mode": "a"}, budget=0.0)
    play(tuner, 40, levels_cost, noise=0.2)
    found = tuner.looks()
    assert found.refused > 0
    assert f"; {found.refused} were not allowed to" in str(found)


def test_continuous_knobs_and_saved_tuners(tmp_path):
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, default={"x": 0.5})
    play(tuner, 40, lambda p: 10.0 + 20.0 * (p["x"] - 0.3) ** 2)
    tuner.save(tmp_path / "t.rasp")
    assert Tuner.load(tmp_path / "t.rasp").looks() == tuner.looks()
    tuner.report(tmp_path / "t.html")
    assert f"Exploring: {tuner.looks()}." in (tmp_path / "t.html").read_text()
    assert str(tuner.looks()) in tuner._repr_html_()


def test_the_papers_preset_does_not_say():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": "min"}, preset="paper")
    play(tuner, 3, lambda p: 10.0 + p["x"])
    assert tuner.looks() is None


def test_a_search_does_not_end_and_does_not_wake():
    """With goal "find" nothing is used on the way: it tries settings until its runs are spent."""
    tuner = Tuner(LEVELS, {"ms": "min"}, default={"n": 4, "mode": "a"}, goal="find")
    play(tuner, 30, levels_cost)
    found = tuner.looks()
    assert (found.search, found.ended) == (True, False)
    assert found.looks + found.again > 20
    assert str(found) == (
        f"{found.looks} of the latest 30 steps tried settings that had not run, {found.again} ran a good one once more"
        " to be sure; a search goes on until its runs are spent"
    )
    assert tuner.goal == "find"
    assert "goal='find'" in repr(tuner)
    assert Tuner(LEVELS, {"ms": "min"}).goal == "live"
