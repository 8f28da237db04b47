"""max_change: a knob moves at most so far from one run to the next."""

import itertools

import numpy as np
import pytest

from rasp_tuner import Auto, Bool, Categorical, Float, Int, InvalidSpace, PowerOfTwo, Tuner

RANGE = {"pool": Int(1, 64), "rate": Float(0.5, 2.0, log=True)}
MIXED = {
    "threads": Int(1, 256, log=True),
    "block": PowerOfTwo(8, 1024),
    "level": Categorical(["low", "medium", "high", "top"], ordered=True),
    "codec": Categorical(["lz4", "zstd", "none"]),
    "sync": Bool(),
    "share": Float(0.0, 1.0, step=0.05),
}
START = {"threads": 4, "block": 64, "level": "low", "codec": "lz4", "sync": False, "share": 0.5}


def moves(tuner, steps, metric, seed=0):
    """(what ran before, what was suggested) of each step; a run that is the default is a way back, which is free."""
    before, found, noise = dict(tuner.default), [], np.random.default_rng(seed)
    for _ in range(steps):
        suggestion = tuner.ask()
        if suggestion.params != tuner.default:
            found.append((before, suggestion.params))
        tuner.tell(suggestion.id, {"ms": metric(suggestion.params) * float(np.exp(0.05 * noise.normal()))})
        before = suggestion.params
    return found


def best_at_48(params):
    return 10.0 + abs(params["pool"] - 48) * params["rate"]


def test_a_share_of_the_range_bounds_every_step_also_the_first():
    tuner = Tuner(RANGE, {"ms": "min"}, default={"pool": 8, "rate": 1.0}, max_change=0.1)
    found = moves(tuner, 60, best_at_48)
    assert max(abs(after["pool"] - before["pool"]) for before, after in found) <= 6
    rates = [abs(np.log(after["rate"] / before["rate"])) / np.log(4.0) for before, after in found]
    assert max(rates) <= 0.1 + 0.004  # both are rounded to three digits: half a percent each, of a range of log 4
    assert found[0][0] == {"pool": 8, "rate": 1.0}
    assert abs(found[0][1]["pool"] - 8) <= 6


def test_without_it_the_first_steps_are_wider():
    tuner = Tuner(RANGE, {"ms": "min"}, default={"pool": 8, "rate": 1.0})
    assert max(abs(after["pool"] - before["pool"]) for before, after in moves(tuner, 60, best_at_48)) > 6


def test_it_still_gets_to_what_is_best():
    tuner = Tuner(RANGE, {"ms": "min"}, default={"pool": 8, "rate": 1.0}, max_change={"pool": "4 steps"})
    moves(tuner, 80, best_at_48)
    assert abs(tuner.recommend()["pool"] - 48) <= 6


def test_a_percentage_is_of_the_value_that_ran():
    tuner = Tuner(RANGE, {"ms": "min"}, default={"pool": 8, "rate": 1.0}, max_change="25%")
    for before, after in moves(tuner, 60, best_at_48):
        assert abs(after["pool"] - before["pool"]) <= max(0.25 * before["pool"], 1.0)
        assert abs(after["rate"] - before["rate"]) <= 0.25 * before["rate"] + 0.005


def test_steps_and_knobs_of_every_kind():
    limits = {"threads": "3 steps", "block": "1 step", "level": "1 step", "share": 0.1}
    tuner = Tuner(MIXED, {"ms": "min"}, default=START, max_change=limits)
    levels = MIXED["level"].choices
    cost = lambda p: 10.0 + abs(p["threads"] - 64) + 20 * (p["codec"] == "lz4") - levels.index(p["level"])  # noqa: E731
    found = moves(tuner, 80, cost)
    for before, after in found:
        assert abs(after["threads"] - before["threads"]) <= 3
        assert after["block"] / before["block"] in (0.5, 1.0, 2.0)
        assert abs(levels.index(after["level"]) - levels.index(before["level"])) <= 1
        assert abs(after["share"] - before["share"]) <= 0.1 + 1e-9
    assert {after["codec"] for _, after in found} > {"lz4"}  # choices without an order are free


def test_a_limit_finer_than_a_step_still_lets_a_knob_move():
    tuner = Tuner({"n": Int(1, 5)}, {"ms": "min"}, default={"n": 1}, max_change=0.01)
    assert {after["n"] for _, after in moves(tuner, 20, lambda p: 10.0 - p["n"])} >= {2, 3}


def test_a_number_after_a_word_is_free_and_then_bounded():
    space = {"cache": Auto(Int(1, 60))}
    tuner = Tuner(space, {"ms": "min"}, default={"cache": "auto"}, max_change={"cache": "5 steps"})
    found = list(moves(tuner, 40, lambda p: 10.0 if p["cache"] == "auto" else 5.0 + p["cache"] / 50))
    numbers = [(a["cache"], b["cache"]) for a, b in found if "auto" not in (a["cache"], b["cache"])]
    assert numbers
    assert all(abs(b - a) <= 5 for a, b in numbers)


def test_constraints_are_kept_on_the_way():
    space = {"a": Int(1, 64), "b": Int(1, 64)}
    rules = ["a * b <= 128"]
    tuner = Tuner(space, {"ms": "min"}, default={"a": 2, "b": 50}, max_change="4 steps", constraints=rules)
    for before, after in moves(tuner, 60, lambda p: 100.0 - p["a"]):
        assert after["a"] * after["b"] <= 128
        assert abs(after["a"] - before["a"]) <= 4
        assert abs(after["b"] - before["b"]) <= 4


def test_what_ran_and_was_told_is_where_it_moves_from():
    tuner = Tuner({"n": Int(1, 64)}, {"ms": "min"}, default={"n": 8}, max_change="4 steps", budget=None)
    tuner.tell(tuner.ask().id, {"ms": 10.0})
    suggestion = tuner.ask()
    assert abs(suggestion.params["n"] - 8) <= 4
    tuner.tell(suggestion.id, {"ms": 9.0}, params={"n": 40})
    assert abs(tuner.ask().params["n"] - 40) <= 4


def test_drawn_runs_of_the_default_do_not_send_it_back_to_the_start():
    tuner = Tuner({"n": Int(1, 64)}, {"ms": "min"}, default={"n": 8}, max_change="3 steps", holdout=0.3)
    noise, own = np.random.default_rng(1), [8]
    for _ in range(80):
        suggestion = tuner.ask()
        if tuner.explain(suggestion.id).source != "default (holdout)":
            own.append(suggestion.params["n"])
        tuner.tell(suggestion.id, {"ms": (80.0 - suggestion.params["n"]) * float(np.exp(0.02 * noise.normal()))})
    assert max(own) > 40  # with a return to 8 in every third step it would stay below 20
    assert all(abs(b - a) <= 3 for a, b in itertools.pairwise(own) if b != 8)


def test_the_explanation_is_of_what_runs():
    tuner = Tuner(RANGE, {"ms": "min"}, default={"pool": 8, "rate": 1.0}, max_change=0.05)
    seen = []
    for _ in range(20):
        suggestion = tuner.ask()
        why = tuner.explain(suggestion.id)
        if "max_change" in why.source and why.predicted is not None:
            seen.append(why)
            assert why.params == suggestion.params
            assert why.stop == suggestion.stop
        tuner.tell(suggestion.id, {"ms": best_at_48(suggestion.params)})
    assert seen


@pytest.mark.parametrize("holdout", [None, 0.2])
def test_a_saved_tuner_goes_on_alike(holdout):
    tuner = Tuner(RANGE, {"ms": "min"}, default={"pool": 8, "rate": 1.0}, max_change={"pool": "10%"}, holdout=holdout)
    moves(tuner, 15, best_at_48)
    waiting = tuner.ask()
    copy = Tuner.from_bytes(tuner.to_bytes())
    for one in (tuner, copy):
        one.tell(waiting.id, {"ms": 12.0})
    assert moves(copy, 15, best_at_48) == moves(tuner, 15, best_at_48)
    assert copy.to_bytes() == tuner.to_bytes()


def test_frozen_it_goes_to_the_recommendation_in_steps_and_to_the_default_at_once():
    tuner = Tuner({"n": Int(1, 64)}, {"ms": "min"}, ["load"], {"n": 8}, max_change="5 steps")
    for _ in range(30):
        for n in (8, 30, 60):
            tuner.observe({"load": 1.0}, {"n": n}, {"ms": 100.0 - n})
    assert tuner.recommend({"load": 1.0})["n"] > 20
    tuner.freeze()
    suggestion = tuner.ask({"load": 1.0})
    assert suggestion.params == {"n": 13}
    tuner.tell(suggestion.id, {"ms": 87.0})
    assert tuner.ask({"load": 1.0}).params == {"n": 18}
    tuner.freeze(default=True)
    assert tuner.ask({"load": 1.0}).params == {"n": 8}


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (0.0, "must be a share of the range"),
        (1.5, "must be a share of the range"),
        (True, "max_change must be"),
        ("fast", '"2 steps"'),
        ("1.5 steps", '"2 steps"'),
        ("0%", '"20%"'),
        ({"poool": 0.1}, "no knob"),
        ({"rate": "2 steps"}, "has no steps"),
        ({"codec": "1 step"}, "no size to limit"),
        ({"depth": "10%"}, "values above 0"),
        ("10%", "values above 0"),
        ({}, "limits no knob"),
        ([0.1], "max_change"),
    ],
)
def test_what_makes_no_sense_is_refused(limit, said):
    space = {**RANGE, "codec": Categorical(["a", "b", "c"]), "depth": Float(0.0, 1.0)}
    with pytest.raises(InvalidSpace, match=said):
        Tuner(space, {"ms": "min"}, max_change=limit)


def test_only_choices_have_nothing_to_limit():
    with pytest.raises(InvalidSpace, match="limits no knob"):
        Tuner({"codec": Categorical(["a", "b", "c"])}, {"ms": "min"}, max_change=0.1)
