"""A study says when a known situation returns: as an event, in explanations, in its live stream, after any restart."""

import json

import pytest
from serving import STUDY, NoLog, ask, definition, plain_client, running

from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.live_study import LiveStudy

DAY = 86_400.0
MONDAY = 1_699_864_200.0  # 13 November 2023, 08:30


def live_through(live, steps, start=0, length=15, apart=DAY / 15):
    """Two situations in turns, a day each; the best pool of one is far from the default."""
    for step in range(start, start + steps):
        at, busy = MONDAY + apart * step, step // length % 2
        event = live.ask({"qps": 9.0 * busy + 0.01 * (3 * step % 7)}, at)
        off = abs(event.body["params"]["t"] - (9.0 if busy else 2.0))
        live.tell(f"s{event.ask}", at, NoLog(), {"p99_ms": 20.0 + off})


@pytest.fixture
def live():
    made = LiveStudy(1, definition(), MONDAY)
    live_through(made, 45)
    return made


def returned(live):
    return [event for event in live.history.chart_data(10)["events"] if event["kind"] == "returned"]


def test_a_return_is_an_event_with_dates(live):
    (event,) = returned(live)
    assert (event["step"], event["at"], event["visits"]) == (30, MONDAY + 2 * DAY, 1)
    assert (event["last_step"], event["ago"]) == (14, 16)
    assert event["last_at"] == MONDAY + DAY * 14 / 15
    assert event["words"].startswith("Seen once before, last on Tuesday (UTC), 1 day and 16 steps earlier.")
    assert event["regime"] == live.history.latest["regime"]
    assert ("saved" in event["words"]) == (event["saved"] is not None)


def test_situations_say_how_often_and_how_long(live):
    first, second = live.history.chart_data(10)["situations"]
    assert (first["visits"], first["steps"], first["current"], first["last_step"]) == (2, 30, True, 44)
    assert (second["visits"], second["steps"], second["current"], second["words"]) == (1, 15, False, "")
    assert first["words"] == returned(live)[0]["words"]
    assert (first["first_took"] is None, first["returns_measured"] + first["returns_missed"]) == (False, 1)


def test_explanations_of_suggestions_say_it_too(live):
    told = live.suggestion("s40", NoLog(), MONDAY)
    assert told["why"]["seen"]["visits"] == 1
    assert "Seen once before, last on Tuesday (UTC)" in " ".join(told["details"])
    assert live.suggestion("s10", NoLog(), MONDAY)["why"]["seen"] is None
    event = live.ask({"qps": 9.0}, MONDAY + 6 * DAY)  # it waits
    seen = live.suggestion(f"s{event.ask}", NoLog(), MONDAY)["why"]["seen"]
    assert (seen["visits"], seen["at"], seen["took"]) == (1, MONDAY + 6 * DAY, None)


def test_a_restart_in_the_middle_of_a_return_changes_nothing():
    straight = LiveStudy(1, definition(), MONDAY)
    live_through(straight, 90)
    for stop in (29, 31, 33, 62):
        part = LiveStudy(1, definition(), MONDAY)
        live_through(part, stop)
        part = study_snapshot.restore(study_snapshot.capture(part)(), 1, definition(), MONDAY)
        live_through(part, 90 - stop, stop)
        assert part.history.to_json() == straight.history.to_json()
        assert returned(part) == returned(straight)


def test_observations_and_a_stream_that_alternates_make_no_returns():
    live = LiveStudy(1, definition(), MONDAY)
    live_through(live, 60, length=1)
    assert returned(live) == []
    for step in range(60):
        qps = 9.0 * (step // 15 % 2)
        live.observe({"qps": qps}, live.definition.default, {"p99_ms": 20.0}, f"k{step}", MONDAY + 1e6 + step, NoLog())
    assert returned(live) == []


def test_the_live_stream_and_the_schema_have_it(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        with plain_client(client.base_url) as other:
            for step in range(36):
                asked = ask(other, 9.0 * (step // 12 % 2))
                told = {"id": asked["id"], "metrics": {"p99_ms": 3.0}}
                other.post("/v1/studies/web/tell", json=told).raise_for_status()
        with client.stream("GET", "/v1/studies/web/live") as stream:
            row = next(json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        assert (row["returned"]["step"], row["returned"]["regime"]) == (24, row["regime"])
        history = client.get("/v1/studies/web/history").json()
        assert row["returned"] in history["events"]
        fields = client.get("/openapi.json").json()["components"]["schemas"]
        assert set(fields["SituationView"]["properties"]) == set(history["situations"][0])
