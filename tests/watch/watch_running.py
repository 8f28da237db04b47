"""What the tests of `rasp watch` share: a Prometheus that says what a test wants, and a study to go with it."""

import contextlib
import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.watch import build_study


def vector(*values, at=None, labels=None):
    """An answer as Prometheus gives it: one series for each value."""
    moment = time.time() if at is None else at
    series = [{"metric": {**(labels or {}), "i": str(i)}, "value": [moment, str(v)]} for i, v in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


class FakePrometheus:
    """A server on a socket of its own. `answers`: query -> number, document, (status, bytes) or a function of these."""

    def __init__(self):
        self.answers, self.asked, self.headers = {}, [], []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                parts = urlsplit(self.path)
                query = parse_qs(parts.query).get("query", [""])[0]
                fake.asked.append(query)
                fake.headers.append(dict(self.headers))
                status, body = fake.answer(query)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.send_response(status)
                    if 300 <= status < 400:
                        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def answer(self, query):
        found = self.answers.get(query)
        if found is None:
            found = time.time() if "timestamp(" in query else 10.0 if "count_over_time(" in query else vector()
        if callable(found):
            found = found()
        if isinstance(found, (int, float)):
            found = vector(found)
        if isinstance(found, dict):
            found = 200, json.dumps(found).encode()
        return found

    def close(self):
        if not self._thread.is_alive():
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class World:
    """A system whose loss is (x - best)^2 + 1, by the settings file that it reads."""

    def __init__(self, folder):
        self.folder, self.best, self.load = Path(folder), 7, 1.0
        self.prometheus = FakePrometheus()
        self.prometheus.answers.update({"loss": self.loss, "load": lambda: self.load})

    @property
    def x(self):
        path = self.folder / "settings.json"
        return json.loads(path.read_text())["x"] if path.exists() else 15

    def loss(self):
        return 1.0 + (self.x - self.best) ** 2

    def fields(self, **more):
        return {
            "name": "parabola",
            "mode": "live",
            "window": 0.005,
            "budget": False,
            "on_exit": "keep",
            "prometheus": {"url": self.prometheus.url, "timeout": 20},
            "knobs": {"x": "int:0..20"},
            "default": {"x": 15},
            "metrics": {"loss": {"query": "loss"}},
            "contexts": {"load": "load"},
            "sinks": {"settings": {"file": "settings.json"}},
            **more,
        }

    def study(self, **more):
        return build_study(self.fields(**more), self.folder)

    @property
    def out(self):
        return self.folder / "rasp-watch"

    def entries(self, kind="step"):
        lines = (self.out / "journal.jsonl").read_text().splitlines()
        return [entry for line in lines if (entry := json.loads(line))["kind"] == kind]

    def status(self):
        return json.loads((self.out / "status.json").read_text())


def write_study(world, **more):
    """The study of a world as a file."""
    fields = world.fields(**more)
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items() if not isinstance(value, dict)]
    for key, table in fields.items():
        if isinstance(table, dict):
            lines += [f"[{key}]", *(f"{name} = {_toml(value)}" for name, value in table.items())]
    (world.folder / "study.toml").write_text("\n".join(lines))


def _toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def rasp(*words, cwd, code=0):
    """`rasp watch` in this process, to its end; `code` None: any exit status will do."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with contextlib.chdir(cwd):
            done = CliRunner().invoke(app, ["watch", *map(str, words)])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert code in (None, done.exit_code), (done.exit_code, done.stdout, done.stderr, done.exception)
    return done


def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
