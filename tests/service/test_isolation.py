"""No study hurts another: jobs that fail, long jobs, long loads and states that cannot be saved stay with their own."""

import asyncio
import json
import threading
import time

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import STUDY, NoLog, ask, definition, running, steps, view, wait_for, whole

from rasp_tuner.service.auth import Caller
from rasp_tuner.service.http.http_errors import HttpError, status_of
from rasp_tuner.service.json_codec import dumps
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.server import ServeError, serve
from rasp_tuner.service.service import Answer, Service
from rasp_tuner.service.service_errors import ServiceError
from rasp_tuner.service.storage.fair_queue import FairQueue
from rasp_tuner.service.storage.store import NO_STUDY, Store
from rasp_tuner.service.storage.tables import snapshots
from rasp_tuner.service.storage.writer import Writer
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.history import StudyHistory
from rasp_tuner.service.study.live_study import MIN_STEPS_TO_CHART, LiveStudy

ME = Caller("me", "admin")


class Rounds:
    """A service whose writer runs when the test says so."""

    def __init__(self, url, monkeypatch, *names):
        self.service = Service(Store(url), Limits(), open_without_keys=True)
        monkeypatch.setattr(self.service.writer, "is_alive", lambda: True)
        self.service.writer._loader.start()
        self.run(*(self.service.create({**STUDY, "name": name}, ME) for name in names))

    def run(self, *calls):
        """What each call answered, or its error; all wait before the first round begins."""

        async def rounds():
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0.0)
            writer, until = self.service.writer, time.monotonic() + 60
            while time.monotonic() < until and not all(task.done() for task in tasks):
                writer._receive(0.01)
                writer._round()
                await asyncio.sleep(0.0)
            return await asyncio.gather(*tasks, return_exceptions=True)

        return [
            (status_of(said), said.code) if isinstance(said, ServiceError) else said for said in asyncio.run(rounds())
        ]

    def log(self, name):
        return list(self.service.store.events_after(self.service.writer.cache.rows[name].id, 0))


def test_a_job_that_fails_is_undone_alone(database, monkeypatch):
    rounds = Rounds(database, monkeypatch, "bad", "good")
    service = rounds.service
    rounds.run(service.ask("bad", [{"qps": 1.0}]), service.ask("good", [{"qps": 1.0}]))

    def slip(*_):
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(LiveStudy, "_close_ask", slip)
        calls = [service.ask("good", [{"qps": 1.0}]), service.tell("bad", Answer("s0", {"p99_ms": 1.0}))]
        calls += [service.ask("bad", [{"qps": 2.0}]), service.ask("good", [{"qps": 1.0}])]
        first, failed, later, second = rounds.run(*calls)
    assert failed == (500, "internal")
    assert [first[0]["id"], second[0]["id"], later[0]["id"]] == ["s1", "s2", "s1"]
    assert [event.kind for event in rounds.log("bad")] == ["ask", "ask"]
    assert rounds.run(service.tell("bad", Answer("s0", {"p99_ms": 1.0}))) == [
        {"id": "s0", "status": "learned", "late": False}
    ]
    service.store.close()


def test_charts_are_made_after_the_answers_and_a_slip_in_them_loses_nothing(sqlite, monkeypatch, caplog):
    rounds = Rounds(sqlite, monkeypatch, "bad", "good")
    service = rounds.service
    for name in ("bad", "good"):
        rounds.run(service.ask(name, [{"qps": 1.0}] * MIN_STEPS_TO_CHART))

    def slip(*_):
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(StudyHistory, "add_step", slip)
        tells = [Answer(f"s{i}", {"p99_ms": 1.0}) for i in range(MIN_STEPS_TO_CHART)]
        assert [one["status"] for one in rounds.run(service.tell_batch("bad", tells))[0]] == ["learned"] * len(tells)
    assert "the charts of study 'bad' failed" in caplog.text
    assert rounds.run(service.tell_batch("good", tells))[0][0]["status"] == "learned"
    charted = [rounds.run(service.read(name, lambda live, _: live.history.trace.steps))[0] for name in ("bad", "good")]
    assert charted == [MIN_STEPS_TO_CHART] * 2
    service.store.close()


def test_a_job_that_fails_leaves_no_rows_behind(database, monkeypatch):
    rounds = Rounds(database, monkeypatch, "good")
    service = rounds.service

    def half(work):
        work.audit("me", "half", "way")
        work.create_study(work.study("good").definition)  # the name is taken: the database refuses it

    asked, failed = rounds.run(service.ask("good", [{"qps": 1.0}]), service.submit(half, writes=True, study="other"))
    assert (asked[0]["id"], failed) == ("s0", (503, "moved"))  # as if another server had made it
    assert "half" not in {line["action"] for line in service.store.audit(10)}
    assert rounds.run(service.ask("good", [{"qps": 1.0}]))[0][0]["id"] == "s1"
    service.store.close()


def test_events_that_the_database_refuses_hurt_only_their_study(database, monkeypatch):
    rounds = Rounds(database, monkeypatch, "bad", "good")
    service, append = rounds.service, Store.append

    def refuse(store, connection, entries):
        bad = service.writer.cache.rows["bad"].id
        append(store, connection, entries)
        if any(study == bad for study, _ in entries):
            append(store, connection, entries[:1])  # the same sequence number again

    def refuse_alone(store, entries):
        with store.writing() as connection:
            refuse(store, connection, entries)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", refuse)
        patch.setattr(Store, "append_alone", refuse_alone)
        calls = [
            service.ask("good", [{"qps": 1.0}]),
            service.ask("bad", [{"qps": 1.0}]),
            service.ask("good", [{"qps": 2.0}]),
        ]
        first, failed, second = rounds.run(*calls)
    assert (first[0]["id"], failed, second[0]["id"]) == ("s0", (500, "internal"), "s1")
    assert len(rounds.log("good")) == 2
    assert not rounds.log("bad")
    assert service.writer.failing is None
    assert rounds.run(service.ask("bad", [{"qps": 1.0}]))[0][0]["id"] == "s0"
    service.store.close()


@pytest.mark.parametrize("kind", ["ask", "tell"])
def test_a_batch_runs_in_pieces_between_which_others_are_served(sqlite, monkeypatch, kind):
    rounds = Rounds(sqlite, monkeypatch, "large", "small")
    service, order = rounds.service, []
    if kind == "tell":
        rounds.run(service.ask("large", [{"qps": 1.0}] * 12))
    step = getattr(LiveStudy, kind)

    def slow(live, *args):
        order.append(live.definition.name)
        time.sleep(0.006)  # longer than a piece
        return step(live, *args)

    monkeypatch.setattr(LiveStudy, kind, slow)
    if kind == "ask":
        batch, small = service.ask("large", [{"qps": 1.0}] * 12), service.ask("small", [{"qps": 1.0}])
    else:
        batch = service.tell_batch("large", [Answer(f"s{i}", {"p99_ms": 1.0}) for i in range(12)])
        small = service.tell("small", Answer("s0", {"p99_ms": 1.0}))
    answers = rounds.run(batch, small)
    assert "small" in order[:2]
    assert [answer["id"] for answer in answers[0]] == [f"s{i}" for i in range(12)]
    assert len(rounds.log("large")) == (12 if kind == "ask" else 24)
    service.store.close()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.floats(0.001, 0.1)), max_size=80))
def test_every_job_comes_once_and_in_the_order_of_its_lane(jobs):
    fair = FairQueue()
    for number, (caller, study, _) in enumerate(jobs):
        fair.add(number, str(caller), str(study))
    seen = []
    while fair:
        number = fair.take()
        seen.append(number)
        fair.charge(jobs[number][2])
    assert sorted(seen) == list(range(len(jobs)))
    lanes = {}
    for number in seen:
        lanes.setdefault(jobs[number][:2], []).append(number)
    assert all(lane == sorted(lane) for lane in lanes.values())


@pytest.mark.parametrize("many", [1, 5])
def test_callers_share_the_time_however_many_studies_they_use(many):
    fair, used = FairQueue(), {"one": 0.0, "other": 0.0}
    for number in range(200):
        fair.add(("one", 0.01), "one", f"study {number % many}")
        fair.add(("other", 0.002), "other", "study")
    while used["other"] < 0.2:
        caller, cost = fair.take()
        used[caller] += cost
        fair.charge(cost)
    assert used["one"] == pytest.approx(0.2, abs=0.02)


def test_a_study_that_uses_much_time_comes_after_those_that_use_little():
    fair, order = FairQueue(), []
    for number in range(30):
        fair.add(("large", 0.1), "me", "large")
        fair.add(("small", 0.01), "me", f"small {number % 3}")
    while fair:
        study, cost = fair.take()
        order.append(study)
        fair.charge(cost)
    assert order.index("small") <= 1
    assert order[:31].count("large") <= 3


def test_what_is_held_waits_and_the_rest_goes_on():
    fair = FairQueue()
    for number in range(4):
        fair.add(number, "me", "held" if number % 2 else "free")
    fair.hold("held")
    taken = []
    while (number := fair.take()) is not None:
        taken.append(number)
        fair.charge(0.001)
    assert taken == [0, 2]
    assert not fair
    fair.release("held")
    assert [fair.take(), fair.charge(0.0), fair.take()] == [1, None, 3]


def test_a_study_that_is_built_from_a_long_log_keeps_no_other_waiting(sqlite, monkeypatch):
    with running(sqlite) as client:
        for name in ("long", "short"):
            client.post("/v1/studies", json={**STUDY, "name": name})
            steps(client, 3, study=name)
    store = Store(sqlite)
    with store.writing() as connection:
        connection.execute(sa.delete(snapshots).where(snapshots.c.study == 1))
    store.close()
    go_on, apply = threading.Event(), LiveStudy.apply

    def slow(live, event):
        if live.definition.name == "long":
            go_on.wait(30)
        apply(live, event)

    monkeypatch.setattr(LiveStudy, "apply", slow)
    with running(sqlite) as client:
        wait_for(lambda: client.get("/readyz").status_code == 503, "the building of the study")
        assert client.get("/readyz").json()["reason"] == "study 'long' is being built from its log"
        steps(client, 2, 3, study="short")
        late = []
        waiting = threading.Thread(target=lambda: late.append(ask(client, study="long")))
        waiting.start()
        go_on.set()
        waiting.join(30)
        assert late[0]["id"] == "s3"
        wait_for(lambda: client.get("/readyz").status_code == 200, "the server")


def test_no_study_takes_all_the_room_of_the_queue(sqlite, monkeypatch):
    rounds = Rounds(sqlite, monkeypatch, "greedy", "modest")
    service = rounds.service
    batches = [service.ask("greedy", [{"qps": 1.0}] * 600) for _ in range(3)]
    monkeypatch.setattr(LiveStudy, "ask", lambda *_: (_ for _ in ()).throw(HttpError(418, "skipped", "")))
    said = rounds.run(*batches, service.ask("modest", [{"qps": 1.0}]))
    assert said == [(418, "skipped"), (503, "overloaded"), (503, "overloaded"), (418, "skipped")]
    service.store.close()


def test_a_key_with_a_nul_is_refused(database):
    observed = {"context": {"qps": 1.0}, "params": STUDY["default"], "metrics": {"p99_ms": 1.0}}
    with running(database) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        for key, status in (("a\0b", 422), ("a\ud800b", 400), ("ab", 200)):
            body = json.dumps({**observed, "key": key})
            answer = client.post("/v1/studies/web/observe", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == status, answer.text
        assert view(client)["observations"] == 1


@pytest.mark.parametrize("value", [1.7e308, -1.7e308])
def test_extreme_metrics_leave_a_study_that_can_be_saved_and_shown(value):
    live = LiveStudy(1, definition(), 0.0)
    for step in range(6):
        metric = {"p99_ms": value if step % 2 else -value}
        live.observe({"qps": 1.0}, live.definition.default, metric, None, float(step), NoLog())
        live.tell(f"s{live.ask({'qps': 1.0}, float(step)).ask}", float(step), NoLog(), metric)
    again = study_snapshot.restore(study_snapshot.capture(live)(), 1, live.definition, 0.0)
    assert whole(again) == whole(live)
    dumps([live.view(9.0), live.history.chart_data(9), live.suggestions(9, 9.0)])


def unsavable(live):
    """In place of `capture`: one study's state cannot be encoded."""

    def encode():
        if live.definition.name == "bad":
            raise ValueError("planted")
        return encoded()

    encoded = CAPTURE(live)
    return encode


CAPTURE = study_snapshot.capture


def test_a_study_that_cannot_be_saved_says_so_and_the_others_are(sqlite, monkeypatch, caplog):
    monkeypatch.setattr("rasp_tuner.service.storage.snapshot_task.SNAPSHOT_EVERY_EVENTS", 4)
    monkeypatch.setattr(study_snapshot, "capture", unsavable)
    stopped = []
    stop = Writer.stop
    monkeypatch.setattr(Writer, "stop", lambda writer: (stop(writer), stopped.append(writer)))
    with running(sqlite) as client:
        for name in ("bad", "good"):
            client.post("/v1/studies", json={**STUDY, "name": name})
            steps(client, 3, study=name)
        wait_for(lambda: view(client, "bad")["health"] != "good", "the mark")
        assert view(client, "bad")["health"] == "its state cannot be saved (ValueError): a restart will be slow"
        assert view(client, "good")["health"] == "good"
        shown = client.get("/metrics").text
        assert 'rasp_study_problem{problem="snapshot",study="bad"} 1.0' in shown
        assert 'study="good"} 1.0' not in [line for line in shown.splitlines() if "problem" in line]
    assert "study 'bad' has no new snapshot" in caplog.text
    assert [writer.stopped_whole for writer in stopped] == [False]
    store = Store(sqlite)
    assert [[seq for seq, _ in store.snapshots(row.id)][:1] for row in store.studies()] == [[6], []]
    store.close()
    monkeypatch.setattr(study_snapshot, "capture", CAPTURE)
    with running(sqlite) as client:
        assert view(client, "bad")["tells"] == 3
    assert stopped[1].stopped_whole


@pytest.mark.parametrize("saved", [True, False])
def test_a_server_that_could_not_save_all_ends_with_an_error(tmp_path, monkeypatch, saved):
    def end(server, **_):
        server.config.app.service.writer.stopped_whole = saved
        raise SystemExit(0)

    monkeypatch.setattr("rasp_tuner.service.server.HttpServer.run", end)
    with pytest.raises(SystemExit if saved else ServeError):
        serve(tmp_path, port=0)


def ready(client):
    said = client.get("/readyz")
    return said.status_code == 200, said.json().get("reason")


def test_a_server_that_cannot_write_is_not_ready_from_the_start(database, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Store, "probe", full_disk)
        with running(database) as client:
            assert ready(client) == (False, "the database cannot be written")
            assert "rasp_storage_failing 1.0" in client.get("/metrics").text
            patch.undo()
            wait_for(lambda: ready(client) == (True, None), "the disk")


def test_ready_is_tested_by_a_write_if_the_latest_one_is_old(sqlite, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.service.TRUST_WRITE_S", 0.0)
    with running(sqlite) as client:
        assert ready(client) == (True, None)
        monkeypatch.setattr(Store, "probe", full_disk)
        assert ready(client) == (False, "the database cannot be written")


def full_disk(_):
    raise sa.exc.OperationalError("COMMIT", {}, OSError("No space left on device"))


def test_a_writer_that_is_stuck_is_not_ready(sqlite, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.service.TRUST_WRITE_S", 0.0)
    monkeypatch.setattr("rasp_tuner.service.service.TEST_WRITE_S", 0.05)
    go_on = threading.Event()
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        monkeypatch.setattr(LiveStudy, "recommend", lambda *_: go_on.wait(30) and {})
        url = f"{client.base_url}/v1/studies/web/recommend"
        stuck = threading.Thread(target=lambda: httpx.post(url, json={"context": {"qps": 1.0}}, timeout=60))
        stuck.start()
        wait_for(lambda: not ready(client)[0], "the stuck writer")
        go_on.set()
        stuck.join(30)
        wait_for(lambda: ready(client)[0], "the writer")


def test_a_test_write_leaves_nothing_behind(database):
    store = Store(database)
    store.probe()
    assert not list(store.events_after(NO_STUDY, -1))
    store.close()
