import pytest
from serving import STUDY, ask, running, steps, tell, view


def test_a_study_is_made_once_and_only_with_one_definition(client):
    first = client.post("/v1/studies", json=STUDY)
    again = client.post("/v1/studies", json={**STUDY, "metrics": {"p99_ms": "min"}})
    other = client.post("/v1/studies", json={**STUDY, "seed": 1})
    assert [first.status_code, again.status_code, other.status_code] == [201, 200, 409]
    assert first.json() == again.json()
    assert other.json()["error"]["code"] == "conflict"
    assert first.json()["space"]["pool"] == {"type": "int", "low": 1, "high": 64, "log": True, "step": 1}
    assert first.json()["asks"] == 0
    assert [study["name"] for study in client.get("/v1/studies").json()["studies"]] == ["web"]


def test_what_is_told_is_counted_and_learned(web):
    first = ask(web)
    assert first["id"] == "s0"
    assert first["params"] == STUDY["default"]
    assert tell(web, "s0", 3.0).json() == {"id": "s0", "status": "learned", "late": False}
    ask(web)
    shown = view(web)
    assert (shown["asks"], shown["tells"], shown["pending"], shown["learned"]) == (2, 1, 1, 1)


def test_the_same_tell_again_changes_nothing_and_another_is_refused(web):
    ask(web)
    tell(web, "s0", 3.0)
    before = view(web)
    assert tell(web, "s0", 3.0).json() == {"id": "s0", "status": "duplicate", "late": False}
    other = tell(web, "s0", 4.0)
    failed = web.post("/v1/studies/web/tell_failed", json={"id": "s0", "reason": "no"})
    assert (other.status_code, failed.status_code) == (409, 409)
    assert other.json()["error"]["field"] == "id"
    assert view(web) == before


def test_a_failure_is_an_answer_too(web):
    ask(web)
    said = {"id": "s0", "reason": "out of memory"}
    assert web.post("/v1/studies/web/tell_failed", json=said).json()["status"] == "learned"
    assert web.post("/v1/studies/web/tell_failed", json=said).json()["status"] == "duplicate"
    assert tell(web, "s0").status_code == 409
    assert view(web)["failures"] == 1
    assert web.get("/v1/studies/web/suggestions/s0").json()["status"] == "failed"


@pytest.mark.parametrize("id", ["s1", "s007", "x", "s-1", "s99999999999999999", "s٣"])
def test_an_id_nobody_was_given_is_unknown(web, id):
    ask(web)
    answer = tell(web, id)
    assert answer.status_code in (404, 422)
    assert view(web)["tells"] == 0


def test_tells_are_idempotent_far_beyond_what_memory_holds(database, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.study.live_study.ANSWERS_IN_MEMORY", 5)
    with running(database) as client:
        client.post("/v1/studies", json={**STUDY, "max_pending": 5})
        steps(client, 12)
        told = client.get("/v1/studies/web/suggestions/s2").json()["metrics"]["p99_ms"]
        assert tell(client, "s2", told).json()["status"] == "duplicate"
        assert tell(client, "s2", told + 1).status_code == 409
        assert view(client)["tells"] == 12


def test_an_ask_that_fell_out_of_the_ledger_is_learned_as_an_observation_and_marked_late(client):
    client.post("/v1/studies", json={**STUDY, "max_pending": 3})
    for _ in range(6):
        ask(client)
    assert (view(client)["pending"], view(client)["expired"]) == (3, 3)
    assert tell(client, "s0", 5.0).json() == {"id": "s0", "status": "learned", "late": True}
    assert tell(client, "s0", 5.0).json() == {"id": "s0", "status": "duplicate", "late": True}
    failed = client.post("/v1/studies/web/tell_failed", json={"id": "s1", "reason": "gone"})
    assert failed.json()["late"] is True
    shown = view(client)
    assert (shown["tells"], shown["failures"], shown["late"], shown["expired"], shown["pending"]) == (1, 1, 2, 1, 3)
    assert shown["asks"] == shown["pending"] + shown["expired"] + shown["tells"] + shown["failures"]
    assert shown["learned"] == 2  # the failure too


def test_a_lease_runs_out_and_a_late_tell_is_taken_and_marked(client, monkeypatch):
    import time

    client.post("/v1/studies", json={**STUDY, "lease_s": 60})
    asked = ask(client)
    now = time.time()
    assert asked["expires_at"] == pytest.approx(now + 60, abs=5)
    monkeypatch.setattr("rasp_tuner.service.storage.writer.time.time", lambda: now + 100)
    assert (view(client)["pending"], view(client)["expired"]) == (0, 1)
    assert client.get("/v1/studies/web/suggestions").json()["suggestions"][0]["status"] == "expired"
    assert tell(client, "s0").json() == {"id": "s0", "status": "learned", "late": True}
    shown = view(client)
    assert (shown["tells"], shown["late"], shown["expired"]) == (1, 1, 0)


def test_batches_are_judged_one_by_one(web):
    asked = web.post("/v1/studies/web/ask/batch", json={"contexts": [{"qps": 1}, {"qps": 9}, [3.0]]}).json()
    ids = [s["id"] for s in asked["suggestions"]]
    assert ids == ["s0", "s1", "s2"]
    tells = [
        {"id": "s0", "metrics": {"p99_ms": 1.0}},
        {"id": "s0", "metrics": {"p99_ms": 1.0}},
        {"id": "s0", "metrics": {"p99_ms": 2.0}},
        {"id": "s9", "metrics": {"p99_ms": 2.0}},
        {"id": "s1", "metrics": {"other": 2.0}},
        {"id": "s2", "failed": "crash"},
    ]
    results = web.post("/v1/studies/web/tell/batch", json={"tells": tells}).json()["results"]
    assert [r["status"] for r in results] == ["learned", "duplicate", "rejected", "rejected", "rejected", "learned"]
    codes = [r["error"]["code"] for r in results if r["status"] == "rejected"]
    assert codes == ["conflict", "unknown_suggestion", "invalid_value"]
    assert (view(web)["tells"], view(web)["failures"], view(web)["pending"]) == (1, 1, 1)


def test_a_batch_of_asks_with_a_wrong_context_asks_nothing(web):
    answer = web.post("/v1/studies/web/ask/batch", json={"contexts": [{"qps": 1}, {"speed": 9}]})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "contexts[1]"
    assert view(web)["asks"] == 0


def test_an_observation_under_a_key_counts_once(web):
    seen = {"context": {"qps": 1}, "params": {"pool": 3, "t": 1.0}, "metrics": {"p99_ms": 4.0}, "key": "run-1"}
    assert web.post("/v1/studies/web/observe", json=seen).json() == {"status": "learned"}
    assert web.post("/v1/studies/web/observe", json=seen).json() == {"status": "duplicate"}
    assert web.post("/v1/studies/web/observe", json={**seen, "metrics": {"p99_ms": 5.0}}).status_code == 409
    assert view(web)["observations"] == 1
    del seen["key"]
    for _ in range(2):
        assert web.post("/v1/studies/web/observe", json=seen).json() == {"status": "learned"}
    assert view(web)["observations"] == 3


def test_recommend_changes_nothing(web):
    steps(web, 14)
    before = view(web)
    best = web.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).json()["params"]
    assert set(best) == {"pool", "t"}
    assert view(web) == before


def test_a_frozen_study_suggests_the_recommendation(web):
    steps(web, 14)
    frozen = web.post("/v1/studies/web/freeze", headers={"content-type": "application/json"}).json()
    assert (frozen["frozen"], frozen["serves"]) == (True, "recommendation")
    best = web.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).json()["params"]
    assert [ask(web)["params"] for _ in range(3)] == [best] * 3
    assert view(web)["frozen"] is True
    thawed = web.post("/v1/studies/web/unfreeze", headers={"content-type": "application/json"}).json()
    assert (thawed["frozen"], thawed["serves"]) == (False, "suggestions")
    kinds = [mark["kind"] for mark in web.get("/v1/studies/web/history").json()["events"]]
    assert kinds[-2:] == ["freeze", "unfreeze"]


def test_suggestions_say_why(web):
    steps(web, 12)
    newest = web.get("/v1/studies/web/suggestions?limit=5").json()["suggestions"]
    assert [s["id"] for s in newest] == ["s11", "s10", "s9", "s8", "s7"]
    assert "Chosen because" in newest[0]["explanation"]
    why = web.get("/v1/studies/web/suggestions/s11").json()["why"]
    assert why["path"] in ("fast", "slow")
    assert sum(why["gate"]) == pytest.approx(1.0)


def test_a_deleted_study_is_gone_and_its_name_is_free(web):
    steps(web, 3)
    assert web.delete("/v1/studies/web").status_code == 204
    assert web.get("/v1/studies/web").status_code == 404
    assert tell(web, "s0").json()["error"]["code"] == "unknown_study"
    assert web.post("/v1/studies", json={**STUDY, "seed": 3}).status_code == 201
    assert view(web)["asks"] == 0
    assert ask(web)["id"] == "s0"


def test_a_study_without_context(client):
    client.post("/v1/studies", json={**STUDY, "context": None})
    asked = client.post("/v1/studies/web/ask", json={}).json()
    assert tell(client, asked["id"]).json()["status"] == "learned"
    assert client.get("/v1/studies/web/history").json()["steps"] == 1
