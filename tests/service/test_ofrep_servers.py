"""OFREP with several servers: any of them evaluates any flag, and a targeting key has one suggestion."""

import pytest
from ofrep_calls import HOST, error, evaluate, evaluate_all, track
from serving import STUDY, running, view, wait_for
from test_leases import LONG_S


@pytest.fixture(scope="module")
def servers(own_postgres_database):
    address, settings = own_postgres_database("flags"), {"lease_s": LONG_S, "several": True}
    with running(address, **settings) as first, running(address, **settings) as second:
        for client in (first, second):
            client.service.leases.renew()
        yield first, second


@pytest.fixture
def pair(servers):
    """Clients of two servers; the first has the studies "web" and "web.pool", the second has "far"."""
    first, second = servers
    for client, name in ((first, "web"), (first, "web.pool"), (second, "far")):
        client.delete(f"/v1/studies/{name}")
        assert client.post("/v1/studies", json={**STUDY, "name": name}).status_code == 201
    return servers


def test_any_server_evaluates_any_flag_alike(pair):
    first, second = pair
    for key, study in (
        ("web", "web"),
        ("web.t", "web"),
        ("web.pool", "web.pool"),
        ("web.pool.t", "web.pool"),
        ("far", "far"),
    ):
        answers = [evaluate(client, key, HOST).json() for client in pair]
        assert answers[0] == answers[1]
        assert answers[0]["metadata"]["study"] == study
    assert isinstance(evaluate(second, "web.pool", HOST).json()["value"], dict)  # the longest name of a study counts
    assert error(evaluate(second, "nothing", HOST)) == (404, "FLAG_NOT_FOUND")
    assert error(evaluate(second, "web", {})) == (400, "INVALID_CONTEXT")
    every = [evaluate_all(client, HOST) for client in pair]
    assert every[0].headers["etag"] == every[1].headers["etag"]
    assert [flag["key"] for flag in every[0].json()["flags"] if "." not in flag["key"][4:]][:1] == ["far"]
    same = evaluate_all(second, HOST, headers={"if-none-match": every[0].headers["etag"]})
    assert same.status_code == 304
    assert [view(first, name)["asks"] for name in ("web", "web.pool", "far")] == [1, 1, 1]
    for flag in every[0].json()["flags"]:
        if flag["key"] in ("web", "far"):
            assert track(second, flag["key"], HOST, value=1.0, variant=flag["variant"]).json()["status"] == "learned"


def test_events_are_told_where_their_study_is(pair):
    first, second = pair
    for name in ("web", "far"):
        evaluate(first, name, HOST)
    assert track(second, "web", HOST, value=1.0).json()["status"] == "learned"
    assert track(first, "web.p99_ms", HOST, value=1.0).json()["status"] == "duplicate"
    events = [
        {"trackingEventName": name, "context": HOST, "trackingEventDetails": {"value": 1.0}}
        for name in ("web", "far", "no")
    ]
    results = second.post("/ofrep/v1/track", json={"events": events}).json()["results"]
    assert [result.get("status", result.get("errorCode")) for result in results] == [
        "duplicate",
        "learned",
        "FLAG_NOT_FOUND",
    ]


def test_a_lease_moves_with_its_study(own_postgres_database):
    address, settings = own_postgres_database("flags_moved"), {"lease_s": LONG_S, "several": True}
    with running(address, **settings) as second:
        with running(address, **settings) as first:
            first.post("/v1/studies", json=STUDY)
            before = evaluate(second, "web", HOST).json()
            assert view(first)["server"] == str(first.base_url)
        wait_for(lambda: evaluate(second, "web", HOST).status_code == 200, "the new owner")
        assert evaluate(second, "web", HOST).json() == before
        assert view(second)["server"] == str(second.base_url)


def test_without_its_lease_a_server_still_knows_what_is_best(pair):
    first, _ = pair
    leased = evaluate(first, "web", HOST).json()
    first.service.leases._until = 0.0  # as when the database could not be reached for a whole lease
    assert evaluate(first, "web.t", HOST).json()["variant"] == leased["variant"]
    assert evaluate(first, "web.t", {"qps": 5}).json()["reason"] == "STALE"
    assert error(track(first, "web", HOST, value=1.0)) == (503, "GENERAL")
    first.service.leases.renew()
    assert track(first, "web", HOST, value=1.0).json()["variant"] == leased["variant"]
