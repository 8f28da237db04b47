"""Flood: requests at a fixed rate, independent of the answers, like those of many separate clients.

Each request has a connection to itself while it waits: a free one, else a new one. What is not answered in time, or is
the oldest when there are as many connections as may be, is given up with its connection; a tell is sent again later.
One plain loop over epoll, because the cores that send are the server's too.
"""

import json
import select
import socket
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

from rasp_lab.reliability.harness import context_at, metrics_of

STUDY = "/v1/studies/web"
PATIENCE_S = 10.0  # after which a request is given up: longer than a full queue takes
LAST_S = 15.0  # for answers that are still due at the end
SERVED = "200, of which while sending"


class Caller:
    """A connection, and the request on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.told: tuple[str, Any] | None = None  # the tell it sent, None for an ask
        self.step, self.sent_at, self.got = 0, 0.0, b""


class Flood:
    def __init__(self, port: int, rate: float, seconds: float, connections: int, seed: int) -> None:
        self.port, self.rate, self.seconds, self.most = port, rate, seconds, connections
        self.epoll = select.epoll()
        self.free: list[Caller] = []
        self.waiting: dict[int, Caller] = {}  # by file number, in order of sending
        self.counts: Counter[str] = Counter()
        self.acked: dict[str, Any] = {}
        self.asks: dict[str, Any] = {}
        self.todo: list[tuple[str, Any]] = []
        self.step, self.sending = seed * 1_000_003, True

    def run(self) -> float:
        """Seconds for which requests were sent."""
        begin, due = time.perf_counter(), 0.0
        while (now := time.perf_counter() - begin) < self.seconds:
            while due < now:
                due += 1.0 / self.rate
                self.send()
            self.listen(0.001)
            self.give_up(PATIENCE_S)
        self.sending = False
        spent, until = time.perf_counter() - begin, time.perf_counter() + LAST_S
        while self.waiting and time.perf_counter() < until:
            self.listen(0.05)
        self.give_up(0.0)
        for caller in self.free:
            caller.socket.close()
        return spent

    def send(self) -> None:
        caller = self.free.pop() if self.free else self.connect()
        if caller is None:
            self.counts["not sent: no connection"] += 1
            return
        if self.todo:
            caller.told = self.todo.pop()
            path, body = "tell", {"id": caller.told[0], "metrics": caller.told[1]}
        else:
            self.step += 1
            caller.told, caller.step = None, self.step
            path, body = "ask", {"context": context_at(self.step)}
        data = json.dumps(body).encode()
        head = f"POST {STUDY}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        caller.sent_at = time.perf_counter()
        self.waiting[caller.socket.fileno()] = caller
        try:
            caller.socket.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        except OSError:
            self.lost(caller)
            return
        self.counts["sent"] += 1

    def connect(self) -> Caller | None:
        if len(self.waiting) >= self.most:
            self.lost(next(iter(self.waiting.values())), "given up")
        try:
            caller = Caller(self.port)
        except OSError:
            return None
        self.epoll.register(caller.socket.fileno(), select.EPOLLIN)
        return caller

    def listen(self, seconds: float) -> None:
        for number, _ in self.epoll.poll(seconds):
            caller = self.waiting.get(number)
            if caller is None:  # closed by the server while it was free
                self.free = [other for other in self.free if other.socket.fileno() != number]
                self.epoll.unregister(number)
                continue
            try:
                part = caller.socket.recv(65_536)
            except OSError:
                part = b""
            if not part:
                self.lost(caller)
                continue
            caller.got += part
            head, whole, body = caller.got.partition(b"\r\n\r\n")
            if whole and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
                del self.waiting[number]
                self.answered(caller, int(head[9:12]), body)

    def answered(self, caller: Caller, status: int, body: bytes) -> None:
        caller.got = b""
        self.free.append(caller)
        if status != 200:
            code = json.loads(body)["error"]["code"]
            self.counts[f"{status} {code}"] += 1
            if caller.told is not None:
                self.todo.append(caller.told)
            return
        self.counts["200"] += 1
        self.counts[SERVED] += self.sending
        if caller.told is not None:
            self.acked[caller.told[0]] = caller.told[1]
            return
        answer = json.loads(body)
        self.asks[answer["id"]] = answer["params"]
        self.todo.append((answer["id"], metrics_of(caller.step, answer["params"])))

    def lost(self, caller: Caller, why: str = "connection lost with a request on its way") -> None:
        self.counts[why] += 1
        if caller.told is not None:
            self.todo.append(caller.told)
        del self.waiting[caller.socket.fileno()]
        caller.socket.close()

    def give_up(self, patience: float) -> None:
        late = time.perf_counter() - patience
        for caller in list(self.waiting.values()):
            if caller.sent_at > late:
                return
            self.lost(caller, "given up")


def flood(port: int, rate: float, seconds: float, connections: int, seed: int, out: Connection) -> None:
    made = Flood(port, rate, seconds, connections, seed)
    spent = made.run()
    out.send((spent, dict(made.counts), made.acked, made.asks))
