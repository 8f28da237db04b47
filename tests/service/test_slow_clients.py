"""Connections whose client does not go on, or never ends, are let go; others are not."""

import socket
import time

import pytest
from serving import STUDY, running, tell, wait_for

from rasp_tuner.service.http import connection as http_connection

HEAD = b"POST /v1/studies/web/tell HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(client):
    connection = socket.create_connection((client.base_url.host, client.base_url.port))
    connection.settimeout(20)
    return connection


@pytest.mark.parametrize("part", [b"", HEAD, HEAD + b"Content-Length: 90\r\n\r\n{"], ids=["nothing", "head", "body"])
def test_half_a_request_does_not_hold_its_connection(sqlite, monkeypatch, part):
    monkeypatch.setattr(http_connection, "READ_TIMEOUT_S", 0.5)
    with running(sqlite) as client, connect(client) as connection:
        connection.sendall(part)
        assert connection.recv(1) == b""


def test_a_body_that_comes_slowly_is_waited_for(sqlite, monkeypatch):
    monkeypatch.setattr(http_connection, "READ_TIMEOUT_S", 20)
    body = b'{"id": "s0", "metrics": {"p99_ms": 1}}'
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        with connect(client) as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
            for start in range(0, len(body), 5):
                time.sleep(0.15)  # more than a look at late connections takes to come, in all
                connection.sendall(body[start : start + 5])
            assert connection.recv(12) == b"HTTP/1.1 404"  # nobody has asked


def test_who_waits_for_the_server_is_not_late(sqlite, monkeypatch):
    monkeypatch.setattr(http_connection, "READ_TIMEOUT_S", 0.2)
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        with client.stream("GET", "/v1/studies/web/live") as stream:
            rows = stream.iter_lines()
            assert next(rows) == ": watching"
            time.sleep(2.5)
            asked = client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}}).json()
            assert tell(client, asked["id"]).status_code == 200
            assert "event: step" in rows


def flood(connection):
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    for i in range(10_000):
        connection.sendall(b"X-%d: %s\r\n" % (i, b"x" * 4_000))


def test_a_head_without_end_is_refused(sqlite):
    with running(sqlite) as client:
        with connect(client) as connection, pytest.raises(OSError, match=r"Broken pipe|reset by peer"):
            flood(connection)
        assert client.get("/healthz").status_code == 200


def test_empty_lines_between_requests_do_not_keep_a_connection(sqlite, monkeypatch):
    monkeypatch.setattr(http_connection, "IDLE_TIMEOUT_S", 0.3)
    with running(sqlite) as client, connect(client) as connection:
        for _ in range(2):
            connection.sendall(b"\r\nGET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")

        def is_closed():
            try:
                connection.sendall(b"\r\n")
            except OSError:
                return True
            return False

        wait_for(is_closed, "the end of the connection")


# clients that end their side after the request


def received(connection):
    parts = b""
    while part := connection.recv(65_536):
        parts += part
    return parts


@pytest.mark.parametrize(("count", "more"), [(1, 0), (3, 0), (1, 80), (3, 120)])
def test_who_ends_its_side_after_a_request_is_answered(sqlite, count, more):
    """Requests that came whole are; `more` bytes of another one change nothing."""
    body = b'{"context": {"qps": 1}}'
    request = HEAD.replace(b"/tell", b"/ask") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        with connect(client) as connection:
            connection.sendall(request * count + request[:more])
            connection.shutdown(socket.SHUT_WR)
            answers = received(connection)
        assert answers.count(b"HTTP/1.1 200") == answers.count(b"HTTP/1.1 ") == count
        assert client.get("/v1/studies/web").json()["asks"] == count


def test_who_ends_its_side_gets_a_list_and_its_end(sqlite):
    with running(sqlite) as client, connect(client) as connection:
        client.post("/v1/studies", json=STUDY)
        connection.sendall(b"GET /v1/studies/web/export HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert received(connection).endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("part", [b"", HEAD, HEAD + b"Content-Length: 90\r\n\r\n{"], ids=["nothing", "head", "body"])
def test_who_ends_its_side_before_the_end_of_a_request_gets_nothing(sqlite, part):
    with running(sqlite) as client, connect(client) as connection:
        connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        assert received(connection) == b""


def test_a_live_stream_ends_with_its_client(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        with connect(client) as connection:
            connection.sendall(b"GET /v1/studies/web/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"watching" in connection.recv(65_536)
            assert client.service.broadcaster.streams == 1
            connection.shutdown(socket.SHUT_WR)
            wait_for(lambda: not client.service.broadcaster.streams, "the end of the stream", 5.0)
