"""Approvals through the client and the commands."""

import asyncio
import json
from itertools import count

import pytest
from typer.testing import CliRunner

from rasp_tuner import Int, InvalidValue
from rasp_tuner.cli import app
from rasp_tuner.client import AsyncClient, Client

names = (f"approvals-{i}" for i in count())


@pytest.fixture
def study(server):
    with Client(server.url, ask_deadline=None, timeout=20) as client:
        study = client.create(
            next(names), {"n": Int(1, 64)}, {"ms": "min"}, None, {"n": 8}, approve_s=3600.0, max_change="40 steps"
        )
        for _ in range(4):
            study.tell(study.ask().id, {"ms": 10.0})
        yield study


def rasp(server, *words):
    return CliRunner().invoke(app, [*words, "--url", server.url])


def test_waiting_approve_refuse(study):
    (one,) = study.waiting()
    assert 0 < abs(one["params"]["n"] - 8) <= 40
    study.refuse(one["id"], for_s=60.0)
    assert study.waiting() == []
    study.tell(study.ask().id, {"ms": 10.0})
    (other,) = study.waiting()
    study.approve(other["id"])
    assert study.ask().params == other["params"]
    with pytest.raises(InvalidValue, match="for_s"):
        study.refuse("w9", for_s="long")


def test_without_blocking(server, study):
    async def decide():
        async with AsyncClient(server.url, timeout=20) as client:
            mine = await client.study(study.name)
            (one,) = await mine.waiting()
            await mine.approve(one["id"])
            assert await mine.waiting() == []
            return one

    assert asyncio.run(decide())["params"] == study.ask().params


def test_the_commands(server, study):
    (one,) = study.waiting()
    listed = rasp(server, "approve", study.name)
    assert listed.exit_code == 0
    assert f"n: 8 -> {one['params']['n']}" in listed.stdout
    assert "stake: the run should be ended at" in listed.stdout
    assert json.loads(rasp(server, "approve", study.name, "--json").stdout)[0]["id"] == one["id"]
    assert "refused for 2h" in rasp(server, "refuse", study.name, one["id"], "--for", "2h").stdout
    assert "nothing waits" in rasp(server, "approve", study.name).stdout
    study.tell(study.ask().id, {"ms": 10.0})
    (other,) = study.waiting()
    assert "is approved" in rasp(server, "approve", study.name, other["id"]).stdout
    assert study.ask().params == other["params"]
    again = rasp(server, "approve", study.name, other["id"])
    assert again.exit_code == 1
    assert "waits here" in again.stderr
    assert "wait for approval" in rasp(server, "study", "show", study.name).stdout
    assert "max change 40 steps" in rasp(server, "study", "show", study.name).stdout
    assert "--for must be a duration" in rasp(server, "refuse", study.name, "w0", "--for", "soon").stderr
