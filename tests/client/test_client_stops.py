"""Stops through the client: as with a tuner in this process."""

import asyncio
from itertools import count

import pytest

from rasp_tuner import Categorical, InvalidValue
from rasp_tuner.client import AsyncClient, Client, is_fallback

names = (f"stops-{i}" for i in count())
PLANS = {"plan": Categorical(["a", "b", "c"])}


@pytest.fixture
def study(server):
    with Client(server.url, ask_deadline=None, timeout=20) as client:
        yield client.create(next(names), PLANS, {"cost": "min"}, None, {"plan": "a"})


def with_stop(study):
    for _ in range(20):
        own = study.ask()
        if own.stop is not None:
            return own
        study.tell(own.id, {"cost": 1.0})
    raise AssertionError("no suggestion had a stop")


def test_it_says_when_to_stop_and_is_told_so(study):
    own = with_stop(study)
    assert not study.should_stop(own.id, {"cost": 1.0})
    assert study.should_stop(own.id, {"cost": own.stop})
    assert study.tell(own.id, {"cost": own.stop}, stopped=True).status == "learned"
    assert study.tell(own.id, {"cost": own.stop}, stopped=True).status == "duplicate"
    assert study.suggestion(own.id)["stopped"] is True
    assert study.ask_batch([None, None])[0].id


def test_a_bound_may_be_sent_later_or_in_a_batch(study):
    own = with_stop(study)
    study.tell_later(own.id, {"cost": own.stop}, stopped=True)
    assert study.flush(10.0)
    assert study.suggestion(own.id)["stopped"] is True
    own = with_stop(study)
    assert study.tell_batch([{"id": own.id, "metrics": {"cost": own.stop}, "stopped": True}])[0].status == "learned"
    assert study.suggestion(own.id)["stopped"] is True


def test_a_trial_around_a_block(study):
    study.tell(study.ask().id, {"cost": 1.0})
    for _ in range(20):
        with study.trial() as t:
            if t.stop is None:
                t.report(cost=1.0)
            elif t.check(cost=2.0 * t.stop):
                break
    assert t.stopped
    assert study.suggestion(t.id)["stopped"] is True


def test_bad_input_is_refused(study):
    own = with_stop(study)
    for wrong in ({"cost": float("nan")}, {"cost": "2"}, {"speed": 1.0}, None):
        with pytest.raises(InvalidValue):
            study.should_stop(own.id, wrong)
    with pytest.raises(InvalidValue, match="stopped"):
        study.tell(own.id, {"cost": 2.0}, stopped=1)
    assert study.tell(own.id, {"cost": 1.0}).status == "learned"


def test_a_fallback_has_no_stop_and_its_bound_is_sent_as_one(server, study):
    with Client(server.url, ask_deadline=1e-9, timeout=20) as hurried:
        other = hurried.study(study.name, default={"plan": "a"})
        own = other.ask()
        assert is_fallback(own.id)
        assert own.stop is None
        assert not other.should_stop(own.id, {"cost": 1e9})
        assert other.tell(own.id, {"cost": 3.0}, stopped=True).status == "queued"
        assert other.flush(10.0)
    lines = list(study.export())
    assert any('"observe"' in line and '"stopped":true' in line for line in lines)


def test_the_same_without_blocking(server, study):
    own = with_stop(study)

    async def ask_and_tell():
        async with AsyncClient(server.url, ask_deadline=None, timeout=20) as client:
            other = await client.study(study.name, default={"plan": "a"})
            stop = await other.should_stop(own.id, {"cost": 2.0 * own.stop})
            told = await other.tell(own.id, {"cost": own.stop}, stopped=True)
            for _ in range(20):
                async with other.trial() as t:
                    if t.stop is None:
                        t.report(cost=1.0)
                    elif await t.check(cost=2.0 * t.stop):
                        break
            return stop, told, t

    stop, told, t = asyncio.run(ask_and_tell())
    assert t.stopped
    assert study.suggestion(t.id)["stopped"] is True
    assert stop
    assert told.status == "learned"
