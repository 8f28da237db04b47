"""Stops over HTTP: a suggestion says where its run should end, a partial value is judged, a bound is logged."""

import json

import pytest
from serving import STUDY, ask, running, view

from rasp_tuner.service.study.definition import StudyDefinition

PLANS = {"plan": {"type": "categorical", "choices": ["a", "b", "c"]}}
WEB = {**STUDY, "space": PLANS, "default": {"plan": "a"}}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def web(sqlite):
    with running(sqlite) as client:
        assert client.post("/v1/studies", json=WEB).status_code == 201
        yield client


def post(client, path, study="web", **body):
    return client.post(f"/v1/studies/{study}/{path}", json=body)


def with_stop(client):
    """A suggestion that has a stop."""
    for _ in range(20):
        own = ask(client)
        if own["stop"] is not None:
            return own
        assert post(client, "tell", id=own["id"], metrics={"p99_ms": 1.0}).status_code == 200
    raise AssertionError("no suggestion had a stop")


def test_a_partial_value_is_judged(web):
    own = with_stop(web)
    assert own["stop"] == pytest.approx(1.25, rel=0.05)
    before = view(web)
    low, high = (post(web, "partial", id=own["id"], metrics={"p99_ms": value}).json() for value in (1.0, 2.0))
    assert low == {"stop": False, "limit": own["stop"]}
    assert high == {"stop": True, "limit": own["stop"]}
    assert view(web) == before  # nothing has changed


def test_a_service_learns_a_bound_as_a_tuner_does(web):
    tuner = StudyDefinition.from_wire(WEB).tuner()
    stops = 0
    for step in range(30):
        s, own = ask(web, float(step % 2)), tuner.ask({"qps": float(step % 2)})
        assert (s["params"], s["stop"]) == (own.params, own.stop)
        value = {"a": 1.0, "b": 10.0, "c": 0.5 + step % 2}[s["params"]["plan"]]
        stopped = own.stop is not None and value >= own.stop
        stops += stopped
        metrics = {"p99_ms": own.stop if stopped else value}
        assert post(web, "tell", id=s["id"], metrics=metrics, stopped=stopped).json()["status"] == "learned"
        tuner.tell(own.id, metrics, stopped=stopped)
    assert stops


def test_a_bound_is_on_record_and_told_once(web):
    own = with_stop(web)
    told = {"id": own["id"], "metrics": {"p99_ms": own["stop"]}, "stopped": True}
    assert post(web, "tell", **told).json()["status"] == "learned"
    assert post(web, "tell", **told).json()["status"] == "duplicate"
    assert post(web, "tell", **{**told, "stopped": False}).status_code == 409
    shown = web.get(f"/v1/studies/web/suggestions/{own['id']}").json()
    assert shown["stopped"] is True
    assert any("ended there" in one for one in shown["details"])
    assert post(web, "partial", id=own["id"], metrics={"p99_ms": 1.0}).status_code == 409


def test_a_study_with_bounds_comes_back_and_moves(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=WEB)
        own = with_stop(client)
        post(client, "tell", id=own["id"], metrics={"p99_ms": own["stop"]}, stopped=True)
        seen = {"context": {"qps": 1.0}, "params": {"plan": "c"}, "metrics": {"p99_ms": 3.0}}
        assert post(client, "observe", **seen, stopped=True, key="k").json()["status"] == "learned"
        assert post(client, "observe", **seen, stopped=True, key="k").json()["status"] == "duplicate"
        assert post(client, "observe", **seen, key="k").status_code == 409
        content = client.get("/v1/studies/web/export").content
        bodies = [json.loads(line).get("body", {}) for line in content.splitlines()]
        assert sum(body.get("stopped", False) for body in bodies) == 2
        assert client.post("/v1/studies/import?name=copy", content=content, headers=NDJSON).status_code == 201
        assert ask(client, study="copy")["stop"] == ask(client)["stop"]
        before = view(client)
    with running(sqlite) as client:
        assert {**view(client), "server": None} == {**before, "server": None}
        waiting = f"s{before['asks'] - 1}"
        again = [post(client, "partial", one, id=waiting, metrics={"p99_ms": 2.0}).json() for one in ("web", "copy")]
        assert again[0] == again[1]
        assert ask(client, study="copy")["params"] == ask(client)["params"]


def test_what_makes_no_sense_is_refused(web):
    own = with_stop(web)
    before = view(web)
    wrong = [
        ({"id": "s999", "metrics": {"p99_ms": 1.0}}, 404),
        ({"id": "x9", "metrics": {"p99_ms": 1.0}}, 404),
        ({"id": own["id"], "metrics": {"other": 1.0}}, 422),
        ({"id": own["id"], "metrics": {"p99_ms": "fast"}}, 422),
        ({"id": own["id"], "metrics": {}}, 422),
        ({"id": own["id"]}, 422),
    ]
    for body, status in wrong:
        assert web.post("/v1/studies/web/partial", json=body).status_code == status
    nan = b'{"id": "%s", "metrics": {"p99_ms": NaN}}' % own["id"].encode()
    assert web.post("/v1/studies/web/partial", content=nan, headers={"content-type": "application/json"}).is_error
    assert post(web, "tell", id=own["id"], metrics={"p99_ms": 1.0}, stopped="yes").status_code == 422
    failed = post(web, "tell/batch", tells=[{"id": own["id"], "failed": "crash", "stopped": True}])
    assert failed.status_code == 422
    assert view(web) == before


def test_a_batch_has_bounds_too(web):
    own = with_stop(web)
    told = {"id": own["id"], "metrics": {"p99_ms": own["stop"]}, "stopped": True}
    assert post(web, "tell/batch", tells=[told]).json()["results"][0]["status"] == "learned"
    assert web.get(f"/v1/studies/web/suggestions/{own['id']}").json()["stopped"] is True


def test_without_a_default_there_is_no_stop(web):
    bare = {name: value for name, value in WEB.items() if name != "default"}
    assert web.post("/v1/studies", json={**bare, "name": "bare"}).status_code == 201
    own = ask(web, study="bare")
    assert own["stop"] is None
    refused = post(web, "partial", "bare", id=own["id"], metrics={"p99_ms": 1.0})
    assert refused.status_code == 422
    assert "default" in refused.json()["error"]["message"]
