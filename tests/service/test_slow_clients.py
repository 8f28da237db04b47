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
