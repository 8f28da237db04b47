"""When a situation returns, and what may be said of it: nothing that was not measured."""

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Revisit
from rasp_tuner.contexts.regimes import RegimeTimeline
from rasp_tuner.history.recovery import FAILED, settled, steps_to_recover
from rasp_tuner.history.visits import MAX_RETURNS, MAX_STEPS, MAX_TOLD, TOLD_EVERY_STEPS, StepSeen, Visits, return_of


def followed(labels, values=None, runs=None, at=None):
    """Visits of a stream of labels; `runs` are one-dimensional settings."""
    visits, told = Visits(lambda a, b: abs(a - b)), []
    for i, label in enumerate(labels):
        value = None if values is None else values[i]
        moment = None if at is None else at + i
        told.append(visits.add(label, StepSeen(i, moment, value, 0.0 if runs is None else runs[i])))
    return visits, [one for one in told if one is not None]


def descending(steps, fast=False):
    """A loss that comes down to 1 in about ten steps, or is there at once."""
    return [1.0 + (0.0 if fast else 10.0 * 0.6**i) for i in range(steps)]


def test_time_to_recover_is_counted_until_values_are_near_where_they_settle():
    assert settled(descending(30)).took == 5  # 10 * 0.6^5 = 0.8 is the median of three within a tenth of the way
    assert settled([1.0] * 30).took == 0
    assert settled(descending(11)) is None  # too few to tell
    assert settled([FAILED] * 30) is None
    assert settled([FAILED, FAILED, *descending(30)]).took == 6
    assert steps_to_recover([5.0, 1.0, 5.0, 1.0, 1.0], 2.0) == 1  # one may be far off
    assert steps_to_recover([5.0, 5.0, 1.0], 2.0) is None


def test_noise_alone_takes_no_time_to_settle():
    rng = np.random.default_rng(0)
    took = [settled(rng.normal(size=30).tolist()).took for _ in range(400)]
    assert np.mean(np.array(took) >= 3) < 0.02


def test_a_visit_begins_with_three_steps_in_a_row():
    visits, told = followed([0] * 5 + [1] * 2 + [0] * 5 + [2] + [0] * 3)
    assert (visits.situations[0].visits, list(visits.situations), told) == (1, [0], [])
    visits, told = followed([0] * 20 + [1] * 20 + [0] * 3)
    assert [(one.situation, one.step, one.visits, one.last_step, one.away_from) for one in told] == [(0, 40, 1, 19, 1)]
    assert (visits.situations[0].visits, visits.situations[1].visits) == (2, 1)


@pytest.mark.parametrize("length", [1, 2])
def test_what_alternates_at_every_step_or_two_never_returns(length):
    visits, told = followed([i // length % 2 for i in range(300)])
    assert (told, len(visits.situations) <= 1) == ([], True)


def test_returns_that_come_often_are_counted_and_seldom_told():
    visits, told = followed([i // 3 % 5 for i in range(300)])
    assert all(b.step - a.step >= TOLD_EVERY_STEPS for a, b in itertools.pairwise(told))
    assert 20 <= len(told) <= 30
    assert sum(one.visits for one in visits.situations.values()) == 100


def test_what_a_return_saves_is_measured_against_the_first_visit():
    labels = [0] * 20 + [1] * 20 + [0] * 20
    visits, (back,) = followed(labels, descending(20) + descending(20) + descending(20, fast=True))
    assert return_of(back) == Revisit(1, 19, 21, first_took=5, took=0)
    assert return_of(back).saved == 5
    assert visits.situations[0].took == [0]
    _, (slow,) = followed(labels, descending(20) * 3)  # it forgot: as long as at first
    assert (return_of(slow).took, return_of(slow).saved) == (5, None)
    assert "saved" not in str(return_of(slow))


def test_nothing_is_saved_where_the_return_does_not_get_as_good():
    labels = [0] * 20 + [1] * 20 + [0] * 20 + [1] * 3
    visits, (back, _) = followed(labels, [*descending(40)[:20], *descending(20), *[7.0] * 20, *[1.0] * 3])
    assert (back.took, return_of(back).saved, visits.situations[0].missed) == (None, None, 1)
    assert str(return_of(back)).endswith("At first it took about 5 steps to settle.")


def test_short_first_visits_are_measured_together():
    labels = ([0] * 6 + [1] * 12) * 4
    first = iter(descending(12))
    values = [next(first, 1.0) if label == 0 else 1.0 for label in labels]
    visits, _ = followed(labels, values)
    assert (visits.situations[0].settled.took, visits.situations[0].took) == (5, [0, 0])


def test_it_is_said_to_start_from_settings_only_if_it_went_back_to_them():
    labels = [0] * 15 + [1] * 15 + [0] * 5
    _, (back,) = followed(labels, runs=[0.2] * 15 + [0.8] * 15 + [0.21] * 5)
    assert back.started_from == 0.2
    _, (elsewhere,) = followed(labels, runs=[0.2] * 15 + [0.8] * 15 + [0.5] * 5)
    _, (unchanged,) = followed(labels, runs=[0.2] * 35)
    assert (elsewhere.started_from, unchanged.started_from) == (None, None)


def test_unknown_values_are_left_out_and_failures_are_worse_than_all():
    labels = [0] * 30 + [1] * 20 + [0] * 10
    gaps = [None, *descending(29)]
    _, (back,) = followed(labels, gaps + [1.0] * 20 + [FAILED] * 4 + [1.0] * 6)
    assert (back.first_took, back.took) == (5, 3)
    visits, (quiet,) = followed(labels, [None] * 60)
    assert (quiet.first_took, quiet.took, visits.situations[0].visits) == (None, None, 2)


def test_two_situations_that_become_one_never_returned_to_each_other():
    visits, told = followed([0] * 20 + [1] * 20 + [0] * 20 + [2] * 20 + [0] * 5)
    assert len(told) == 2
    visits.merge(1, 0)
    assert [(one.situation, one.away_from) for one in visits.arrivals] == [(0, 2)]
    assert visits.situations[0].steps == 65
    assert (visits.now, set(visits.situations)) == (0, {0, 2})


STREAMS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 12), st.sampled_from(["fast", "slow", "noisy", "failed", "unknown"])),
    min_size=1,
    max_size=40,
)


def steps_of(blocks):
    rng, made = random.Random(0), []
    for label, length, kind in blocks:
        values = {
            "fast": [1.0] * length,
            "slow": descending(length),
            "noisy": [rng.gauss(1.0, 1.0) for _ in range(length)],
            "failed": [FAILED] * length,
            "unknown": [None] * length,
        }[kind]
        made += [(label, StepSeen(len(made) + i, float(i), value, rng.random())) for i, value in enumerate(values)]
    return made


@given(STREAMS, st.integers(0, 300), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_any_stream_is_bounded_and_goes_on_after_a_restart_as_if_there_had_been_none(blocks, stop, merge_at):
    straight, cut = Visits(lambda a, b: abs(a - b)), Visits(lambda a, b: abs(a - b))
    steps = steps_of(blocks)
    for i, (label, step) in enumerate(steps):
        for visits in (straight, cut):
            if i == merge_at:
                visits.merge(2, 1)
            visits.add(1 if label == 2 and i >= merge_at else label, step)
        if i == stop:
            kept = json.loads(json.dumps(cut.to_json(), allow_nan=False))
            cut = Visits(lambda a, b: abs(a - b))
            cut.restore(kept)
    assert cut.to_json() == straight.to_json()
    assert len(straight.arrivals) <= MAX_TOLD
    assert sum(one.steps for one in straight.situations.values()) <= len(steps)
    for one in straight.situations.values():
        assert len(one.first_values) < MAX_STEPS
        assert len(one.took) <= MAX_RETURNS
        assert one.visits <= one.steps
    for one in straight.arrivals:
        back = return_of(one)
        assert back.saved is None or back.saved <= back.first_took
        assert ("saved" in str(back)) == (back.saved is not None)


def test_words_have_dates_where_there_is_a_clock():
    tuesday = 1_700_000_000.0 - 0.2 * 86_400  # Tuesday, 14 November 2023
    back = Revisit(3, 100, 212, 41, 2, {"pool": 38}, tuesday, tuesday + 3.1 * 86_400)
    assert str(back) == (
        "Seen 3 times before, last on Tuesday (UTC), 3 days and 212 steps earlier. Started from the settings of then"
        " (pool=38). At first it took about 41 steps to settle, this time 2: about 39 steps saved."
    )
    assert str(Revisit(1, 100, 1, 41, None, None, tuesday, tuesday + 90)) == (
        "Seen once before, last 1 step and 2 minutes earlier. At first it took about 41 steps to settle."
    )
    assert "on Tuesday, 14 November 2023 (UTC), 30 days" in str(
        Revisit(2, 0, 9, last_at=tuesday, at=tuesday + 30 * 86_400)
    )
    assert str(Revisit(2, 0, 9, 0, 0, at_least=True)) == "Seen at least twice before, last 9 steps earlier."


@pytest.mark.parametrize("curve", [lambda _: 0.0, lambda step: 10.0 * 0.8**step, lambda step: 10.0 * 0.5**step])
@pytest.mark.parametrize("length", [12, 40])
def test_who_forgets_is_seldom_said_to_have_saved_steps(curve, length):
    """Every visit begins anew, and noise is all that differs: few returns may be said to save anything."""
    rng, said, returns = np.random.default_rng(0), 0, 0
    for _ in range(60):
        values = [curve(step) + float(rng.normal()) for _ in range(6) for step in range(length)]
        _, told = followed([i // length % 2 for i in range(6 * length)], values)
        said += sum(return_of(one).saved is not None for one in told)
        returns += len(told)
    assert returns >= 180
    assert said / returns < 0.04


def test_a_thirteenth_situation_is_not_taken_for_one_of_the_twelve():
    """Corners of a cube, each far from all others: twelve are known, and nothing is said of the rest."""
    corners = np.where(np.random.default_rng(0).random((20, 24)) < 0.5, 0.0, 1.0)
    seen = RegimeTimeline(24)
    strays = []
    for _ in range(3):
        for place, corner in enumerate(corners):
            labels = set()
            for _ in range(12):
                label = seen.add(corner)
                labels |= set() if seen.stray else {label}
                strays.append((place, seen.stray))
            assert len(labels) <= 1
    assert not any(stray for place, stray in strays if place < 12)
    assert all(stray for place, stray in strays if place >= 12)
    assert all(seen.known_situation(corner) is None for corner in corners[12:])
    assert len({seen.known_situation(corner) for corner in corners[:12]}) == 12
