"""Uvicorn and Starlette: event loop, processes, compression and chunks, for pages, files and many clients."""

import selectors
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np

from rasp_lab import HERE
from rasp_lab.real.system import Knobs, RunFailed, System, Tried, Work, coarse_grid, new_seed
from rasp_tuner import Bool, Categorical, Int
from rasp_tuner.contexts import Flag, Number
from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.space import Params

START_S = 30.0
TIMEOUT_S = 2.0
LINKS_MB_S = {"local": 1000.0, "mobile": 4.0}
FILES = {"small.html": 2, "page.html": 40, "image.bin": 200}  # KB


KNOBS: Knobs = {
    "loop": (Categorical(["uvloop", "asyncio"]), "uvloop"),
    "workers": (Int(1, 2), 1),
    "access_log": (Bool(), True),
    "gzip_level": (Int(0, 9), 9),  # 0: off
    "gzip_minimum": (Int(100, 100_000, log=True), 500),
    "chunk_kb": (Int(4, 1024, log=True), 64),
}
GRID: Tried = {"workers": (1, 2), "access_log": (True, False), "gzip_level": (9, 5, 1, 0)}
CONTEXT: Schema = {
    "requests": Number(log=True),
    "connections": Number(log=True),
    "size_kb": Number(log=True),
    "is_text": Flag(),
    "link_mb_s": Number(log=True),
}


class WebServer(System):
    """Event loop, processes, access log, level and least size of the gzip middleware (it ships with level 9), chunks of
    file responses. Work: small and larger pages and a file that does not compress, over one to sixteen connections, to
    clients on a fast or a slow link. The context says which. Cost: measured time to the last byte, plus bytes on the
    wire divided by the link's speed (computed).
    """

    title = "Uvicorn and Starlette"
    knobs = KNOBS
    grid = coarse_grid(KNOBS, GRID)
    context = CONTEXT
    kinds = tuple(f"{work}, {link}" for work in ("small", "many", "page", "image") for link in LINKS_MB_S)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._servers: dict[tuple[str, str, bool], tuple[int, subprocess.Popen[bytes]]] = {}

    @classmethod
    def missing(cls) -> str | None:
        lacking = [package for package in ("starlette", "uvicorn", "uvloop") if not find_spec(package)]
        return f"{lacking[0]} (pip install 'rasp-lab[real]')" if lacking else None

    @classmethod
    def version(cls) -> str:
        return f"Uvicorn {version('uvicorn')}, Starlette {version('starlette')}"

    def __enter__(self) -> Self:
        rng = np.random.default_rng(0)
        words = ["".join(rng.choice(list("etaoinshrdlu"), rng.integers(2, 9))) for _ in range(2_000)]
        for name, size_kb in FILES.items():
            text = " ".join(words[i] for i in rng.zipf(1.3, size_kb * 400) % len(words)).encode()[: size_kb * 1024]
            (self.folder / name).write_bytes(rng.bytes(size_kb * 1024) if name == "image.bin" else text)
        return self

    def __exit__(self, *_: Any) -> None:
        for _port, server in self._servers.values():
            server.terminate()
        for _port, server in self._servers.values():
            server.wait(20)

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        what, _, link = kind.partition(", ")
        requests, connections, file = {
            "small": (int(rng.integers(8, 20)), 1, "small.html"),
            "many": (16, 16, "small.html"),
            "page": (int(rng.integers(3, 8)), 2, "page.html"),
            "image": (int(rng.integers(2, 5)), 2, "image.bin"),
        }[what]
        context: dict[str, float | str] = {
            "requests": float(requests),
            "connections": float(connections),
            "size_kb": float(FILES[file]),
            "is_text": float(file != "image.bin"),
            "link_mb_s": LINKS_MB_S[link],
        }
        return Work(kind, context, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        port = self._port(params)
        name = next(name for name, size_kb in FILES.items() if size_kb == work.context["size_kb"])
        settings = f"{params['gzip_level']},{params['gzip_minimum']},{params['chunk_kb']}"
        kind = "page" if name.endswith(".html") else "file"
        request = f"GET /{kind}/{name} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nX-Settings: {settings}\r\n"
        count, connections = int(work.context["requests"]), int(work.context["connections"])
        shares = [count // connections + (i < count % connections) for i in range(connections)]
        began = time.perf_counter()
        received = fetch(port, request.encode(), [share for share in shares if share])
        measured = time.perf_counter() - began
        return 1000.0 * measured + received / (1000.0 * float(work.context["link_mb_s"]))

    def _port(self, params: Params) -> int:
        """Where a server with these settings listens; it is started if there is none yet."""
        key = loop, workers, access_log = str(params["loop"]), str(params["workers"]), bool(params["access_log"])
        if key not in self._servers:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            command = [
                sys.executable,
                "-m",
                "uvicorn",
                "rasp_lab.real.web_app:app",
                "--port",
                str(port),
                "--loop",
                loop,
            ]
            command += ["--app-dir", str(HERE.parent), "--workers", workers]
            command += ["--access-log" if access_log else "--no-access-log"]
            with (self.folder / f"log-{port}").open("wb") as log:
                server = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
            self._servers[key] = port, server
            _wait(port, server)
        return self._servers[key][0]


def fetch(port: int, request: bytes, shares: list[int]) -> int:
    """Bytes that came back: one connection for each share, with as many requests, one after another."""
    last = request + b"Connection: close\r\n\r\n"
    total = 0
    with selectors.DefaultSelector() as waiting:
        for share in shares:
            connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
            connection.sendall((request + b"\r\n") * (share - 1) + last)
            connection.setblocking(False)
            waiting.register(connection, selectors.EVENT_READ)
        until = time.monotonic() + TIMEOUT_S
        while waiting.get_map():
            for key, _ in waiting.select(TIMEOUT_S):
                part = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                total += len(part)
                if not part:
                    waiting.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if time.monotonic() > until:
                for key in list(waiting.get_map().values()):
                    key.fileobj.close()  # type: ignore[union-attr]
                raise RunFailed(f"no answer within {TIMEOUT_S:g} s")
    return total


def _wait(port: int, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            fetch(port, b"GET /page/small.html HTTP/1.1\r\nHost: x\r\nX-Settings: 0,500,64\r\n", [1])
            return
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.1)
