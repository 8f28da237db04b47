"""A simulated shop whose load changes over the day, tuned over HTTP while it serves.

    python examples/live_service.py                              # starts a server of its own, in a folder it removes
    python examples/live_service.py --url http://127.0.0.1:8321  # uses yours: watch its page

Prints, for each day, how much slower the shop was than with the best settings: with its first settings, and as tuned.
On day 1 its own server is down; the shop continues with the recommendations of the day before.
"""

import argparse
import math
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rasp_tuner import Categorical, Float, Int
from rasp_tuner.client import Client, ServerUnavailable, Study, is_fallback

DEFAULT = {"pool": 8, "timeout_s": 1.0, "codec": "lz4"}
HOURS = 24


class Shop:
    """Latency by load and settings. The best pool grows with the load, and under load packing harder pays."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def load(self, hour: int) -> float:
        """Requests a second, in hundreds: quiet nights, busy evenings."""
        return 1.0 + 8.0 * max(0.0, math.sin(math.pi * (hour % HOURS - 6) / 18))

    def excess(self, hour: int, params: dict) -> float:
        """How many times slower than with the best settings, less one."""
        load = self.load(hour)
        pool = math.log(params["pool"] / (3.0 + 4.0 * load)) ** 2
        timeout = 0.05 * math.log(params["timeout_s"] / 0.5) ** 2
        codec = 0.15 if (params["codec"] == "zstd") != (load > 5.0) else 0.0
        return 0.5 * pool + timeout + codec

    def serve(self, hour: int, params: dict) -> float:
        """The 99th percentile of an hour, in ms, as measured."""
        return (20.0 + 5.0 * self.load(hour)) * (1.0 + self.excess(hour, params)) * self._random.gauss(1.0, 0.02)


def open_study(client: Client) -> Study:
    """The study; made if this is the first time, and of no use yet if the server is down."""
    space = {
        "pool": Int(1, 64, log=True),
        "timeout_s": Float(0.1, 10.0, log=True),
        "codec": Categorical(["lz4", "zstd"]),
    }
    try:
        return client.create("shop", space, {"p99_ms": "min"}, ["load"], DEFAULT)
    except ServerUnavailable:
        return client.study("shop", default=DEFAULT)


def run_day(day: int, hours: int, shop: Shop, study: Study) -> tuple[float, float, int]:
    """Mean excess with the first settings and as tuned, in percent; and how many hours ran without the server."""
    before = tuned = 0.0
    alone = 0
    for step in range(hours):
        hour = day * HOURS + step * HOURS // hours
        suggestion = study.ask({"load": shop.load(hour)})
        alone += is_fallback(suggestion.id)
        study.tell(suggestion.id, {"p99_ms": shop.serve(hour, suggestion.params)})
        before += shop.excess(hour, DEFAULT)
        tuned += shop.excess(hour, suggestion.params)
    return 100 * before / hours, 100 * tuned / hours, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", help="A server that runs; one is started if absent.")
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--asks", type=int, default=72, help="Asks a day.")
    args = parser.parse_args()
    if args.url:
        with Client(args.url) as client:
            tune(client, args.days, args.asks, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        server = OwnServer(folder)
        with server.running(), Client(server.url, ask_deadline=5.0) as client:  # patient, for a busy machine
            tune(client, args.days, args.asks, server)


def tune(client: Client, days: int, asks: int, server: "OwnServer | None") -> None:
    shop, study = Shop(seed=1), open_study(client)
    print("day  first settings  tuned  without the server")
    for day in range(days):
        if server is not None and day == 1:
            server.stop()
        before, tuned, alone = run_day(day, asks, shop, study)
        print(f"{day:3}  {before:13.1f}%  {tuned:4.1f}%  {alone:3} of {asks}", flush=True)
        if server is not None and day == 1:
            server.start()
        client.flush(30)
        for hour in range(HOURS):  # known recommendations are what an outage falls back on
            study.recommend({"load": shop.load(hour)})
    view = study.view()
    print(f"{view['asks']} asks, {view['tells']} tells, {view['observations']} observed while the server was down")


class OwnServer:
    """`rasp serve` on a free port."""

    def __init__(self, folder: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self._folder, self.url = folder, f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        words = ["serve", "--data", self._folder, "--port", str(self._port)]
        self._process = subprocess.Popen([sys.executable, "-m", "rasp_tuner", *words], stderr=subprocess.DEVNULL)
        with Client(self.url, timeout=30) as client:
            client.studies()  # tried again until it answers

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()


if __name__ == "__main__":
    started = time.monotonic()
    main()
    print(f"{time.monotonic() - started:.1f} s")
