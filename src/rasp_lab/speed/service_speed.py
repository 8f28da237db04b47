"""Pairs of ask and tell a second of `rasp serve` over real sockets, and its processor time.

python -m rasp_lab.speed.service_speed
python -m rasp_lab.speed.service_speed --server before=../old/src --server now=src        # two checkouts, taking turns
python -m rasp_lab.speed.service_speed --server compiled=src --server arrays=src,RASP_NATIVE=0

Every server runs all the while and has its turn in every round, so that other load slows all alike. All clients are one
process. In the first cases a client sends its next request when the last is answered: one client, many on one study,
many on studies of one shape. In the last, pairs begin at a fixed pace, whether or not those before them are answered,
and waits count from the moment when they were due. Every study is a noisy bowl: 5 floats, 3 context dimensions.
"""

import argparse
import contextlib
import json
import os
import selectors
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rasp_lab import REPOSITORY
from rasp_lab.reliability.harness import Link, ServerProcess, folder, good

KNOBS = [f"x{i}" for i in range(5)]
SPACE = {name: {"type": "float", "low": 0.0, "high": 1.0} for name in KNOBS}
CONTEXT = ["a", "b", "c"]
BATCH = 10


class Client:
    """Asks one study and tells it, over one connection."""

    def __init__(self, server: ServerProcess, study: str, seed: int) -> None:
        self.path, self.server, self.rng = f"/v1/studies/{study}", server, np.random.default_rng(seed)
        self.link = server.link()
        self.asked: dict[str, Any] | None = None  # the answer to the latest ask, until it is told
        self.sent, self.waits = 0.0, {"ask": [], "tell": []}

    def connect(self) -> None:
        """Again: a server closes connections that nobody uses."""
        self.link, self.asked = self.server.link(), None

    def send(self, due: float | None = None) -> None:
        self.sent = time.perf_counter() if due is None else due
        if self.asked is None:
            self.link.send("POST", f"{self.path}/ask", {"context": situation(self.rng)})
        else:
            told = {"id": self.asked["id"], "metrics": {"loss": loss(self.asked["params"], self.rng)}}
            self.link.send("POST", f"{self.path}/tell", told)

    def receive(self) -> None:
        status, raw = self.link.receive()
        answer = good((status, json.loads(raw)))
        self.waits["ask" if self.asked is None else "tell"].append(time.perf_counter() - self.sent)
        self.asked = answer if self.asked is None else None


def play(clients: list[Client], seconds: float) -> tuple[float, float]:
    """Seconds that it took, and asks + tells that were answered."""
    answered, began = 0, time.perf_counter()
    with selectors.DefaultSelector() as waiting:
        for client in clients:
            client.send()
            waiting.register(client.link.fileno(), selectors.EVENT_READ, client)
        while waiting.get_map():
            for key, _ in waiting.select():
                key.data.receive()
                answered += 1
                if time.perf_counter() - began < seconds:
                    key.data.send()
                else:
                    waiting.unregister(key.fileobj)
    return time.perf_counter() - began, answered


def play_paced(clients: list[Client], seconds: float, pairs_a_second: float) -> tuple[float, float]:
    """The same, of pairs that begin at a pace; one that finds no client free waits, and its wait counts."""
    answered, idle, begun, began = 0, clients[::-1], 0, time.perf_counter()
    with selectors.DefaultSelector() as waiting:
        while True:
            now = time.perf_counter() - began
            while idle and (due := begun / pairs_a_second) <= min(now, seconds):
                client = idle.pop()
                client.send(began + due)
                waiting.register(client.link.fileno(), selectors.EVENT_READ, client)
                begun += 1
            if not waiting.get_map() and now > seconds:
                return time.perf_counter() - began, answered
            for key, _ in waiting.select(max(begun / pairs_a_second - now, 0.0) if idle else None):
                client = key.data
                client.receive()
                answered += 1
                if client.asked is not None:
                    client.send()
                else:
                    waiting.unregister(key.fileobj)
                    idle.append(client)


class Case:
    """So many studies of one server, each with clients of its own; what was measured."""

    def __init__(
        self, name: str, server: ServerProcess, studies: int, clients: int, steps: int, pace: float | None = None
    ) -> None:
        self.name, self.server, self.studies, self.pace = name, server, studies, pace
        names = [f"s{studies}-{clients}{'p' if pace else ''}-{i}" for i in range(studies)]
        link = server.link()
        for study in names:
            create(link, study)
            grow(link, study, steps)
        self.clients = [Client(server, names[i % studies], i) for i in range(clients)]
        self.rates: list[float] = []
        self.cpu_ms: list[float] = []

    def turn(self, seconds: float) -> None:
        for client in self.clients:
            client.connect()
        used = self.server.cpu_s()
        took, answered = (
            play(self.clients, seconds) if self.pace is None else play_paced(self.clients, seconds, self.pace)
        )
        self.rates.append(answered / took)
        self.cpu_ms.append(1e3 * (self.server.cpu_s() - used) / answered)

    def row(self) -> dict[str, Any]:
        waits = {kind: [1e3 * s for client in self.clients for s in client.waits[kind]] for kind in ("ask", "tell")}
        return {
            "server": self.name,
            "studies": self.studies,
            "clients": len(self.clients),
            "pace": self.pace,
            "pairs_a_second": float(np.median(self.rates)) / 2.0,
            "cpu_ms": float(np.median(self.cpu_ms)),
            **{f"{kind}_p50_ms": float(np.median(ms)) for kind, ms in waits.items()},
            **{f"{kind}_p99_ms": float(np.percentile(ms, 99)) for kind, ms in waits.items()},
        }


def create(link: Link, study: str) -> None:
    wire = {"name": study, "space": SPACE, "metrics": {"loss": {"direction": "min"}}, "context": CONTEXT}
    good(link.post("/v1/studies", {**wire, "default": dict.fromkeys(KNOBS, 0.5), "lease_s": 864_000.0}))


def grow(link: Link, study: str, steps: int) -> None:
    """Take a study through its first steps, in batches: young tuners do more, such as choosing a scale."""
    rng = np.random.default_rng(0)
    for _ in range(0, steps, BATCH):
        asked = good(link.post(f"/v1/studies/{study}/ask/batch", {"contexts": [situation(rng) for _ in range(BATCH)]}))
        tells = [{"id": s["id"], "metrics": {"loss": loss(s["params"], rng)}} for s in asked["suggestions"]]
        good(link.post(f"/v1/studies/{study}/tell/batch", {"tells": tells}))


def situation(rng: np.random.Generator) -> dict[str, float]:
    return dict(zip(CONTEXT, rng.normal(size=len(CONTEXT)).tolist(), strict=True))


def loss(params: dict[str, float], rng: np.random.Generator) -> float:
    return 1.0 + sum((value - 0.3) ** 2 for value in params.values()) + 0.05 * float(rng.normal())


def environment(words: str) -> dict[str, str]:
    """Of a server given as PATH,NAME=VALUE,..."""
    path, *settings = words.split(",")
    return {"PYTHONPATH": str(Path(path).resolve()), **dict(setting.split("=", 1) for setting in settings)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = REPOSITORY / "src"
    words = "what to run: a folder to import from, and environment variables; this checkout if none is given"
    parser.add_argument("--server", action="append", metavar="NAME=PATH[,VARIABLE=VALUE...]", help=words)
    parser.add_argument("--studies", type=int, default=32, help="of the case of many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of every turn")
    parser.add_argument("--pace", type=float, default=300.0, help="pairs a second of the last case")
    parser.add_argument("--steps", type=int, default=150, help="of every study before anything is measured")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    given = parser.parse_args()
    wanted = dict(words.split("=", 1) for words in given.server or [f"now={source}"])
    with contextlib.ExitStack() as stack:
        cases = []
        for name, words in wanted.items():
            server = ServerProcess(stack.enter_context(folder()) / "data", environment=environment(words))
            stack.callback(server.kill)
            server.start()
            for studies, clients in ((1, 1), (1, given.studies), (given.studies, given.studies)):
                cases.append(Case(name, server, studies, clients, given.steps))
            cases.append(Case(name, server, 1, given.studies, given.steps, given.pace))
        cases.sort(key=lambda case: (case.pace is not None, case.studies, len(case.clients)))
        for i in range(given.rounds):
            for case in cases if i % 2 else cases[::-1]:
                case.turn(given.seconds)
            print(f"  round {i + 1} of {given.rounds}", file=sys.stderr, flush=True)
        table = [case.row() for case in cases]
    if given.json:
        print(json.dumps(table))
        return
    print(f"{os.cpu_count()} cores; medians of {given.rounds} turns of {given.seconds:g} s")
    print("server      studies clients    pace   pairs/s  server ms each   ask p50   p99 ms  tell p50   p99 ms")
    for row in table:
        pace = "-" if row["pace"] is None else f"{row['pace']:g}"
        print(
            f"{row['server']:<12}{row['studies']:>7}{row['clients']:>8}{pace:>8}{row['pairs_a_second']:>10.0f}"
            f"{row['cpu_ms']:>16.3f}{row['ask_p50_ms']:>10.2f}{row['ask_p99_ms']:>9.2f}{row['tell_p50_ms']:>10.2f}"
            f"{row['tell_p99_ms']:>9.2f}"
        )


if __name__ == "__main__":
    main()
