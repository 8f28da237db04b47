"""What the client does while the server is slow, refuses, hangs or is gone; real sockets, real processes."""

import json
import logging
import signal
import socket
import time
from itertools import count
from urllib.parse import urlsplit

import numpy as np
import pytest

from rasp_tuner import AlreadyAnswered, Int, InvalidValue, UnknownSuggestion
from rasp_tuner.client import Client, RequestRefused, ServerUnavailable, is_fallback

DEFAULT = {"pool": 8}
names = (f"checkout-{i}" for i in count())
DEADLINE = 0.05
SLACK = 60.0  # for a busy machine; the servers here would keep a client waiting for ten times as long


def timed(call):
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def made(client):
    return client.create(next(names), {"pool": Int(1, 64, log=True)}, {"p99_ms": "min"}, ["qps"], DEFAULT)


def teach(study):
    for pool in (2, 4, 8, 32, 48):  # the default among them: another is recommended only if it is surely better
        for qps, best in ((1.0, 4), (9.0, 32)):
            study.observe({"qps": qps}, {"pool": pool}, {"p99_ms": 20.0 + abs(pool - best)})


def wait_until(true, seconds=60.0):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def hang(connection):
    connection.recv(65_536)
    time.sleep(600)


def stop_half_way(connection):
    connection.recv(65_536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"id": "s')
    time.sleep(600)


def dribble(connection):
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.01)


def hang_up(connection):
    connection.recv(65_536)
    connection.close()


@pytest.mark.parametrize("behave", [hang, stop_half_way, dribble, hang_up])
def test_ask_answers_in_time_whatever_the_server_does(bad_server, behave):
    url, times = bad_server(behave).url, []
    for _ in range(5):
        with Client(url, ask_deadline=DEADLINE) as client:
            study = client.study("checkout", default=DEFAULT)
            suggestion, seconds = timed(lambda study=study: study.ask({"qps": 1.0}))
            assert is_fallback(suggestion.id)
            assert suggestion.params == DEFAULT
            assert study.fallbacks == 1
            times.append(seconds)
    assert max(times) <= DEADLINE + SLACK


def test_ask_answers_in_time_where_nobody_listens(bad_server):
    nobody = bad_server(hang)
    nobody.close()
    with Client(nobody.url) as client:
        suggestion, seconds = timed(lambda: client.study("checkout", default=DEFAULT).ask({"qps": 1.0}))
    assert is_fallback(suggestion.id)
    assert seconds <= DEADLINE + SLACK


def test_a_server_that_keeps_failing_is_left_alone_for_a_moment(bad_server, caplog):
    hanging = bad_server(hang)
    with Client(hanging.url, timeout=0.2) as client, caplog.at_level(logging.WARNING, "rasp_tuner.client"):
        study = client.study("checkout", default=DEFAULT)
        asked = [study.ask({"qps": 1.0}) for _ in range(500)]
        wait_until(lambda: study.ask({"qps": 1.0}) and "falling back" in caplog.text)
    assert all(is_fallback(suggestion.id) for suggestion in asked)
    assert hanging.accepted < 10
    assert caplog.text.count("falling back") == 1
    assert caplog.text.count("of the latest 20 asks were answered without the server") == 1


def test_a_killed_server_a_restart_and_nothing_is_lost(server):
    with Client(server.url, timeout=20, ask_deadline=5.0) as client:  # a refused connection is known at once
        study = made(client)
        teach(study)
        best = {qps: study.recommend({"qps": qps}) for qps in (1.0, 9.0)}
        assert best[1.0] != best[9.0]
        before = study.view()["observations"]
        real = study.ask({"qps": 1.0})
        assert not is_fallback(real.id)

        server.kill()
        assert study.tell_later(real.id, {"p99_ms": 3.0}).status == "queued"
        for step in range(20):
            qps = (1.0, 9.0)[step % 2]
            suggestion = study.ask({"qps": qps + 0.1})
            assert is_fallback(suggestion.id)
            assert suggestion.params == best[qps]  # of the nearest context
            assert study.tell(suggestion.id, {"p99_ms": 25.0 + step}).status == "queued"
        assert study.recommend({"qps": 1.0}) == best[1.0]
        assert client.queued == 21

        server.start()
        assert client.flush(20)
        assert study.tell(real.id, {"p99_ms": 3.0}).status == "duplicate"
        assert study.view()["observations"] == before + 20
        assert study.view()["tells"] == 1
        wait_until(lambda: not is_fallback(study.ask({"qps": 1.0}).id))
        assert client.dropped == 0


def test_a_server_that_is_stopped_in_its_tracks(server):
    with Client(server.url, timeout=20) as client:
        study = made(client)
        teach(study)
        wait_until(lambda: not is_fallback(study.ask({"qps": 9.0}).id))
        server.send(signal.SIGSTOP)
        suggestion, seconds = timed(lambda: study.ask({"qps": 9.0}))
        assert is_fallback(suggestion.id)
        assert seconds <= DEADLINE + SLACK
        study.tell(suggestion.id, {"p99_ms": 30.0})
        server.send(signal.SIGCONT)
        assert client.flush(60)
        wait_until(lambda: not is_fallback(study.ask({"qps": 9.0}).id))
        assert study.view()["observations"] == 11


def test_the_recommendation_to_fall_back_on_is_looked_up_in_the_background(server):
    with Client(server.url, ask_deadline=1.0) as client:
        study = made(client)
        teach(study)
        with Client(server.url, ask_deadline=None) as other:
            best = other.study(study.name).recommend({"qps": 9.0})
        assert best != DEFAULT
        asked = study.ask({"qps": 9.0})  # recommend is never called here
        assert not is_fallback(asked.id)

        def asked_while_it_is_stopped():
            server.send(signal.SIGSTOP)
            try:
                return study.ask({"qps": 9.0}).params
            finally:
                server.send(signal.SIGCONT)

        wait_until(lambda: asked_while_it_is_stopped() == best)  # the default until it was looked up


def test_without_a_deadline_ask_waits_and_then_says_so(bad_server):
    with Client(bad_server(hang).url, timeout=0.3, ask_deadline=None) as client:
        study = client.study("checkout", default=DEFAULT)
        with pytest.raises(ServerUnavailable, match="no answer from http"):
            study.ask({"qps": 1.0})
        with pytest.raises(ServerUnavailable):
            study.recommend({"qps": 1.0})
        with pytest.raises(ServerUnavailable):
            study.ask_batch([{"qps": 1.0}])


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_retry_after_is_honoured(bad_server, http, status):
    read, reply = http
    at = []

    def busy_at_first(connection):
        while read(connection):
            at.append(time.monotonic())
            if len(at) == 1:
                reply(connection, status, b'{"error": {"code": "overloaded", "message": "full"}}', "Retry-After: 1")
            else:
                reply(connection, "200 OK", b'{"id": "s1", "status": "learned", "late": true}')

    with Client(bad_server(busy_at_first).url) as client:
        assert client.study("checkout", default=DEFAULT).tell("s1", {"p99_ms": 1.0}).late
    assert len(at) == 2
    assert at[1] - at[0] >= 1.0


def test_ask_leaves_a_server_alone_that_asked_for_it(bad_server, http):
    read, reply = http
    at = []

    def busy(connection):
        while read(connection):
            at.append(time.monotonic())
            reply(connection, "503 Busy", b'{"error": {"code": "overloaded", "message": "full"}}', "Retry-After: 1")

    with Client(bad_server(busy).url, ask_deadline=0.5) as client:
        study = client.study("checkout", default=DEFAULT)
        assert all(is_fallback(study.ask({"qps": 1.0}).id) for _ in range(50))
        assert len(at) == 1
        wait_until(lambda: study.ask({"qps": 1.0}) and len(at) > 1)
    assert at[1] - at[0] >= 1.0


class LossyProxy:
    """Forwards each request to the server, and loses the answer to the first few that it should lose."""

    def __init__(self, server, http, lose, times=2):
        self._target, self._http, self._lose = urlsplit(server.url), http, lose
        self.left, self.forwarded = times, 0

    def __call__(self, connection):
        read, _ = self._http
        while request := read(connection):
            self.forwarded += self._lose in request
            with socket.create_connection((self._target.hostname, self._target.port)) as upstream:
                upstream.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                answer = b"".join(iter(lambda upstream=upstream: upstream.recv(65_536), b""))
            if self._lose in request and self.left:
                self.left -= 1
                connection.close()
                return
            connection.sendall(answer)
            connection.close()
            return


@pytest.fixture
def lossy(server, bad_server, http):
    def make(lose, times=2):
        proxy = LossyProxy(server, http, lose, times)
        return Client(bad_server(proxy).url, ask_deadline=None, timeout=20), proxy

    return make


def test_a_tell_whose_answer_was_lost_counts_once(lossy):
    client, proxy = lossy(b"/tell ")
    with client:
        study = made(client)
        suggestion = study.ask({"qps": 1.0})
        assert study.tell(suggestion.id, {"p99_ms": 3.0}).status == "duplicate"  # the first one was learned
        assert proxy.forwarded == 3
        assert study.view()["tells"] == 1


def test_an_observation_whose_answer_was_lost_counts_once(lossy):
    client, proxy = lossy(b"/observe ")
    with client:
        study = made(client)
        study.observe({"qps": 1.0}, DEFAULT, {"p99_ms": 3.0})
        assert proxy.forwarded == 3
        assert study.view()["observations"] == 1


def test_an_ask_whose_answer_was_lost_is_asked_again(lossy):
    client, _ = lossy(b"/ask ", times=1)
    with client:
        study = made(client)
        assert study.ask({"qps": 1.0}).id == "s1"
        assert study.view()["pending"] == 2  # the first stays unanswered, until it expires


def test_a_delete_is_not_repeated_blindly(lossy):
    client, proxy = lossy(b"DELETE ")
    with client:
        study = made(client)
        with pytest.raises(ServerUnavailable):
            study.delete()
        assert proxy.forwarded == 1
        assert study.name not in [view["name"] for view in client.studies()]


def test_fallbacks_are_told_once_and_failures_of_them_are_dropped(bad_server):
    with Client(bad_server(hang).url, queue=3, ask_deadline=DEADLINE) as client:
        study = client.study("checkout", default=DEFAULT)
        first, second, *rest = (study.ask({"qps": 1.0}).id for _ in range(8))
        assert study.tell(first, {"p99_ms": 1.0}).status == "queued"
        assert study.tell(first, {"p99_ms": 1.0}).status == "duplicate"
        with pytest.raises(AlreadyAnswered):
            study.tell(first, {"p99_ms": 2.0})
        assert study.tell_failed(second, "crashed").status == "dropped"
        with pytest.raises(AlreadyAnswered):
            study.tell(second, {"p99_ms": 2.0})
        with pytest.raises(UnknownSuggestion):
            study.tell("fallback-of-somebody-else", {"p99_ms": 1.0})
        with pytest.raises(UnknownSuggestion):
            study.explain(first)
        assert [told.status for told in study.tell_batch({id: {"p99_ms": 1.0} for id in rest})] == ["queued"] * 6
        assert (client.queued, client.dropped) == (3, 4)  # the oldest made room


def test_what_ran_in_place_of_a_fallback_is_sent_when_the_server_is_back(server):
    with Client(server.url, timeout=20, ask_deadline=5.0) as client:
        study = made(client)
        default = study.view()["default"]
        server.kill()
        first, second, third = (study.ask({"qps": 1.0}).id for _ in range(3))
        assert study.tell(first, {"p99_ms": 25.0}, {"pool": 64}).status == "queued"
        assert study.tell(first, {"p99_ms": 25.0}, {"pool": 64}).status == "duplicate"
        with pytest.raises(AlreadyAnswered):
            study.tell(first, {"p99_ms": 25.0})
        with pytest.raises(InvalidValue, match="unknown names"):
            study.tell(second, {"p99_ms": 25.0}, {"threads": 1})
        batch = [{"id": second, "metrics": {"p99_ms": 26.0}, "params": {"pool": 1}}]
        batch += [{"id": third, "failed": "crash", "params": {"threads": 1}}]
        assert [told.status for told in study.tell_batch(batch)] == ["queued", "rejected"]
        assert study.tell_failed(third, "crash", {"pool": 2}).status == "dropped"
        server.start()
        assert client.flush(20)
        observed = [json.loads(line) for line in study.export()][1:-1]
        seen = [event["body"]["params"] for event in observed if event["kind"] == "observe"]
        assert seen == [{**default, "pool": 64}, {**default, "pool": 1}]


def test_a_server_that_is_no_rasp_server_is_named(bad_server, http):
    read, reply = http

    def web_page(connection):
        while read(connection):
            reply(connection, "200 OK", b"<html>")

    with Client(bad_server(web_page).url) as client, pytest.raises(RequestRefused, match="is it a RASP server"):
        client.studies()


def test_the_key_is_sent_as_a_bearer_and_not_to_where_it_is_redirected(bad_server, http):
    read, reply = http
    requests = []

    def record(connection):
        while request := read(connection):
            requests.append(request)
            reply(connection, "307 Elsewhere", b"", "Location: http://127.0.0.1:1/v1/studies")

    with Client(bad_server(record).url, "rasp_id_secret") as client, pytest.raises(RequestRefused):
        client.studies()
    assert len(requests) == 1
    assert b"Authorization: Bearer rasp_id_secret\r\n" in requests[0]


def test_bodies_are_plain_json(bad_server, http):
    read, reply = http
    bodies = []

    def record(connection):
        while request := read(connection):
            bodies.append(json.loads(request.partition(b"\r\n\r\n")[2]))
            reply(connection, "200 OK", b'{"id": "s1", "params": {"pool": 8}, "status": "learned"}')

    with Client(bad_server(record).url, ask_deadline=None) as client:
        study = client.study("checkout", default=DEFAULT)
        study.ask({"qps": 1.0})
        study.tell("s1", {"p99_ms": 3})
        study.tell("s1", {"p99_ms": 3}, {"pool": np.int64(9)})
        study.freeze()
    told = {"id": "s1", "metrics": {"p99_ms": 3.0}}
    assert bodies == [{"context": {"qps": 1.0}}, told, {**told, "params": {"pool": 9}}, {}]


def slow(seconds, bodies, http):
    """A server that takes so long for every ask; what it was asked for."""
    read, reply = http

    def behave(connection):
        while request := read(connection):
            body = json.loads(request.partition(b"\r\n\r\n")[2])
            if b"/ask " in request:
                bodies.append((body["context"], request))
                time.sleep(seconds())
                reply(connection, "200 OK", b'{"id": "s%d", "params": {"pool": %d}}' % (len(bodies), 10 + len(bodies)))
            else:
                reply(connection, "200 OK", b'{"id": "s1", "params": {"pool": 8}, "status": "learned"}')

    return behave


def test_a_slow_server_is_waited_for_and_tuning_goes_on(bad_server, http):
    took = iter([0.0, *[0.3] * 100])
    with Client(bad_server(slow(lambda: next(took), [], http)).url) as client:
        study = client.study("checkout", default=DEFAULT)
        asked = [study.ask({"qps": float(step)}) for step in range(5)]
    assert not any(is_fallback(suggestion.id) for suggestion in asked)
    assert study.asks == 5


def test_a_deadline_of_ones_own_is_kept_and_a_late_answer_serves_the_next_ask(bad_server, http):
    bodies = []
    with Client(bad_server(slow(lambda: 0.15, bodies, http)).url, ask_deadline=0.05) as client:
        study = client.study("checkout", default=DEFAULT)
        first = study.ask({"qps": 1.0})
        assert is_fallback(first.id)
        wait_until(lambda: not is_fallback(study.ask({"qps": 1.0}).id))
        assert len(bodies) == 1  # the ask that was late served
        assert study.fallbacks == study.asks - 1


def test_a_plain_loop_of_ask_and_tell_goes_on_through_an_outage(server):
    with Client(server.url, timeout=0.5, ask_deadline=5.0) as client:
        study = made(client)
        crashed, ran = study.ask({"qps": 1.0}), study.ask({"qps": 1.0})
        server.kill()
        assert study.tell(ran.id, {"p99_ms": 25.0}).status == "queued"
        assert study.tell_failed(crashed.id, "out of memory").status == "queued"
        fallback = study.ask({"qps": 1.0})
        assert study.tell(fallback.id, {"p99_ms": 26.0}).status == "queued"
        server.start()
        assert client.flush(20)
        assert study.tell(ran.id, {"p99_ms": 25.0}).status == "duplicate"
        view = study.view()
        assert (view["tells"], view["failures"], view["observations"]) == (1, 1, 1)


def test_a_client_that_never_answers_without_the_server_raises_in_tell(server):
    with Client(server.url, timeout=0.5, ask_deadline=None) as client:
        study = made(client)
        asked = study.ask({"qps": 1.0})
        server.kill()
        with pytest.raises(ServerUnavailable):
            study.tell(asked.id, {"p99_ms": 25.0})
        assert client.queued == 0
        server.start()
