"""What one request, one connection or one key can take is bounded: bytes, names, errors, time, streams, connections."""

import csv
import json
import re
import socket
import time
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError
from serving import STUDY, running, wait_for

from rasp_tuner.service import json_codec
from rasp_tuner.service.auth import ApiKeys, create_key
from rasp_tuner.service.http import connection as http_connection
from rasp_tuner.service.http import gateway, routes, schemas
from rasp_tuner.service.http.connection import MAX_HEADERS, MAX_PIPELINED, Incoming
from rasp_tuner.service.json_codec import MAX_NAMES, loads
from rasp_tuner.service.limits import ConnectionCount, Limits
from rasp_tuner.service.service_errors import InvalidJson, InvalidRequest
from rasp_tuner.service.storage.store import Store, sqlite_url

ASK = b"POST /v1/studies/web/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
VERSION = b"GET /version HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A client of a service with one study."""
    with running(sqlite_url(tmp_path_factory.mktemp("limits"))) as client:
        client.post("/v1/studies", json=STUDY)
        yield client


def connect(client):
    connection = socket.create_connection((client.base_url.host, client.base_url.port))
    connection.settimeout(10)
    return connection


def answer(client, data):
    """Status of the first answer to these bytes."""
    with connect(client) as connection:
        connection.sendall(data)
        return int(connection.recv(100).split(b" ")[1])


def is_closed(connection, data):
    """Whether the server has closed the connection: sending goes on until it notices."""
    try:
        connection.send(data)
    except TimeoutError:  # it does not read now
        return False
    except OSError:
        return True
    return False


def test_the_documented_limits_are_those_of_the_code():
    with (Path(__file__).parents[2] / "docs" / "tables" / "service-limits.csv").open(newline="") as file:
        rows = [(row["limit"], row["name"]) for row in csv.DictReader(file)]
    known = {f"Limits.{field.name}": field.default for field in fields(Limits)}
    for module in (http_connection, json_codec, gateway, routes):
        known |= vars(module)
    documented = {}
    for limit, names in rows:
        values = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d|\d", limit)]
        documented |= dict(zip(re.findall(r"`([\w.]+)`", names), [values[0], *values[-1:]], strict=False))
    assert documented == {name: known[name] for name in documented}
    assert {f"Limits.{field.name}" for field in fields(Limits)} - documented.keys() <= {"Limits.burst"}


# bytes


@pytest.mark.parametrize("head", [VERSION, ASK], ids=["GET", "POST"])
@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"0\r\n", b"a:b\r\n" * 2_000), (b"0\r\na:", b"b" * 10_000), (b"1;", b"x" * 10_000), (b"", b"1\r\n \r\n" * 2_000)],
    ids=["trailers", "one trailer", "extension", "tiny chunks"],
)
def test_what_frames_a_body_is_bounded(server, head, start, piece):
    with connect(server) as connection:
        connection.sendall(head + CHUNKED + start)
        sent = 0
        while not is_closed(connection, piece):
            sent += len(piece)
            assert sent < 40_000_000  # what the buffers of two sockets hold, and more


def test_bodies_held_at_a_time_are_bounded(sqlite):
    with running(sqlite, limits=Limits(small_bodies=12_000)) as client:
        client.post("/v1/studies", json=STUDY)
        with connect(client) as first, connect(client) as second:
            first.sendall(ASK + b"Content-Length: 2900\r\n\r\n" + b" " * 2_800)  # waits for the rest
            body = b'{"context": [1]}' + b" " * 1_000
            request = ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body

            def is_refused():
                second.sendall(request)
                return second.recv(10_000).startswith(b"HTTP/1.1 503")

            wait_for(is_refused, "the end of room for bodies")
        wait_for(lambda: answer(client, request) == 200, "room for bodies")


@pytest.mark.parametrize("context", [[1.0], {"qps": 1.0}])
def test_a_large_body_is_read_beside_the_event_loop(server, context):
    body = json.dumps({"context": context}).encode() + b" " * 200_000
    answer = server.post("/v1/studies/web/ask", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    answer = server.post("/v1/studies/web/ask", content=b"{" + body, headers={"content-type": "application/json"})
    assert answer.json()["error"]["code"] == "invalid_json"


def test_the_rest_of_a_body_is_bounded_once_the_answer_is_sent(server):
    with connect(server) as connection:
        connection.sendall(VERSION + b"Content-Length: 10000000000\r\n\r\n")
        sent = 0
        while not is_closed(connection, b" " * 10_000):
            sent += 10_000
            assert sent < 40_000_000


def test_a_trailer_is_no_header(server):
    """A key in a trailer, or a second host, changes nothing; small trailers are read and dropped."""
    body = b"2\r\n{}\r\n0\r\nHost: elsewhere\r\nX: y\r\n\r\n"
    with connect(server) as connection:
        for _ in range(2):  # the connection goes on
            connection.sendall(ASK + CHUNKED + body)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 422")  # the study has a context


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"identity, chunked", b"gzip,chunked"])
def test_a_coding_that_is_not_decoded_is_refused(server, coding):
    """Taken for chunked alone, the body would be read as something else than its sender meant."""
    body = b'17\r\n{"context": {"qps": 1}}\r\n0\r\n\r\n'
    with connect(server) as connection:
        connection.sendall(ASK + b"Transfer-Encoding: " + coding + b"\r\n\r\n" + body + ASK + CHUNKED + body)
        received = b""
        while part := connection.recv(65_536):
            received += part
    assert received.startswith(b"HTTP/1.1 501")
    assert b"only chunked" in received
    assert received.count(b"HTTP/1.1 ") == 1  # and the connection ends


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b" chunked "])
def test_chunked_is_chunked_however_it_is_written(server, coding):
    body = b'17\r\n{"context": {"qps": 1}}\r\n0\r\n\r\n'
    assert answer(server, ASK + b"Transfer-Encoding:" + coding + b"\r\n\r\n" + body) == 200


def test_a_body_in_small_parts_is_read(server):
    parts = b"".join(b"%x\r\n%s\r\n" % (2, part) for part in (b'{"', b"co", b"nt", b"ex", b't"', b":[", b"1]", b"} "))
    assert answer(server, ASK + CHUNKED + parts + b"0\r\n\r\n") == 200


@pytest.mark.parametrize("line", [b"CONNECT /healthz", b"GET /healthz"])
def test_who_wants_another_protocol_is_told_that_the_connection_ends(server, line):
    with connect(server) as connection:
        connection.sendall(line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        received = b""
        while part := connection.recv(65_536):
            received += part
    assert received.startswith(b"HTTP/1.1 405" if line.startswith(b"CONNECT") else b"HTTP/1.1 200")
    assert b"\r\nconnection: close\r\n" in received


def test_headers_are_counted(server):
    most = VERSION + b"x: 1\r\n" * (MAX_HEADERS - 1)
    assert answer(server, most + b"\r\n") == 200
    assert answer(server, most + b"x: 1\r\n\r\n") == 400


def test_requests_of_one_connection_that_wait_are_counted(server):
    with connect(server) as connection:
        connection.sendall((VERSION + b"\r\n") * (MAX_PIPELINED + 2))
        received = b""
        while part := connection.recv(65_536):
            received += part
    assert b"HTTP/1.1 400" in received
    with connect(server) as connection:
        connection.sendall((VERSION + b"\r\n") * MAX_PIPELINED)
        received = b""
        while received.count(b"HTTP/1.1 200") < MAX_PIPELINED:
            received += connection.recv(65_536)


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Type", "Origin", "Sec-Fetch-Site"])
def test_a_header_that_counts_comes_once(server, name):
    value = {"Host": "localhost", "Sec-Fetch-Site": "none"}.get(name, "application/json")
    twice = f"{name}: {value}\r\n" * (1 if name in ("Host", "Content-Type") else 2)
    assert answer(server, ASK + twice.encode() + b"Content-Length: 2\r\n\r\n{}") == 400
    assert answer(server, VERSION + f"Host: elsewhere\r\n{name}: {value}\r\n\r\n".encode()) == 400


def test_a_query_is_bounded(server):
    assert server.get("/v1/studies/web/history?points=5&" + "x" * 1_010).status_code == 200
    assert server.get("/v1/studies/web/history?" + "x=1&" * 300).status_code == 414


# JSON


def test_names_of_an_object_are_counted_and_compared():
    names = [f"n{i}" for i in range(MAX_NAMES)]
    assert len(loads(json.dumps(dict.fromkeys(names, 1)))) == MAX_NAMES
    with pytest.raises(InvalidJson, match=rf"{MAX_NAMES + 1} names, at most {MAX_NAMES}"):
        loads(json.dumps(dict.fromkeys([*names, "more"], 1)))
    with pytest.raises(InvalidJson, match="the name 'n7' comes twice"):
        loads("{" + ",".join(f'"{name}":1' for name in [*names[:-1], "n7"]) + "}")


MANY = [[]] * 20_000
KNOB = {"type": "bool", "when": {f"n{i}": [] for i in range(1_000)}}
LARGE_AND_WRONG = [
    (schemas.Ask, {"context": MANY}),
    (schemas.AskBatch, {"contexts": ["x"] * 20_000}),
    (schemas.AskBatch, {"contexts": [{f"n{i}": [] for i in range(10)}] * 20_000}),
    (schemas.TellBatch, {"tells": [{}] * 20_000}),
    (schemas.Forget, {"ids": MANY}),
    (schemas.Forget, {"keys": MANY}),
    (schemas.NewStudy, {**STUDY, "context": MANY}),
    (schemas.NewStudy, {**STUDY, "context": {"a": {"kind": "category", "values": MANY}}}),
    (schemas.NewStudy, {**STUDY, "space": {"a": {"type": "categorical", "choices": MANY}}}),
    (schemas.NewStudy, {**STUDY, "space": {"a": {"type": "bool", "when": {"b": MANY}}}}),
    (schemas.NewStudy, {**STUDY, "space": {"a": KNOB}}),
    (schemas.NewStudy, {**STUDY, "constraints": MANY}),
]


@pytest.mark.parametrize(("model", "value"), LARGE_AND_WRONG, ids=[str(i) for i in range(len(LARGE_AND_WRONG))])
def test_a_large_wrong_body_is_refused_at_its_first_errors(model, value):
    with pytest.raises(ValidationError) as raised:
        model.model_validate(value)
    assert raised.value.error_count() < 100


def test_entries_are_counted_before_they_are_checked(server):
    wrong = server.post("/v1/studies/web/ask/batch", json={"contexts": ["x"] * 1_001})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (413, "contexts")
    wrong = server.post("/v1/studies", json={**STUDY, "space": {f"n{i}": {} for i in range(65)}})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "space")


def test_texts_are_bounded_and_so_is_what_an_error_quotes(server):
    for value in ("x" * 5_000, "x" * 500_000):
        wrong = server.post(
            "/v1/studies/web/observe", json={"params": {"pool": value}, "metrics": {"p99_ms": 1}, "context": [1]}
        )
        assert wrong.status_code == 422
        assert len(wrong.content) < 1_500
    assert len(InvalidRequest("x" * 5_000, "y" * 5_000).to_json()["error"]["message"]) < 1_100
    assert len(InvalidRequest("x", "y" * 5_000).to_json()["error"]["field"]) <= 200
    nul = server.post(
        "/v1/studies/web/observe",
        json={"params": STUDY["default"], "metrics": {"p99_ms": 1}, "context": [1], "key": "a\0b"},
    )
    assert (nul.status_code, nul.json()["error"]["field"]) == (422, "key")


# time


@pytest.mark.parametrize("head", [VERSION + CHUNKED, ASK + b"Content-Length: 900000\r\n\r\n"], ids=["GET", "POST"])
def test_parts_that_keep_coming_do_not_move_the_deadline(server, monkeypatch, head):
    monkeypatch.setattr(http_connection, "READ_TIMEOUT_S", 0.5)
    with connect(server) as connection:
        connection.sendall(head)
        part = b"1\r\nx\r\n" if head.startswith(b"GET") else b" "
        wait_for(lambda: is_closed(connection, part), "the end of the connection")


def test_a_large_body_has_longer():
    incoming = Incoming(0.0, in_head=False, body=100 * http_connection.MIN_BODY_BYTES_A_SECOND)
    assert not incoming.is_late(http_connection.READ_TIMEOUT_S + 99.0)
    assert incoming.is_late(http_connection.READ_TIMEOUT_S + 101.0)


def test_who_does_not_read_answers_is_let_go(server, monkeypatch):
    monkeypatch.setattr(http_connection, "WRITE_TIMEOUT_S", 0.2)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect((server.base_url.host, server.base_url.port))
        connection.settimeout(0.2)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8
        wait_for(lambda: is_closed(connection, request), "the end of the connection")


# keys, streams, connections


def test_keys_are_read_only_if_they_have_changed(database, monkeypatch):
    store = Store(database)
    reads, read = [], store.list_keys
    monkeypatch.setattr(store, "list_keys", lambda: reads.append(1) or read())
    keys = ApiKeys(store, open_without=True)
    for change in (None, lambda: create_key(store, "read"), lambda: store.revoke_key(store.list_keys()[0].id)):
        if change:
            change()
        reads.clear()
        for _ in range(3):
            keys.reload()
        assert len(reads) == (1 if change else 0)
    store.close()


def test_a_key_has_a_share_of_the_streams(sqlite):
    store = Store(sqlite)
    keys = [create_key(store, "admin")[0] for _ in range(2)]
    store.close()
    one, other = ({"authorization": f"Bearer {key}"} for key in keys)
    with running(sqlite, limits=Limits(streams=3, streams_of_one=2)) as client:
        client.post("/v1/studies", json=STUDY, headers=one)

        def watch(headers):
            return client.stream("GET", "/v1/studies/web/live", headers=headers)

        with watch(one) as first, watch(one) as second, watch(one) as third, watch(other) as fourth, watch(other) as no:
            assert [s.status_code for s in (first, second, third, fourth, no)] == [200, 200, 429, 200, 503]

        def comes_back():
            with watch(one) as again:
                return again.status_code == 200

        wait_for(comes_back, "a place for one more stream")


def test_a_revoked_key_loses_its_stream(sqlite):
    store = Store(sqlite)
    admin, (key, row) = create_key(store, "admin")[0], create_key(store, "read")
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY, headers={"authorization": f"Bearer {admin}"})
        with client.stream("GET", "/v1/studies/web/live", headers={"authorization": f"Bearer {key}"}) as stream:
            rows = stream.iter_lines()
            assert next(rows) == ": watching"
            store.revoke_key(row.id)
            assert sum(line != "" for line in rows) == 2  # where the study stands; no heartbeat
    store.close()


def test_connections_are_counted(sqlite):
    with running(sqlite, limits=Limits(connections=3)) as client:
        assert client.get("/version").status_code == 200  # its connection stays
        with connect(client), connect(client):
            with connect(client) as refused:
                assert refused.recv(100).startswith(b"HTTP/1.1 503")
            assert client.get("/version").status_code == 200

        def has_room():
            with connect(client) as again:
                again.sendall(VERSION + b"\r\n")
                return again.recv(100).startswith(b"HTTP/1.1 200")

        wait_for(has_room, "room for one more connection")


def test_an_address_has_a_share_of_the_connections():
    count = ConnectionCount(4, 2)
    assert [count.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [count.enter(address) for address in ("127.0.0.1", "::1", "10.0.0.2")] == [True, True, False]
    count.leave("127.0.0.1")
    assert [count.enter("10.0.0.1"), count.enter("10.0.0.2")] == [False, True]


def too_large(size):
    return ASK + f"Content-Length: {size}\r\n\r\n".encode()


def test_who_still_sends_a_body_that_is_too_large_can_read_why(server):
    for _ in range(5):
        with connect(server) as connection:
            connection.sendall(too_large(3_000_000))
            time.sleep(0.05)  # the answer is there, and nothing keeps the connection open but the rest of the body
            connection.sendall(b" " * 3_000_000)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"too_large"' in answer


@pytest.mark.parametrize(("size", "pause_s"), [(65_536, 0.0), (1, 0.1)])
def test_who_never_ends_a_body_that_is_too_large_is_cut_off(server, size, pause_s):
    with connect(server) as connection, pytest.raises(ConnectionError):  # noqa: PT012 - any of many
        connection.sendall(too_large(99_999_999))
        for _ in range(200):
            connection.sendall(b" " * size)
            time.sleep(pause_s)
