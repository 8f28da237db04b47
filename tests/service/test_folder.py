"""The files of the service: for this user only, and for one server at a time."""

import logging
import os
import stat

import pytest
import sqlalchemy as sa

from rasp_tuner.service.data_folder_lock import (
    FolderTaken,
    database_lock,
    folder_lock,
    make_folder,
    sqlite_file,
    warn_if_open,
)
from rasp_tuner.service.doctor import examine
from rasp_tuner.service.server import serve
from rasp_tuner.service.storage.store import Store, sqlite_url


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_what_is_made_is_for_this_user_only(tmp_path):
    data = tmp_path / "data"
    make_folder(data)
    store = Store(sqlite_url(data))
    with store.writing() as connection:
        store.add_audit_line(connection, "test", "writes", "")
        found = {file.name: mode(file) for file in data.iterdir()}
        assert found == dict.fromkeys(("rasp.db", "rasp.db-wal", "rasp.db-shm"), 384)
    store.rewrite_files()
    store.close()
    with folder_lock(data):
        assert mode(data / "lock") == 0o600
    assert (mode(data), mode(data / "rasp.db")) == (0o700, 0o600)


@pytest.mark.usefixtures("usual_umask")
def test_what_is_there_keeps_its_rights_and_they_are_named(tmp_path, caplog):
    data = tmp_path / "data"
    data.mkdir()
    (data / "rasp.db").touch()
    make_folder(data)
    Store(sqlite_url(data)).close()
    assert (mode(data), mode(data / "rasp.db")) == (0o755, 0o644)
    with caplog.at_level(logging.WARNING, "rasp_tuner.serve"):
        warn_if_open(data, data / "rasp.db")
    assert f"chmod go-rwx {data} {data / 'rasp.db'}" in caplog.text
    [folder] = [finding for finding in examine(data, None) if finding.name == "folder"]
    assert folder.good
    assert "chmod go-rwx" in folder.mend


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    (tmp_path / "lock").symlink_to(precious)
    with pytest.raises(FolderTaken, match="no link"), folder_lock(tmp_path):
        pass
    assert precious.read_text() == "as it was"


def test_a_database_in_another_place_is_locked_there(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    for name in ("rasp.db", "own.db"):
        file = sqlite_file(sa.make_url(f"sqlite:///{one}/{name}"))
        with folder_lock(one) if name == "rasp.db" else database_lock(file), pytest.raises(FolderTaken, match=name):
            serve(other, port=0, database=f"sqlite:///{file}")
    (tmp_path / "link.db").symlink_to(one / "own.db")
    with database_lock(one / "own.db"), pytest.raises(FolderTaken, match=r"own\.db"):
        serve(other, port=0, database=f"sqlite:///{tmp_path}/link.db")
    for url in ("sqlite://", "sqlite:///:memory:", "postgresql://h/d"):
        assert sqlite_file(sa.make_url(url)) is None
