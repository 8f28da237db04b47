"""Bodies under way: each caller has a share of the memory, small bodies need none of it, large ones are read fairly."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from serving import STUDY, ask, plain_client, running, wait_for

from rasp_tuner.service.auth import create_key
from rasp_tuner.service.http import connection as http_connection
from rasp_tuner.service.http.fair_pool import FairPool
from rasp_tuner.service.limits import BodyShares, Limits
from rasp_tuner.service.storage.store import Store, sqlite_url

MIB = 1_048_576


def with_key(client, key):
    return plain_client(client.base_url, headers={"Authorization": f"Bearer {key}"}, timeout=60)


@contextlib.contextmanager
def unfinished_bodies(client, key, count, path="recommend"):
    """So many bodies of nearly a MiB each, whose last bytes never come."""
    head = f"POST /v1/studies/web/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {key}\r\nContent-Length: {MIB}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = socket.create_connection((client.base_url.host, client.base_url.port))
            stack.enter_context(contextlib.closing(connection))
            with contextlib.suppress(OSError):  # refused: it has no more room
                connection.sendall(head.encode() + b" " * (MIB - 100))
        yield


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A client of a server with a study, and keys: of an admin, of two that may only read this study."""
    url = sqlite_url(tmp_path_factory.mktemp("shares"))
    store = Store(url)
    admin, reader, other = (create_key(store, scope, study)[0] for scope, study in KEYS)
    store.close()
    patience = pytest.MonkeyPatch()
    patience.setattr(http_connection, "READ_TIMEOUT_S", 600.0)  # what is held stays, however slow the machine
    limits = Limits(large_bodies=16 * MIB)
    with running(url, limits=limits, open_without_keys=False) as client, with_key(client, admin) as owner:
        owner.post("/v1/studies", json=STUDY)
        yield owner, reader, other
    patience.undo()


KEYS = [("admin", None), ("read", "web"), ("read", "web")]


def recommend(client, size):
    content = b'{"context": {"qps": 1}}' + b" " * size
    return client.post("/v1/studies/web/recommend", content=content, headers={"content-type": "application/json"})


def test_a_key_that_only_reads_cannot_take_the_room_of_others(three):
    owner, reader, _ = three
    with contextlib.ExitStack() as held, with_key(owner, reader) as own:

        def has_no_room_left():  # what an earlier test held may still have taken the place of one
            held.enter_context(unfinished_bodies(owner, reader, 20))
            return recommend(own, 900_000).status_code == 503

        wait_for(has_no_room_left, "the end of the reader's share")
        for _ in range(5):
            assert "id" in ask(owner)
            assert recommend(owner, 900_000).status_code == 200  # large ones of others find room, too
        assert recommend(own, 100).status_code == 200  # small ones need no room, not even of one's own
    with with_key(owner, reader) as own:
        wait_for(lambda: recommend(own, 900_000).status_code == 200, "room, now that they are gone")


def test_two_that_are_greedy_leave_room_for_a_third(three):
    owner, reader, other = three
    with unfinished_bodies(owner, reader, 20), unfinished_bodies(owner, other, 20):
        assert recommend(owner, 900_000).status_code == 200


def test_whoever_comes_finds_room():
    shares = BodyShares(1_000)
    greedy = [str(caller) for caller in range(8)]
    for caller in greedy:
        while shares.take(caller, 1):
            pass
    assert shares.held("0") == 250  # a quarter, while it was alone
    assert shares.take("new", 20)
    for caller in greedy:
        shares.give(caller, shares.held(caller))
    shares.give("new", 20)
    assert shares.take("new", 250)
    assert not shares.take("new", 1)


# large bodies are read in threads


def run_pool(use):
    async def run():
        pool = FairPool(2, "test")
        try:
            return await asyncio.wait_for(use(pool), 60)
        finally:
            pool.close()

    return asyncio.run(run())


def test_a_caller_whose_body_takes_long_delays_only_itself():
    release = threading.Event()

    async def use(pool):
        slow = [asyncio.ensure_future(pool.run("greedy", release.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        got = await pool.run("other", lambda: "read")
        assert not any(job.done() for job in slow)
        release.set()
        await asyncio.gather(*slow)
        return got

    assert run_pool(use) == "read"


def test_callers_take_turns():
    order = []

    async def use(pool):
        started, release = threading.Event(), threading.Event()
        busy = [asyncio.ensure_future(pool.run(f"busy {i}", lambda: (started.set(), release.wait()))) for i in range(2)]
        await asyncio.to_thread(started.wait)
        jobs = [asyncio.ensure_future(pool.run(who, lambda who=who: order.append(who))) for who in "aaaab"]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*busy, *jobs)

    run_pool(use)
    assert order.index("b") <= 1


def test_what_reading_raises_is_raised_where_it_is_waited_for():
    def fail():
        raise ValueError("no JSON")

    async def use(pool):
        with pytest.raises(ValueError, match="no JSON"):
            await pool.run("one", fail)
        return await pool.run("one", lambda: 2)

    assert run_pool(use) == 2


def test_nobody_waits_for_a_body_that_was_given_up():
    async def use(pool):
        release = threading.Event()
        first = [asyncio.ensure_future(pool.run("one", release.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        first[1].cancel()  # it has not begun
        release.set()
        await first[0]
        return await pool.run("one", time.monotonic)

    assert run_pool(use) > 0
