"""What really ran is learned, logged and shown, like everything else that is told."""

import hashlib
import json

import pytest
from serving import STUDY, NoLog, ask, definition, plain_client, running, steps, tell, view

from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy

METRICS = {"p99_ms": 3.0}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def web(sqlite):
    """One kind of database: the log is the same in both."""
    with running(sqlite) as client:
        assert client.post("/v1/studies", json=STUDY).status_code == 201
        yield client


def post(client, path, **body):
    return client.post(f"/v1/studies/web/{path}", json=body)


def shown(client, id):
    return client.get(f"/v1/studies/web/suggestions/{id}").json()


def test_what_ran_is_learned_and_shown(web):
    ask(web)
    assert post(web, "tell", id="s0", metrics=METRICS, params={"pool": 16}).json()["status"] == "learned"
    seen = shown(web, "s0")
    assert seen["params"] == STUDY["default"]
    assert seen["ran"] == seen["why"]["ran"] == {"pool": 16, "t": 1.0}
    assert "with other settings: pool=16, t=1." in seen["explanation"]
    assert web.get("/v1/studies/web/history").json()["series"]["param:pool"]["mean"] == [16.0]
    s = ask(web)
    tell(web, s["id"])
    assert "ran" not in shown(web, s["id"])


def test_a_service_goes_on_as_a_tuner_that_was_told_the_same(web):
    tuner = StudyDefinition.from_wire(STUDY).tuner()
    for i in range(12):
        s, own = ask(web, float(i % 2)), tuner.ask({"qps": float(i % 2)})
        assert s["params"] == own.params
        metrics, ran = {"p99_ms": 20.0 + abs(s["params"]["t"] - 4.0)}, {"pool": 2 ** (i % 6)}
        post(web, "tell", id=s["id"], metrics=metrics, params=ran)
        tuner.tell(own.id, metrics, ran)


@pytest.mark.parametrize("params", [None, {}, {"pool": 8}, {"pool": 8.0, "t": 1}, STUDY["default"]])
def test_that_the_suggestion_ran_may_be_said_or_not(web, params):
    ask(web)
    assert post(web, "tell", id="s0", metrics=METRICS, params=params).json()["status"] == "learned"
    assert "ran" not in shown(web, "s0")
    assert post(web, "tell", id="s0", metrics=METRICS).json()["status"] == "duplicate"


def test_the_same_again_changes_nothing_and_something_else_is_refused(web):
    for _ in range(2):
        ask(web)
    told = {"id": "s0", "metrics": METRICS, "params": {"pool": 16}}
    failed = {"id": "s1", "reason": "crash", "params": {"pool": 1}}
    for path, body in (("tell", told), ("tell_failed", failed)):
        assert post(web, path, **body).json()["status"] == "learned"
        before = view(web)
        assert post(web, path, **body).json()["status"] == "duplicate"
        ran = {**shown(web, body["id"])["params"], **body["params"]}
        assert post(web, path, **body | {"params": ran}).json()["status"] == "duplicate"
        for params in (None, {"pool": 17}):
            other = post(web, path, **body | {"params": params})
            assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
        assert view(web) == before


@pytest.mark.parametrize(
    ("params", "field", "words"),
    [
        ({"pool": 65}, "params", "params['pool']: value must lie in [1, 64], got 65"),
        ({"pool": "8"}, "params", "params['pool']: value must be a finite number"),
        ({"threads": 1}, "params", "unknown names ['threads']"),
        ([16, 1.0], "params", "valid dictionary"),
        ({"pool": [1]}, "params.pool", ""),
    ],
)
def test_what_cannot_have_run_is_refused_and_changes_nothing(web, params, field, words):
    ask(web)
    before = view(web)
    for path, body in (("tell", {"metrics": METRICS}), ("tell_failed", {"reason": "crash"})):
        error = post(web, path, id="s0", params=params, **body).json()["error"]
        assert error["code"] == "invalid_value"
        assert error["field"].startswith(field)
        assert words in error["message"]
    assert view(web) == before
    assert tell(web, "s0").json()["status"] == "learned"


def test_a_batch_of_what_ran(web):
    for _ in range(4):
        ask(web)
    tells = [
        {"id": "s0", "metrics": METRICS, "params": {"pool": 16}},
        {"id": "s1", "failed": "crash", "params": {"t": 9.0}},
        {"id": "s2", "metrics": METRICS, "params": {"pool": 0}},
        {"id": "s2", "metrics": METRICS},
    ]
    results = post(web, "tell/batch", tells=tells).json()["results"]
    assert [result["status"] for result in results] == ["learned", "learned", "rejected", "learned"]
    assert results[2]["error"]["message"] == "params['pool']: value must lie in [1, 64], got 0"
    assert [shown(web, id).get("ran", {}).get(knob) for id, knob in (("s0", "pool"), ("s1", "t"))] == [16, 9.0]
    assert "ran" not in shown(web, "s2")


def test_what_ran_of_an_ask_that_fell_out_of_the_ledger(web, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.study.live_study.ANSWERS_IN_MEMORY", 1)
    web.delete("/v1/studies/web")
    web.post("/v1/studies", json={**STUDY, "max_pending": 2})
    for _ in range(4):
        ask(web)
    late = {"id": "s0", "metrics": METRICS, "params": {"pool": 16}}
    refused = post(web, "tell", **late | {"params": {"pool": 99}})
    assert (refused.status_code, view(web)["tells"]) == (422, 0)
    assert post(web, "tell", **late).json() == {"id": "s0", "status": "learned", "late": True}
    tell(web, "s3")
    assert post(web, "tell", **late).json()["status"] == "duplicate"  # its answer is read from the log
    assert post(web, "tell", id="s0", metrics=METRICS).status_code == 409
    assert shown(web, "s0")["ran"] == {"pool": 16, "t": 1.0}


def test_an_export_and_a_restart_keep_what_ran(database):
    with running(database) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 6)
        post(client, "tell", id=ask(client)["id"], metrics=METRICS, params={"pool": 64})
        post(client, "tell_failed", id=ask(client)["id"], reason="crash", params={"pool": 1})
        pages = ("", "/suggestions", "/history")
        seen = [client.get(f"/v1/studies/web{path}").json() for path in pages]
        export = client.get("/v1/studies/web/export").content
        assert sum(b'"ran":' in line for line in export.splitlines()) == 2
        made = client.post("/v1/studies/import?name=copy", content=export, headers=NDJSON)
        assert made.status_code == 201, made.text
    with running(database) as client:
        assert [client.get(f"/v1/studies/web{path}").json() for path in pages] == seen
        assert client.get("/v1/studies/copy/history").json() == seen[2]
        assert ask(client)["params"] == ask(client, study="copy")["params"]


def test_a_killed_server_replays_what_ran(process):
    with plain_client(process.url) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 5)
        s = ask(client)
        post(client, "tell", id=s["id"], metrics=METRICS, params={"pool": 64}).raise_for_status()
        seen = [client.get(f"/v1/studies/web{path}").json() for path in ("", "/suggestions", "/history")]
        best = post(client, "recommend", context={"qps": 1.0}).json()
    process.kill()
    process.start()
    with plain_client(process.url) as client:
        assert [client.get(f"/v1/studies/web{path}").json() for path in ("", "/suggestions", "/history")] == seen
        assert post(client, "recommend", context={"qps": 1.0}).json() == best
        assert shown(client, s["id"])["ran"] == {**s["params"], "pool": 64}


def test_a_log_that_came_out_otherwise_keeps_what_ran():
    """As when the library has changed between the log and its replay."""
    suggested = {"pool": 63, "t": 9.5}
    live, plain = (LiveStudy(1, definition(), 0.0) for _ in range(2))
    for study in (live, plain):
        study.apply(Event(1, "ask", 1.0, {"context": {"qps": 1.0}, "params": suggested}, ask=0))
    live.tell("s0", 2.0, NoLog(), METRICS, params={"pool": 2})
    plain.tuner.observe({"qps": 1.0}, {"pool": 2, "t": 9.5}, METRICS)
    assert live.suggestion("s0", NoLog(), 3.0)["ran"] == {"pool": 2, "t": 9.5}
    assert live.tuner.to_bytes() == plain.tuner.to_bytes()


def test_forecasts_are_judged_by_runs_of_what_was_forecast():
    live = LiveStudy(1, definition(), 0.0)
    for i in range(24):
        number = live.ask({"qps": 1.0}, float(i)).ask
        params = {"pool": 1 + i} if i % 2 else None
        live.tell(f"s{number}", float(i), NoLog(), {"p99_ms": 20.0 + i % 5}, params=params)
    forecast = [live.suggestion(f"s{i}", NoLog(), 99.0)["why"] for i in range(24)]
    count = sum(why["predicted"] is not None and why["ran"] is None for why in forecast)
    assert live.history.chart_data(10)["calibration"]["count"] == count
    assert count < sum(why["predicted"] is not None for why in forecast)


@pytest.mark.parametrize("ran", [5, {"pool": 99}, {"threads": 1}, [["pool", 2]]])
def test_a_log_with_something_else_than_what_ran_is_refused(web, ran):
    ask(web)
    post(web, "tell", id="s0", metrics=METRICS, params={"pool": 16})
    lines = [json.loads(line) for line in web.get("/v1/studies/web/export").content.splitlines()][:-1]
    lines[-1]["body"]["ran"] = ran
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"count": len(lines) - 1, "sha256": hashlib.sha256(body).hexdigest()}
    answer = web.post("/v1/studies/import?name=x", content=body + json.dumps(end).encode(), headers=NDJSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_value")
    assert "line 3, event 2: " in answer.json()["error"]["message"]


def test_the_document_describes_what_ran(web):
    schemas = web.get("/openapi.json").json()["components"]["schemas"]
    for name in ("Tell", "TellFailed", "TellItem"):
        assert "knobs left out ran as suggested" in schemas[name]["properties"]["params"]["description"]
        assert "params" not in schemas[name].get("required", [])
    assert "ran" in schemas["SuggestionView"]["properties"]
