"""Kinds of context through HTTP: defined, asked with, shown as they came, forgotten by value."""

import pytest
from serving import STUDY, running, tell, view

KINDS = {
    "region": "category",
    "tier": {"kind": "category", "values": ["free", "paid"]},
    "user": {"kind": "name", "width": 4},
    "cached": "flag",
    "at": "time of day",
    "day": "weekday",
    "kb": {"kind": "number", "log": True, "missing": 8},
    "qps": "number",
}
CONTEXT = {
    "region": "<b>eu</b>",
    "tier": "gold",
    "user": "alice",
    "cached": True,
    "at": "13:45",
    "day": "Mon",
    "kb": None,
    "qps": 420,
}


def post(client, verb, **body):
    return client.post(f"/v1/studies/web/{verb}", json=body)


@pytest.fixture
def kinds(client):
    assert client.post("/v1/studies", json={**STUDY, "context": KINDS}).status_code == 201
    return client


def test_a_definition_is_shown_with_all_that_was_meant(kinds):
    shown = view(kinds)["context"]
    assert shown["region"] == {"kind": "category"}
    assert shown["tier"] == {"kind": "category", "values": ["free", "paid"]}
    assert shown["kb"] == {"kind": "number", "log": True, "missing": 8.0}
    assert kinds.post("/v1/studies", json={**STUDY, "context": shown}).status_code == 200
    plain = {**STUDY, "name": "plain"}
    assert kinds.post("/v1/studies", json={**plain, "context": {"qps": "number"}}).json()["context"] == ["qps"]


def test_each_value_may_be_told_and_is_shown_as_it_came(kinds):
    for context in (CONTEXT, {"qps": 1}, {**CONTEXT, "region": 200, "cached": "yes", "at": 3600, "day": 6}):
        asked = post(kinds, "ask", context=context).json()
        assert tell(kinds, asked["id"]).json()["status"] == "learned"
    assert post(kinds, "ask", context=list(CONTEXT.values())).status_code == 200
    seen = {"context": CONTEXT, "params": STUDY["default"], "metrics": {"p99_ms": 4.0}}
    assert kinds.post("/v1/studies/web/observe", json=seen).json()["status"] == "learned"
    assert post(kinds, "recommend", context={"qps": 7, "region": "never seen"}).status_code == 200
    shown = kinds.get("/v1/studies/web/suggestions").json()["suggestions"]
    assert [own["context"] for own in shown if own["id"] == "s0"] == [CONTEXT]
    assert kinds.get("/v1/studies/web/history").json()["regimes"]


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"qps": "many"}, "context['qps'] must be a finite number, got 'many'"),
        ({"qps": None}, "context['qps'] is missing"),
        ({"region": "eu"}, "context lacks ['qps']"),
        ({"qps": 1, "day": "someday"}, "context['day'] must be a datetime, a date"),
        ({"qps": 1, "zone": "eu"}, "context has unknown names ['zone']"),
    ],
)
def test_wrong_values_are_refused_by_name(kinds, context, says):
    answer = post(kinds, "ask", context=context)
    assert answer.status_code == 422
    assert says in answer.json()["error"]["message"]
    assert answer.json()["error"]["field"].startswith("context")


@pytest.mark.parametrize(
    "context",
    [{"region": "colour"}, {"region": {"kind": "flag", "width": 3}}, {"a": {"kind": "category", "values": []}}, {}],
)
def test_ill_defined_kinds_are_refused(client, context):
    assert client.post("/v1/studies", json={**STUDY, "context": context}).status_code == 422


def test_records_are_forgotten_by_value(kinds):
    for user in ("alice", "bob", "alice", None):
        asked = post(kinds, "ask", context={**CONTEXT, "user": user, "region": 200}).json()
        tell(kinds, asked["id"])
    assert post(kinds, "forget", context={"user": "alice", "region": "200"}).json()["erased"] == 2
    assert post(kinds, "forget", context={"user": [None, None]}).json()["erased"] == 0
    assert post(kinds, "forget", context={"user": None}).json()["erased"] == 1
    assert view(kinds)["erased"] == 3


def test_a_restart_goes_on_with_the_same_suggestions(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json={**STUDY, "context": KINDS})
        for i in range(5):
            tell(client, post(client, "ask", context={**CONTEXT, "user": f"u{i}"}).json()["id"], float(i))
        before = post(client, "recommend", context=CONTEXT).json()
    with running(sqlite) as client:
        assert view(client)["tells"] == 5
        assert post(client, "recommend", context=CONTEXT).json() == before


def test_a_context_of_too_many_dimensions_is_refused(client):
    wide = {f"c{i}": {"kind": "name", "width": 64} for i in range(9)}
    answer = client.post("/v1/studies", json={**STUDY, "context": wide})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "context may have at most 256 entries, got 585"


def test_the_kinds_are_in_the_openapi_document(client):
    parts = client.get("/openapi.json").json()["components"]["schemas"]
    assert {"NumberContext", "CategoryContext", "NameContext", "PlainContext"} <= set(parts)
