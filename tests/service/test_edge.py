"""Decisions at the edge over HTTP: policies that explore, sums that count once, and a client that keeps both going."""

import threading
import time

import numpy as np
import pytest
from serving import Process, plain_client, running

from rasp_tuner import InvalidValue
from rasp_tuner.client import Client, Edge
from rasp_tuner.client.errors import ServerUnavailable
from rasp_tuner.policy.evaluate import check, pick_of
from rasp_tuner.service.http import latest_policy

STUDY = {
    "name": "web",
    "space": {"pool": {"type": "int", "low": 1, "high": 64, "log": True}},
    "metrics": {"p99": "min"},
    "context": {"qps": "number", "region": "category"},
    "default": {"pool": 16},
}


def level(pool, qps):
    return 20.0 + 10.0 * np.log(pool / (40.0 if qps > 500.0 else 4.0)) ** 2


def sums(pool=8, count=10, qps=100.0, **more):
    value = float(level(pool, qps))
    parts = {"sum": value * count, "squares": (value**2 + 1.0) * count}
    contexts = [{"qps": qps, "region": "eu"}]
    return {"params": {"pool": pool}, "contexts": contexts, "count": count, "metrics": {"p99": parts}, **more}


def told(client, sequence=0, source="edge-1", *, of=None, study="web"):
    return client.post(
        f"/v1/studies/{study}/tells", json={"source": source, "sequence": sequence, "sums": of or [sums()]}
    )


@pytest.fixture
def client(sqlite):
    with running(sqlite) as client:
        assert client.post("/v1/studies", json=STUDY).status_code == 201
        yield client


def learned(client):
    return client.get("/v1/studies/web").json()["learned"]


def test_sums_are_learned_once_whatever_is_sent_twice(client):
    first = told(client, 0, of=[sums(8), sums(16, policy="1a", leaf=0, setting=1, probability=0.5)])
    assert (first.status_code, first.json()) == (200, {"status": "learned", "runs": 20})
    again = told(client, 0, of=[sums(8), sums(16, policy="1a", leaf=0, setting=1, probability=0.5)])
    assert again.json() == {"status": "duplicate", "runs": 20}
    assert told(client, 0, "edge-2").json()["status"] == "learned"
    assert told(client, 7).json()["status"] == "learned"
    assert told(client, 3).json()["status"] == "learned"  # numbers may come late
    assert learned(client) == 50
    other = told(client, 3, of=[sums(32)])
    assert other.status_code == 409
    assert "source 'edge-1' has sent something else as number 3" in other.json()["error"]["message"]


def test_sums_survive_a_restart_and_still_count_once(database):
    with running(database) as client:
        assert client.post("/v1/studies", json=STUDY).status_code == 201
        for sequence in range(5):
            assert told(client, sequence, of=[sums(2**sequence)]).json()["status"] == "learned"
        before = client.post("/v1/studies/web/recommend", json={"context": {"qps": 100.0, "region": "eu"}}).json()
    with running(database) as client:
        assert learned(client) == 50
        assert told(client, 2, of=[sums(4)]).json()["status"] == "duplicate"
        assert learned(client) == 50
        asked = {"context": {"qps": 100.0, "region": "eu"}}
        assert client.post("/v1/studies/web/recommend", json=asked).json() == before


def test_a_killed_server_has_every_sum_that_it_acknowledged(tmp_path):
    server = Process(tmp_path / "data")
    try:
        with plain_client(server.url) as client:
            assert client.post("/v1/studies", json=STUDY).status_code == 201
            for sequence in range(20):
                assert told(client, sequence, of=[sums(1 + sequence)]).status_code == 200
        server.kill()
        server.start()
        with plain_client(server.url) as client:
            assert learned(client) == 200
            assert told(client, 19, of=[sums(20)]).json()["status"] == "duplicate"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"source": ""}, 422),
        ({"source": "a b"}, 422),
        ({"sequence": -1}, 422),
        ({"sums": []}, 422),
        ({"sums": [{**sums(), "count": 0}]}, 422),
        ({"sums": [{**sums(), "params": {"pool": 1000}}]}, 422),
        ({"sums": [{**sums(), "contexts": []}]}, 422),
        ({"sums": [{**sums(), "metrics": {"p99": {"sum": 10.0, "squares": 1.0}}}]}, 422),
        ({"sums": [sums()] * 1001}, 413),
    ],
)
def test_wrong_sums_are_refused_and_nothing_is_learned(client, change, status):
    body = {"source": "edge-1", "sequence": 0, "sums": [sums()], **change}
    answer = client.post("/v1/studies/web/tells", json=body)
    assert answer.status_code == status, answer.text
    assert learned(client) == 0


def test_sums_are_exported_imported_and_erased(client):
    told(client, 0)
    told(client, 1, of=[sums(4, qps=900.0)])
    lines = client.get("/v1/studies/web/export").content
    made = client.post("/v1/studies/import?name=copy", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert made.status_code == 201, made.text
    assert made.json()["learned"] == 20
    assert told(client, 1, of=[sums(4, qps=900.0)], study="copy").json()["status"] == "duplicate"
    erased = client.post("/v1/studies/web/forget", json={"context": {"qps": [800, None]}})
    assert erased.json()["erased"] == 1
    assert learned(client) == 10


def test_a_policy_comes_with_its_version_as_an_etag(client):
    first = client.get("/v1/studies/web/policy")
    assert first.status_code == 200
    policy = check(first.json())
    assert first.headers["ETag"] == f'"{policy["explore"]["version"]}"'
    assert pick_of(policy, {"qps": 100.0}, "a").params == {"pool": 16}  # nothing is known yet
    again = client.get("/v1/studies/web/policy", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    for sequence, pool in enumerate((16, 4, 40, 8, 2)):
        told(client, sequence, of=[sums(pool, 100, qps) for qps in (100.0, 900.0)])
    # another number of outcomes: that policy was not made in the latest second
    later = client.get("/v1/studies/web/policy?outcomes=500", headers={"If-None-Match": first.headers["ETag"]})
    assert later.status_code == 200
    policy = check(later.json())
    low, high = (pick_of(policy, {"qps": qps, "region": "eu"}).params["pool"] for qps in (100.0, 900.0))
    assert low == 4
    assert level(high, 900.0) <= 1.1 * level(40, 900.0)


def test_a_study_whose_suggestions_wait_for_a_person_has_no_policy(client):
    assert client.post("/v1/studies", json={**STUDY, "name": "slow", "approve_s": 60}).status_code == 201
    answer = client.get("/v1/studies/slow/policy")
    assert answer.status_code == 409
    assert "without approve_s" in answer.json()["error"]["message"]


class FakeStudy:
    """A study whose server can be away, and notes what it is sent."""

    def __init__(self, policy):
        self.made, self.away, self.got = policy, False, []
        self.asked = threading.Event()

    def policy(self, outcomes=None, version=None):
        self.expected = outcomes
        self.asked.set()
        if self.away:
            raise ServerUnavailable("away")
        return None if version == self.made["explore"]["version"] else self.made

    def tell_sums(self, source, sequence, sums):
        if self.away:
            raise ServerUnavailable("away")
        self.got.append((source, sequence, sums))
        return "learned"


def some_policy(version="v1", pool=4):
    leaf = {
        "leaf": 0,
        "params": {"pool": pool},
        "settings": [{"params": {"pool": pool}, "weight": 10_000, "stake": 0.0}],
    }
    return {
        "format": "rasp-policy", "version": 1, "context": [{"name": "qps", "kind": "number"}],
        "default": {"pool": 16}, "knobs": {}, "tree": leaf, "explore": {"version": version, "salt": "s"},
    }  # fmt: skip


def test_an_edge_keeps_what_a_server_that_is_away_did_not_get():
    study = FakeStudy(some_policy())
    edge = Edge(study, every_s=3600.0)
    study.away = True
    for i in range(3):
        edge.tell(edge.pick([1.0], i), [1.0], {"p99": 2.0})
        assert not edge.flush()
    study.away = False
    assert edge.flush()
    assert [(sequence, sums[0]["count"]) for _, sequence, sums in study.got] == [(0, 1), (1, 1), (2, 1)]
    assert len({source for source, *_ in study.got}) == 1
    assert (edge.outcomes, edge.sent, edge.dropped) == (3, 3, 0)
    edge.tell(edge.pick([1.0], 1), [1.0], {"p99": 2.0})
    edge.close()
    assert edge.sent == 4  # what was left


def test_one_sum_that_is_refused_takes_no_other_with_it():
    study = FakeStudy(some_policy())
    learned = study.tell_sums

    def strict(source, sequence, sums):
        if any("p50" in one["metrics"] for one in sums):
            raise InvalidValue("metrics must be p99")
        return learned(source, sequence, sums)

    study.tell_sums = strict
    edge = Edge(study, every_s=3600.0)
    for i in range(40):
        edge.tell(edge.pick([1.0], i), [1.0], {"p99": 2.0})
    edge.tell(edge.pick([1.0], "x"), [1.0], {"p50": 2.0})
    assert not edge.flush()  # not all of it is there
    assert (edge.outcomes, edge.sent, edge.dropped) == (41, 40, 1)
    edge.tell(edge.pick([1.0], "x"), [1.0], {"p99": 2.0})
    assert edge.flush()
    edge.close()
    numbers = [sequence for _, sequence, _ in study.got]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("context", "metrics"), [(["x"], {"p99": 1.0}), ({"qqq": 1.0}, {"p99": 1.0}), ([1.0], {"p99": float("nan")})]
)
def test_an_edge_refuses_what_is_wrong_before_it_counts(context, metrics):
    with Edge(FakeStudy(some_policy()), every_s=3600.0) as edge:
        pick = edge.pick([1.0], "a")
        with pytest.raises(InvalidValue):
            edge.tell(pick, context, metrics)
        edge.tell(pick, [1.0], {"p99": 1.0})
        assert edge.flush()
        assert (edge.outcomes, edge.sent, edge.dropped) == (1, 1, 0)


def test_any_thread_may_flush():
    study = FakeStudy(some_policy())
    learned = study.tell_sums

    def slow(source, sequence, sums):
        time.sleep(0.002)
        return learned(source, sequence, sums)

    study.tell_sums = slow
    edge = Edge(study, every_s=0.001)
    for i in range(60):
        edge.tell(edge.pick([1.0], i), [1.0], {"p99": 2.0})
        edge.flush()
    edge.close()
    assert edge.sent == 60
    numbers = [sequence for _, sequence, _ in study.got]
    assert len(numbers) == len(set(numbers))


def test_a_pick_of_the_policy_before_counts_for_what_ran():
    study = FakeStudy(some_policy())
    with Edge(study, every_s=3600.0) as edge:
        old = edge.pick([1.0], "a")
        study.made = some_policy("v2", pool=9)
        edge._refresh()
        edge.tell(old, [1.0], {"p99": 2.0})
        edge.tell(edge.pick([1.0], "a"), [1.0], {"p99": 3.0})
        assert edge.flush()
    sent = [(one["policy"], one["params"]["pool"], one["metrics"]["p99"]["sum"]) for one in study.got[0][2]]
    assert sent == [("v1", 4, 2.0), ("v2", 9, 3.0)]


def test_an_edge_learns_with_a_real_server(sqlite, monkeypatch):
    monkeypatch.setattr(latest_policy, "POLICY_EVERY_S", 0.0)  # every round has a policy of its own
    rng = np.random.default_rng(0)
    with running(sqlite) as server, Client(str(server.base_url)) as client:
        study = client.create(
            "edge", {"pool": {"type": "int", "low": 1, "high": 64, "log": True}}, {"p99": "min"},
            context=["qps"], default={"pool": 16},
        )  # fmt: skip
        means = []
        with Edge(study, every_s=3600.0) as edge:
            for _ in range(8):
                total = 0.0
                for user in rng.integers(10**9, size=500):
                    qps = float(rng.choice([100.0, 900.0]) + rng.random())
                    pick = edge.pick([qps], int(user))
                    total += level(pick.params["pool"], qps)
                    edge.tell(pick, [qps], {"p99": level(pick.params["pool"], qps) + rng.normal()})
                assert edge.flush()
                edge._refresh()
                means.append(total / 500)
        assert means[0] == pytest.approx(33.8, abs=1.0)
        assert means[-1] < 22.0
        assert study.view()["learned"] == 4000
        assert study.asks == 0


def test_the_server_says_what_edges_gained_by_the_shares_of_their_keys(client):
    assert client.get("/v1/studies/web/edge").json() == {"edge": None}
    drawn = {"policy": "1a", "leaf": 0}
    of = [
        sums(16, 100, setting=1, probability=0.1, **drawn),
        sums(4, 900, setting=0, probability=0.9, **drawn),
        sums(4, 50, setting=0),  # of somebody who does not say how likely it was
    ]
    assert told(client, of=of).status_code == 200
    found = client.get("/v1/studies/web/edge").json()["edge"]
    gain, truth = found["metrics"]["p99"], 0.9 * (1.0 - level(4, 100.0) / level(16, 100.0))
    assert (found["runs"], found["default_runs"]) == (1000, 100)
    assert gain["value"] == pytest.approx(truth)
    assert gain["low"] < truth < gain["high"]
    assert found["words"].startswith("saved ")
    assert found["words"].endswith("in 1,000 runs at edges, measured against 100 of the default")
