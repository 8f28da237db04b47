"""The line that says where a study stands: the best so far, and how long it still takes."""

import io
from dataclasses import replace

import pytest
from tune_running import session_of

from rasp_tuner.tune import StopRules
from rasp_tuner.tune.progress import Progress, best_so_far, step_words


def so_far(tmp_path, monkeypatch, work, low=0, high=20, default=10, steps=25, goal="min", **more):
    session = session_of(
        tmp_path, monkeypatch, work, steps, knobs={"x": f"int:{low}..{high}"}, metrics={"cost": goal},
        default={"x": default}, name="s", **more,
    )  # fmt: skip
    return best_so_far(session)


@pytest.mark.parametrize(("sign", "goal"), [(1, "min"), (-1, "max")])
def test_the_best_is_the_best_also_where_it_is_a_tiny_part_of_the_default(sign, goal, tmp_path, monkeypatch):
    """Of costs that differ by 30 powers of ten the lowest is named, and its own factor."""

    def work(x):
        return {"cost": 10.0 ** (sign * (x - 3))}

    said = so_far(tmp_path, monkeypatch, work, high=30, default=30, steps=30, goal=goal)
    assert said == f"best so far 1e{-30 * sign:+d} times the default (x=0)"


def test_a_best_that_no_ratio_can_say_is_told_as_it_is(tmp_path, monkeypatch):
    assert so_far(tmp_path / "a", monkeypatch, lambda x: x - 2.0, high=5, default=5) == (
        "best so far: cost -2, with the default 3 (x=0)"
    )
    assert so_far(tmp_path / "b", monkeypatch, lambda x: x - 9.0, high=5, default=5) == (
        "best so far: cost -9, with the default -4 (x=0)"
    )


def test_where_nothing_is_better_it_says_so(tmp_path, monkeypatch):
    same = "nothing better than the default so far"
    assert so_far(tmp_path / "a", monkeypatch, lambda x: 5.0 + 0 * x) == same
    assert so_far(tmp_path / "b", monkeypatch, lambda x: 1.0 + abs(x - 10)) == same
    assert so_far(tmp_path / "c", monkeypatch, lambda x, input: len(input) + abs(x - 10), inputs=["a", "b"]) == same


def test_where_the_default_fails_nothing_is_compared_with_it(tmp_path, monkeypatch):
    def work(x):
        if x == 2:
            raise ValueError("no")
        return float(x)

    said = so_far(tmp_path, monkeypatch, work, low=1, high=4, default=2)
    assert said == "best so far: cost 1; every run of the default failed (x=1)"


def test_the_time_left_counts_what_comes_after_the_search(tmp_path, monkeypatch):
    session = session_of(
        tmp_path, monkeypatch, lambda x: float(x), 10, knobs={"x": "int:0..9"}, metrics={"cost": "min"},
        default={"x": 5}, repeats=2,
    )  # fmt: skip
    session.runs[:] = [replace(run, seconds=1.0, spent_s=2.0 * (run.step + 1)) for run in session.runs]
    said = step_words(session, StopRules(15, None, 5))
    runs = 2 * 5 + 4 * 3 + 4  # pairs, rounds of the play-off, and those for the one knob
    assert said.endswith(f"10s left, then about {2 * runs}s to compare")
    assert step_words(session, StopRules(15, None, 0)).endswith("10s left")
    assert step_words(session, StopRules(10, None, 5)).endswith("spent · searched, now about 52s to compare")


def test_the_lines_after_the_search_say_how_long_they_take(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(stream)
    for done in range(3):
        progress.play_off(done, 6)
        now[0] += 40.0
    progress.knobs(0, 1)
    for done in range(3):
        now[0] += 50.0
        progress.pair(done, 5)
    assert stream.getvalue().splitlines() == [
        "play-off of the best settings: round 1 of 6; then the knobs and the final pairs",
        "play-off of the best settings: round 2 of 6 · 3m20s left; then the knobs and the final pairs",
        "play-off of the best settings: round 3 of 6 · 2m40s left; then the knobs and the final pairs",
        "which of the changed knobs matter; then the final pairs",
        "comparing with the default: pair 1 of 5",
        "comparing with the default: pair 2 of 5 · 3m20s left",
        "comparing with the default: pair 3 of 5 · 2m30s left",
    ]
