"""How long an ask waits, by what the server took before; the clock is the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner.client import ServerUnavailable, server_state
from rasp_tuner.client.server_state import ServerState

LEAST, LONGEST = server_state.LEAST_DEADLINE_S, 5.0


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture(scope="module")
def clock():
    with pytest.MonkeyPatch.context() as patch:
        own = Clock()
        patch.setattr(server_state, "time", own)
        yield own


def answer(state, clock, seconds):
    number = state.record_sent()
    clock.now += seconds
    state.record_answer(number)


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=30))
def test_a_learned_deadline_is_long_enough_for_the_latest_answers(clock, times):
    state = ServerState("http://server", None, LONGEST)
    assert state.deadline == server_state.FIRST_DEADLINE_S
    for seconds in times:
        answer(state, clock, seconds)
        assert LEAST <= state.deadline <= LONGEST
        assert state.deadline >= min(3.9 * seconds, LONGEST)
    recent = max(times[-5:])
    assert state.deadline >= min(3.0 * recent, LONGEST * 0.8)
    for _ in range(200):
        answer(state, clock, 0.001)
    assert state.deadline == LEAST  # slow days are forgotten


@given(st.lists(st.floats(0.0, 20.0), max_size=10), st.floats(0.001, 10.0))
def test_a_deadline_of_ones_own_stays(clock, times, own):
    state = ServerState("http://server", own, LONGEST)
    for seconds in times:
        answer(state, clock, seconds)
    assert state.deadline == own


def test_a_silent_server_is_not_waited_for_until_it_answers(clock):
    state = ServerState("http://server", None, LONGEST)
    answer(state, clock, 0.05)
    late = state.record_sent()
    clock.now += 2.0
    assert state.deadline > 0.0
    clock.now += 6.0
    assert state.deadline == 0.0
    with pytest.raises(ServerUnavailable, match="does not answer"):
        state.check_sendable()
    state.record_answer(late)
    state.check_sendable()
    assert state.deadline == LONGEST


def test_only_failures_in_a_row_pause_requests(clock):
    state = ServerState("http://server", None, LONGEST)
    gone = ServerUnavailable("gone", reached=False)
    for _ in range(3):
        state.record_failure(state.record_sent(), gone)
        state.check_sendable()  # one alone is nothing
        clock.now += 0.01
        answer(state, clock, 0.01)
    for _ in range(2):
        clock.now += 0.01
        state.record_failure(state.record_sent(), gone)
    with pytest.raises(ServerUnavailable, match="left alone"):
        state.check_sendable()
    assert state.deadline == LEAST
    clock.now += server_state.LONGEST_PAUSE_S
    state.check_sendable()
