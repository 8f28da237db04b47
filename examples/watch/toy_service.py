"""A service to try `rasp watch` on: its latency depends on how many workers it has and how busy it is.

The load goes up and down. With `workers` at 40 it is fastest while it is busy, with 4 while it is quiet. It reads
`workers` from settings.json whenever that changes, or takes it by POST /settings. Needs nothing but Python.
"""

import argparse
import contextlib
import json
import math
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BUSY, QUIET = (900.0, 40.0), (100.0, 4.0)  # requests a second, and the best number of workers then
MB_EACH = 30.0  # of a worker
TICK_S = 0.02


class Service:
    """Counts the requests that it would have served."""

    def __init__(self, settings: Path, period_s: float) -> None:
        self.settings, self.period_s = settings, period_s
        self.workers, self.load = 8.0, QUIET[0]
        self.requests, self.seconds = 0.0, 0.0
        self._read = 0.0  # when the settings were last changed

    def run(self) -> None:
        """Serve for ever."""
        began = before = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            self.load, best = BUSY if (now - began) // self.period_s % 2 else QUIET
            self.read_settings()
            latency_ms = (20.0 + 10.0 * math.log(self.workers / best) ** 2) * random.lognormvariate(0.0, 0.1)
            served = self.load * (now - before)
            self.requests, self.seconds = self.requests + served, self.seconds + served * latency_ms / 1000.0
            before = now

    def read_settings(self) -> None:
        if self.settings.exists() and (changed := self.settings.stat().st_mtime) != self._read:
            self._read = changed
            self.use(json.loads(self.settings.read_text()))

    def use(self, params: dict) -> None:
        self.workers = float(params["workers"])

    def metrics(self) -> str:
        """In the text format of Prometheus."""
        return "".join(
            f"# TYPE {name} {kind}\n{name} {value}\n"
            for name, kind, value in (
                ("toy_load", "gauge", self.load),
                ("toy_workers", "gauge", self.workers),
                ("toy_memory_mb", "gauge", MB_EACH * self.workers),
                ("toy_requests_total", "counter", self.requests),
                ("toy_latency_seconds_sum", "counter", self.seconds),
                ("toy_latency_seconds_count", "counter", self.requests),
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8400)
    parser.add_argument("--settings", type=Path, default=Path("settings.json"))
    parser.add_argument("--period", type=float, default=12.0, help="seconds that it is busy, and then quiet")
    options = parser.parse_args()
    service = Service(options.settings, options.period)
    threading.Thread(target=service.run, daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(service.metrics())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.use(body["params"])
            self.answer("ok\n")

        def answer(self, text: str) -> None:
            with contextlib.suppress(ConnectionError):  # a busy Prometheus may have given up
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
