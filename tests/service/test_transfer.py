"""A study leaves one server and arrives at another as what it was."""

import hashlib
import json

import pytest
from serving import STUDY, ask, running, steps, tell, view

from rasp_tuner.service.storage.store import sqlite_url

OTHERWISE = {"created": 0, "server": None}  # what is another's on another server
NDJSON = {"content-type": "application/x-ndjson"}
OWN = {"created": 0, "server": None}  # of one server


@pytest.fixture
def export(tmp_path_factory):
    """The lines of a study with something of everything in it."""
    with running(sqlite_url(tmp_path_factory.mktemp("export"))) as client:
        client.post("/v1/studies", json={**STUDY, "max_pending": 2})
        for _ in range(4):
            ask(client)
        tell(client, "s0", 7.0)
        steps(client, 5, start=4)
        client.post("/v1/studies/web/tell_failed", json={"id": ask(client)["id"], "reason": "crash"})
        seen = {"context": {"qps": 1}, "params": {"pool": 3, "t": 1.0}, "metrics": {"p99_ms": 4.0}, "key": "k"}
        client.post("/v1/studies/web/observe", json=seen)
        client.post("/v1/studies/web/freeze", headers={"content-type": "application/json"})
        answer = client.get("/v1/studies/web/export")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        return answer.content, view(client), client.get("/v1/studies/web/history").json()


def test_an_imported_study_is_the_exported_one(export, database):
    content, shown, history = export
    lines = [json.loads(line) for line in content.splitlines()]
    assert lines[0]["format"] == "rasp-study"
    assert lines[-1]["count"] == lines[0]["events"] == len(lines) - 2
    with running(database) as client:
        answer = client.post("/v1/studies/import", content=content, headers=NDJSON)
        assert answer.status_code == 201, answer.text
        assert {**answer.json(), **OWN} == {**shown, **OWN}
        assert client.get("/v1/studies/web/history").json() == history
        assert client.post("/v1/studies/import", content=content, headers=NDJSON).status_code == 409
        assert client.post("/v1/studies/import?name=copy", content=content, headers=NDJSON).status_code == 201
        assert client.post("/v1/studies/import?name=.x", content=content, headers=NDJSON).status_code == 422
        assert tell(client, "s0", 7.0, "copy").json() == {"id": "s0", "status": "duplicate", "late": True}
        assert client.get("/v1/studies/copy/export").content.splitlines()[1:-1] == content.splitlines()[1:-1]
    with running(database) as client:
        assert {**view(client), **OWN} == {**shown, **OWN}
        assert ask(client, study="copy")["params"] == ask(client)["params"]


def sealed(lines):
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"count": len(lines) - 1, "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def spoilt(content):
    """Exports with something wrong, and what is said of it."""
    lines = [json.loads(line) for line in content.splitlines()][:-1]
    yield b"", "not an export"
    yield b"{}", "not an export"
    yield content[:-200], ""
    yield content.replace(b"qps", b"QPS"), "checksum"
    yield content.replace(b'"version":1', b'"version":2'), "version 2"
    yield sealed([{**lines[0], "format": "x"}, *lines[1:]]), "format"
    yield sealed(lines[:-1]), "number of its events"
    yield sealed([{**lines[0], "events": 1}, {**lines[1], "seq": 2}]), "event 1"
    yield sealed([{**lines[0], "events": 1}, {**lines[1], "kind": "explode"}]), "event 1"
    yield sealed([{**lines[0], "events": 1}, {**lines[1], "odd": 1}]), "event 1"
    yield sealed([{**lines[0], "events": 1}, {**lines[1], "ask": 5}]), "event 1"
    yield sealed([{**lines[0], "events": 1}, {**lines[1], "body": {}}]), "event 1"
    yield sealed([{**lines[0], "events": 2}, lines[1], {**lines[1], "seq": 2, "kind": "tell"}]), "event 2"
    told = {"seq": 2, "kind": "tell", "at": lines[1]["at"], "ask": 0, "body": {"metrics": {"p99_ms": 1.0}}}
    yield sealed([{**lines[0], "events": 3}, lines[1], told, {**told, "seq": 3}]), "event 3"
    yield sealed([{**lines[0], "events": 2}, lines[1], {**told, "at": 1e308}]), "line 3, event 2: at"
    yield sealed([{**lines[0], "events": 2}, lines[1], {**told, "at": 9e9}]), "line 3, event 2: it comes"
    yield sealed([{**lines[0], "events": 2}, lines[1], {**told, "at": -1.0}]), "line 3, event 2: at"
    forgot = {"seq": 1, "kind": "forgot", "at": 0.0, "body": {"handed": 2**62, "records": 1}}
    yield sealed([{**lines[0], "events": 1}, forgot]), "line 2, event 1: handed"
    yield sealed([{**lines[0], "events": 1}, {**lines[1], "ask": 2**62}]), "line 2, event 1: ask"
    failed = {**told, "kind": "failed", "body": {"reason": "x" * 1_000_000}}
    yield sealed([{**lines[0], "events": 2}, lines[1], failed]), "line 3, event 2: reason"
    seen = {"context": {"qps": 1}, "params": {"pool": 3, "t": 1.0}, "metrics": {"p99_ms": 4.0}}
    observed = {"seq": 1, "kind": "observe", "at": 0.0, "body": seen, "key": "k"}
    yield sealed([{**lines[0], "events": 2}, observed, {**observed, "seq": 2}]), "line 3, event 2: the key 'k' comes"
    long = {**observed, "body": {**seen, "context": {"qps": "x" * 2_000}}}
    yield sealed([{**lines[0], "events": 1}, long]), "line 2, event 1: context"
    yield sealed([{**lines[0], "events": 1}, {**observed, "key": "k\0"}]), "line 2, event 1: key"
    yield sealed([{**lines[0], "events": 1}, {**observed, "body": {**seen, "more": 1}}]), "line 2, event 1: more"
    yield sealed([{**lines[0], "definition": {"name": "x"}}, *lines[1:]]), "space"


def test_an_export_with_a_fault_is_refused_and_leaves_nothing(export, tmp_path):
    with running(sqlite_url(tmp_path)) as client:
        for content, said in spoilt(export[0]):
            answer = client.post("/v1/studies/import", content=content, headers=NDJSON)
            assert answer.status_code in (400, 422), (answer.text, said)
            assert said in answer.json()["error"]["message"]
        assert client.get("/v1/studies").json()["studies"] == []
