"""OFREP: leases where the machine's clock jumps, and where much happens at one moment."""

import time

import pytest
from ofrep_calls import HOST, evaluate, track
from serving import STUDY, running

YEAR = 365 * 86_400.0


@pytest.fixture
def clock(monkeypatch):
    """The machine's clock, to be put forward and back by seconds, or stopped."""
    real, put = time.time, {"by": 0.0, "stopped": None}
    monkeypatch.setattr("time.time", lambda: real() + put["by"] if put["stopped"] is None else put["stopped"])
    return put


@pytest.fixture
def client(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        yield client


def variant(client, key="host-7"):
    return evaluate(client, "web", {**HOST, "targetingKey": key}).json()["variant"]


@pytest.mark.parametrize("others", [0, 1])
def test_a_lease_of_a_clock_that_was_ahead_does_not_last_until_then(client, clock, others):
    clock["by"] = YEAR
    ahead = variant(client)
    clock["by"] = 0.0
    for i in range(others):
        variant(client, f"other-{i}")
    clock["by"] = 400.0
    assert variant(client) != ahead
    assert variant(client) == variant(client)


def test_a_study_that_was_frozen_while_the_clock_was_ahead_keeps_its_leases(client, clock):
    clock["by"] = YEAR
    client.post("/v1/studies/web/freeze", json={"at": "default"}).raise_for_status()
    clock["by"] = 0.0
    assert variant(client) == variant(client) == "s0"


def test_what_is_asked_at_the_moment_of_a_freeze_is_kept_if_it_came_after(client, clock):
    clock["stopped"] = time.time()
    before = variant(client)
    client.post("/v1/studies/web/freeze", json={"at": "default"}).raise_for_status()
    after = variant(client)
    assert after != before
    assert variant(client) == after


def test_leases_that_a_freeze_ended_stay_ended_after_a_restart(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        before = variant(client)
        client.post("/v1/studies/web/freeze", json={}).raise_for_status()
        kept = variant(client, "host-8")
    for _ in range(2):  # from the log or from a snapshot
        with running(sqlite) as client:
            assert variant(client, "host-8") == kept
    with running(sqlite) as client:
        assert track(client, "web", HOST, value=1.0).json()["variant"] == before  # it ran, and its outcome counts
        assert variant(client) != before


def test_an_erasure_ends_no_lease_of_others(client):
    gone = variant(client, "host-9")
    client.post("/v1/studies/web/freeze", json={}).raise_for_status()
    kept = variant(client)
    client.post("/v1/studies/web/forget", json={"ids": [gone]}).raise_for_status()
    assert variant(client) == kept
    assert variant(client, "host-9") != gone
