"""The same steps have the same gain in a tuner, its page, a study, the dashboard's data, clients, MCP and commands."""

import asyncio
import math
import re

import numpy as np
import pytest
from mcp_agent import agent, in_memory
from typer.testing import CliRunner

from rasp_tuner import Float, Tuner
from rasp_tuner.cli import app
from rasp_tuner.client import AsyncClient, Client
from tests.service.serving import Process

SPACE = {"pool": Float(1, 64, log=True)}
DEFAULT = {"pool": 8.0}
STEPS = 60


def cost(params, load, rng):
    return (40.0 + 20.0 * load + 14.0 * math.log(params["pool"] / 30.0) ** 2) * math.exp(0.03 * rng.normal())


def play(one, rng):
    """Ask and tell a tuner, or a study of a server."""
    for step in range(STEPS):
        load = float(step // 6 % 2)
        s = one.ask({"load": load})
        one.tell(s.id, {"p99_ms": cost(s.params, load, rng)})


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Process(tmp_path_factory.mktemp("one-gain"))
    with Client(server.url, timeout=20) as client:
        for name, holdout in (("plain", None), ("held", 0.3)):
            study = client.create(name, SPACE, {"p99_ms": "min"}, ["load"], DEFAULT, holdout=holdout)
            play(study, np.random.default_rng(0))
        yield server, client
    server.kill()


@pytest.mark.parametrize(("name", "holdout"), [("plain", None), ("held", 0.3)])
def test_everybody_says_the_same(served, tmp_path, name, holdout):
    server, client = served
    tuner = Tuner(SPACE, {"p99_ms": "min"}, ["load"], DEFAULT, holdout=holdout)
    play(tuner, np.random.default_rng(0))
    words = str(tuner.versus_default())
    assert re.match(r"saved \d+% \(", words), words
    assert ("measured" in words) == (holdout is not None)
    tuner.report(tmp_path / "page.html")
    assert words in (tmp_path / "page.html").read_text()
    study = client.study(name)
    assert study.versus_default() == tuner.versus_default()
    assert study.view()["versus_default"]["words"] == words  # what the dashboard writes

    async def asynchronous():
        async with AsyncClient(server.url, timeout=20) as other:
            return await (await other.study(name)).versus_default()

    assert asyncio.run(asynchronous()) == tuner.versus_default()
    with agent(in_memory(server.url, None)) as found:
        assert found.ok("show_study", study=name)["versus_default"]["words"] == words
    shown = CliRunner().invoke(app, ["study", "show", name, "--url", server.url], env={"COLUMNS": "200"})
    assert words in " ".join(shown.output.split()), shown.output
