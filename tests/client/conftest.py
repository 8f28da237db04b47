"""A real server in its own process, and sockets that behave badly."""

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rasp_lab.reliability.harness import ForkedProcess, fork_rasp
from tests.service.serving import is_ready


class Server:
    """`rasp serve` on a folder and a port of its own; can be stopped, killed and started again."""

    def __init__(self, data: Path) -> None:
        self.data, self.port = data, 0  # the system chooses a port, which it keeps
        self.process: ForkedProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Server":
        errors = Path(f"{self.data}.stderr")
        errors.write_bytes(b"")
        self.process = fork_rasp(["serve", "--data", str(self.data), "--port", str(self.port)], errors)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if found := re.search(r"http://[^ ]+:(\d+)", errors.read_text()):
                self.port = int(found[1])
                if is_ready(self.port):
                    return self
            assert self.process.poll() is None, f"the server ended: {errors.read_text()}"
            time.sleep(0.05)
        raise AssertionError("the server is not ready after 120 s")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class BadServer:
    """Accepts connections and has `behave` deal with each, on a thread of its own."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self._behave, self.accepted = behave, 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(connection)
            threading.Thread(target=self._deal, args=(connection,), daemon=True).start()

    def _deal(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._behave(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed before
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the acceptor
        self._acceptor.join()
        self._socket.close()
        for connection in self._open:
            connection.close()


@pytest.fixture(scope="session")
def one_server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("served"))
    yield running
    running.kill()


@pytest.fixture
def server(one_server):
    """A running server; a test may kill it, the next one finds it started again."""
    return one_server if one_server.alive() else one_server.start()


@pytest.fixture
def bad_server():
    made: list[BadServer] = []

    def make(behave: Callable[[socket.socket], None]) -> BadServer:
        made.append(BadServer(behave))
        return made[-1]

    yield make
    for server in made:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    """One HTTP request, head and body; empty if the other side closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def reply(connection: socket.socket, status: str, body: bytes, *headers: str) -> None:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)


@pytest.fixture
def http():
    """read_request and reply, for tests that play a server."""
    return read_request, reply
