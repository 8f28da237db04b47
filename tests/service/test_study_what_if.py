"""What-if over HTTP, with the client and with the command: what the tuner says, and nothing changes."""

import asyncio

import pytest
from serving import STUDY, running, steps, view
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.client import AsyncClient, Client
from rasp_tuner.errors import InvalidValue
from rasp_tuner.service.storage.store import sqlite_url

CONTEXT = {"qps": 9.0}


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with running(sqlite_url(tmp_path_factory.mktemp("what-if"))) as client:
        assert client.post("/v1/studies", json=STUDY).status_code == 201
        steps(client, 30)
        yield client


def url(web):
    return str(web.base_url)


def test_the_clients_give_what_the_tuner_says_and_the_study_stays_as_it_was(web):
    tuner, before = web.service.writer.cache.live["web"].tuner, view(web)
    wanted, kept = tuner.what_if(CONTEXT, {"pool": 16}), tuner.to_bytes()

    async def asked():
        async with AsyncClient(url(web)) as client:
            return await (await client.study("web")).what_if(CONTEXT, {"pool": 16})

    with Client(url(web)) as client:
        found = client.study("web").what_if(CONTEXT, {"pool": 16})
        assert client.study("web").what_if(CONTEXT).given == wanted.recommended
    assert found == asyncio.run(asked()) == wanted
    assert found.given.params == {"pool": 16, "t": 1.0}
    assert found.runs > 5
    assert (view(web), tuner.to_bytes()) == (before, kept)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"context": CONTEXT, "params": {"pool": 1000}}, "params"),
        ({"context": CONTEXT, "params": {"nope": 1}}, "params"),
        ({"context": {"qps": "many"}}, "context"),
        ({"context": CONTEXT, "params": [1]}, "params"),
        ({"context": CONTEXT, "settings": {}}, "settings"),
    ],
)
def test_a_wrong_request_names_the_field(web, body, field):
    answer = web.post("/v1/studies/web/what-if", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"].startswith(field)


def test_the_client_checks_before_it_sends(web):
    with Client(url(web)) as client, pytest.raises(InvalidValue, match="pool"):
        client.study("web").what_if(CONTEXT, {"pool": float("nan")})


def test_the_command_prints_words_or_json(web):
    words = ["what-if", "web", "qps=9", "--set", "pool=16", "--url", url(web)]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("These settings (pool=16 t=1): p99_ms ")
    assert "The default (pool=8 t=1): p99_ms " in told.stdout
    assert '"words": "These settings' in CliRunner().invoke(app, [*words, "--json"]).stdout
    wrong = CliRunner().invoke(app, ["what-if", "web", "qps=9", "--set", "pol=16", "--url", url(web)])
    assert wrong.exit_code == 1
    assert wrong.stderr == "rasp: --set 'pol' is no knob of this study; it has pool, t\n"


def test_studies_come_in_pages(web):
    for name in ("other-1", "other-2"):
        assert web.post("/v1/studies", json={**STUDY, "name": name}).status_code == 201
    with Client(url(web)) as client:
        page = client.studies_page(limit=1, offset=1, find="OTHER")
        assert ([study["name"] for study in page["studies"]], page["total"]) == (["other-2"], 2)
        assert client.studies_page(sort="recent")["total"] == 3
        with pytest.raises(InvalidValue, match="limit"):
            client.studies_page(limit=0)
