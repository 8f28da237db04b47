"""A damaged database: what is damaged is named, and not served; the rest is."""

import json
import shutil
import sqlite3

import pytest
from serving import STUDY, Process, plain_client, running, steps, view
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.service.doctor import examine
from rasp_tuner.service.storage.store import sqlite_url
from rasp_tuner.tune import process

PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The folder of a server that has stopped, with a study of thirty steps."""
    data = tmp_path_factory.mktemp("filled") / "data"
    fill(data)
    return data


@pytest.fixture
def data(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "data")


def fill(data, studies=("web",), count=30):
    """A database with studies of so many steps, whose server has stopped."""
    data.mkdir(exist_ok=True)
    with running(sqlite_url(data)) as client:
        for name in studies:
            client.post("/v1/studies", json={**STUDY, "name": name})
            steps(client, count, study=name)


def findings(data):
    return {finding.name: finding for finding in examine(data, None)}


def change(data, sql):
    connection = sqlite3.connect(data / "rasp.db")
    with connection:
        connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("keys", "list")])
def test_a_truncated_database_is_said_in_one_line(data, share, command):
    file = data / "rasp.db"
    with file.open("r+b") as database:
        database.truncate(int(share * file.stat().st_size))
    refused = CliRunner().invoke(app, [*command, "--data", str(data)])
    assert (refused.exit_code, type(refused.exception)) == (1, SystemExit)
    assert refused.stderr.splitlines()[-1].startswith("rasp: could not use the database")
    assert "rasp.db is damaged" in refused.stderr
    found = CliRunner().invoke(app, ["doctor", "--data", str(data)])
    assert (found.exit_code, "BAD  database" in found.stdout) == (1, True)


def test_a_damaged_page_is_listed_and_the_other_studies_are_served(tmp_path):
    data = tmp_path / "data"
    fill(data, ("web", "other"), 60)
    with running(sqlite_url(data)) as client:
        seen = {"context": {"qps": 1}, "params": {"pool": 3, "t": 1.0}, "metrics": {"p99_ms": 4.0}, "key": "a mark"}
        assert client.post("/v1/studies/other/observe", json=seen).status_code == 200
    change(data, "DELETE FROM snapshots")  # they would hide it: what they hold is not read again
    whole = (data / "rasp.db").read_bytes()
    pages = [whole[at : at + PAGE_BYTES] for at in range(0, len(whole), PAGE_BYTES)]
    [page] = [number for number, page in enumerate(pages) if b"a mark" in page and b"p99_ms" in page]
    with (data / "rasp.db").open("r+b") as database:
        database.seek(page * PAGE_BYTES)
        database.write(b"\xff" * PAGE_BYTES)
    found = findings(data)
    assert not found["integrity"].good
    assert not found["events"].good
    assert "other: damaged after event " in found["events"].said
    assert "web: " not in found["events"].said
    server = Process(data)
    try:
        with plain_client(server.url) as client:
            refused = client.get("/v1/studies/other")
            assert (refused.status_code, refused.json()["error"]["code"]) == (500, "damaged")
            assert [one["name"] for one in client.get("/v1/studies").json()["damaged"]] == ["other"]
            assert view(client)["tells"] == 60
            assert client.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).status_code == 200
    finally:
        said, _ = server.stop()
    assert "study 'other' cannot be built from its log" in said
    assert "Traceback" not in said


CHANGES = {
    "body": "UPDATE events SET body = replace(body, '1.0', '1.1') WHERE seq = 7",
    "at": "UPDATE events SET at = at + 0.001 WHERE seq = 7",
    "kind": "UPDATE events SET kind = 'failed' WHERE seq = 8",
    "moved": "UPDATE events SET study = 2, seq = 99 WHERE seq = 7",
    "no checksum": "UPDATE events SET checksum = NULL WHERE seq = 7",
    "another type": "UPDATE events SET at = 'x' WHERE seq = 7",
}


@pytest.mark.parametrize("way", CHANGES)
def test_changed_events_are_noticed_and_not_served(data, way):
    change(data, CHANGES[way])
    events = findings(data)["events"]
    assert not events.good
    assert "web: 1 " in events.said
    with running(sqlite_url(data)) as client:  # its snapshot is newer: asks go on, but the log is not given out
        forgotten = client.post("/v1/studies/web/forget", json={"before": 1.0})
        for refused in (client.get("/v1/studies/web/export"), forgotten):
            assert (refused.status_code, refused.json()["error"]["code"]) == (500, "damaged"), refused.text
    change(data, "DELETE FROM snapshots")
    with running(sqlite_url(data)) as client:
        refused = client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "damaged")


def test_a_log_that_is_shorter_than_its_snapshot_is_found(data):
    change(data, "DELETE FROM events WHERE seq > 50")
    assert "web: the last 10 events are missing" in findings(data)["events"].said


def test_a_damaged_snapshot_is_found(data):
    change(data, "UPDATE snapshots SET data = substr(data, 1, 500)")
    found = findings(data)
    assert not found["snapshots"].good
    assert "web" in found["snapshots"].said
    assert found["events"].good


def test_the_doctor_asks_the_server_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "orphans", dict)  # those of other tests
    server = Process(tmp_path / "data")
    try:
        assert findings(tmp_path / "data")["server"].said.startswith("one runs on this folder (process ")
        lines = json.loads(CliRunner().invoke(app, ["doctor", "--data", str(tmp_path / "data"), "--json"]).stdout)
        assert all(line["good"] for line in lines["findings"])
    finally:
        server.stop()
