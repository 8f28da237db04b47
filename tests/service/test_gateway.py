"""Deny by default: every route needs what the table says, and nothing odd gets through."""

import itertools
import socket

import pytest
from serving import STUDY, ask, running, tell, view, wait_for

from rasp_tuner.service.auth import SCOPES, create_key
from rasp_tuner.service.http.routes import ROUTES
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.storage.store import Store, sqlite_url

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A client of a service without studies."""
    with running(sqlite_url(tmp_path_factory.mktemp("shared"))) as client:
        yield client


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A client of a service with one study and one ask."""
    with running(sqlite_url(tmp_path_factory.mktemp("asked"))) as client:
        client.post("/v1/studies", json=STUDY)
        ask(client)
        yield client


SCOPE_OF = {(route.method, route.path): route.needs for route in ROUTES}
PREFLIGHTS = {("OPTIONS", f"/ofrep/v1/{end}") for end in ("evaluate/flags", "evaluate/flags/{key}", "track")}


def test_only_these_routes_are_open_to_all_and_no_row_comes_twice():
    open_to_all = {path for (method, path), needs in SCOPE_OF.items() if needs == "nothing" and method == "GET"}
    assert open_to_all == {"/", "/studies/{name}", "/static/{path:path}", "/healthz", "/readyz", "/version"}
    others = {row for row, needs in SCOPE_OF.items() if needs == "nothing" and row[0] != "GET"}
    assert others == PREFLIGHTS  # which do nothing
    assert len(SCOPE_OF) == len(ROUTES)


def send(client, method, path, key, study="web"):
    """The status of a request to a route of the table, with a key."""
    path = path.replace("{name}", study).replace("{id}", "s0").replace("{path:path}", "none.js")
    headers = JSON | ({"authorization": f"Bearer {key}"} if key else {})
    if path.endswith("/live"):
        with client.stream(method, path, headers=headers) as answer:
            return answer.status_code
    return client.request(method, path, headers=headers).status_code


def test_every_route_asks_for_its_scope(sqlite):
    store = Store(sqlite)
    keys = {scope: create_key(store, scope)[0] for scope in SCOPES}
    elsewhere = create_key(store, "admin", "other")[0]
    store.close()
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY, headers={"authorization": f"Bearer {keys['admin']}"})
        for (method, path), needs in sorted(SCOPE_OF.items(), key=lambda row: row[0][0] == "DELETE"):  # at the end
            refused = {None, "rasp_00000000_x"} if needs != "nothing" else set()
            assert all(send(client, method, path, key) == 401 for key in refused), path
            for scope, key in sorted(keys.items(), key=lambda item: SCOPES.index(item[0])):
                status = send(client, method, path, key)
                enough = needs == "nothing" or SCOPES.index(scope) >= SCOPES.index(needs)
                assert (status == 403) == (not enough), (method, path, scope, status)
                assert status not in (401, 500)
            if "{name}" in path and needs != "nothing":
                assert send(client, method, path, elsewhere) == 403, path
        assert send(client, "POST", "/v1/studies/import", elsewhere) == 403
        assert send(client, "GET", "/metrics", elsewhere) == 403


def test_a_key_for_one_study_sees_only_that_one(sqlite):
    store = Store(sqlite)
    admin, one = create_key(store, "admin")[0], create_key(store, "write", "b")[0]
    store.close()
    with running(sqlite) as client:
        for name in ("a", "b"):
            client.post("/v1/studies", json={**STUDY, "name": name}, headers={"authorization": f"Bearer {admin}"})
        client.headers["authorization"] = f"Bearer {one}"
        assert [study["name"] for study in client.get("/v1/studies").json()["studies"]] == ["b"]
        assert ask(client, study="b")["id"] == "s0"
        assert client.get("/v1/studies/a").status_code == 403


def test_a_key_counts_from_within_a_second_and_until_it_is_revoked(database):
    with running(database) as client:
        assert client.get("/v1/studies").status_code == 200
        store = Store(database)
        key, row = create_key(store, "read", label="dashboards")
        wait_for(lambda: client.get("/v1/studies").status_code == 401, "the key")
        headers = {"authorization": f"Bearer {key}"}
        assert client.get("/v1/studies", headers=headers).status_code == 200
        for wrong in (key[:-1], key + "0", key.upper(), f"rasp_{row.id}_", "rasp__"):
            assert client.get("/v1/studies", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
        assert store.revoke_key(row.id)
        assert not store.revoke_key(row.id)
        wait_for(lambda: client.get("/v1/studies", headers=headers).status_code == 401, "the end of the key")
        assert client.get("/v1/studies").status_code == 401  # having had a key, it stays shut
        assert key.split("_")[2] not in str(store.list_keys())
        assert [line["action"] for line in store.audit(10)] == ["key revoked", "key created"]
        store.close()


def test_admin_actions_are_written_down(sqlite):
    store = Store(sqlite)
    key, row = create_key(store, "admin")
    with running(sqlite) as client:
        client.headers["authorization"] = f"Bearer {key}"
        client.post("/v1/studies", json=STUDY)
        client.post("/v1/studies/web/freeze", headers=JSON)
        client.get("/v1/studies/web/export")
        client.delete("/v1/studies/web")
    lines = [(line["actor"], line["action"], line["subject"]) for line in store.audit(4)]
    store.close()
    actions = ["study deleted", "study exported", "study frozen", "study created"]
    assert lines == [(row.id, action, "web") for action in actions]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '{"id": "s0"}',
        '{"id": "s0", "metrics": {"p99_ms": NaN}}',
        '{"id": "s0", "metrics": {"p99_ms": Infinity}}',
        '{"id": "s0", "metrics": {"p99_ms": -Infinity}}',
        '{"id": "s0", "metrics": {"p99_ms": 1e999}}',
        '{"id": "s0", "metrics": {"p99_ms": 1' + "0" * 400 + "}}",
        '{"id": "s0", "metrics": {"p99_ms": 1' + "0" * 5_000 + "}}",
        '{"id": "s0", "metrics": {"p99_ms": "1"}}',
        '{"id": "s0", "metrics": {"p99_ms": true}}',
        '{"id": "s0", "metrics": {"p99_ms": null}}',
        '{"id": "s0", "metrics": {"p99_ms": [1]}}',
        '{"id": "s0", "metrics": {"p99_ms": 1, "p99_ms": 1}}',
        '{"id": "s0", "id": "s0", "metrics": {"p99_ms": 1}}',
        '{"id": "s0", "metrics": {}}',
        '{"id": "s0", "metrics": {"p99_ms": 1, "extra": 1}}',
        '{"id": "s0", "metrics": {"p99_ms": 1}, "extra": 1}',
        '{"id": 0, "metrics": {"p99_ms": 1}}',
        '{"id": "s\\ud800", "metrics": {"p99_ms": 1}}',
        '{"id": "s\\u0000", "metrics": {"p99_ms": 1}}',
        "[" * 100_000,
        '{"a":' * 50_000,
        "\ufeff{}",
    ],
)
def test_a_body_that_is_no_strict_json_or_no_tell_is_refused_and_changes_nothing(asked, body):
    before = view(asked)
    answer = asked.post("/v1/studies/web/tell", content=body.encode(), headers=JSON)
    assert answer.status_code in (400, 404, 422), answer.text
    assert set(answer.json()) == {"error"}
    assert {"code", "message"} <= set(answer.json()["error"])
    assert len(answer.text) < 1_500
    assert view(asked) == before


def test_bytes_that_are_no_text_are_refused(web):
    answer = web.post("/v1/studies/web/tell", content=b'{"id": "\xff\xfe"}', headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


WRONG = {
    "name": ["", ".a", "a/b", "a b", "x" * 65, "a\n", 1, None],
    "space": [
        {},
        None,
        {"x": {"type": "float", "low": 1, "high": 0}},
        {"x": {"type": "complex"}},
        {"": {"type": "int", "low": 0, "high": 9}},
        {"x": {"type": "int", "low": 0, "high": 9, "odd": 1}},
        {"x": {"type": "categorical", "choices": ["a"]}},
    ],
    "metrics": [
        {},
        {"m": "up"},
        {"m": {"direction": "min", "weight": -1}},
        {"m": {"direction": "min", "weight": 0}},
        {"m": {"scale": "ln"}},
    ],
    "context": [[], [""], ["a", "a"], 0, -1, "qps", 10_000, True],
    "default": [{}, {"pool": 8}, {"pool": 80, "t": 1.0}, {"pool": 8, "t": "1"}],
    "preset": ["best", 1, None],
    "seed": [-1, 2**64, 1.5, "1"],
    "guard": [-0.1, "x"],
    "budget": [-0.1, "x", True],
    "switching_cost": [-1.0],
    "lease_s": [0, -1, 1e10],
    "max_pending": [0, -1, 10**9],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_a_study_that_cannot_be_is_refused_with_its_field(shared, field, value):
    answer = shared.post("/v1/studies", json={**STUDY, "name": "wrong", field: value})
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["code"] == "invalid_value"
    assert shared.get("/v1/studies").json()["studies"] == []


def test_only_names_it_goes_by_are_answered(shared):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::2]"):
        answer = shared.get("/v1/studies", headers={"host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host"), host
    for host in ("localhost", "LOCALHOST:99", "[::1]:8321", "127.0.0.1:1"):
        assert shared.get("/v1/studies", headers={"host": host}).status_code == 200, host


def test_pages_of_other_sites_cannot_write(shared):
    own = f"http://{shared.base_url.host}:{shared.base_url.port}"
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        answer = shared.post("/v1/studies", json=STUDY, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert "access-control-allow-origin" not in answer.headers
    assert (
        shared.post("/v1/studies", json={}, headers={"origin": own, "sec-fetch-site": "same-origin"}).status_code == 422
    )


def test_only_json_is_taken(shared):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert shared.post("/v1/studies", content=b"{}", headers={"content-type": kind}).status_code == 415


def test_paths_and_methods_that_are_not_there(shared):
    for path in (
        "/v1",
        "/v1/studies/",
        "/docs",
        "/v1/studies/a/b",
        "/v1/studies/.a",
        "/v1/studies/a%2Fb/ask",
        "/static/",
    ):
        assert shared.get(path).status_code == 404, path
    for path in ("/static/..%2fapp.py", "/static/../app.py", "/static/%00", "/static/" + "x" * 5_000):
        assert shared.get(path).status_code == 404, path
    assert shared.put("/v1/studies").status_code == 405
    assert shared.request("TRACE", "/").status_code == 405


def test_a_path_says_which_methods_it_takes(shared):
    assert shared.put("/v1/studies").headers["allow"] == "POST, GET"
    assert shared.post("/healthz").headers["allow"] == "GET"


@pytest.mark.parametrize(
    "path",
    ["/", "/version", "/static/app.js", "/openapi.json", "/v1/studies", "/v1/studies/web", "/v1/studies/web/export"],
)
def test_head_is_answered_as_get_without_its_body(asked, path):
    whole, head = asked.get(path), asked.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"") == (200, b"")
    same = [name for name in whole.headers if name not in ("date", "transfer-encoding")]
    assert [head.headers[name] for name in same] == [whole.headers[name] for name in same]


def test_head_of_a_stream_ends_and_a_write_has_none(asked):
    assert asked.head("/v1/studies/web/live").headers["content-type"] == "text/event-stream"
    assert asked.get("/metrics").text.partition("\nrasp_streams ")[2].startswith("0")
    assert asked.head("/v1/studies/web/ask").status_code == 405
    assert asked.head("/v1/studies/none/live").status_code == 404


def test_answers_carry_the_headers_of_a_careful_page(shared):
    for answer in (shared.get("/healthz"), shared.get("/nothing")):
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def test_sizes_are_bounded(sqlite):
    with running(sqlite, limits=Limits(body=2_000, batch=3, knobs=2, studies=1)) as client:
        assert client.post("/v1/studies", content=b" " * 2_001, headers=JSON).status_code == 413
        assert client.post("/v1/studies", content=iter([b" " * 1_500] * 2), headers=JSON).status_code == 413
        more = {**STUDY["space"], "third": {"type": "int", "low": 0, "high": 1}}
        assert client.post("/v1/studies", json={**STUDY, "space": more, "default": None}).status_code == 422
        assert client.post("/v1/studies", json=STUDY).status_code == 201
        assert client.post("/v1/studies", json={**STUDY, "name": "second"}).status_code == 409
        many = client.post("/v1/studies/web/ask/batch", json={"contexts": [{"qps": 1}] * 4})
        assert (many.status_code, many.json()["error"]["field"]) == (413, "contexts")


def test_callers_that_are_too_fast_wait(sqlite):
    with running(sqlite, limits=Limits(rate=0.5, burst=3)) as client:
        answers = [client.get("/v1/studies") for _ in range(5)]
        assert [a.status_code for a in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "1"


def test_more_than_can_wait_is_shed(sqlite):
    with running(sqlite, limits=Limits(waiting=2)) as client:
        client.post("/v1/studies", json=STUDY)
        answer = client.post("/v1/studies/web/ask/batch", json={"contexts": [{"qps": 1}] * 3})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert view(client)["asks"] == 0


def test_what_is_shed_is_not_even_read(sqlite):
    with running(sqlite, limits=Limits(waiting=0)) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=10) as connection:
            head = b"POST /v1/studies/web/tell HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 900000\r\n\r\n")  # and no body
            answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"overloaded" in answer


def test_a_mistake_of_the_server_is_told_without_a_trace(web, monkeypatch):
    def slip(*_):
        raise ZeroDivisionError("a secret of the code")

    monkeypatch.setattr("rasp_tuner.service.http.gateway.loads", slip)
    answer = web.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "secret" not in answer.text


def test_the_document_describes_every_route_with_examples(shared):
    document = shared.get("/openapi.json").json()
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    pages = {("GET", path) for path in ("/", "/studies/{name}", "/static/{path:path}", "/openapi.json")}
    assert described == set(SCOPE_OF) - pages - PREFLIGHTS
    references = [value for value in walk(document) if isinstance(value, str) and value.startswith("#/")]
    assert references
    for reference in references:
        here = document
        for part in reference[2:].split("/"):
            here = here[part]
    assert document["components"]["schemas"]["NewStudy"]["properties"]["space"]["examples"]


def walk(value):
    if isinstance(value, dict):
        return itertools.chain.from_iterable(map(walk, value.values()))
    return itertools.chain.from_iterable(map(walk, value)) if isinstance(value, list) else iter([value])


def test_bad_numbers_in_the_query(web):
    for query in ("limit=0", "limit=-1", "limit=1e3", "limit=201", "limit=", "limit=" + "9" * 400):
        assert web.get(f"/v1/studies/web/suggestions?{query}").status_code == 422
    for id in ("s1", "x", "s0%00", "s" + "9" * 30):
        assert web.get(f"/v1/studies/web/suggestions/{id}").status_code == 404
    assert tell(web, "s0").status_code == 404


def test_the_document_names_the_content_type_that_comes(shared):
    document = shared.get("/openapi.json").json()
    for path, kind in (("/metrics", "text/plain"), ("/healthz", "application/json"), ("/version", "application/json")):
        described = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert list(described) == [kind]
        assert shared.get(path).headers["content-type"].split(";")[0] == kind
    study = document["paths"]["/v1/studies/{name}/export"]["get"]["responses"]["200"]["content"]
    assert list(study) == ["application/x-ndjson"]
    taken = document["paths"]["/v1/studies/import"]["post"]["requestBody"]["content"]
    assert list(taken) == ["application/x-ndjson"]
