"""A connection to PostgreSQL that hangs: it is open, takes everything and answers nothing."""

import contextlib

import pytest
import sqlalchemy as sa
from serving import STUDY, running, view, wait_for

from rasp_lab.reliability.postgres_server import Relay

LEASE_S = 0.5  # also how long a silent database is waited for
PATIENCE_S = 20.0  # far longer, also on a busy machine


@pytest.fixture
def hanging(own_postgres_database):
    """A server with one study, and its way to the database."""
    url = sa.make_url(own_postgres_database("hung"))
    with contextlib.closing(Relay(url.port)) as relay:
        through = url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
        with running(through, lease_s=LEASE_S, several=True) as client:
            client.timeout = PATIENCE_S
            done(client, "/v1/studies", STUDY)
            yield client, relay
            relay.is_hung = relay.is_closed = False


def done(client, path, body):
    """The answer of a request that is sent until it is taken: on a busy machine so short a lease may be over."""
    answers = []
    wait_for(lambda: answers.append(client.post(path, json=body)) or answers[-1].status_code != 503, path)
    assert answers[-1].is_success, answers[-1].text
    return answers[-1].json()


def is_ready(client):
    return client.get("/readyz").status_code == 200


def test_a_server_whose_database_hangs_gives_up_and_goes_on_once_it_answers(hanging):
    client, relay = hanging
    asked = done(client, "/v1/studies/web/ask", {"context": {"qps": 1.0}})
    told = {"id": asked["id"], "metrics": {"p99_ms": 1.0}}
    relay.is_hung = relay.is_closed = True  # if new connections hung, too, psycopg would wait for two seconds or more
    assert client.post("/v1/studies/web/tell", json=told).status_code == 503
    assert not is_ready(client)
    assert client.get("/healthz").status_code == 200
    relay.is_hung = relay.is_closed = False
    wait_for(lambda: is_ready(client), "the database")
    assert done(client, "/v1/studies/web/tell", told)["status"] in ("learned", "duplicate")
    wait_for(lambda: view(client).get("tells") == 1, "the tell, once")
