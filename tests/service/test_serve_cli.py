import json
import re
import socket
import subprocess
import sys

from serving import STUDY, Process, plain_client
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.service.server import listening_socket
from rasp_tuner.service.storage.store import Store, sqlite_url
from rasp_tuner.tune import process

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what it takes to listen there is the test


def rasp(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_keys_are_made_listed_and_revoked(tmp_path):
    made = rasp("keys", "create", "--data", tmp_path, "--scope", "write", "--study", "web", "--label", "team a")
    assert re.fullmatch(r"rasp_[0-9a-f]{8}_[0-9a-f]{48}\n", made.stdout)
    id = made.stdout.split("_")[1]
    other = json.loads(rasp("keys", "create", "--data", tmp_path, "--scope", "read", "--json").stdout)
    assert other["key"].startswith(f"rasp_{other['id']}_")
    assert rasp("keys", "revoke", id, "--data", tmp_path).stdout == f"revoked {id}\n"
    again = rasp("keys", "revoke", id, "--data", tmp_path)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    listed = json.loads(rasp("keys", "list", "--data", tmp_path, "--json").stdout)["keys"]
    assert [(row["id"], row["scope"], row["study"], row["revoked"] is None) for row in listed] == [
        (id, "write", "web", False),
        (other["id"], "read", None, True),
    ]
    assert "team a" in rasp("keys", "list", "--data", tmp_path).stdout
    assert made.stdout.split("_")[2].strip() not in (tmp_path / "rasp.db").read_bytes().decode("latin-1")
    assert "key revoked" in rasp("keys", "audit", "--data", tmp_path).stdout


def test_a_key_that_cannot_be_is_refused_in_one_line(tmp_path):
    for words in (("--scope", "root"), ("--study", "a/b"), ("--label", "x" * 200)):
        refused = rasp("keys", "create", "--data", tmp_path, *words)
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)


def test_the_doctor_finds_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "orphans", dict)  # those of other tests
    missing = rasp("doctor", "--data", tmp_path / "none")
    assert missing.exit_code == 1
    assert "BAD  folder" in missing.stdout
    monkeypatch.chdir(tmp_path)
    nothing_yet = rasp("doctor")
    assert nothing_yet.exit_code == 0
    assert "rasp-data is not there" in nothing_yet.stdout
    Store(sqlite_url(tmp_path)).close()
    good = rasp("doctor", "--data", tmp_path, "--json")
    findings = {finding["name"]: finding for finding in json.loads(good.stdout)["findings"]}
    assert good.exit_code == 0
    of_database = {"schema", "integrity", "events", "snapshots", "content", "log"}
    assert {"version", "extras", "folder", "disk", "fsync", "server", "processes", *of_database} == set(findings)
    assert findings["content"]["said"] == "0 studies, 0 events, 0 keys"
    (tmp_path / "rasp.db").write_bytes(b"not a database" * 1000)
    broken = rasp("doctor", "--data", tmp_path)
    assert broken.exit_code == 1
    assert "BAD  database" in broken.stdout


def test_an_open_address_needs_keys(tmp_path):
    refused = rasp("serve", "--data", tmp_path, "--host", EVERYWHERE, "--port", "8399")
    assert refused.exit_code == 1
    assert "refusing to listen on 0.0.0.0 without API keys" in refused.stderr


def test_a_server_with_keys_on_all_addresses(tmp_path):
    key = rasp("keys", "create", "--data", tmp_path, "--scope", "admin").stdout.strip()
    server = Process(tmp_path, "--host", EVERYWHERE, "--allow-host", "tuner.example", "--studies", "1", forked=False)
    try:
        with plain_client(server.url) as client:
            assert client.post("/v1/studies", json=STUDY).status_code == 401
            headers = {"authorization": f"Bearer {key}"}
            assert client.post("/v1/studies", json=STUDY, headers=headers).status_code == 201
            one_more = client.post("/v1/studies", json=STUDY | {"name": "more"}, headers=headers)
            assert one_more.status_code == 409
            assert "the limit of studies is reached, which is 1: rasp serve --studies" in one_more.text
            assert client.get("/v1/studies", headers={**headers, "host": "tuner.example"}).status_code == 200
            assert client.get("/v1/studies", headers={**headers, "host": "other.example"}).status_code == 421
        assert "one runs on this folder" in rasp("doctor", "--data", tmp_path).stdout
    finally:
        server.stop()


def test_a_port_that_is_taken_is_said_in_one_line(process, tmp_path):
    words = [sys.executable, "-m", "rasp_tuner", "serve", "--data", tmp_path / "other", "--port", str(process.port)]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"could not listen on 127.0.0.1:{process.port}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_start_loads_only_what_it_needs_to_be_ready():
    said = "import rasp_tuner.cli, rasp_tuner.service.server, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.split()
    assert "rasp_tuner.service.http.gateway" in loaded
    late = ("fastapi", "starlette", "sqlalchemy.dialects.postgresql", "httpx", "rasp_tuner.service.doctor")
    assert [name for name in late if name in loaded] == []


def test_every_command_of_the_service_shows_an_example():
    for words in (("serve",), ("doctor",), *(("keys", name) for name in ("create", "list", "revoke", "audit"))):
        assert f"Example: rasp {' '.join(words)}" in rasp(*words, "--help").stdout


def test_small_answers_are_not_held_back():
    """asyncio sets TCP_NODELAY only on sockets that say they are TCP; else every answer waits for an old one's ACK."""
    with listening_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
