"""Few studies stay in memory, many are served: nobody can tell which were put away."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import STUDY, ask, definition, play, running, steps, view, wait_for

from rasp_tuner.service.limits import Limits
from rasp_tuner.service.storage.store import Store, sqlite_url
from rasp_tuner.service.storage.study_cache import StudyCache
from rasp_tuner.service.storage.study_loader import load_study
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.study_summary import SORTS, StudySummary, places

FEW = Limits(studies_in_memory=2)
NAMES = [f"study-{i}" for i in range(5)]
TIMES = ("created", "last_event_at")


def create(client, *names, **changes):
    for i, name in enumerate(names or NAMES):
        client.post("/v1/studies", json={**STUDY, "name": name, "seed": i, **changes}).raise_for_status()


def in_turn(client, rounds, start=0):
    """Every study goes a step in each round; what was suggested."""
    return [steps(client, 1, start + i, name) for i in range(rounds) for name in NAMES]


def in_memory(client):
    return set(client.service.writer.cache.live)


def listed(client, **query):
    return client.get("/v1/studies", params=query).json()


def without_times(found):
    studies = [{name: x for name, x in view.items() if name not in TIMES} for view in found["studies"]]
    return {**found, "studies": studies}


@pytest.fixture(scope="module")
def all_in_memory(tmp_path_factory):
    """What a server says that keeps all studies in memory."""
    with running(sqlite_url(tmp_path_factory.mktemp("whole"))) as client:
        create(client)
        suggested = in_turn(client, 6)
        assert in_memory(client) == set(NAMES)
        return suggested, {sort: without_times(listed(client, sort=sort, limit=4)) for sort in SORTS}


@pytest.mark.parametrize("cheap_s", [0.0, 1e9], ids=["saved each time", "replayed each time"])
def test_studies_that_are_put_away_go_on_as_if_they_had_stayed(tmp_path, monkeypatch, all_in_memory, cheap_s):
    monkeypatch.setattr("rasp_tuner.service.storage.snapshot_task.CHEAP_REPLAY_CPU_S", cheap_s)
    suggested, lists = all_in_memory
    with running(sqlite_url(tmp_path), limits=FEW) as client:
        create(client)
        first = in_turn(client, 4)
        killed = shutil.copytree(tmp_path, tmp_path / "killed")  # what a kill -9 would leave now
        assert first + in_turn(client, 2, 4) == suggested
        assert in_memory(client) == set(NAMES[-2:])
        assert {sort: without_times(listed(client, sort=sort, limit=4)) for sort in SORTS} == lists
        assert in_memory(client) == set(NAMES[-2:])  # no list loads anything
        saved = [any(client.service.store.snapshots(row.id)) for row in client.service.store.studies()]
        assert all(saved[2:]) == (cheap_s == 0.0)
    for folder, start in ((tmp_path, 6), (killed, 4)):
        with running(sqlite_url(folder), limits=FEW) as client:
            wait_for(lambda: client.service.writer.not_loaded_yet == 0, "all studies")
            assert len(in_memory(client)) == 2
            if start < 6:
                assert first + in_turn(client, 2, 4) == suggested
            assert {sort: without_times(listed(client, sort=sort, limit=4)) for sort in SORTS} == lists


def test_many_ask_for_more_studies_than_stay_in_memory(sqlite):
    with running(sqlite, limits=FEW) as client:
        create(client)
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda i: steps(client, 1, i, NAMES[i % 5]), range(20)))
        found = listed(client, sort="name")["studies"]
        assert [(study["asks"], study["tells"], study["pending"]) for study in found] == [(4, 4, 0)] * 5
        assert len(in_memory(client)) == 2


def test_a_long_list_comes_in_pieces(sqlite, monkeypatch):
    with running(sqlite, limits=FEW) as client:
        create(client)
        whole = listed(client)
        for views in (1, 2, 4):
            monkeypatch.setattr("rasp_tuner.service.http.list_response.VIEWS_AT_ONCE", views)
            answer = client.get("/v1/studies")
            assert (answer.json(), answer.headers.get("transfer-encoding")) == (whole, "chunked")


def test_alerts_of_a_study_that_was_put_away_stay(sqlite):
    with running(sqlite, limits=FEW) as client:
        create(client)
        for _ in range(3):
            body = {"id": ask(client, study="study-0")["id"], "reason": "out of memory"}
            client.post("/v1/studies/study-0/tell_failed", json=body).raise_for_status()
        for name in NAMES[1:]:
            ask(client, study=name)
        assert "study-0" not in in_memory(client)
        worst = listed(client, sort="alerts", limit=1)["studies"][0]
        assert (worst["name"], worst["alerts"]) == ("study-0", ["100% of the latest runs failed."])
        shown = client.get("/metrics").text
        assert 'rasp_asks_total{study="study-4"} 1.0' in shown
        assert 'study="study-0"' not in shown
        for line in ("rasp_studies_owned 5.0", "rasp_studies_in_memory 2.0", "rasp_studies_with_alerts 1.0"):
            assert f"\n{line}\n" in shown
        assert view(client, "study-0") == worst
        assert "study-0" in in_memory(client)


def test_a_study_with_a_problem_stays_in_memory(sqlite, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.storage.snapshot_task.CHEAP_REPLAY_CPU_S", 0.0)
    capture = study_snapshot.capture

    def fails(live):
        if live.definition.name == "study-1":
            raise ValueError("not this one")
        return capture(live)

    monkeypatch.setattr(study_snapshot, "capture", fails)
    with running(sqlite, limits=FEW) as client:
        create(client)
        in_turn(client, 2)
        assert in_memory(client) == {"study-1", "study-4"}
        assert "cannot be saved" in listed(client, sort="alerts", limit=1)["studies"][0]["health"]


def test_a_study_that_cannot_be_shown_hurts_no_other(sqlite, monkeypatch):
    summary = StudySummary

    def fails(live, now):
        if live.definition.name == "study-1":
            raise ValueError("not this one")
        return summary(live, now)

    monkeypatch.setattr("rasp_tuner.service.storage.study_cache.StudySummary", fails)
    with running(sqlite, limits=FEW) as client:
        create(client)
        in_turn(client, 1)
        assert in_memory(client) == {"study-1", "study-4"}
        assert view(client, "study-1")["health"] == "it cannot be shown (ValueError)"


def test_a_study_that_is_deleted_or_damaged_while_it_is_away(sqlite, monkeypatch):
    with running(sqlite, limits=FEW) as client:
        create(client)
        assert client.delete("/v1/studies/study-0").status_code == 204
        create(client, "study-0")
        assert view(client, "study-0")["asks"] == 0
        monkeypatch.setattr("rasp_tuner.service.storage.study_loader.load_study", lambda *_: 1 / 0)
        assert client.get("/v1/studies/study-1").status_code == 500
        found = listed(client)
        assert [study["name"] for study in found["studies"]] == ["study-0", *NAMES[2:]]
        assert [study["name"] for study in found["damaged"]] == ["study-1"]


def test_a_study_stays_until_whoever_had_it_loaded_has_used_it(sqlite):
    store = Store(sqlite)
    with store.writing() as connection:
        for name in "cba":
            store.add_study(connection, name, {**definition().to_wire(), "name": name}, 0.0)
    cache = StudyCache(store, 1)
    cache.await_load("b")
    for row in cache.unseen():
        cache.adopt(row, load_study(store, row))
    assert names_of(cache.spare()) == ["c", "a"]  # nobody waits for these; the first that was read stays longest
    for name in "ac":
        cache.study(name, writes=False)
    assert names_of(cache.spare()) == ["a", "c"]  # "b" is waited for, and stays until it was used
    for name in "bc":
        cache.study(name, writes=False)
    assert names_of(cache.spare()) == ["a", "b"]
    for live in cache.spare():
        cache.put_away(live, 0.0)
    assert (list(cache.live), list(cache.away), cache.unseen()) == (["c"], ["a", "b"], [])
    assert [cache.is_wanted(row) for row in cache.rows.values()] == [False, False, False]
    cache.await_load("b")
    assert [name for name, row in cache.rows.items() if cache.is_wanted(row)] == ["b"]
    cache.remove("a")
    assert (list(cache.away), cache.orders["name"]) == (["b"], [(0.0, "b")])
    store.close()


def names_of(studies):
    return [live.definition.name for live in studies]


@given(st.integers(0, 99), st.integers(0, 12), st.lists(st.floats(0.0, 1e5), min_size=2, max_size=2))
def test_a_summary_shows_what_the_study_shows(seed, count, times):
    live = LiveStudy(3, definition(lease_s=30.0), 0.0)
    play(live, count, seed)
    live.problems["test"] = "it is a test"
    now, later = sorted(times)
    summary = StudySummary(live, now)
    assert summary.view(later) == json.loads(json.dumps(live.view(later)))
    assert summary.places == places(live.view(now))
