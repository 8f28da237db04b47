"""Savings and controls of a study: given, learned, logged and shown as those of a tuner."""

import json

import pytest
from serving import STUDY, ask, running, view

from rasp_tuner.service.study.definition import StudyDefinition

HELD = {**STUDY, "holdout": 0.3}
BARE = {name: value for name, value in STUDY.items() if name != "default"}


@pytest.fixture
def web(sqlite):
    with running(sqlite) as client:
        assert client.post("/v1/studies", json=HELD).status_code == 201
        yield client


def post(client, path, **body):
    return client.post(f"/v1/studies/web/{path}", json=body)


def value_of(params, i):
    return 20.0 + abs(params["pool"] - 4) + params["t"] + 0.3 * (i % 5)


def play(client, tuner, steps, control=False):
    for i in range(steps):
        asked, own = ask(client, 1.0), tuner.ask({"qps": 1.0})
        assert asked["params"] == own.params
        shared = 1.0 + 0.3 * (i % 3)
        metrics = {"p99_ms": shared * value_of(own.params, i)}
        beside = {"p99_ms": shared * value_of(STUDY["default"], 0)} if control else None
        told = {"control": beside} if control else {}
        assert post(client, "tell", id=asked["id"], metrics=metrics, **told).json()["status"] == "learned"
        tuner.tell(own.id, metrics, control=beside)


def test_the_view_shows_what_a_tuner_would_have_saved(web):
    tuner = StudyDefinition.from_wire(HELD).tuner()
    assert view(web)["versus_default"] is None
    play(web, tuner, 60)
    shown, savings = view(web), tuner.savings()
    assert shown["holdout"] == 0.3
    assert savings.held_out >= 5
    assert shown["versus_default"] == json.loads(json.dumps(savings.to_json()))


def test_prometheus_reads_the_share_and_its_bounds(web):
    play(web, StudyDefinition.from_wire(HELD).tuner(), 60)
    gain = view(web)["versus_default"]["metrics"]["p99_ms"]
    lines = [line for line in web.get("/metrics").text.splitlines() if line.startswith("rasp_gain_share")]
    labels = 'study="web"'
    assert lines == [
        f'rasp_gain_share{{bound="{bound}",how="measured",metric="p99_ms",{labels}}} {gain[bound]}'
        for bound in ("low", "value", "high")
    ]


def test_a_control_is_learned_logged_and_shown(web):
    tuner = StudyDefinition.from_wire(HELD).tuner()
    play(web, tuner, 12, control=True)
    assert view(web)["versus_default"]["paired"] == tuner.savings().paired > 0
    shown = web.get("/v1/studies/web/suggestions/s3").json()
    assert shown["control"] == {"p99_ms": pytest.approx(value_of(STUDY["default"], 0))}
    events = [json.loads(line) for line in web.get("/v1/studies/web/export").text.splitlines()[1:-1]]
    assert sum("control" in event["body"] for event in events) == 12


def test_a_study_with_controls_goes_on_after_a_restart(sqlite):
    tuner = StudyDefinition.from_wire(HELD).tuner()
    with running(sqlite) as client:
        client.post("/v1/studies", json=HELD).raise_for_status()
        play(client, tuner, 15, control=True)
        before = view(client)["versus_default"]
    with running(sqlite) as client:
        assert view(client)["versus_default"] == before
        play(client, tuner, 5, control=True)


def test_the_same_answer_has_the_same_control(web):
    asked = ask(web)
    told = {"id": asked["id"], "metrics": {"p99_ms": 3.0}, "control": {"p99_ms": 4.0}}
    assert post(web, "tell", **told).json()["status"] == "learned"
    assert post(web, "tell", **told).json()["status"] == "duplicate"
    assert post(web, "tell", **{**told, "control": {"p99_ms": 5.0}}).status_code == 409
    assert post(web, "tell", id=asked["id"], metrics={"p99_ms": 3.0}).status_code == 409


@pytest.mark.parametrize("control", [{"other": 1.0}, {}, {"p99_ms": "x"}, {"p99_ms": None}, 3])
def test_a_control_that_cannot_be_is_refused_and_nothing_changes(web, control):
    asked, before = ask(web), view(web)["learned"]
    answer = post(web, "tell", id=asked["id"], metrics={"p99_ms": 3.0}, control=control)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"].startswith("control")
    assert view(web)["learned"] == before
    assert post(web, "tell", id=asked["id"], metrics={"p99_ms": 3.0}).json()["status"] == "learned"


def test_a_batch_takes_controls_but_not_of_runs_that_failed(web):
    first, second = ask(web), ask(web)
    good = {"id": first["id"], "metrics": {"p99_ms": 3.0}, "control": {"p99_ms": 4.0}}
    bad = {"id": second["id"], "failed": "no", "control": {"p99_ms": 4.0}}
    refused = post(web, "tell/batch", tells=[good, bad])
    assert refused.status_code == 422
    assert "no control" in refused.json()["error"]["message"]
    assert post(web, "tell/batch", tells=[good]).json()["results"][0]["status"] == "learned"
    assert view(web)["learned"] == 2


@pytest.mark.parametrize("holdout", [0.0, 0.9, "0.1"])
def test_a_holdout_that_is_no_share_is_refused(web, holdout):
    answer = web.post("/v1/studies", json={**STUDY, "name": "other", "holdout": holdout})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "holdout"


def test_a_holdout_needs_a_default(web):
    answer = web.post("/v1/studies", json={**BARE, "name": "other", "holdout": 0.1})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "holdout"
