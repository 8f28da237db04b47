"""Redis Streams between edges and a server: a real redis-server, real processes, and kills in between."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import redis
from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.client import Client, Edge
from rasp_tuner.client import redis_streams as streams
from rasp_tuner.client.errors import ServerUnavailable, UnknownStudy
from rasp_tuner.client.redis_streams import RedisEdge, RedisTells
from rasp_tuner.client.stream import Bridge
from rasp_tuner.errors import InvalidValue

KNOBS = {"pool": {"type": "int", "low": 1, "high": 64, "log": True}}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Redis:
    """A redis-server of its own, which writes everything to disk before it answers."""

    def __init__(self, folder):
        self.port, self.folder = free_port(), folder
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        words += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url) as connection:
            wait_for(lambda: answers(connection), "Redis")

    def kill(self):
        self.process.kill()
        self.process.wait()


def answers(connection):
    try:
        return connection.ping()
    except redis.RedisError:
        return False


def wait_for(ready, what, seconds=60.0):
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"{what} is not there after {seconds:g} s"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def one_redis(tmp_path_factory):
    assert shutil.which("redis-server"), "these tests need redis-server (Debian: apt-get install redis-server)"
    running = Redis(tmp_path_factory.mktemp("redis"))
    yield running
    running.kill()


@pytest.fixture
def log(one_redis):
    """A connection to an empty Redis."""
    with redis.Redis.from_url(one_redis.url) as connection:
        connection.flushall()
        connection.url = one_redis.url
        yield connection


@pytest.fixture(autouse=True)
def nothing_stays_open(monkeypatch):
    """What a test leaves open would be closed, with a warning, in the middle of another one."""
    opened, connect = [], streams._connection

    def connection(url):
        opened.append(connect(url))
        return opened[-1]

    monkeypatch.setattr(streams, "_connection", connection)
    yield
    for one in opened:
        one.close()


@pytest.fixture
def study(server):
    with Client(server.url, timeout=20) as client:
        made = client.create("web", KNOBS, {"p99": "min"}, ["qps"], {"pool": 16})
        yield made
        made.delete()


def sums(count=10, pool=8, value=20.0):
    parts = {"sum": value * count, "squares": value * value * count}
    return [{"params": {"pool": pool}, "contexts": [[100.0]], "count": count, "metrics": {"p99": parts}}]


def rasp(*words):
    return CliRunner().invoke(app, ["stream", *words])


def started(server, log, *words):
    """`rasp stream` in a process of its own."""
    words = ["-m", "rasp_tuner", "stream", "web", "--redis", log.url, "--url", server.url, *words]
    return subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill(bridge):
    bridge.kill()
    bridge.communicate()


def learned(study):
    return study.view()["learned"]


def test_an_edge_learns_through_redis_without_a_server_of_its_own(study, log):
    bridge = Bridge(study, RedisTells(log.url, "web"), every_s=0.001)
    bridge.step()
    rng, means = np.random.default_rng(0), []
    with Edge(RedisEdge(log.url, "web"), every_s=3600.0) as edge:
        for _ in range(8):
            costs = []
            for user in rng.integers(10**9, size=500):
                qps = float(rng.choice([100.0, 900.0]) + rng.random())
                pick = edge.pick([qps], int(user))
                costs.append(20.0 + 10.0 * np.log(pick.params["pool"] / (40.0 if qps > 500.0 else 4.0)) ** 2)
                edge.tell(pick, [qps], {"p99": costs[-1] + rng.normal()})
            means.append(np.mean(costs))
            assert edge.flush()
            time.sleep(1.0)  # the server makes a policy once a second
            bridge.step()
            edge._refresh()
    assert means[0] == pytest.approx(33.8, abs=1.0)
    assert means[-1] < 23.0
    assert (learned(study), bridge.learned, bridge.refused) == (4000, 4000, 0)
    assert log.xlen("rasp:web:tells") == 0  # what is learned does not stay
    assert log.xlen("rasp:web:policies") == 1


def test_a_message_counts_once_however_often_it_comes(study, log):
    edge, bridge = RedisEdge(log.url, "web"), Bridge(study, RedisTells(log.url, "web"))
    for _ in range(3):
        edge.tell_sums("edge-1", 7, sums())
    assert bridge.step() == 3
    assert (learned(study), bridge.learned, bridge.duplicates) == (10, 10, 2)


def test_what_a_killed_reader_received_the_next_one_learns(study, log):
    """The reader dies after it received messages, before it told them."""
    for sequence in range(5):
        RedisEdge(log.url, "web").tell_sums("edge-1", sequence, sums())
    assert len(RedisTells(log.url, "web").receive(3, 0.0)) == 3  # and nothing more is heard of it
    bridge = Bridge(study, RedisTells(log.url, "web"))
    while bridge.step():
        pass
    assert (learned(study), bridge.learned) == (50, 50)


def test_what_another_reader_forgot_is_taken_after_a_minute(study, log, monkeypatch):
    RedisEdge(log.url, "web").tell_sums("edge-1", 0, sums())
    assert len(RedisTells(log.url, "web", reader="dead").receive(3, 0.0)) == 1
    bridge = Bridge(study, RedisTells(log.url, "web", reader="alive"))
    assert bridge.step() == 0  # it may still be at it
    monkeypatch.setattr(streams, "FORGOTTEN_S", 0.0)
    assert bridge.step() == 1
    assert learned(study) == 10


def test_kill_9_between_receipt_and_acknowledgement_loses_and_doubles_nothing(server, study, log):
    """The server is held while it has the request: the reader dies without an answer, and then the tell is learned."""
    bridge = started(server, log)
    wait_for(lambda: log.xlen("rasp:web:policies") == 1, "a policy")
    server.send(signal.SIGSTOP)
    try:
        RedisEdge(log.url, "web").tell_sums("edge-1", 0, sums())
        wait_for(lambda: log.xpending("rasp:web:tells", "rasp")["pending"] == 1, "a message that was received")
        time.sleep(0.2)  # for the request to leave
        kill(bridge)
    finally:
        server.send(signal.SIGCONT)
    wait_for(lambda: learned(study) == 10, "the tell")  # by the request of the dead reader
    assert log.xpending("rasp:web:tells", "rasp")["pending"] == 1
    again = rasp("web", "--redis", log.url, "--url", server.url, "--once")
    assert again.exit_code == 0, again.stderr
    assert "0 outcomes learned, 1 policies written; 1 messages came twice, 0 are put aside" in again.stdout
    assert learned(study) == 10
    assert log.xpending("rasp:web:tells", "rasp")["pending"] == 0


@pytest.mark.nightly
def test_kills_at_any_moment_lose_and_double_nothing(server, study, log, one_redis):
    """Readers are killed five times, Redis and the server once, while two edges send."""
    sent, ending = [0, 0], threading.Event()

    def send(place):
        edge = RedisEdge(log.url, "web")
        while not ending.is_set():
            try:
                edge.tell_sums(f"edge-{place}", sent[place], sums(pool=1 + sent[place] % 64))
                sent[place] += 1
            except ServerUnavailable:
                continue  # it may be there: the same again, under the same number
            time.sleep(0.02)

    threads = [threading.Thread(target=send, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(1)
    try:
        for i in range(5):
            bridge = started(server, log, "--every", "0.2")
            assert bridge.stderr.readline().startswith("Learning")
            time.sleep(rng.random())
            if i == 1:
                one_redis.kill()
                one_redis.start()
            if i == 3:
                server.kill()
                server.start()
            kill(bridge)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    # what was on its way when Redis was killed is sent again, and counts once
    done = rasp("web", "--redis", log.url, "--url", server.url, "--once")
    assert done.exit_code == 0, done.stderr
    assert learned(study) == 10 * sum(sent)
    assert "0 are put aside" in done.stdout
    assert log.xlen("rasp:web:tells") == 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"other": "1"}, "no field named tell"),
        ({"tell": b"\xff\x00"}, "no JSON"),
        ({"tell": "[1, 2"}, "no JSON"),
        ({"tell": "[" * 100_000}, "no JSON"),
        ({"tell": "[]"}, "source, sequence and sums"),
        ({"tell": '{"source": "a", "sequence": 0, "sums": 3}'}, "must be a list"),
        ({"tell": '{"source": "a b", "sequence": 0, "sums": []}'}, "source"),
        ({"tell": json.dumps({"source": "\ud800", "sequence": 0, "sums": sums()})}, "no JSON that can be sent"),
        ({"tell": json.dumps({"source": "a", "sequence": 0, "sums": sums(value=float("nan"))})}, "can be sent"),
        ({"tell": json.dumps({"source": "a", "sequence": 0, "sums": sums(pool=1000)})}, "pool"),
        ({"tell": json.dumps({"source": "a", "sequence": 0, "sums": sums() * 1001})}, "at most"),
    ],
)
def test_a_damaged_message_is_put_aside_and_the_others_go_on(study, log, fields, reason, caplog):
    RedisEdge(log.url, "web").tell_sums("edge-1", 0, sums())
    damaged = log.xadd("rasp:web:tells", fields)
    RedisEdge(log.url, "web").tell_sums("edge-1", 1, sums())
    bridge = Bridge(study, RedisTells(log.url, "web"))
    bridge.step()
    assert (learned(study), bridge.refused) == (20, 1)
    ((_, kept),) = log.xrange("rasp:web:refused")
    assert kept[b"id"] == damaged
    assert reason in kept[b"reason"].decode()
    body = fields.get("tell", b"")
    assert kept[b"tell"] == (body.encode() if isinstance(body, str) else body)
    assert f"message {damaged.decode()} is put aside" in caplog.text
    assert log.xlen("rasp:web:tells") == 0


def test_a_number_that_was_used_for_something_else_is_put_aside(study, log):
    edge, bridge = RedisEdge(log.url, "web"), Bridge(study, RedisTells(log.url, "web"))
    edge.tell_sums("edge-1", 0, sums(10))
    edge.tell_sums("edge-1", 0, sums(20))
    bridge.step()
    assert (learned(study), bridge.refused) == (10, 1)


def test_no_study_stops_the_bridge_and_leaves_the_messages(server, log):
    RedisEdge(log.url, "nobody").tell_sums("edge-1", 0, sums())
    with Client(server.url, timeout=20) as client, pytest.raises(UnknownStudy):
        Bridge(client.study("nobody", default={}), RedisTells(log.url, "nobody")).run(lambda: False)
    assert log.xlen("rasp:nobody:tells") == 1
    said = rasp("nobody", "--redis", log.url, "--url", server.url)
    assert said.exit_code == 1
    assert re.search(r"^rasp: .*nobody.*rasp study list", said.stderr, re.MULTILINE)


def test_no_redis_is_said_in_one_line_without_the_password(server):
    port = free_port()
    said = rasp("web", "--redis", f"redis://me:secret@127.0.0.1:{port}", "--url", server.url)
    assert said.exit_code == 1
    (line,) = said.stderr.splitlines()
    assert line.startswith(f"rasp: no Redis answers at redis://127.0.0.1:{port}: ")
    assert "secret" not in line
    said = rasp("web", "--redis", "http://127.0.0.1", "--url", server.url)
    assert said.exit_code == 1
    assert "is no address of Redis, as redis://127.0.0.1:6379" in said.stderr


def test_a_key_that_is_no_stream_is_said_in_one_line(server, log):
    log.set("rasp:web:tells", "1")
    said = rasp("web", "--redis", log.url, "--url", server.url)
    assert said.exit_code == 1
    (line,) = said.stderr.splitlines()
    assert line == f"rasp: rasp:web:tells in Redis at {log.url} is not a stream: choose another --prefix"
    log.delete("rasp:web:tells")
    log.set("rasp:web:policies", "1")
    with pytest.raises(InvalidValue, match="not a stream"):
        RedisEdge(log.url, "web").policy()


def test_an_edge_says_what_is_missing(log, monkeypatch):
    with pytest.raises(ServerUnavailable, match=r"no policy in rasp:web:policies yet: start `rasp stream`"):
        Edge(RedisEdge(log.url, "web"))
    log.xadd("rasp:web:policies", {"version": "v", "policy": "{"})
    with pytest.raises(InvalidValue, match="is no policy"):
        RedisEdge(log.url, "web").policy()
    with pytest.raises(ServerUnavailable, match="no Redis answers"):
        RedisEdge(f"redis://127.0.0.1:{free_port()}", "web").tell_sums("edge-1", 0, sums())
    monkeypatch.setattr(streams, "MOST_WAITING", 2)
    for sequence in range(2):
        RedisEdge(log.url, "web").tell_sums("edge-1", sequence, sums())
    with pytest.raises(ServerUnavailable, match="is full"):  # so that the edge keeps them
        RedisEdge(log.url, "web").tell_sums("edge-1", 2, sums())


def test_a_redis_that_lost_its_data_is_gone_on_with(study, log, caplog):
    bridge = Bridge(study, RedisTells(log.url, "web"), every_s=0.05)
    ending = threading.Event()
    thread = threading.Thread(target=bridge.run, args=(ending.is_set,))
    thread.start()
    try:
        wait_for(lambda: log.xlen("rasp:web:policies"), "a policy")
        log.flushall()
        RedisEdge(log.url, "web").tell_sums("edge-1", 0, sums())
        wait_for(lambda: learned(study) == 10, "the tell")
    finally:
        ending.set()
        thread.join()
    assert "rasp:web:tells was lost, and is begun anew" in caplog.text


def test_ctrl_c_ends_the_command_with_what_it_did(server, study, log):
    bridge = started(server, log)
    RedisEdge(log.url, "web").tell_sums("edge-1", 0, sums())
    wait_for(lambda: learned(study) == 10, "the tell")
    wait_for(lambda: log.xlen("rasp:web:tells") == 0, "the acknowledgement")
    os.kill(bridge.pid, signal.SIGINT)
    out, errors = bridge.communicate(timeout=30)
    assert bridge.returncode == 0
    assert out.startswith("10 outcomes learned")
    assert errors == "Learning what comes in rasp:web:tells; Ctrl-C ends it\n"
