"""Approvals: what the tuner wants to run waits for a person; until then what was approved runs, or the default."""

import pytest
from serving import STUDY, ask, running, view

from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy

DAY = 86_400.0
NEEDED = {**STUDY, "approve_s": DAY}
DEFAULT = STUDY["default"]


@pytest.fixture
def web(sqlite):
    with running(sqlite) as client:
        assert client.post("/v1/studies", json=NEEDED).status_code == 201
        yield client


def post(client, path, **body):
    return client.post(f"/v1/studies/web/{path}", json=body)


def waiting(client):
    return client.get("/v1/studies/web/waiting").json()["waiting"]


def cost(params):
    return 20.0 + abs(params["pool"] - 32) + params["t"]


def run(client, qps=1.0):
    """One ask and its answer; what ran."""
    asked = ask(client, qps)
    assert post(client, "tell", id=asked["id"], metrics={"p99_ms": cost(asked["params"])}).status_code == 200
    return asked["params"]


def first_waiting(client, qps=1.0):
    for _ in range(5):
        assert run(client, qps) == DEFAULT
    (one,) = waiting(client)
    return one


def test_until_somebody_approves_the_default_runs(web):
    one = first_waiting(web)
    assert one["id"] == "w0"
    assert one["params"] != DEFAULT
    assert one["runs"] == DEFAULT
    assert one["changes"] == {k: [DEFAULT[k], v] for k, v in one["params"].items() if v != DEFAULT[k]}
    assert "instead of" in one["explanation"]
    assert one["until"] == one["asked_at"] + DAY
    assert view(web)["waiting"] == 1
    assert 'rasp_waiting_for_approval{study="web"} 1.0' in web.get("/metrics").text
    assert view(web)["pending"] == 0  # nobody has to answer it


def test_the_stake_is_shown_once_the_default_has_run(web):
    one = first_waiting(web)
    assert post(web, "refuse", id=one["id"]).status_code == 200
    for _ in range(10):
        run(web)
    shown = waiting(web)
    assert shown
    assert shown[0]["level"] == pytest.approx(cost(DEFAULT), rel=0.05)
    assert shown[0]["stop"] > shown[0]["level"]


def test_what_was_approved_runs_at_the_next_ask(web):
    one = first_waiting(web)
    assert post(web, "approve", id=one["id"]).json() == {"id": "w0", "status": "approved", "until": None}
    assert waiting(web) == []
    asked = ask(web, 1.0)
    assert asked["params"] == one["params"]
    why = web.get(f"/v1/studies/web/suggestions/{asked['id']}").json()
    assert "approved by a person" in why["explanation"]


def test_only_what_was_approved_ever_runs_and_the_best_of_it_goes_on(web):
    allowed = [DEFAULT]
    for _ in range(60):
        for one in waiting(web):
            if one["params"]["pool"] >= 8:
                allowed.append(one["params"])
                assert post(web, "approve", id=one["id"]).status_code == 200
            else:
                assert post(web, "refuse", id=one["id"]).status_code == 200
        assert run(web) in allowed
    best = post(web, "recommend", context={"qps": 1.0}).json()["params"]
    assert best in allowed
    assert cost(best) < cost(DEFAULT)
    assert post(web, "freeze").status_code == 200
    assert run(web) == best


def test_an_approval_is_for_its_situation(web):
    for i in range(40):  # situations last a while, as the dashboard shows them
        run(web, 900.0 if i // 10 % 2 else 1.0)
    shown = waiting(web)
    assert sorted(one["context"]["qps"] for one in shown) == [1.0, 900.0]  # one in each situation
    quiet = next(one for one in shown if one["context"]["qps"] == 1.0)
    post(web, "approve", id=quiet["id"])
    assert run(web, 900.0) == DEFAULT
    assert run(web, 1.0) == quiet["params"]


def test_a_refusal_holds_for_its_time():
    live = LiveStudy(0, StudyDefinition.from_wire({**NEEDED, "approve_s": 1e6}), 0.0)
    tell_default(live, 1.0)
    (one,) = live.waiting(2.0)
    live.decide(one["id"], False, 3.0, for_s=100.0)
    tell_default(live, 4.0)
    again = [shown["params"] for shown in live.waiting(5.0)]
    assert one["params"] not in again
    assert live.approvals._is_refused(one["params"])
    tell_default(live, 104.0)
    assert not live.approvals._is_refused(one["params"])


def tell_default(live, at, steps=4):
    for i in range(steps):
        event = live.ask({"qps": 1.0}, at + 0.01 * i)
        assert event.body["params"] == DEFAULT
        live.tell(f"s{event.ask}", at + 0.01 * i, None, {"p99_ms": cost(DEFAULT)})


def test_what_nobody_answers_is_dropped_and_the_default_goes_on():
    live = LiveStudy(0, StudyDefinition.from_wire({**NEEDED, "approve_s": 60.0}), 0.0)
    tell_default(live, 1.0)
    (one,) = live.waiting(2.0)
    assert live.waiting(one["until"]) == []
    assert live.view(one["until"])["waiting"] == 0
    tell_default(live, 100.0)
    (later,) = live.waiting(101.0)
    assert later["id"] == "w1"
    assert len(live.tuner.pending) == 1  # the one that waits; dropped ones are withdrawn


def test_an_imported_log_gives_the_same(web):
    for i in range(25):
        for one in waiting(web):
            post(web, "approve" if i % 2 else "refuse", id=one["id"])
        run(web)
    exported = web.get("/v1/studies/web/export").text
    copied = web.post(
        "/v1/studies/import?name=copy", content=exported, headers={"Content-Type": "application/x-ndjson"}
    )
    assert copied.status_code == 201, copied.text
    mine = waiting(web)
    theirs = web.get("/v1/studies/copy/waiting").json()["waiting"]
    assert theirs == mine
    assert copied.json()["health"] == "good"


def test_a_snapshot_goes_on_alike():
    live = LiveStudy(0, StudyDefinition.from_wire(NEEDED), 0.0)
    tell_default(live, 1.0)
    live.decide("w0", True, 2.0, 0.0, by="ann")
    copy = study_snapshot.restore(study_snapshot.capture(live)(), 0, live.definition, 0.0)
    for i in range(8):
        mine, theirs = (one.ask({"qps": 1.0}, 3.0 + i) for one in (live, copy))
        assert mine == theirs
        for one in (live, copy):
            one.tell(f"s{mine.ask}", 3.5 + i, None, {"p99_ms": cost(mine.body["params"])})
    assert live.waiting(20.0) == copy.waiting(20.0)


def test_records_may_be_erased_between(web):
    one = first_waiting(web)
    post(web, "approve", id=one["id"])
    assert run(web) == one["params"]
    assert post(web, "forget", ids=["s0", "s1"]).json()["erased"] == 2
    for _ in range(5):
        assert run(web) in (DEFAULT, one["params"])


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("approve", {"id": "w7"}, 404, "waits here"),
        ("refuse", {"id": "s0"}, 404, "waits here"),
        ("refuse", {"id": "w0", "for_s": -1.0}, 422, "for_s"),
        ("approve", {}, 422, "id"),
    ],
)
def test_what_does_not_wait_cannot_be_decided(web, path, body, status, said):
    first_waiting(web)
    before = waiting(web)
    answer = post(web, path, **body)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert waiting(web) == before


def test_a_study_without_approvals_has_none(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        answer = post(client, "approve", id="w0")
        assert answer.status_code == 409
        assert "approve_s" in answer.json()["error"]["message"]
        assert waiting(client) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"approve_s": 0.0}, "approve_s must lie in"),
        ({"preset": "paper", "budget": None}, "approve_s needs preset"),
        ({"max_change": "2 cm"}, "max_change must be"),
    ],
)
def test_definitions_that_make_no_sense_are_refused(sqlite, change, said):
    with running(sqlite) as client:
        answer = client.post("/v1/studies", json={**NEEDED, **change})
        assert answer.status_code == 422
        assert said in answer.json()["error"]["message"]


def test_approvals_need_a_default(sqlite):
    wire = {name: value for name, value in NEEDED.items() if name != "default"}
    with running(sqlite) as client:
        answer = client.post("/v1/studies", json=wire)
        assert answer.status_code == 422
        assert answer.json()["error"]["field"] == "approve_s"


def test_max_change_of_a_study_is_that_of_a_tuner(sqlite):
    limits = {"pool": "2 steps", "t": 0.05}
    with running(sqlite) as client:
        assert client.post("/v1/studies", json={**STUDY, "max_change": limits}).status_code == 201
        before = DEFAULT
        for _ in range(25):
            after = run(client)
            assert after == DEFAULT or abs(after["pool"] - before["pool"]) <= 2
            before = after
        assert view(client)["max_change"] == limits
