"""The log is the truth: what is answered is on disk, what is not is undone, and a restart changes nothing."""

import json
import time
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from serving import (
    SPACES,
    STUDY,
    NoLog,
    Process,
    ask,
    definition,
    plain_client,
    play,
    running,
    steps,
    tell,
    view,
    wait_for,
    whole,
)

from rasp_tuner.service.storage.store import Store, StoredStudy, sqlite_url
from rasp_tuner.service.storage.study_cache import StudyCache
from rasp_tuner.service.storage.study_loader import load_study
from rasp_tuner.service.storage.tables import events, snapshots
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy


def test_an_old_suggestion_is_found_without_reading_the_whole_log(sqlite):
    """Else whoever repeats old answers keeps the writer busy."""
    store, plans = Store(sqlite), []

    @sa.event.listens_for(store._readers, "before_cursor_execute")
    def note_plan(_, cursor, statement, given, *__):
        plans.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", given).fetchall())

    assert store.events_of_ask(1, 5) == []
    assert store.observation_by_key(1, "a") is None
    store.close()
    assert [plan.partition(" (")[2] for plan in plans] == ["study=? AND ask=?)", "study=? AND key=?)"]


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
def test_a_replayed_log_is_the_study_that_wrote_it(space):
    live = LiveStudy(1, definition(space), 0.0)
    events = play(live, 300)
    again = LiveStudy(1, definition(space), 0.0)
    for event in events:
        again.apply(event)
    assert whole(again) == whole(live)
    assert again.counts.diverged == 0


@pytest.mark.parametrize("space", SPACES)
def test_a_study_that_is_stopped_at_any_moment_goes_on_as_if_it_never_was(space):
    straight = LiveStudy(1, definition(space), 0.0)
    expected = play(straight, 160)
    live, done = LiveStudy(1, definition(space), 0.0), 0
    for stop in (1, 2, 3, 50, 51, 110, 160):
        for event in expected[done:stop]:
            live.apply(event)
        live.tuner.recommend({"qps": 5.0})  # looking leaves no trace
        live, done = study_snapshot.restore(study_snapshot.capture(live)(), 1, definition(space), 0.0), stop
    assert whole(live) == whole(straight)


def test_a_study_is_built_from_the_newest_sound_snapshot_and_the_tail(database):
    live = LiveStudy(0, definition(), 5.0)
    events = play(live, 150)
    store = Store(database)
    with store.writing() as connection:
        live.id = store.add_study(connection, "web", live.definition.to_wire(), 5.0)
        store.append(connection, [(live.id, event) for event in events])
    row = StoredStudy(live.id, "web", json.dumps(live.definition.to_wire()), 5.0)
    built = load_study(store, row)
    assert (whole(built), built.saved.seq) == (whole(live), 0)
    part = LiveStudy(live.id, live.definition, 5.0)
    for event in events[:100]:
        part.apply(event)
    with store.writing() as connection:
        store.add_snapshot(connection, live.id, 100, study_snapshot.capture(part)())
        store.add_snapshot(connection, live.id, 120, b"damaged")
    built = load_study(store, row)
    assert (whole(built)[:3], built.saved.seq) == (whole(live)[:3], 100)
    with store.writing() as connection:
        store.add_snapshot(connection, live.id, 130, b"damaged too")
    assert [seq for seq, _ in store.snapshots(live.id)] == [130, 120]
    assert load_study(store, row).saved.seq == 0
    store.close()


def test_bytes_that_are_no_snapshot_are_refused():
    live = LiveStudy(1, definition(), 5.0)
    play(live, 60)
    saved = study_snapshot.capture(live)()
    assert whole(study_snapshot.restore(saved, 1, definition(), 5.0)) == whole(live)
    for damaged in (b"", saved[1:], b"still 1\n" + saved[8:]):
        with pytest.raises(ValueError, match="not a study snapshot: it begins with other bytes"):
            study_snapshot.restore(damaged, 1, definition(), 5.0)
    with pytest.raises(ValueError, match="not a study snapshot"):
        study_snapshot.restore(saved[:12], 1, definition(), 5.0)


def snapshots_of(url):
    store = Store(url)
    try:
        return [seq for seq, _ in store.snapshots(1)]
    finally:
        store.close()


def test_a_snapshot_is_made_when_the_replay_since_the_latest_would_take_long(sqlite, monkeypatch):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 6)
        time.sleep(0.5)
        assert snapshots_of(sqlite) == []  # twelve events are no reason
        monkeypatch.setattr("rasp_tuner.service.storage.snapshot_task.REPLAY_CPU_S", 1e-9)
        ask(client)
        wait_for(lambda: snapshots_of(sqlite) == [13], "the snapshot")


def test_what_a_start_has_replayed_counts_for_the_next_snapshot(sqlite):
    store, live = Store(sqlite), LiveStudy(0, definition(), 5.0)
    with store.writing() as connection:
        live.id = store.add_study(connection, "web", live.definition.to_wire(), 5.0)
        store.append(connection, [(live.id, event) for event in play(live, 60)])
    cache = StudyCache(store, 8)
    assert live.saved.replay_cpu_s == 0.0
    assert cache.study("web", writes=True).saved.replay_cpu_s > 0.001
    store.close()


def test_a_log_that_came_out_otherwise_keeps_its_parameters():
    """As when the library has changed between the log and its replay."""
    live = LiveStudy(1, definition(), 0.0)
    live.apply(Event(1, "ask", 1.0, {"context": {"qps": 1.0}, "params": {"pool": 63, "t": 9.5}}, ask=0))
    assert live.counts.diverged == 1
    live.tell("s0", 2.0, NoLog(), {"p99_ms": 3.0})
    assert live.tuner.learned == 1
    assert live.suggestion("s0", NoLog(), 3.0)["params"] == {"pool": 63, "t": 9.5}


def what_the_page_reads(client):
    answers = [client.get(f"/v1/studies/web{path}") for path in ("", "/suggestions", "/history", "/situations")]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json() for answer in answers]


def test_a_restart_changes_nothing_anyone_can_see(database):
    with running(database) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 8)
        for _ in range(2):
            ask(client)
        seen = what_the_page_reads(client)
    with running(database) as client:
        assert what_the_page_reads(client) == seen
        assert tell(client, "s9").json()["status"] == "learned"
        assert ask(client)["id"] == "s10"


def break_commits(store):
    """From now on no transaction of this store can be committed."""

    def refuse(_):
        raise sa.exc.OperationalError("COMMIT", {}, OSError("No space left on device"))

    def mend():
        sa.event.remove(store._writer, "commit", refuse)
        del store.append_alone

    sa.event.listen(store._writer, "commit", refuse)
    store.append_alone = refuse  # which does not pass through SQLAlchemy
    return mend


def test_what_cannot_be_committed_is_not_acknowledged_and_undone(database, monkeypatch):
    stores = []
    monkeypatch.setattr("serving.Store", lambda url, **how: stores.append(Store(url, **how)) or stores[-1])
    with running(database) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 4)
        ask(client)
        before, best = view(client), client.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).json()
        mend = break_commits(stores[0])
        refused = [
            tell(client, "s4", 1.0),
            client.post("/v1/studies/web/ask", json={"context": {"qps": 1}}),
            client.post("/v1/studies", json={**STUDY, "name": "other"}),
            client.delete("/v1/studies/web"),
        ]
        for answer in refused:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage")
            assert int(answer.headers["retry-after"]) >= 1
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        assert view(client) == before
        assert client.get("/v1/studies/other").status_code == 404
        assert client.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).json() == best
        mend()
        wait_for(lambda: client.get("/readyz").status_code == 200, "a test write")  # the next one may be a moment off
        assert tell(client, "s4", 1.0).json() == {"id": "s4", "status": "learned", "late": False}
        assert client.get("/readyz").status_code == 200
        assert view(client)["tells"] == 5


def test_a_mistake_of_the_server_is_undone_and_told_without_a_trace(sqlite, monkeypatch):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 3)
        before = view(client)
        with monkeypatch.context() as patch:

            def slip(*_):
                raise ZeroDivisionError("a secret of the code")

            patch.setattr(LiveStudy, "_close_ask", slip)
            ask(client)
            answer = tell(client, "s3")
            assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
            assert "secret" not in answer.text
        assert view(client)["learned"] == before["learned"]
        assert tell(client, "s3").json()["status"] == "learned"


def test_a_study_whose_log_is_damaged_takes_no_other_with_it(database):
    with running(database) as client:
        for name in ("bad", "good"):
            client.post("/v1/studies", json={**STUDY, "name": name})
            steps(client, 10, study=name)
    store = Store(database)
    with store.writing() as connection:
        connection.execute(sa.delete(snapshots))
        row = sa.update(events).where(events.c.study == 1, events.c.seq == 10)
        connection.execute(row.values(body='{"metrics": {"other": 1.0}}'))
    store.close()
    with running(database) as client:
        assert steps(client, 5, 10, study="good")
        assert [study["name"] for study in client.get("/v1/studies").json()["studies"]] == ["good"]
        for answer in (client.get("/v1/studies/bad"), client.post("/v1/studies/bad/ask", json={"context": {"qps": 1}})):
            assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged")
        assert client.delete("/v1/studies/bad").status_code == 204
        assert client.get("/v1/studies/bad").status_code == 404
        assert client.post("/v1/studies", json={**STUDY, "name": "bad"}).status_code == 201
        assert view(client, "good")["tells"] == 15


def test_a_commit_that_fails_for_any_reason_is_answered(sqlite, monkeypatch):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 3)

        def broken(*_):
            raise ValueError("a row that cannot be written")

        with monkeypatch.context() as patch:
            patch.setattr("rasp_tuner.service.storage.store.event_row", broken)
            answer = client.post("/v1/studies/web/ask", json={"context": {"qps": 1}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
        assert ask(client)["id"] == "s3"


def test_a_killed_server_has_lost_nothing_it_acknowledged(process):
    with plain_client(process.url) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 5)
        asked = ask(client)
        before = view(client)
    process.kill()
    process.start()
    with plain_client(process.url) as client:
        assert view(client) == before
        assert tell(client, asked["id"]).json()["status"] == "learned"
        assert tell(client, asked["id"]).json()["status"] == "duplicate"
    said, status = process.stop()
    assert status == 0
    assert "Traceback" not in said
    store = Store(sqlite_url(process.data))
    (seq, _), *_ = store.snapshots(1)
    assert seq == len(list(store.events_after(1, 0))) == 12
    store.close()


def test_two_servers_do_not_share_a_folder(process):
    with pytest.raises(ChildProcessError, match=r"rasp: another server \(process \d+\) uses .*: stop it") as refused:
        Process(process.data)
    assert str(refused.value).count("\n") == 1


def test_the_log_of_sqlite_stays_small_enough_for_a_small_disk(tmp_path, monkeypatch):
    """It filled a disk of 12 MB before it was copied into the database for the first time."""
    store, log = Store(sqlite_url(tmp_path)), tmp_path / "rasp.db-wal"
    sizes = []
    for seq in range(1, 300):  # 12 pages of 4 kB each time
        store.append_alone([(1, Event(seq, "ask", 0.0, {"x": "y" * 40_000}, seq))])
        sizes.append(log.stat().st_size)
    assert 3e6 < max(sizes) < 5e6
    store.make_room()
    assert log.stat().st_size > 3e6  # the disk has room
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2_000_000))
    store.make_room()
    assert log.stat().st_size == 0
    store.close()
