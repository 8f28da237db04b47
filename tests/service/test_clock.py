"""A clock that jumps forward and back must not stop leases and erasures."""

import logging
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from serving import NoLog, definition, whole

from rasp_tuner.service.storage.erasure import ErasureQuery, RecordFilter
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.event_time import latest_times
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy

YEAR = 365 * 86_400.0
NOW = 1e9
METRICS = {"p99_ms": 20.0}


def study(**changes):
    return LiveStudy(1, replace(definition("smooth"), lease_s=60.0, **changes), NOW)


def jumped():
    """A study whose clock was a year ahead for three asks and one answer, and the events."""
    live, events = study(), []
    events.append(live.ask({"qps": 1.0}, NOW))
    events += [live.ask({"qps": 1.0}, NOW + YEAR + i) for i in range(3)]
    events.append(live.tell("s1", NOW + YEAR + 5, NoLog(), METRICS))
    return live, events


def test_time_goes_on_with_the_clock_after_a_jump_and_says_so(caplog):
    live, events = jumped()
    with caplog.at_level(logging.WARNING, "rasp_tuner.serve"):
        events.append(live.ask({"qps": 1.0}, NOW + 10))
        events.append(live.ask({"qps": 1.0}, NOW + 11))
    assert [event.at for event in events[-2:]] == [NOW + 10, NOW + 11]
    assert caplog.text.count("the clock went back by 31535995 s: study 'web'") == 1
    replayed = study()
    for event in events:
        replayed.apply(event)
    assert whole(replayed) == whole(live)
    restored = study_snapshot.restore(study_snapshot.capture(live)(), 1, live.definition, NOW)
    assert whole(restored) == whole(live)


def test_a_clock_that_is_put_back_a_little_is_waited_for(caplog):
    live = study()
    times = [live.ask({"qps": 1.0}, at).at for at in (NOW, NOW - 59.0, NOW - 1.0, NOW + 1.0)]
    assert times == [NOW, NOW, NOW, NOW + 1.0]
    assert not caplog.records


def test_leases_end_after_a_jump():
    live, _ = jumped()
    live.ask({"qps": 1.0}, NOW + 10)
    assert (live.view(NOW + 11)["pending"], live.view(NOW + 11)["expired"]) == (4, 0)
    assert (live.view(NOW + 72)["pending"], live.view(NOW + 72)["expired"]) == (0, 4)
    assert {shown["status"] for shown in live.suggestions(9, NOW + 72)} == {"expired", "told"}
    assert live.tell("s2", NOW + 75, NoLog(), METRICS).at == NOW + 75
    assert live.counts.late == 1


def test_records_are_erased_by_time_after_a_jump():
    live, events = jumped()
    events.append(live.ask({"qps": 1.0}, NOW + 10))
    found = RecordFilter(ErasureQuery(before=NOW + 50))
    found.scan(events, NOW + 60)
    assert found.asks == {0, 1, 2, 3, 4}


def test_a_record_of_the_future_is_from_before_now():
    events = [study().ask({"qps": 1.0}, NOW + YEAR)]
    found = RecordFilter(ErasureQuery(before=NOW + 50))
    found.scan(events, NOW)
    assert found.asks == {0}


@given(st.lists(st.floats(0.0, 1e10), max_size=20), st.floats(0.0, 1e10))
def test_no_event_happened_later_than_it_says_or_than_any_after_it_or_than_now(says, now):
    events = [Event(i, "ask", at, {}, ask=i) for i, at in enumerate(says, 1)]
    times = latest_times(events, now)
    assert times == sorted(times)
    assert all(time <= min(at, now) for time, at in zip(times, says, strict=True))
    assert latest_times(events, 1e10) == says or says != sorted(says)
