"""What is forgotten was never there: not in the tuner, not in the log, not in a byte of the files."""

import hashlib
import json
import sqlite3
import struct
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import SPACES, STUDY, NoLog, ask, definition, play, running, steps, tell, view, wait_for, whole

from rasp_tuner import ExpiredSuggestion
from rasp_tuner.errors import UnknownSuggestion
from rasp_tuner.service.storage.erasure import ErasureQuery, Replay
from rasp_tuner.service.storage.store import Store, StoredStudy, sqlite_url
from rasp_tuner.service.storage.study_loader import load_study
from rasp_tuner.service.storage.tables import events
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.live_study import LiveStudy


class MemoryWork:
    """A store and a unit of work in memory, as far as `Replay` needs them."""

    def __init__(self, live, events):
        self.live, self.events, self.waiting = live, events, []

    def events_after(self, _, after, limit=None):
        return iter([event for event in self.events if event.seq > after][:limit])

    def study(self, _, writes):
        assert writes
        return self.live

    def uncommitted_events(self, _):
        return self.waiting

    def replace_study(self, new, events):
        self.live, self.events = new, list(events)

    def forget(self, where):
        replay = Replay(self, self.live, where)
        erased = replay.run()
        if erased:
            assert replay.finish(self)
        return erased


def digest(tuner):
    return hashlib.sha256(tuner.to_bytes()).hexdigest()


def run_without(study, events, gone):
    """A tuner that never met the records in `gone` (asks by number, observations by key), by the public calls alone."""
    tuner, asked = study.tuner(), {}
    for event in events:
        body = event.body
        if event.ask in gone or event.key in gone:
            continue
        if event.kind == "ask":
            s = tuner.ask(body["context"])
            asked[event.ask] = s.id if s.params == body["params"] else None, body["context"], body["params"]
        elif event.kind in ("tell", "failed"):
            id, context, params = asked[event.ask]
            params = body.get("ran", params)
            try:
                if event.kind == "tell":
                    tuner.tell(id, body["metrics"], params) if id else tuner.observe(context, params, body["metrics"])
                else:
                    tuner.tell_failed(id, body["reason"], params) if id else tuner.observe_failed(context, params)
            except ExpiredSuggestion:
                tuner.observe(context, params, body["metrics"])
        elif event.kind == "observe":
            tuner.observe(body["context"], body["params"], body["metrics"])
        else:
            getattr(tuner, event.kind)()
    return tuner


def meant(events, where):
    """The records a filter means, said another way: all events of each record, looked at together."""
    records = {}
    for event in events:
        name = event.key if event.kind == "observe" else event.ask
        if name is not None:
            records.setdefault(name, []).append(event)
    low, high = where.context.get("qps", (None, None))
    return {
        name
        for name, parts in records.items()
        if (not (where.ids or where.keys) or name in where.ids or name in where.keys)
        and any((where.after or -1.0) <= part.at < (where.before or 1e9) for part in parts)
        and (low is None or parts[0].body["context"]["qps"] >= low)
        and (high is None or parts[0].body["context"]["qps"] <= high)
    }


times = st.one_of(st.none(), st.integers(1, 50).map(float))
filters = st.builds(
    ErasureQuery,
    after=times,
    before=times,
    context=st.one_of(st.just({}), st.just({"qps": (5.0, None)}), st.just({"qps": (0.9, 1.1)})),
    ids=st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 25), min_size=1)),
    keys=st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 50).map("key {}".format), min_size=1)),
)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(0, 1_000), st.sampled_from(sorted(SPACES)), filters, filters)
def test_the_state_is_that_of_a_run_without_them(seed, space, first, second):
    study = definition(space)
    live = LiveStudy(1, study, 0.0)
    events = play(live, 40, seed)
    work, gone = MemoryWork(live, events), set()
    for where in (first, second):
        now_gone = meant([event for event in events if event.ask not in gone and event.key not in gone], where)
        assert work.forget(where) == len(now_gone)
        gone |= now_gone
        assert digest(work.live.tuner) == digest(run_without(study, events, gone))
    kept = [event for event in events if event.ask not in gone and event.key not in gone]
    left = [event for event in work.events if event.kind != "forgot"]
    assert [(e.kind, e.at, e.ask, e.key, e.body) for e in left] == [(e.kind, e.at, e.ask, e.key, e.body) for e in kept]
    again = LiveStudy(0, study, 0.0)
    for event in work.events:
        again.apply(event)
    assert whole(again) == whole(work.live)
    assert work.live.next_ask == live.next_ask  # no id is given twice
    assert (work.live.counts.erased, work.live.counts.diverged) == (len(gone), 0)
    shown = work.live.view(0.0)
    assert shown["asks"] == shown["pending"] + shown["expired"] + shown["tells"] + shown["failures"]


def test_all_that_is_forgotten_leaves_a_new_tuner():
    live = LiveStudy(1, definition(), 0.0)
    events = [live.ask({"qps": float(i)}, float(i)) for i in range(9)]
    events += [live.tell(f"s{i}", 20.0, NoLog(), {"p99_ms": float(i)}) for i in range(5)]
    work = MemoryWork(live, events)
    assert work.forget(ErasureQuery(after=0.0)) == 9
    assert digest(work.live.tuner) == digest(definition().tuner())
    assert work.live.ask({"qps": 1.0}, 100.0).ask == live.next_ask


def test_what_comes_meanwhile_is_taken_along_and_what_waits_can_still_be_told():
    live = LiveStudy(1, definition(), 0.0)
    events = [live.ask({"qps": float(i)}, float(i)) for i in range(20)]
    events += [live.tell(f"s{i}", 20.0 + i, NoLog(), {"p99_ms": float(i)}) for i in range(10)]
    work = MemoryWork(live, list(events))
    replay = Replay(work, live, ErasureQuery(context={"qps": (3.0, 4.0)}))
    assert replay.run() == 2
    work.events += [live.ask({"qps": 3.5}, 40.0 + i) for i in range(220)]  # in the range, but after the order
    work.events.append(live.tell("s15", 300.0, NoLog(), {"p99_ms": 1.0}))
    assert not replay.finish(work)  # too much to do while all wait
    replay.catch_up()
    work.events.append(live.tell("s16", 301.0, NoLog(), {"p99_ms": 1.0}))
    work.waiting.append(live.tell("s14", 302.0, NoLog(), {"p99_ms": 1.5}))  # of the same commit
    log = [*work.events, *work.waiting]
    assert replay.finish(work)
    new = work.live
    assert (new.counts.asks, new.counts.tells, new.next_ask, new.counts.erased) == (238, 11, 240, 2)
    assert digest(new.tuner) == digest(run_without(live.definition, log, {3, 4}))
    kept = study_snapshot.restore(study_snapshot.capture(new)(), 0, new.definition, 0.0)
    assert (kept.erased_below, kept.next_ask) == (new.erased_below, new.next_ask) == (240, 240)
    assert new.tell("s17", 400.0, NoLog(), {"p99_ms": 2.0}).ask == 17
    assert new.suggestion("s239", NoLog(), 400.0)["id"] == "s239"
    with pytest.raises(UnknownSuggestion, match="or it was erased"):
        new.tell("s3", 400.0, NoLog(), {"p99_ms": 2.0})
    asked = new.ask({"qps": 1.0}, 500.0)
    assert new.suggestion("s240", NoLog(), 500.0)["params"] == asked.body["params"]
    assert new.suggestion("s240", NoLog(), 500.0)["why"] is not None


CANARY = {"context": 424_242.123456789, "metric": 31_337.987654321, "param": 7.654321987, "reason": "CANARY-REASON"}
BINARY = {struct.pack("<d", CANARY[name]) for name in ("context", "metric", "param")}
TRACES = [*(str(CANARY[name]).encode() for name in CANARY), *BINARY, b"canary-key"]


def hits(folder):
    """Where a value that was to be erased can be found, as text or as a number, in any file."""
    found = []
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        found += [(path.name, trace) for trace in TRACES if trace in data]
    return found


def plant(client):
    """Records with the canary in every place a value can be."""
    told = tell(client, ask(client, CANARY["context"])["id"], CANARY["metric"])
    assert told.json()["status"] == "learned"
    ask(client, CANARY["context"])  # this one waits for an answer
    client.post("/v1/studies/web/ask", json={"context": [CANARY["context"]]})  # without the name
    id = ask(client, CANARY["context"])["id"]
    client.post("/v1/studies/web/tell_failed", json={"id": id, "reason": CANARY["reason"]})
    params = {"pool": 3, "t": CANARY["param"]}  # so bad that no later suggestion repeats it
    seen = {"context": {"qps": CANARY["context"]}, "params": params, "metrics": {"p99_ms": 1e5}, "key": "canary-key"}
    assert client.post("/v1/studies/web/observe", json=seen).json()["status"] == "learned"


def forget(client, **which):
    answer = client.post("/v1/studies/web/forget", json=which)
    assert answer.status_code == 200, answer.text
    return answer.json()


def fill(client, folder):
    """Put values that are to be erased into every kind of file: log, snapshots, free pages, WAL."""
    client.post("/v1/studies", json=STUDY)
    client.post("/v1/studies", json={**STUDY, "name": "other"})
    steps(client, 10)
    plant(client)
    steps(client, 25)
    steps(client, 5, study="other")
    wait_for(lambda: {trace for _, trace in hits(folder)} >= BINARY, "a snapshot")  # the log has them as text only
    copy = sqlite3.connect(folder / "rasp.db")
    copy.execute("PRAGMA secure_delete=OFF")  # what another program deleted may still lie in the file
    copy.execute("CREATE TABLE old (value TEXT)")
    copy.executemany("INSERT INTO old VALUES (?)", [(f"{CANARY['context']}{'.' * 3_000}",)] * 100)
    copy.execute("DROP TABLE old")
    copy.commit()
    copy.close()
    before = hits(folder)
    assert {trace for _, trace in before} == set(TRACES)
    assert {name for name, _ in before} >= {"rasp.db-wal"}


def test_no_byte_of_an_erased_record_is_left_in_any_file(sqlite, tmp_path, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.storage.snapshot_task.SNAPSHOT_EVERY_EVENTS", 10)
    with running(sqlite) as client:
        fill(client, tmp_path)
        done = forget(client, context={"qps": CANARY["context"]})
        assert done == {"erased": 5, "scrubbed": True}
        assert hits(tmp_path) == []
        steps(client, 15)  # with new snapshots
        assert view(client)["erased"] == 5
        assert view(client, "other")["tells"] == 5
        for path in ("suggestions?limit=200", "history", "export"):
            assert b"424242" not in client.get(f"/v1/studies/web/{path}").content
    assert hits(tmp_path) == []
    with running(sqlite) as client:
        assert ask(client)["id"] == "s54"
        assert client.delete("/v1/studies/other").status_code == 204
        wait_for(lambda: b'"other"' not in (tmp_path / "rasp.db").read_bytes(), "a clean file")


def keep_snapshots(_, connection, study):
    """As `Store.purge_rows`, which deletes the snapshots too."""
    return connection.execute(sa.delete(events).where(events.c.study == study)).rowcount > 0


@pytest.mark.parametrize(
    ("name", "fault", "where"),
    [
        ("secure_delete.rewrite_database", lambda _: None, "rasp.db"),
        ("secure_delete.truncate_wal", lambda _: None, "rasp.db-wal"),
        ("store.Store.purge_rows", keep_snapshots, "rasp.db"),
    ],
)
def test_bytes_that_are_left_are_found(sqlite, tmp_path, monkeypatch, name, fault, where):
    """The scan of the test above sees it when one of the steps of an erasure is left out."""
    monkeypatch.setattr("rasp_tuner.service.storage.snapshot_task.SNAPSHOT_EVERY_EVENTS", 10)
    monkeypatch.setattr(f"rasp_tuner.service.storage.{name}", fault)
    with running(sqlite) as client:
        fill(client, tmp_path)
        assert forget(client, context={"qps": CANARY["context"]})["scrubbed"]
        found = hits(tmp_path)
        assert where in {file for file, _ in found}
        if fault is keep_snapshots:
            assert {trace for _, trace in found} >= BINARY


def test_over_http_on_every_database_and_after_a_restart(database):
    with running(database) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 12)
        waiting = ask(client, 3.0)["id"]
        plant(client)
        assert forget(client, ids=["s3", "s4"], keys=["canary-key"])["erased"] == 3
        assert forget(client, context={"qps": [CANARY["context"], None]})["erased"] == 4
        assert forget(client, context={"qps": CANARY["context"]}) == {"erased": 0, "scrubbed": True}
        assert forget(client, before=1.0)["erased"] == 0
        assert tell(client, "s3").status_code == 404
        assert tell(client, waiting).json()["status"] == "learned"
        shown = [view(client), client.get("/v1/studies/web/history").json()]
        assert (shown[0]["asks"], shown[0]["tells"], shown[0]["erased"]) == (11, 11, 7)
        export = client.get("/v1/studies/web/export").content
        assert b"424242" not in export
        client.post("/v1/studies/import?name=copy", content=export, headers={"content-type": "application/x-ndjson"})
        assert ask(client, study="copy")["params"] == ask(client)["params"]
        for bad in ({}, {"context": {"rps": 1}}, {"ids": ["7"]}, {"context": {"qps": [1]}}, {"odd": 1}):
            assert client.post("/v1/studies/web/forget", json=bad).status_code == 422, bad
        assert client.post("/v1/studies/none/forget", json={"before": 1}).status_code == 404
        shown = [view(client), client.get("/v1/studies/web/history").json()]
    with running(database) as client:
        assert [view(client), client.get("/v1/studies/web/history").json()] == shown
    store = Store(database)
    row = next(row for row in store.studies() if row.name == "web")
    assert load_study(store, row).counts.diverged == 0
    assert [line["subject"] for line in store.audit(50) if line["action"] == "records erased"] == ["web: 4", "web: 3"]
    with store.reading() as connection:
        assert store.deleted_studies() == []
        assert "424242" not in str(connection.exec_driver_sql("SELECT * FROM events").all())
        if database.startswith("postgresql"):
            folder = Path(connection.exec_driver_sql("SHOW data_directory").scalar()) / "base"
            connection.exec_driver_sql("CHECKPOINT")
            assert not [path for path in folder.rglob("*") if path.is_file() and b"424242.123" in path.read_bytes()]
    store.close()


@pytest.mark.slow
def test_the_service_goes_on_while_it_forgets(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 40)
        told, stop = [], threading.Event()

        def go_on():
            while not stop.is_set():
                told.append(tell(client, ask(client)["id"]).json()["status"])

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for i in range(3):
                assert forget(client, ids=[f"s{i}"])["erased"] == 1
        finally:
            stop.set()
            thread.join()
        assert set(told) == {"learned"}
        assert (view(client)["tells"], view(client)["erased"]) == (37 + len(told), 3)


def test_a_study_built_from_a_log_with_erased_records_goes_on(tmp_path):
    live = LiveStudy(1, definition(), 0.0)
    work = MemoryWork(live, play(live, 80))
    work.forget(ErasureQuery(before=40.0))
    store = Store(sqlite_url(tmp_path))
    with store.writing() as connection:
        id = store.add_study(connection, "web", live.definition.to_wire(), 0.0)
        store.append(connection, [(id, event) for event in work.events])
    built = load_study(store, StoredStudy(id, "web", json.dumps(live.definition.to_wire()), 0.0))
    assert whole(built)[:3] == whole(work.live)[:3]
    assert built.ask({"qps": 2.0}, 99.0) == work.live.ask({"qps": 2.0}, 99.0)
    store.close()
