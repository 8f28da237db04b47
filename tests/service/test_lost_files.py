"""Files of the database that are deleted or replaced while a server runs, or between two runs."""

import shutil

import pytest
from serving import STUDY, Process, ask, plain_client, running, steps, tell, view, wait_for
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.service.doctor import examine
from rasp_tuner.service.storage.store import DatabaseUnusable, Store, sqlite_url
from rasp_tuner.service.storage.writer import IDLE_WAIT_S

WAL = "rasp.db-wal"


def delete(folder):
    for file in folder.glob("rasp.db*"):
        file.unlink()


def delete_everything(folder):
    for file in folder.iterdir():
        file.unlink()


def delete_log(folder):
    (folder / WAL).unlink()


def replace(folder):
    copy = folder / "copy"
    shutil.copy(folder / "rasp.db", copy)
    copy.rename(folder / "rasp.db")


def move_away(folder):
    folder.rename(folder.with_name("elsewhere"))


WAYS = (delete, delete_everything, delete_log, replace, move_away)


@pytest.mark.parametrize("lose", WAYS)
def test_no_tell_is_acknowledged_once_files_are_gone(tmp_path, lose):
    data = tmp_path / "data"
    server = Process(data)
    try:
        with plain_client(server.url) as client:
            client.post("/v1/studies", json=STUDY)
            steps(client, 3)
            asked = ask(client)
            lose(data)
            answers = [tell(client, asked["id"]), client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}})]
            assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [
                (503, "storage")
            ] * 2
            ready = client.get("/readyz")
            assert ready.status_code == 503
            assert "under the running server" in ready.json()["reason"]
            assert client.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).status_code == 200
    finally:
        said, status = server.stop()
    assert "under the running server: nothing is recorded any more" in said
    assert "Traceback" not in said
    assert status == 1


@pytest.mark.parametrize("lose", [delete, replace])
def test_it_is_noticed_within_a_second_while_nobody_writes(tmp_path, lose):
    data = tmp_path / "data"
    server = Process(data)
    try:
        lose(data)
        wait_for(lambda: "under the running server" in server.said(), "the line")
        assert IDLE_WAIT_S < 1.0  # how often it looks
    finally:
        server.close()


def test_files_that_come_back_are_used_again(sqlite, tmp_path):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 3)
        asked, before = ask(client), view(client)
        (tmp_path / "rasp.db").rename(tmp_path / "away")
        assert tell(client, asked["id"]).status_code == 503
        (tmp_path / "away").rename(tmp_path / "rasp.db")
        wait_for(lambda: client.get("/readyz").status_code == 200, "a test write")
        assert view(client)["tells"] == before["tells"]
        assert tell(client, asked["id"]).json()["status"] == "learned"


def serve_here(data):
    """A second `rasp serve`, which must end by itself."""
    return CliRunner().invoke(app, ["serve", "--data", str(data), "--port", "0"])


@pytest.mark.parametrize("lose", [delete, delete_everything])
def test_no_second_server_starts_on_the_folder_of_one_that_lost_its_files(tmp_path, lose):
    data = tmp_path / "data"
    server = Process(data)
    try:
        lose(data)
        second = serve_here(data)
        assert second.exit_code == 1
        assert "another server (process" in second.stderr
        [finding] = [finding for finding in examine(data, None) if finding.name == "server"]
        assert not finding.good
        assert "under the running server" in finding.said or "its lock file is gone" in finding.said
    finally:
        server.close()


def test_no_server_begins_anew_where_a_database_was_lost(tmp_path):
    data = tmp_path / "data"
    server = Process(data)
    server.kill()
    (data / "rasp.db").unlink()
    assert (data / WAL).stat().st_size  # what was written last is only there
    for why in ("its log rasp.db-wal", "though a server has used it"):
        refused = serve_here(data)
        assert (refused.exit_code, refused.stderr.count("\n"), why in refused.stderr) == (1, 2, True), refused.stderr
        with pytest.raises(DatabaseUnusable, match=why):
            Store(sqlite_url(data))
        [finding] = [finding for finding in examine(data, None) if finding.name == "database"]
        assert not finding.good
        assert why in finding.said
        (data / WAL).unlink(missing_ok=True)
    (data / "lock").unlink()
    Process(data).stop()
