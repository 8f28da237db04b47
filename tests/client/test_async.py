"""The client for asyncio: the same calls, the same answers, the same fallbacks."""

import asyncio
import inspect
import time
from itertools import count

import pytest

from rasp_tuner import AlreadyAnswered, Int, InvalidValue, Tuner
from rasp_tuner.client import (
    AsyncClient,
    AsyncStudy,
    Client,
    RequestRefused,
    ServerUnavailable,
    Study,
    UnknownStudy,
    is_fallback,
)

SPACE, METRICS, DEFAULT = {"pool": Int(1, 64, log=True)}, {"p99_ms": "min"}, {"pool": 8}
names = (f"async-{i}" for i in count())


@pytest.mark.parametrize(("sync", "other"), [(Client, AsyncClient), (Study, AsyncStudy)])
def test_both_clients_have_the_same_calls(sync, other):
    for name, member in inspect.getmembers(sync, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(member).parameters == inspect.signature(getattr(other, name)).parameters, name
    properties = {name for name, member in vars(sync).items() if isinstance(member, property)} - {"scales"}
    assert properties == {name for name, member in vars(other).items() if isinstance(member, property)}
    assert sync is Study or inspect.signature(sync) == inspect.signature(other)


def test_it_answers_what_a_tuner_in_this_process_would(server):
    async def steps():
        tuner = Tuner(SPACE, METRICS, ["qps"], DEFAULT)
        async with AsyncClient(server.url, ask_deadline=20.0, timeout=20) as client:
            study = await client.create(next(names), SPACE, METRICS, ["qps"], DEFAULT)
            for step in range(10):
                context = {"qps": 9.0 if step % 4 > 1 else 1.0}
                ours, theirs = await study.ask(context), tuner.ask(context)
                assert ours == theirs
                metrics = {"p99_ms": 20.0 + abs(ours.params["pool"] - 30)}
                assert (await study.tell(ours.id, metrics)).status == "learned"
                tuner.tell(theirs.id, metrics)
            assert await study.explain("s3") == tuner.explain("s3")
            assert await study.recommend({"qps": 9.0}) == tuner.recommend({"qps": 9.0})
            assert await study.scales() == tuner.scales
            with pytest.raises(AlreadyAnswered):
                await study.tell("s3", {"p99_ms": 0.0})
            with pytest.raises(InvalidValue):
                await study.tell("s3", {"p99_ms": float("nan")})
            queued = await study.ask({"qps": 1.0})
            assert (await study.tell_later(queued.id, {"p99_ms": 3.0})).status == "queued"
            assert await client.flush(20)
            view = await study.view()
            assert (view["asks"], view["tells"]) == (11, 11)
            lines = [line async for line in study.export()]
            copy = await client.import_study(lines, next(names))
            assert (await copy.view())["tells"] == 11
            await copy.delete()
            with pytest.raises(UnknownStudy):
                await client.study(copy.name)
        with pytest.raises(RequestRefused, match="closed"):
            await client.studies()

    asyncio.run(steps())


def test_many_tasks_share_a_study(server):
    async def steps():
        async with AsyncClient(server.url, ask_deadline=20.0, timeout=20) as client:
            study = await client.create(next(names), SPACE, METRICS, ["qps"], DEFAULT)

            async def step():
                asked = await study.ask({"qps": 1.0})
                await study.tell(asked.id, {"p99_ms": 3.0})
                return asked.id

            ids = await asyncio.gather(*[step() for _ in range(20)])
            assert len(set(ids)) == 20
            assert (await study.view())["tells"] == 20

    asyncio.run(steps())


def hang(connection):
    connection.recv(65_536)
    time.sleep(600)


def test_a_server_that_hangs_is_answered_for(bad_server):
    async def steps(url):
        async with AsyncClient(url, ask_deadline=0.05, timeout=0.2) as client:
            study = await client.study("checkout", DEFAULT)
            asked = await asyncio.gather(*[study.ask({"qps": float(i)}) for i in range(5)])
            assert all(is_fallback(suggestion.id) and suggestion.params == DEFAULT for suggestion in asked)
            assert (await study.tell(asked[0].id, {"p99_ms": 1.0})).status == "queued"
            assert (client.queued, study.fallbacks, study.asks) == (1, 5, 5)
            with pytest.raises(ServerUnavailable):
                await study.view()
            await client.close(0.0)

    started = time.monotonic()
    asyncio.run(steps(bad_server(hang).url))
    assert time.monotonic() - started < 120.0  # it would wait for ten minutes
