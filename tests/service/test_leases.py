"""Several servers on one PostgreSQL: any of them answers for every study, and only the owner of a study can write."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from serving import STUDY, ask, running, steps, tell, view, wait_for

from rasp_tuner.errors import InvalidValue
from rasp_tuner.service.auth import create_key
from rasp_tuner.service.server import advertised_url, serve
from rasp_tuner.service.storage.lease_keeper import targets
from rasp_tuner.service.storage.leases import BeingTaken, Leases, Peer, checked_url
from rasp_tuner.service.storage.store import DatabaseUnusable, Store, StoredStudy
from rasp_tuner.service.storage.tables import events, servers, studies
from rasp_tuner.service.storage.writer import WriterJob

LONG_S = 600.0  # a lease that does not end, and is not renewed, during a test


@pytest.fixture(scope="module")
def servers_of_module(own_postgres_database):
    address, settings = own_postgres_database("leases"), {"lease_s": LONG_S, "several": True}
    with running(address, **settings) as first, running(address, **settings) as second:
        yield first, second


@pytest.fixture
def pair(servers_of_module):
    """Clients of two servers; the first has the study "web", and there is no other."""
    first, _ = servers_of_module
    change(first, sa.delete(servers).where(servers.c.id == "thief"))
    for client in servers_of_module:
        client.service.leases.renew()
    for _ in range(3):  # a study that was stolen is found at the second attempt
        for name in first.service.leases.names():
            first.delete(f"/v1/studies/{name}")
    assert first.post("/v1/studies", json=STUDY).status_code == 201
    return servers_of_module


def rows(client, query):
    with client.service.store.reading() as connection:
        return connection.execute(query).all()


def change(client, statement):
    with client.service.store.writing() as connection:
        connection.execute(statement)


def steal(client, name="web"):
    """Let a server take a study behind the back of its owner; it has a lease, and does not answer."""
    until = sa.func.clock_timestamp() + sa.text("interval '1h'")
    change(client, sa.insert(servers).values(id="thief", url="http://127.0.0.1:9", until=until))
    give(client, name, "thief")


def give(client, name, server):
    new = {"owner": server, "epoch": studies.c.epoch + 1}
    change(client, sa.update(studies).where(studies.c.name == name).values(new))


def refused(answer):
    return answer.status_code, answer.json()["error"]["code"]


def test_any_server_answers_for_any_study(pair):
    first, second = pair
    assert second.post("/v1/studies", json=STUDY).status_code == 200  # it is there already
    assert refused(second.post("/v1/studies", json={**STUDY, "seed": 5})) == (409, "conflict")
    steps(second, 3)
    steps(first, 2, 3)
    asked = ask(second)
    assert tell(first, asked["id"]).json()["status"] == "learned"
    assert tell(second, asked["id"]).json()["status"] == "duplicate"
    assert view(second) == view(first)
    assert view(second)["server"] == str(first.base_url)
    for path in ("", "/suggestions?limit=2", "/history", "/suggestions/s1"):
        assert second.get(f"/v1/studies/web{path}").json() == first.get(f"/v1/studies/web{path}").json()
    assert refused(second.get("/v1/studies/nothing")) == (404, "unknown_study")
    assert refused(tell(second, "s99")) == (404, "unknown_suggestion")
    exported = second.get("/v1/studies/web/export").content
    kind = {"Content-Type": "application/x-ndjson"}
    assert refused(second.post("/v1/studies/import", content=exported, headers=kind)) == (409, "conflict")
    imported = second.post("/v1/studies/import?name=copy", content=exported, headers=kind).json()
    assert imported["server"] == str(second.base_url)
    lists = [client.get("/v1/studies").json() for client in pair]
    assert lists[0] == lists[1]
    assert [study["name"] for study in lists[0]["studies"]] == ["copy", "web"]
    assert "rasp_forwarded_total 0.0" not in second.get("/metrics").text
    assert "rasp_studies_owned 1.0" in second.get("/metrics").text


def test_a_study_deleted_or_made_on_one_server_is_so_on_all(pair):
    first, second = pair
    assert view(second)["asks"] == 0
    assert second.delete("/v1/studies/web").status_code == 204
    for client in pair:
        assert refused(client.get("/v1/studies/web")) == (404, "unknown_study")
    assert second.post("/v1/studies", json=STUDY).status_code == 201
    assert view(first)["server"] == str(second.base_url)
    steps(first, 2)
    wait_for(lambda: len(rows(first, sa.select(studies.c.id))) == 1, "the purge of the deleted study")


def test_records_are_erased_by_the_owner_wherever_the_request_comes_in(pair):
    first, second = pair
    steps(first, 3)
    assert second.post("/v1/studies/web/forget", json={"ids": ["s0"]}).json()["erased"] == 1
    assert view(first)["tells"] == view(second)["tells"] == 2


def test_a_live_stream_comes_through_another_server(pair):
    first, second = pair
    with second.stream("GET", "/v1/studies/web/live") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": watching"
        steps(first, 1)
        assert any(line.startswith("data: ") for line in lines)
        steal(first)
        assert ask_without_check(first) == "s0"  # refused: it notices that the study is lost, and ends the stream
        for _ in lines:
            pass


def ask_without_check(client):
    return client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}}).json().get("id", "s0")


def test_a_server_that_lost_a_study_cannot_write_to_it(pair):
    first, _ = pair
    assert first.post("/v1/studies", json={**STUDY, "name": "kept"}).status_code == 201
    steps(first, 3)
    asked, before = ask(first), rows(first, sa.select(events))
    steal(first)
    for answer in (tell(first, asked["id"]), first.post("/v1/studies/web/ask", json={"context": {"qps": 1}})):
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
    assert first.delete("/v1/studies/web").status_code in (503, 404)
    assert rows(first, sa.select(events)) == before
    steps(first, 2, study="kept")
    assert "rasp_leases_lost 0.0" not in first.get("/metrics").text


def test_what_comes_to_the_old_owner_is_done_by_the_new_one(pair):
    first, second = pair
    steps(first, 2)
    give(first, "web", second.service.leases.id)
    assert ask(first)["id"] == "s2"  # refused by the fence, then sent on
    assert view(first)["server"] == str(second.base_url)
    assert first.get("/v1/studies/web/history").json() == second.get("/v1/studies/web/history").json()


@pytest.mark.parametrize("request_of", [lambda c: c.delete("/v1/studies/web"), ask_without_check])
def test_no_kind_of_write_gets_past_the_fence(pair, request_of):
    first, _ = pair
    steps(first, 2)
    named = sa.select(studies.c.id, studies.c.name).where(studies.c.name.is_not(None))  # others are being purged
    mine = sa.select(events).where(events.c.study.in_(sa.select(named.subquery().c.id)))
    before = rows(first, mine), rows(first, named)
    steal(first)
    request_of(first)
    assert (rows(first, mine), rows(first, named)) == before


def test_a_commit_goes_on_without_the_study_that_was_lost(pair):
    first, _ = pair
    assert first.post("/v1/studies", json={**STUDY, "name": "kept"}).status_code == 201
    steps(first, 1)
    steps(first, 1, study="kept")
    steal(first)
    begun, gate, writer = threading.Event(), threading.Event(), first.service.writer
    writer.put(WriterJob(lambda _: begun.set() or (gate.wait(30) and None), writes=False))  # meanwhile both asks arrive
    begun.wait(30)
    with ThreadPoolExecutor(2) as pool:
        wanted = [
            pool.submit(first.post, f"/v1/studies/{name}/ask", json={"context": {"qps": 1.0}})
            for name in ("web", "kept")
        ]
        wait_for(lambda: writer._inbox.qsize() >= 2, "both asks")
        gate.set()
        lost, kept = [answer.result() for answer in wanted]
    assert refused(lost) == (503, "owner_away")  # the thief, to whom it was sent on
    assert kept.json()["id"] == "s1"


def test_a_clean_stop_gives_the_studies_away_at_once(own_postgres_database):
    address = own_postgres_database("stop")
    with running(address, lease_s=LONG_S, several=True) as second:
        with running(address, lease_s=LONG_S, several=True) as first:
            first.post("/v1/studies", json=STUDY)
            steps(first, 3)
            before = view(first)
        assert view(second) == before | {"server": str(second.base_url)}
        assert ask(second)["id"] == "s3"
        owner, epoch = rows(second, sa.select(studies.c.owner, studies.c.epoch))[0]
        assert (owner, epoch) == (second.service.leases.id, 1)
        assert len(rows(second, sa.select(servers))) == 1
    with running(address, lease_s=LONG_S, several=True) as alone:
        assert view(alone)["asks"] == 4


def test_studies_are_shared_out_evenly(own_postgres_database):
    address = own_postgres_database("even")
    with running(address, lease_s=3.0, several=True) as first:
        for i in range(6):
            first.post("/v1/studies", json={**STUDY, "name": f"s{i}"})
        with running(address, lease_s=3.0, several=True) as second:
            caches = [client.service.writer.cache for client in (first, second)]
            wait_for(lambda: [len(cache.rows) for cache in caches] == [3, 3], "three studies each")
            for i in range(6):
                steps(second, 1, study=f"s{i}")


def test_without_its_lease_a_server_takes_no_tells_but_shows_what_it_knows(pair):
    first, _ = pair
    steps(first, 3)
    asked = ask(first)
    assert first.get("/readyz").status_code == 200
    first.service.leases._until = 0.0  # as when the database could not be reached for a whole lease
    assert refused(tell(first, asked["id"])) == (503, "lease_over")
    assert first.get("/readyz").status_code == 503
    assert "rasp_lease_held 0.0" in first.get("/metrics").text
    assert first.post("/v1/studies/web/recommend", json={"context": {"qps": 1.0}}).status_code == 200
    first.service.leases.renew()
    assert tell(first, asked["id"]).json()["status"] == "learned"
    assert first.get("/readyz").status_code == 200


def test_a_request_is_sent_on_once(pair):
    _, second = pair
    marked = second.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}}, headers={"RASP-Forwarded": "x"})
    assert refused(marked) == (421, "not_owner")


def test_a_server_whose_route_is_out_of_date_finds_the_owner(pair):
    first, second = pair
    ask(second)
    first.service.keeper._hand_over([second.service.leases.id])
    wait_for(lambda: not first.service.writer.cache.rows, "the hand-over")
    assert ask(first)["id"] == "s1"
    assert view(first)["server"] == str(second.base_url)
    second.service.keeper._hand_over([first.service.leases.id])
    wait_for(lambda: not second.service.writer.cache.rows, "the hand-over back")
    assert ask(first)["id"] == "s2"


def test_a_server_that_is_gone_is_waited_for_until_its_lease_is_over(pair):
    first, second = pair
    steal(first)
    ask_without_check(first)  # it notices
    answer = second.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}})
    assert refused(answer) == (503, "owner_away")
    assert int(answer.headers["retry-after"]) >= 1
    second.service.leases.renew()
    listed = second.get("/v1/studies").json()
    assert (listed["studies"], listed["missing"]) == ([], ["web"])
    change(first, sa.update(servers).where(servers.c.id == "thief").values(until=sa.func.clock_timestamp()))
    second.service.leases.renew()
    assert ask(second)["id"] == "s0"
    assert view(second)["server"] == str(second.base_url)


def test_the_callers_key_goes_along_and_no_other(own_postgres_database):
    address = own_postgres_database("keys")
    store = Store(address)
    keys = {scope: create_key(store, scope)[0] for scope in ("admin", "write", "read")}
    other = create_key(store, "write", "other")[0]
    store.close()
    heads = {scope: {"Authorization": f"Bearer {key}"} for scope, key in {**keys, "other": other}.items()}
    closed = {"lease_s": LONG_S, "open_without_keys": False, "several": True}
    with running(address, **closed) as first, running(address, **closed) as second:
        assert first.post("/v1/studies", json=STUDY, headers=heads["admin"]).status_code == 201
        body = {"context": {"qps": 1.0}}
        said = {who: second.post("/v1/studies/web/ask", json=body, headers=head) for who, head in heads.items()}
        assert [said[who].status_code for who in ("admin", "write", "read", "other")] == [200, 200, 403, 403]
        assert second.post("/v1/studies/web/ask", json=body).status_code == 401
        assert second.get("/v1/studies", headers=heads["other"]).json()["studies"] == []


# the table


@pytest.fixture
def table(own_postgres_database):
    """A store with the study "web", and a function that makes servers."""
    store = Store(own_postgres_database("table"))
    with store.writing() as connection:
        store.add_study(connection, "web", {}, 0.0)
    with contextlib.ExitStack() as stack:
        stack.callback(store.close)

        def server(ttl_s=LONG_S):
            leases = Leases(store, "http://127.0.0.1:1", ttl_s)
            stack.callback(leases.close)
            leases.renew()
            return leases

        yield store, server


def test_of_many_servers_one_gets_the_study(table):
    _, server = table
    many = [server() for _ in range(6)]

    def find(leases):
        while True:
            with contextlib.suppress(BeingTaken):
                return leases.find("web")

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(find, many))
    owners = [place for place in found if isinstance(place, StoredStudy)]
    assert [row.epoch for row in owners] == [1]
    (owner,) = {place.id for place in found if isinstance(place, Peer)}
    assert isinstance(found[[leases.id for leases in many].index(owner)], StoredStudy)
    assert many[0].find("nothing") is None


def test_a_study_is_taken_once_the_lease_of_its_owner_is_over(table):
    store, server = table
    first, second = server(0.6), server()
    row = first.find("web")
    assert isinstance(second.find("web"), Peer)
    wait_for(lambda: isinstance(second.find("web"), StoredStudy), "the end of the lease")
    first.renew()
    assert first.holds
    with store.writing() as connection:
        assert first.lost(connection, {row.id: row.epoch}) == {row.id}
        assert second.lost(connection, {row.id: row.epoch + 1}) == set()
    assert first.find("web").id == second.id


def test_a_commit_under_way_is_waited_for(table):
    store, server = table
    first, second = server(), server()
    row = first.find("web")
    with ThreadPoolExecutor(1) as pool:
        with store.writing() as connection:
            assert not first.lost(connection, {row.id: row.epoch})
            store_until = sa.update(servers).where(servers.c.id == first.id).values(until=sa.func.now())
            with store.reading() as other:
                other.execute(store_until)
            taking = pool.submit(second.find, "web")
            with pytest.raises(TimeoutError):
                taking.result(0.3)
        assert taking.result().epoch == row.epoch + 1


def test_studies_go_to_those_who_have_few():
    assert targets({"a": 3, "b": 0, "c": 1}, 4) == ["b", "b", "c", "b"]


@pytest.mark.parametrize(
    "url", ["10.0.0.5:8321", "ftp://host", "http://", "http://u:p@host", "http://host/path", "http://host?a=b"]
)
def test_an_address_of_a_server_is_checked(url):
    with pytest.raises(InvalidValue, match="--advertise must be like"):
        checked_url(url)
    assert checked_url("https://host:1/") == "https://host:1"


def test_a_server_that_listens_everywhere_is_reached_where_the_database_sees_it():
    assert advertised_url("0.0.0.0", 8321, "127.0.0.1") == "http://127.0.0.1:8321"  # noqa: S104
    assert advertised_url("10.0.0.5", 8321, "db") == "http://10.0.0.5:8321"
    assert advertised_url("fd00::5", 8321, "db") == "http://[fd00::5]:8321"


def test_a_database_that_cannot_be_reached_is_said_in_one_line(tmp_path):
    with pytest.raises(DatabaseUnusable, match=r"could not use the database: .*[Cc]onnection refused"):
        serve(tmp_path, port=0, database="postgresql://rasp@127.0.0.1:9/none")
