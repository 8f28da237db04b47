"""What tests of the service share: starting it, and talking to it."""

import contextlib
import http.client
import random
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from rasp_lab.reliability.harness import fork_rasp
from rasp_tuner.service.http.application import create_app
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.server import HttpServer, uvicorn_config
from rasp_tuner.service.storage.store import SERVER_LEASE_S, Store
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition

STUDY = {
    "name": "web",
    "space": {
        "pool": {"type": "int", "low": 1, "high": 64, "log": True},
        "t": {"type": "float", "low": 0.1, "high": 10},
    },
    "metrics": {"p99_ms": {"direction": "min"}},
    "context": ["qps"],
    "default": {"pool": 8, "t": 1.0},
}


NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def plain_client(url, **settings):
    """A client of a server without TLS. One that may meet TLS reads all certificates first, 50 ms a client."""
    return httpx.Client(base_url=url, verify=NO_CERTIFICATES, trust_env=False, **{"timeout": 30, **settings})


class NoLog:
    """A log in which nothing is found."""

    def events_of_ask(self, _, __):
        return []

    def observation_by_key(self, _, __):
        return None


SPACES = {
    "mixed": STUDY["space"],
    "smooth": {f"k{i}": {"type": "float", "low": 0, "high": 1} for i in range(4)},
    "choices": {
        "codec": {"type": "categorical", "choices": ["a", "b", None]},
        "on": {"type": "int", "low": 0, "high": 1},
    },
}


def definition(space="mixed", **changes):
    wire = {**STUDY, "space": SPACES[space], **changes}
    del wire["default"]
    return StudyDefinition.from_wire(wire)


def play(live, count, seed=0):
    """Random orders: asks, some for flags, tells late and out of order, of what was suggested or of something else,
    failures, observations, freezing. The events they made."""
    rng, out, made = random.Random(seed), [], []
    for i in range(count):
        at, context = float(live.seq), {"qps": rng.choice([1.0, 9.0]) + rng.gauss(0.0, 0.1)}
        metrics = {"p99_ms": rng.gauss(20.0, 3.0)}
        roll = rng.random()
        if roll < 0.5 or not out:
            event = live.ask(context, at, {"target": f"host-{i % 5}"} if i % 3 == 0 else None)
            out.append(event.ask)
        elif roll < 0.9:
            event = live.tell(f"s{out.pop(rng.randrange(len(out)))}", at, NoLog(), metrics, params=clipped(live, i))
        elif roll < 0.94:
            event = live.tell(f"s{out.pop()}", at, NoLog(), None, "crash", clipped(live, i))
        elif roll < 0.97:
            event = live.observe(context, live.definition.default, metrics, f"key {i}", at, NoLog())
        else:
            event = live.freeze(not live.tuner.frozen, at)
        made.append(event)
    return made


def clipped(live, i):
    """What ran at every third step: the default's value of the first knob."""
    return dict([next(iter(live.definition.default.items()))]) if i % 3 == 0 else None


def whole(live):
    """Everything a study is, as bytes."""
    return live.tuner.to_bytes(), live.view(1e9), live.history.to_json(), study_snapshot.capture(live)()


@contextlib.contextmanager
def running(url, *, limits=None, several=False, port=0, **settings):
    """A client of an application on this database, over a real socket; it can be started again afterwards.

    several   it is one of several servers, which must know its address
    """
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    known = {"advertise": address} if several else {}
    lease_s = settings.get("lease_s", SERVER_LEASE_S)
    app = create_app(Store(url, lease_s=lease_s), limits=limits or Limits(), **known, **settings)
    config = uvicorn_config(app, log_level="critical", timeout_graceful_shutdown=2)
    keeper = app.service.keeper
    server = HttpServer(config, app.service.broadcaster, leave=keeper and keeper.leave)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), "the application")
        with plain_client(address, timeout=60) as client:
            client.service = app.service
            yield client
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def ask(client, qps=1.0, study="web"):
    answer = client.post(f"/v1/studies/{study}/ask", json={"context": {"qps": qps}})
    assert answer.status_code == 200, answer.text
    return answer.json()


def tell(client, id, value=1.0, study="web"):
    return client.post(f"/v1/studies/{study}/tell", json={"id": id, "metrics": {"p99_ms": value}})


def steps(client, count, start=0, study="web"):
    """Ask and tell; the parameters that came."""
    seen = []
    for i in range(start, start + count):
        qps = 9.0 if i % 20 >= 10 else 1.0
        s = ask(client, qps + 0.01 * (i % 7), study)
        seen.append(s["params"])
        value = 20.0 + abs(s["params"]["pool"] - (40 if qps > 5 else 4)) + s["params"]["t"]
        assert tell(client, s["id"], value, study).json()["status"] == "learned"
    return seen


def view(client, study="web"):
    return client.get(f"/v1/studies/{study}").json()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(true, what, seconds=60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return
        time.sleep(0.05)
    raise TimeoutError(f"{what} did not come up")


def is_ready(port):
    """Whether a server says so; httpx would read all certificates at every look."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("GET", "/readyz")
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()


class Process:
    """`rasp serve` as its own process, which may be killed and started again.

    It is forked from one that has imported everything, which takes a tenth of the time, unless `forked` is false: then
    it is started as people do, in the environment of the test.
    """

    def __init__(self, data, *words, forked=True):
        self.data, self.words, self.forked, self.port = data, words, forked, 0  # the system chooses a port
        self._errors = Path(f"{data}.stderr")  # beside its folder: a pipe that nobody reads would stop it
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        words = ["serve", "--data", str(self.data), "--port", str(self.port), *self.words]
        with self._errors.open("wb") as errors:
            if not self.forked:
                self.process = subprocess.Popen([sys.executable, "-m", "rasp_tuner", *words], stderr=errors)
        if self.forked:
            self.process = fork_rasp(words, self._errors)
        try:
            wait_for(self.answers, "rasp serve")
        except TimeoutError:
            self.kill()
            raise

    def said(self):
        """What it has written to stderr since its start."""
        return self._errors.read_text()

    def answers(self):
        if self.process.poll() is not None:
            raise ChildProcessError(self.said())
        if not self.port:
            found = re.search(r"http://[^ ]+:(\d+)", self.said())
            if found is None:
                return False
            self.port = int(found[1])
        return is_ready(self.port)

    def kill(self):
        self.process.kill()
        self._reap()

    def stop(self):
        """What it wrote to stderr, and its exit status."""
        self.process.terminate()
        return self._reap()

    def close(self):
        """End it, if it runs."""
        if self.process.poll() is None:
            self.kill()

    def _reap(self):
        status = self.process.wait(timeout=60)
        return self.said(), status
