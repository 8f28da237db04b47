"""OFREP: a flag is a study or one of its knobs; a targeting key keeps its suggestion for a lease."""

import itertools
import json
import math
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ofrep_calls import HOST, error, evaluate, evaluate_all, track
from serving import STUDY, running, steps, view, wait_for
from test_durable import break_commits

from rasp_tuner.feature_flags import MOST_LEASES, readings
from rasp_tuner.service.auth import create_key
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.storage.store import Store, sqlite_url
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy

JSON = {"content-type": "application/json"}
numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(sqlite_url(tmp_path_factory.mktemp("flags"))) as client:
        yield client


@pytest.fixture
def study(shared):
    """A client, and the name of a study of the test's own."""
    name = f"web{next(numbers)}"
    assert shared.post("/v1/studies", json={**STUDY, "name": name}).status_code == 201
    return shared, name


def test_all_knobs_of_a_targeting_key_come_from_one_suggestion(study):
    client, name = study
    steps(client, 2, study=name)
    whole = evaluate(client, name, HOST).json()
    assert whole["variant"] == "s2"
    for knob, kind in (("pool", int), ("t", float)):
        one = evaluate(client, f"{name}.{knob}", HOST).json()
        assert (one["value"], one["variant"]) == (whole["value"][knob], "s2")
        assert type(one["value"]) is kind
        assert one["metadata"] == {**whole["metadata"], "knob": knob}
        assert one["reason"] == whole["reason"]
    assert evaluate(client, name, {**HOST, "qps": 900, "country": "NZ", "tags": [1]}).json() == whole
    assert evaluate(client, name, {**HOST, "targetingKey": "host-8"}).json()["variant"] == "s3"
    assert view(client, name)["asks"] == 4


def test_without_a_targeting_key_every_evaluation_is_a_suggestion_of_its_own(study):
    client, name = study
    for context in ({"qps": 5}, {"qps": 5, "targetingKey": ""}, {"qps": 5, "targetingKey": None}):
        assert "leaseUntil" not in evaluate(client, name, context).json()["metadata"]
    assert view(client, name)["asks"] == 3


def test_a_lease_ends_when_its_time_is_over_or_its_outcome_is_told(sqlite):
    with running(sqlite, limits=Limits(flag_lease=0.4)) as client:
        client.post("/v1/studies", json=STUDY)
        first = evaluate(client, "web", HOST).json()
        assert first["metadata"]["leaseUntil"] + 3599.6 == pytest.approx(first["metadata"]["expiresAt"])
        wait_for(lambda: time.time() > first["metadata"]["leaseUntil"], "the end of the lease")
        assert error(track(client, "web", HOST, value=1.0)) == (410, "GENERAL")
        assert evaluate(client, "web", HOST).json()["variant"] == "s1"
        assert track(client, "web", HOST, value=1.0, variant="s0").json()["status"] == "learned"
    with running(sqlite) as client:
        assert evaluate(client, "web", HOST).json()["variant"] == "s1"  # its lease is longer now
        assert track(client, "web", HOST, value=1.0).json() == {
            "key": "web",
            "variant": "s1",
            "status": "learned",
            "late": False,
        }
        assert evaluate(client, "web", HOST).json()["variant"] == "s2"


def test_the_study_may_allow_less_than_the_servers_lease(study):
    client, name = study
    client.post("/v1/studies", json={**STUDY, "name": f"{name}-short", "lease_s": 60.0})
    metadata = evaluate(client, f"{name}-short", HOST).json()["metadata"]
    assert metadata["leaseUntil"] == metadata["expiresAt"]


def test_to_go_back_to_the_default_ends_all_leases(study):
    client, name = study
    steps(client, 6, study=name)
    before = evaluate(client, name, HOST).json()
    client.post(f"/v1/studies/{name}/freeze", json={"at": "default"})
    wait_for(lambda: evaluate(client, name, HOST).json()["reason"] == "DEFAULT", "the default")
    after = evaluate(client, name, HOST).json()
    assert (after["value"], after["reason"]) == (STUDY["default"], "DEFAULT")
    assert after["variant"] != before["variant"]
    client.post(f"/v1/studies/{name}/unfreeze", json={}).raise_for_status()
    client.post(f"/v1/studies/{name}/freeze", json={}).raise_for_status()
    best = client.post(f"/v1/studies/{name}/recommend", json={"context": {"qps": 5}}).json()["params"]
    frozen = evaluate(client, name, HOST).json()
    assert frozen["value"] == best
    assert frozen["reason"] == ("DEFAULT" if best == STUDY["default"] else "TARGETING_MATCH")


def test_leases_are_in_the_log_and_in_snapshots(study):
    client, name = study
    lines = [evaluate(client, name, {**HOST, "targetingKey": f"host-{i % 3}"}).json()["variant"] for i in range(6)]
    assert lines == ["s0", "s1", "s2"] * 2
    exported = client.get(f"/v1/studies/{name}/export").content
    assert b"host-" not in exported
    sent = client.post(f"/v1/studies/import?name={name}", content=exported, headers={"content-type": "text/plain"})
    assert sent.status_code == 415
    assert client.delete(f"/v1/studies/{name}").status_code == 204
    again = client.post("/v1/studies/import", content=exported, headers={"content-type": "application/x-ndjson"})
    assert again.status_code == 201, again.text
    assert evaluate(client, name, {**HOST, "targetingKey": "host-1"}).json()["variant"] == "s1"


def test_a_snapshot_knows_the_latest_suggestion_of_each_target():
    live = LiveStudy(1, StudyDefinition.from_wire(STUDY), 0.0)
    for i in range(9):
        live.ask({"qps": 1.0}, float(i), {"target": f"{i % 3}"} if i % 4 else None)
    copy = study_snapshot.restore(study_snapshot.capture(live)(), 1, live.definition, 0.0)
    for each in (live, copy):
        assert [each.flags.latest(str(target)).number for target in range(3)] == [6, 7, 5]


def test_the_table_of_leases_is_bounded():
    live = LiveStudy(1, StudyDefinition.from_wire({**STUDY, "max_pending": 10}), 0.0)
    first = live.ask({"qps": 1.0}, 0.0, {"target": "first"})
    for i in range(MOST_LEASES):
        live.flags.add(study_snapshot.SuggestionRecord(i + 1, 0.0, None, {}, flag={"target": f"{i}"}))
    assert live.flags.latest("first") is None
    assert live.flags.latest("0").number == first.ask + 1


def test_the_database_has_no_targeting_keys(tmp_path):
    with running(sqlite_url(tmp_path)) as client:
        client.post("/v1/studies", json=STUDY)
        evaluate(client, "web", {**HOST, "targetingKey": "somebody@example.org"})
    with running(sqlite_url(tmp_path)) as client:
        assert evaluate(client, "web", {**HOST, "targetingKey": "somebody@example.org"}).json()["variant"] == "s0"
    assert not any(b"somebody" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


WRONG = [
    ("nothing", HOST, (404, "FLAG_NOT_FOUND")),
    ("{}.nothing", HOST, (404, "FLAG_NOT_FOUND")),
    ("a.", HOST, (404, "FLAG_NOT_FOUND")),
    ("%00", HOST, (404, "FLAG_NOT_FOUND")),
    ("{}", None, (400, "INVALID_CONTEXT")),
    ("{}", {}, (400, "INVALID_CONTEXT")),
    ("{}", {"targetingKey": "new"}, (400, "INVALID_CONTEXT")),
    ("{}", {"qps": "many"}, (400, "INVALID_CONTEXT")),
    ("{}", {"qps": {"now": 5}}, (400, "INVALID_CONTEXT")),
    ("{}", {"qps": 10**39}, (200, None)),
    ("{}", {"qps": 5, "targetingKey": 7}, (400, "INVALID_CONTEXT")),
    ("{}", [5], (400, "INVALID_CONTEXT")),
]


@pytest.mark.parametrize(("key", "context", "expected"), WRONG)
def test_a_wrong_evaluation_gets_a_typed_answer(study, key, context, expected):
    client, name = study
    answer = evaluate(client, key.format(name), context)
    if expected[1] is None:
        assert answer.status_code == expected[0]
    else:
        assert error(answer) == expected
        assert answer.json()["key"] == key.format(name).replace("%00", "\0")
        assert view(client, name)["asks"] == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"context": {"qps": NaN}}', b'{"context": {"a": 1, "a": 2}}', b"\xff"]
)
def test_a_body_that_is_no_request_is_a_parse_error(study, body):
    client, name = study
    for path in (f"evaluate/flags/{name}", "evaluate/flags", "track"):
        answer = client.post(f"/ofrep/v1/{path}", content=body, headers=JSON)
        if body == b"" and path != "track":
            assert error(answer)[1] in ("INVALID_CONTEXT", "TARGETING_KEY_MISSING")  # a body is optional there
        else:
            assert error(answer) == (400, "PARSE_ERROR"), path


def test_other_refusals_have_the_same_shape(study):
    client, name = study
    assert error(client.post(f"/ofrep/v1/evaluate/flags/{name}", content=b"qps=5")) == (415, "PARSE_ERROR")
    assert error(client.get(f"/ofrep/v1/evaluate/flags/{name}")) == (405, "GENERAL")
    assert error(client.get("/ofrep/v1/configuration")) == (404, "GENERAL")
    far = client.post(f"/ofrep/v1/evaluate/flags/{name}", json={}, headers={"origin": "https://elsewhere.example"})
    assert error(far) == (403, "GENERAL")
    large = {"context": {"qps": 5, "targetingKey": "x" * 70_000}}
    assert evaluate(client, name, large["context"]).status_code == 200
    assert error(client.post("/ofrep/v1/evaluate/flags", json=large)) == (413, "GENERAL")


def test_keys_have_the_rights_they_have_for_asks(sqlite):
    store = Store(sqlite)
    admin, write, read = (create_key(store, scope)[0] for scope in ("admin", "write", "read"))
    one = create_key(store, "write", "b.c")[0]
    store.close()
    with running(sqlite) as client:
        for name in ("a", "b.c"):
            client.post("/v1/studies", json={**STUDY, "name": name}, headers={"authorization": f"Bearer {admin}"})

        def statuses(**headers):
            return [evaluate(client, key, HOST, headers=headers).status_code for key in ("a", "b.c", "b.c.pool")]

        assert statuses() == [401] * 3
        assert statuses(authorization=f"Bearer {read}") == [403] * 3
        assert statuses(authorization=f"Bearer {write}") == statuses(**{"x-api-key": write}) == [200] * 3
        assert statuses(**{"x-api-key": one}) == [403, 200, 200]
        client.headers["x-api-key"] = one
        assert error(track(client, "a", HOST, value=1.0)) == (403, "GENERAL")
        assert track(client, "b.c", HOST, value=1.0).json()["status"] == "learned"
        flags = evaluate_all(client, HOST).json()["flags"]
        assert [flag["key"] for flag in flags] == ["b.c", "b.c.pool", "b.c.t"]


def test_too_many_requests_are_told_when_to_come_back(sqlite):
    with running(sqlite, limits=Limits(rate=0.001, burst=3)) as client:
        client.post("/v1/studies", json=STUDY)
        answers = [evaluate(client, "web", HOST) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert error(answers[-1]) == (429, "GENERAL")
        assert int(answers[-1].headers["retry-after"]) >= 1


def test_all_flags_come_from_policies_with_an_etag_and_nothing_is_asked(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        client.post("/v1/studies", json={**STUDY, "name": "alone", "context": None})
        client.post("/v1/studies", json={**STUDY, "name": "more", "context": ["qps", "load"]})
        first = evaluate_all(client, HOST)
        flags = {flag["key"]: flag for flag in first.json()["flags"]}
        assert sorted(flags) == ["alone", "alone.pool", "alone.t", "more", "web", "web.pool", "web.t"]
        assert flags["more"]["errorCode"] == "INVALID_CONTEXT"
        assert "load" in flags["more"]["errorDetails"]
        policy = client.get("/v1/studies/web/policy").json()
        assert flags["web"]["value"] == policy["default"]
        assert flags["web"]["reason"] == "DEFAULT"
        assert flags["web.t"] == {
            **flags["web"],
            "key": "web.t",
            "value": flags["web"]["value"]["t"],
            "metadata": {**flags["web"]["metadata"], "knob": "t"},
        }
        assert flags["web.t"] == evaluate(client, "web.t?by=policy", HOST).json()
        etag = first.headers["etag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            same = evaluate_all(client, HOST, headers={"if-none-match": known})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
        assert view(client)["asks"] == 0
        track(client, "web", HOST, value=1.0, variant=flags["web"]["variant"])
        wait_for(
            lambda: evaluate_all(client, HOST, headers={"if-none-match": etag}).status_code == 200, "another policy"
        )
        assert error(evaluate_all(client, {"qps": 5})) == (400, "TARGETING_KEY_MISSING")
        assert error(evaluate(client, "web?by=luck", HOST)) == (400, "GENERAL")
    with running(sqlite, limits=Limits(batch=2)) as client:
        assert error(evaluate_all(client, HOST)) == (400, "GENERAL")


def whole_flag(client, name, context):
    """The flag of a study among all."""
    return next(flag for flag in evaluate_all(client, context).json()["flags"] if flag["key"] == name)


def test_many_targeting_keys_try_the_settings_of_the_policy_by_their_probabilities(study):
    client, name = study
    steps(client, 30, study=name)
    asked = view(client, name)["asks"]
    flags = [evaluate(client, f"{name}?by=policy", {"targetingKey": f"user-{i}", "qps": 5}).json() for i in range(300)]
    assert flags[7] == evaluate(client, f"{name}?by=policy", {"targetingKey": "user-7", "qps": 5}).json()
    assert view(client, name)["asks"] == asked
    assert len({flag["metadata"]["policy"] for flag in flags}) == 1
    counts = Counter(flag["variant"] for flag in flags)
    assert len(counts) > 1
    for flag in flags:
        share = flag["metadata"]["probability"]
        assert abs(counts[flag["variant"]] - 300 * share) < 5 * math.sqrt(300 * share) + 1
    assert {flag["reason"] for flag in flags} <= {"SPLIT", "TARGETING_MATCH", "DEFAULT"}


def test_what_a_pick_of_a_policy_came_to_is_learned_where_it_ran(study):
    client, name = study
    flag = whole_flag(client, name, HOST)
    told = track(client, name, HOST, value=3.0, variant=flag["variant"])
    assert told.json() == {"key": name, "variant": flag["variant"], "status": "learned", "late": False}
    for status in ("learned", "duplicate"):
        again = track(client, name, HOST, value=3.0, variant=flag["variant"], eventId="e1")
        assert again.json()["status"] == status
    seen = view(client, name)
    assert (seen["asks"], seen["observations"]) == (0, 2)
    lines = client.get(f"/v1/studies/{name}/export").text.splitlines()
    sums = [json.loads(line) for line in lines if '"sums"' in line]
    [one] = sums[0]["body"]["sums"]
    assert (one["params"], one["contexts"], one["count"]) == (flag["value"], [{"qps": 5.0}], 1)
    assert one["probability"] == flag["metadata"]["probability"]
    assert one["metrics"] == {"p99_ms": {"sum": 3.0, "squares": 9.0}}


def test_a_wrong_event_about_a_pick_teaches_nothing(study):
    client, name = study
    variant = whole_flag(client, name, HOST)["variant"]
    assert error(track(client, name, HOST, value=1.0, variant="0" * 16 + ":0.0")) == (410, "GENERAL")
    assert error(track(client, name, {"targetingKey": "a"}, value=1.0, variant=variant)) == (400, "INVALID_CONTEXT")
    assert error(track(client, name, HOST, failed="crashed", variant=variant)) == (400, "GENERAL")
    assert error(track(client, name, HOST, value=1.0, stopped=True, variant=variant)) == (400, "GENERAL")
    assert error(track(client, name, HOST, value=1.0, variant=variant, eventId=7)) == (400, "GENERAL")
    assert error(track(client, name, HOST, value=1.0)) == (409, "GENERAL")  # which setting ran, nobody knows
    assert view(client, name)["observations"] == 0


def test_a_study_that_no_policy_can_explore_is_asked_with_a_lease_among_all_flags(study):
    client, name = study
    slow = {**STUDY, "name": f"{name}-slow", "approve_s": 60}
    assert client.post("/v1/studies", json=slow).status_code == 201
    flag = whole_flag(client, slow["name"], HOST)
    assert (flag["variant"], "leaseUntil" in flag["metadata"]) == ("s0", True)
    assert whole_flag(client, slow["name"], HOST) == flag
    wide = {**STUDY, "name": f"{name}-wide", "context": [f"c{i}" for i in range(33)]}
    assert client.post("/v1/studies", json=wide).status_code == 201
    assert whole_flag(client, wide["name"], {**HOST, **dict.fromkeys(wide["context"], 1.0)})["variant"] == "s0"


def test_knobs_that_are_null_or_not_there_leave_the_value_to_the_caller(study):
    client, name = study
    knobs = {
        "mode": {"type": "categorical", "choices": ["on", "off"]},
        "size": {"type": "int", "low": 1, "high": 9, "when": {"mode": ["on"]}},
        "most": {"type": "optional", "knob": {"type": "int", "low": 1, "high": 9}},
    }
    default = {"mode": "off", "most": None}
    body = {**STUDY, "name": f"{name}-odd", "space": knobs, "default": default, "context": None}
    assert client.post("/v1/studies", json=body).status_code == 201
    context = {"targetingKey": "host-7"}
    assert evaluate(client, f"{name}-odd", context).json()["value"] == default
    assert evaluate(client, f"{name}-odd.mode", context).json()["value"] == "off"
    for knob in ("size", "most"):
        answer = evaluate(client, f"{name}-odd.{knob}", context).json()
        assert "value" not in answer
        assert (answer["reason"], answer["variant"]) == ("DEFAULT", "s0")


def test_texts_and_times_are_contexts_too(study):
    client, name = study
    kinds = {"region": "category", "at": "time of day", "qps": {"kind": "number", "missing": 5.0}}
    assert client.post("/v1/studies", json={**STUDY, "name": f"{name}-kinds", "context": kinds}).status_code == 201
    for context in ({"region": "eu", "at": "2026-11-17T13:45:00Z"}, {"qps": 7}, {}):
        assert evaluate(client, f"{name}-kinds", context).status_code == 200
    for context in ({"region": ["eu"]}, {"at": "noon"}, {"region": "x" * 1_025}):
        assert error(evaluate(client, f"{name}-kinds", context)) == (400, "INVALID_CONTEXT")


def test_what_is_told_twice_counts_once(study):
    client, name = study
    assert error(track(client, name, HOST, value=1.0)) == (409, "GENERAL")  # nothing was evaluated
    evaluate(client, name, HOST)
    for status in ("learned", "duplicate", "duplicate"):
        assert track(client, name, HOST, value=1.0).json()["status"] == status
    assert track(client, f"{name}.p99_ms", value=1, variant="s0").json()["status"] == "duplicate"
    assert error(track(client, name, HOST, value=2.0)) == (409, "GENERAL")
    evaluate(client, name, HOST)
    assert track(client, name, HOST, failed="out of memory").json()["variant"] == "s1"
    assert {count: view(client, name)[count] for count in ("asks", "tells", "failures")} == {
        "asks": 2,
        "tells": 1,
        "failures": 1,
    }


def test_a_run_that_is_stopped_ends_its_lease_and_is_learned_as_a_bound(study):
    client, name = study
    first = evaluate(client, name, HOST).json()
    assert "stop" not in first["metadata"]  # the default itself is never stopped
    track(client, name, HOST, value=20.0)
    own = evaluate(client, name, HOST).json()
    stop = own["metadata"]["stop"]
    assert 20.0 < stop < 40.0
    assert evaluate(client, name, HOST).json() == own
    answer = track(client, name, HOST, value=stop, stopped=True).json()
    assert (answer["variant"], answer["status"]) == (own["variant"], "learned")
    assert evaluate(client, name, HOST).json()["variant"] != own["variant"]
    assert track(client, name, value=stop, stopped=True, variant=own["variant"]).json()["status"] == "duplicate"
    assert error(track(client, name, value=stop, variant=own["variant"])) == (409, "GENERAL")
    [seen] = [one for one in client.get(f"/v1/studies/{name}/suggestions").json()["suggestions"] if one.get("stopped")]
    assert (seen["id"], seen["metrics"]) == (own["variant"], {"p99_ms": stop})


WRONG_EVENTS = [
    ("nothing", {"value": 1.0, "variant": "s0"}, (404, "FLAG_NOT_FOUND")),
    ("{}.p98_ms", {"value": 1.0, "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"p98_ms": 1.0, "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"value": 1.0, "p98_ms": 1.0, "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"value": 1.0, "p99_ms": 1.0, "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"value": "NaN", "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"value": True, "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"p99_ms": 10**400, "variant": "s0"}, (400, "PARSE_ERROR")),
    ("{}", {"variant": "s0"}, (400, "GENERAL")),
    ("{}", {"value": 1.0, "variant": 0}, (400, "GENERAL")),
    ("{}", {"value": 1.0, "variant": "s99"}, (404, "GENERAL")),
    ("{}", {"value": 1.0, "variant": "recommendation"}, (409, "GENERAL")),
    ("{}", {"value": 1.0}, (400, "TARGETING_KEY_MISSING")),
    ("{}", {"failed": 7, "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"value": 1.0, "stopped": "yes", "variant": "s0"}, (400, "GENERAL")),
    ("{}", {"failed": True, "stopped": True, "variant": "s0"}, (400, "GENERAL")),
    ("", {"value": 1.0, "variant": "s0"}, (400, "PARSE_ERROR")),
]


@pytest.mark.parametrize(("key", "details", "expected"), WRONG_EVENTS)
def test_a_wrong_event_gets_a_typed_answer_and_teaches_nothing(study, key, details, expected):
    client, name = study
    evaluate(client, name, HOST)
    assert error(track(client, key.format(name), **details)) == expected
    assert view(client, name)["learned"] == 0
    assert track(client, name, HOST, value=1.0, sku="abc").json()["status"] == "learned"


def test_many_events_are_taken_or_refused_one_by_one(study):
    client, name = study
    several = {"p99_ms": "min", "errors": "min"}
    client.post("/v1/studies", json={**STUDY, "name": f"{name}-two", "metrics": several})
    evaluate(client, name, HOST)
    evaluate(client, f"{name}-two", HOST)
    events = [
        {"trackingEventName": name, "context": HOST, "trackingEventDetails": {"value": 1.0}},
        {"trackingEventName": f"{name}-two", "context": HOST, "trackingEventDetails": {"value": 1.0}},
        {"trackingEventName": f"{name}-two", "context": HOST, "trackingEventDetails": {"p99_ms": 1, "errors": 0}},
        {"trackingEventName": name, "context": HOST, "trackingEventDetails": {"value": 1.0}},
        "nothing",
        {"events": []},
    ]
    results = client.post("/ofrep/v1/track", json={"events": events}).json()["results"]
    said = [result.get("status", result.get("errorCode")) for result in results]
    assert said == ["learned", "GENERAL", "learned", "duplicate", "PARSE_ERROR", "PARSE_ERROR"]
    assert "any of ['p99_ms', 'errors']" in results[1]["errorDetails"]
    assert error(client.post("/ofrep/v1/track", json={"events": []})) == (400, "PARSE_ERROR")
    assert error(client.post("/ofrep/v1/track", json={"events": [{}] * 1_001})) == (413, "GENERAL")


def test_while_the_disk_fails_everybody_keeps_what_is_known(sqlite, monkeypatch):
    stores = []
    monkeypatch.setattr("serving.Store", lambda url, **how: stores.append(Store(url, **how)) or stores[-1])
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 12)
        leased = evaluate(client, "web", HOST).json()
        best = client.post("/v1/studies/web/recommend", json={"context": {"qps": 5}}).json()["params"]
        mend = break_commits(stores[0])
        assert error(track(client, "web", HOST, value=1.0)) == (503, "GENERAL")
        assert evaluate(client, "web", HOST).json() == leased
        new = evaluate(client, "web", {**HOST, "targetingKey": "host-8"}).json()
        assert (new["value"], new["reason"], new["variant"]) == (best, "STALE", "recommendation")
        assert evaluate(client, "web.pool", {"qps": 5}).json()["value"] == best["pool"]
        assert whole_flag(client, "web", HOST)["metadata"]["probability"] > 0.0
        mend()
        wait_for(lambda: client.get("/readyz").status_code == 200, "a test write")
        assert track(client, "web", HOST, value=1.0).json() == {
            "key": "web",
            "variant": leased["variant"],
            "status": "learned",
            "late": False,
        }


def test_an_error_of_the_server_fails_all_flags_so_that_providers_keep_theirs(study, monkeypatch):
    client, name = study

    def broken(*_):
        raise ValueError("made up")

    monkeypatch.setattr(LiveStudy, "ask", broken)
    single = evaluate(client, name, HOST)
    assert error(single) == (500, "GENERAL")
    assert single.json()["key"] == name
    monkeypatch.setattr("rasp_tuner.service.http.flags.pick_of", broken)
    assert error(evaluate_all(client, HOST)) == (500, "GENERAL")


@given(st.text("ab.", min_size=1, max_size=40))
def test_every_reading_of_a_key_is_that_key(key):
    for name, rest in readings(key):
        assert name
        assert (name if rest is None else f"{name}.{rest}") == key
    assert len(set(readings(key))) == len(list(readings(key)))


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(10**39), 10**39)
    | st.text("aé\0", max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = plain | st.lists(plain, max_size=3) | st.dictionaries(st.text("ab"), plain, max_size=3)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    context=st.dictionaries(st.sampled_from(["qps", "targetingKey", "other"]), values),
    details=st.dictionaries(st.sampled_from(["value", "p99_ms", "variant", "failed", "other"]), values),
)
def test_whatever_comes_gets_an_answer_of_the_protocol(study, context, details):
    client, name = study
    answers = [
        evaluate(client, name, context),
        track(client, name, context, **details),
        evaluate_all(client, context),
    ]
    for answer in answers:
        if answer.status_code == 200:
            assert {"variant", "flags"} & answer.json().keys()
        else:
            assert 400 <= answer.status_code < 500
            assert error(answer)[1] in ("PARSE_ERROR", "INVALID_CONTEXT", "TARGETING_KEY_MISSING", "GENERAL")
