"""Which knobs matter: measured, told in words, and idle ones are left alone."""

import math
import random
import re

import numpy as np
import pytest
from tune_running import entries, rasp, session_of

from rasp_tuner import Bool, Categorical, Float, Int
from rasp_tuner.report.paired import Effect
from rasp_tuner.tune import tune
from rasp_tuner.tune.knob_shares import KnobShare, with_final_pairs
from rasp_tuner.tune.playoff import winner
from rasp_tuner.tune.progress import best_so_far
from rasp_tuner.tune.situations import cases_of

KNOBS = {"locale": Categorical(["utf", "c"]), "buffer": Int(1, 3), "threads": Int(1, 4)}
DEFAULT = {"locale": "utf", "buffer": 1, "threads": 2}


def sorting(noise=0.0, calls=None, metric="cost"):
    """As GNU sort: the locale halves the time, the buffer is worth 20%, threads do nothing."""
    rng = np.random.default_rng(3)

    def work(locale, buffer, threads):
        if calls is not None:
            calls.append(threads)
        value = (0.5 if locale == "c" else 1.0) * (0.8 if buffer == 3 else 1.0) * math.exp(noise * rng.normal())
        return {metric: value if metric == "cost" else 1.0 / value}

    return work


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_shares_are_measured_and_told_in_words(noise, tmp_path):
    result = tune(
        sorting(noise), KNOBS, {"cost": "min"}, default=DEFAULT, steps=40, out=tmp_path / "s", quiet=True, name="sort"
    )
    [found] = result.situations
    assert found.use == {"locale": "c", "buffer": 3, "threads": 2}
    shares = {share.name: share for share in found.shares}
    assert shares["locale"].change == pytest.approx(-0.5, abs=0.05)
    assert shares["buffer"].change == pytest.approx(-0.2, abs=0.05)
    note = "no gain was shown, left alone" if noise else "no effect shown, left alone"  # noise may hide 3%
    assert shares["threads"] == KnobShare("threads", 2, False, note=note)
    line = re.compile(rf"locale=c: -\d\d%; buffer=3: -\d\d%; threads: {note}")
    assert line.search(str(result))
    assert line.search(result.report.read_text())
    assert result.to_json()["situations"][0]["knobs"][2] == {
        "knob": "threads", "moved": False, "note": note,
    }  # fmt: skip


def test_more_is_better_has_its_own_sign(tmp_path):
    result = tune(
        sorting(metric="speed"), KNOBS, {"speed": "max"}, default=DEFAULT, steps=40, out=tmp_path / "s", quiet=True,
        name="sort",
    )  # fmt: skip
    assert "locale=c: +100%; buffer=3: +25%; threads: no effect shown, left alone" in str(result)


def test_knobs_are_not_measured_again_when_a_study_goes_on(tmp_path):
    calls = []

    def again():
        return tune(
            sorting(calls=calls), KNOBS, {"cost": "min"}, default=DEFAULT, steps=30, out=tmp_path / "s", quiet=True
        )

    first, done = again(), len(calls)
    assert entries(tmp_path / "s", "knobs")
    assert again().to_json() == first.to_json()
    assert len(calls) == done


def test_a_knob_that_a_limit_needs_stays(tmp_path):
    """Without the small window the fast level breaks the limit on size; the window itself costs nothing."""

    def work(level, window):
        return {"cost": 1.0 / level, "size": 1.0 + 0.1 * level - (0.5 if window == "small" else 0.0)}

    knobs = {"level": Int(1, 3), "window": Categorical(["large", "small"])}
    result = tune(
        work, knobs, {"cost": "min", "size": "min<=1.1"}, default={"level": 1, "window": "large"}, steps=20,
        out=tmp_path / "s", quiet=True,
    )  # fmt: skip
    [found] = result.situations
    assert found.use == {"level": 3, "window": "small"}
    assert "window=small: needed: without it runs fail or break a limit" in str(result)


def test_one_knob_alone_has_the_effect_of_the_final_pairs():
    moved, alone = KnobShare("a", 1, True, note="moved"), KnobShare("b", 2, False, note="left alone")
    ratio, apart = Effect("ratio", 0.4, 0.3, 0.5, 9), Effect("difference", -3.0, -4.0, -2.0, 9)
    assert [share.change for share in with_final_pairs([moved, alone], ratio)] == [pytest.approx(-0.6), None]
    assert str(with_final_pairs([moved, alone], apart)[0]) == "a=1: the whole difference"
    assert with_final_pairs([moved, moved], ratio) == [moved, moved]
    assert with_final_pairs([moved], None) == [moved]


def test_a_machine_that_slows_down_does_not_hide_what_is_better(tmp_path, monkeypatch):
    """In the play-off only the rounds count, in each of which all ran: earlier runs of the default were faster."""
    session = session_of(
        tmp_path, monkeypatch, lambda fast: {"cost": 0.5 if fast else 1.0}, 12,
        knobs={"fast": Bool()}, metrics={"cost": "min"}, default={"fast": False},
    )  # fmt: skip
    rounds = [[{"cost": 10.0 * slow}, {"cost": 2.0 * slow}] for slow in (1.0, 1.7, 2.4)]
    [case] = cases_of(session)
    entrants = [{"fast": False}, {"fast": True}]
    assert winner(session, case, entrants, rounds) == {"fast": True}
    alike = [[{"cost": 10.0 * slow}, {"cost": 9.95 * slow}] for slow in (1.0, 1.7, 2.4)]
    assert winner(session, case, entrants, alike) == {"fast": False}
    assert best_so_far(session) == "best so far 0.5 times the default (fast=True)"


def test_a_noisy_play_off_does_not_throw_away_what_was_far_better_in_the_search(tmp_path, monkeypatch):
    """A machine got busy when the rounds began: the final pairs decide, and have more of them."""
    rng = np.random.default_rng(5)

    def session(name, gain):
        def work(fast):
            return {"cost": (gain if fast else 1.0) * math.exp(0.1 * rng.normal())}

        return session_of(
            tmp_path / name, monkeypatch, work, 20,
            knobs={"fast": Bool()}, metrics={"cost": "min"}, default={"fast": False},
        )  # fmt: skip

    rounds = [[{"cost": a}, {"cost": b}] for a, b in ((1.4, 0.2), (3.5, 2.4), (3.4, 3.3))]
    entrants = [{"fast": False}, {"fast": True}]
    far, near = session("far", 0.2), session("near", 0.8)
    assert winner(far, cases_of(far)[0], entrants, rounds) == {"fast": True}
    assert winner(near, cases_of(near)[0], entrants, rounds) == {"fast": False}
    slower = [[{"cost": b}, {"cost": a}] for a, b in ((1.4, 0.2), (3.5, 2.4), (3.4, 3.3))]
    assert winner(far, cases_of(far)[0], entrants, slower) == {"fast": False}


def test_a_limit_that_the_default_breaks_is_kept_by_the_winner(tmp_path, monkeypatch):
    session = session_of(
        tmp_path, monkeypatch, lambda safe: {"cost": 1.2 if safe else 1.0, "p99": 100.0 if safe else 300.0}, 8,
        knobs={"safe": Bool()}, metrics={"cost": "min", "p99": "min<=200"}, default={"safe": False},
    )  # fmt: skip
    [case] = cases_of(session)
    rounds = [[{"cost": 1.0, "p99": 300.0}, {"cost": 1.2, "p99": 100.0}]] * 3
    assert winner(session, case, [{"safe": False}, {"safe": True}], rounds) == {"safe": True}


def test_with_a_limit_a_search_does_not_stay_at_what_it_knows(tmp_path):
    """The fastest presets break the limit on size; the best that keeps it is two knobs from the default."""
    cost = {"a": 0.2, "b": 0.3, "c": 0.5, "d": 0.7, "e": 1.0, "f": 1.6}
    size = {"a": 4.0, "b": 2.0, "c": 1.1, "d": 1.05, "e": 1.0, "f": 0.95}

    def work(preset, tune, threads):
        return {
            "cost": cost[preset] * {"x": 1.0, "y": 0.9, "z": 1.3}[tune] * (1.0 + 0.02 * threads),
            "size": size[preset] * {"x": 1.0, "y": 1.0, "z": 1.5}[tune],
        }

    knobs = {
        "preset": Categorical([*cost], ordered=True),
        "tune": Categorical(["x", "y", "z"]),
        "threads": Int(1, 4),
    }
    result = tune(
        work, knobs, {"cost": "min", "size": "min<=1.2 default"}, default={"preset": "e", "tune": "x", "threads": 2},
        steps=40, out=tmp_path / "s", quiet=True,
    )  # fmt: skip
    tried = [run.params for run in result.runs if not run.is_control]
    assert len({repr(params) for params in tried}) >= 12  # 4 where the tuner alone chooses
    assert result.settings == {"all": {"preset": "c", "tune": "y", "threads": 1}}


def test_two_studies_of_one_program_have_a_folder_each(tmp_path):
    (tmp_path / "a").write_text("2\n1\n")
    one = ["--knob", "flag=cat:,-r", "--default", "flag=", "--steps", 3, "--final", 0, "--", "sort", "{flag}", "a"]
    other = ["--knob", "mb=int:1..9", "--default", "mb=2", "--steps", 3, "--final", 0, "--", "sort", "-S", "{mb}M", "a"]
    rasp(*one, cwd=tmp_path, code=None)
    said = rasp(*other, cwd=tmp_path, code=None).stderr
    assert "rasp-tune/sort is about another command; this study is in 'rasp-tune/sort-2'" in said
    for words, folder in ((one, "sort"), (other, "sort-2")):
        again = rasp(*words, cwd=tmp_path, code=None)
        assert f"going on with 'rasp-tune/{folder}': 3 runs are done" in again.stderr
    assert {run["params"].keys() <= {"mb"} for run in entries(tmp_path / "rasp-tune" / "sort-2", "run")} == {True}
    changed = ["--seed", "4", *one]
    assert "another definition" in rasp(*changed, cwd=tmp_path, code=1).stderr


def test_knobs_that_do_a_little_each_go_back_as_far_as_that_costs_nothing(tmp_path):
    """Each of three small knobs is worth 0.8%: together they are worth keeping, but not all of them."""

    def work(big, one, two, three):
        return {"cost": (0.5 if big else 1.0) * 0.992 ** (one + two + three)}

    result = tune(
        work, {name: Bool() for name in ("big", "one", "two", "three")}, {"cost": "min"},
        default=dict.fromkeys(("big", "one", "two", "three"), False), steps=30, out=tmp_path / "s", quiet=True,
    )  # fmt: skip
    [found] = result.situations
    moved = [share for share in found.shares if share.moved]
    assert found.use["big"]
    assert len(moved) < 4
    assert "under 1%" not in str(result)
    assert entries(tmp_path / "s", "knobs_back")


@pytest.mark.parametrize("seed", [0, 3, 14])
def test_knobs_that_do_nothing_go_back_under_noise(seed, tmp_path):
    """Seeds with luck of more than a deviation. Two and a half are left: about one knob in a hundred."""
    rng = random.Random(seed * 7 + 1)

    def work(size, **idle):
        assert len(idle) == 2
        return {"cost": (10.0 + abs(size - 20) * 0.3) * rng.lognormvariate(0.0, 0.05)}

    knobs = {"size": Int(1, 64), "idle": Float(0, 1), "kind": Categorical(["x", "y", "z"])}
    default = {"size": 50, "idle": 0.5, "kind": "x"}
    result = tune(
        work, knobs, {"cost": "min"}, default=default, steps=40, seed=seed, out=tmp_path / "s", quiet=True, name="idle"
    )
    used = result.situations[0].use
    assert {name: used.get(name) for name in ("idle", "kind")} == {"idle": 0.5, "kind": "x"}
    assert 10 < used["size"] < 30
