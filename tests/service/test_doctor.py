"""`rasp doctor`: each state that users were hurt by is made for real, and must be found and said in plain words."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from serving import STUDY, Process, plain_client, running, steps
from typer.testing import CliRunner

from rasp_tuner import Fleet, Float, Tuner
from rasp_tuner.cli import app
from rasp_tuner.files import snapshot
from rasp_tuner.service import doctor
from rasp_tuner.service.doctor import examine
from rasp_tuner.service.storage.store import sqlite_url
from rasp_tuner.tune import process


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The folder of a server that has stopped, with two studies."""
    data = tmp_path_factory.mktemp("sound") / "data"
    data.mkdir()
    with running(sqlite_url(data)) as client:
        for name in ("web", "other"):
            client.post("/v1/studies", json={**STUDY, "name": name})
            steps(client, 15, study=name)
    return data


@pytest.fixture
def data(sound, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "SLOW_FSYNC_MS", float("inf"))  # a busy machine is none of the states below
    return shutil.copytree(sound, tmp_path / "data")


@pytest.fixture
def server(data):
    started = Process(data, forked=False)  # it is known by its command line
    yield started
    started.close()


def findings(data):
    return {finding.name: finding for finding in examine(data, None)}


def bad(data):
    return {name: finding for name, finding in findings(data).items() if not finding.good}


def change(data, sql):
    connection = sqlite3.connect(data / "rasp.db")
    with connection:
        connection.execute(sql)
    connection.close()


def files(data):
    return {file.name: file.read_bytes() for file in data.glob("rasp.db*") if not file.name.endswith("-shm")}


def told(*words):
    return CliRunner().invoke(app, ["doctor", *map(str, words)])


def test_a_sound_folder_is_called_so_and_is_left_as_it_was(data, monkeypatch):
    monkeypatch.setattr(process, "orphans", dict)  # those of other tests
    before = files(data)
    found = told("--data", data)
    assert (found.exit_code, found.stdout.splitlines()[-1]) == (0, "All is well.")
    assert files(data) == before


def test_what_a_killed_server_left_is_read_and_not_changed(data, server):
    with plain_client(server.url) as client:
        steps(client, 3)
    server.kill()
    before = files(data)
    assert len(before["rasp.db-wal"]) > 0
    assert bad(data) == {}
    assert files(data) == before


def test_files_deleted_under_a_server_are_told_once_and_nothing_is_opened_there(data, server):
    for file in data.iterdir():
        file.unlink()
    found = bad(data)
    assert set(found) == {"server", "database"}
    assert (
        f"(process {server.process.pid}), and its files were deleted under the running server" in found["server"].said
    )
    assert "bring back a backup" in found["server"].mend
    assert "not looked at" in found["database"].said
    assert not (data / "rasp.db").exists()


@pytest.mark.usefixtures("server")
def test_a_replaced_database_is_not_read_with_the_log_of_another(data):
    shutil.copy(data / "rasp.db", data / "copy")
    (data / "copy").rename(data / "rasp.db")
    found = bad(data)
    assert "was replaced by another file under the running server" in found["server"].said
    assert set(found) == {"server", "database"}


def test_a_folder_that_was_moved_away_under_its_server_is_noticed(data, server, tmp_path):
    data.rename(tmp_path / "away")
    assert f"kill {server.process.pid}" in bad(data)["folder"].mend
    data.mkdir()  # another server would start here
    assert f"still runs (process {server.process.pid})" in bad(data)["folder"].said


def test_a_server_that_hangs_is_told_with_what_to_do(data, server, monkeypatch):
    monkeypatch.setattr(doctor, "ANSWER_S", 0.3)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        found = bad(data)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert set(found) == {"server"}
    assert "it does not answer" in found["server"].said
    assert f"kill {server.process.pid}" in found["server"].mend


def test_a_lock_that_is_no_file_is_named(data):
    (data / "lock").unlink(missing_ok=True)
    (data / "lock").mkdir()
    assert "it must be a file" in bad(data)["server"].said
    assert str(data / "lock") in bad(data)["server"].mend


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_truncated_file_is_called_damaged_with_its_name(data, share):
    os.truncate(data / "rasp.db", int(share * (data / "rasp.db").stat().st_size))
    found = bad(data)["database"]
    assert f"{data / 'rasp.db'} is damaged" in found.said
    assert "address" not in found.mend
    assert "bring back a backup" in found.mend


def test_damaged_pages_are_told_in_one_line(data):
    size = (data / "rasp.db").stat().st_size
    with (data / "rasp.db").open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    found = told("--data", data)
    [line] = [line for line in found.stdout.splitlines() if line.startswith("BAD  integrity")]
    assert "the file has damaged pages (" in line
    assert "***" not in found.stdout
    assert all(line.startswith(("ok ", "BAD", "    ")) for line in found.stdout.splitlines()[:-1])
    assert found.stdout.splitlines()[-1].endswith("checks failed")


def test_a_damaged_definition_is_not_called_a_damaged_snapshot(data):
    change(data, """UPDATE studies SET definition = '{"x": 1}' WHERE name = 'web'""")
    found = bad(data)
    assert set(found) == {"studies"}
    assert "web: the definition is damaged" in found["studies"].said


def test_snapshots_of_all_studies_are_read(data):
    with running(sqlite_url(data)) as client:
        for i in range(25):
            client.post("/v1/studies", json={**STUDY, "name": f"s{i}"})
            steps(client, 1, study=f"s{i}")
    change(data, "UPDATE snapshots SET data = x'00' WHERE study = (SELECT max(study) FROM snapshots)")
    assert "s24: a snapshot is damaged; no event is lost" in bad(data)["snapshots"].said


def test_a_snapshot_with_a_number_changed_and_its_checksum_made_again_is_found(data):
    connection = sqlite3.connect(data / "rasp.db")
    [[study, seq, stored]] = connection.execute("SELECT study, seq, data FROM snapshots ORDER BY study LIMIT 1")
    at = stored.index(snapshot.MAGIC, 20)  # the tuner's own snapshot, within that of the study
    header, arrays = snapshot.decode(stored[at:])
    header.pop("numerics")
    name = next(name for name in arrays if name.endswith("clock"))
    changed = stored[:at] + snapshot.encode(header, {**arrays, name: -1.0 - arrays[name]})
    again = hashlib.sha256(changed).hexdigest()
    with connection:
        connection.execute(
            "UPDATE snapshots SET data = ?, sha256 = ? WHERE study = ? AND seq = ?", (changed, again, study, seq)
        )
    connection.close()
    assert set(bad(data)) == {"snapshots"}


def test_events_from_the_future_are_found(data):
    with running(sqlite_url(data)) as client:
        real = time.time
        try:
            time.time = lambda: real() + 7_200.0
            steps(client, 1)
        finally:
            time.time = real
    found = bad(data)
    assert set(found) == {"clock"}
    assert "the newest event of web is up to 2.0 hours ahead" in found["clock"].said


@pytest.mark.usefixtures("server")
def test_a_write_ahead_log_that_grows_on_is_found(data):
    reader = sqlite3.connect(data / "rasp.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()  # holds the log as it is now, as a backup that hangs
    writer = sqlite3.connect(data / "rasp.db", isolation_level=None)
    writer.execute("CREATE TABLE bulk (x)")
    while (data / "rasp.db-wal").stat().st_size <= doctor.MOST_LOG_BYTES:
        writer.execute("INSERT INTO bulk VALUES (zeroblob(4000000))")
    found = bad(data)["log"]
    assert "rasp.db-wal has grown to" in found.said
    assert "fuser" in found.mend
    for connection in (reader, writer):
        connection.close()


def test_a_disk_with_less_room_than_the_database_takes_is_found(data, monkeypatch):
    usage = shutil.disk_usage(data)
    for free, good in ((10**10, True), (10**8, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        assert findings(data)["disk"].good is good
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000))
    assert "refused once it is full" in bad(data)["disk"].said
    monkeypatch.undo()
    rest = os.statvfs(data)
    few = os.statvfs_result((*rest[:5], 1000, 3, 3, *rest[8:]))
    monkeypatch.setattr(os, "statvfs", lambda _: few)
    assert "room for 3 more files" in bad(data)["disk"].said


def test_what_a_killed_tune_left_behind_is_found(data):
    mark = {**os.environ, "RASP_TUNE_STUDY": "orphan-of-doctor"}
    with subprocess.Popen([shutil.which("sleep"), "60"], env=mark) as orphan:
        found = told("--data", data, "--json")
        orphan.kill()
    [line] = [line for line in json.loads(found.stdout)["findings"] if line["name"] == "processes"]
    assert not line["good"]
    assert f"{orphan.pid} (study 'orphan-of-doctor')" in line["said"]
    assert str(orphan.pid) in line["mend"]


def test_the_runs_of_a_tune_that_goes_on_are_not_left_behind(tmp_path):
    words = ["tune", "--knob", "x=int:1..9", "--default", "x=3", "--metric", "time_s"]
    command = [sys.executable, "-m", "rasp_tuner", *words, "--", "sh", "-c", "echo {x}; sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as tune:
        until, marked = time.monotonic() + 60, {}
        while not marked and time.monotonic() < until and tune.poll() is None:
            time.sleep(0.1)
            marked = process._marked()  # once: what becomes another program has no environment for a moment
        found = process.orphans()
        tune.terminate()
        tune.communicate(timeout=30)
    assert marked
    assert not set(marked) & set(found)


def test_files_are_checked(tmp_path, data):
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"y": "min"}, default={"x": 0.5}, seed=1)
    tuner.save(tmp_path / "tuner.rasp")
    fleet = Fleet({"x": Float(0.0, 1.0)}, {"y": "min"}, default={"x": 0.5}, size=3)
    fleet.save(tmp_path / "fleet.rasp")
    tuner.export(tmp_path / "policy.json")
    with running(sqlite_url(data)) as client:
        (tmp_path / "export.ndjson").write_bytes(client.get("/v1/studies/web/export").content)
    names = ("tuner.rasp", "fleet.rasp", "policy.json", "export.ndjson")
    whole = told(*(tmp_path / name for name in names))
    assert whole.exit_code == 0, whole.stdout
    for words in ("a tuner that has learned 0", "a fleet of 3", "a policy", "an exported study with 30 events"):
        assert words in whole.stdout
    for name in names:
        content = bytearray((tmp_path / name).read_bytes())
        content[len(content) // 2] ^= 0x55
        (tmp_path / name).write_bytes(content[:-5])
        broken = told(tmp_path / name)
        assert (broken.exit_code, type(broken.exception)) == (1, SystemExit), name
        assert broken.stdout.startswith(f"BAD  file       {tmp_path / name}: "), broken.stdout
    (tmp_path / "other").write_text("hello")
    assert "is no file of RASP-Tuner" in told(tmp_path / "other").stdout
    assert "No such file" in told(tmp_path / "none").stdout
