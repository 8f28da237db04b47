"""Shared by the reliability scripts: a server process, a plain HTTP connection, a study, a log, a verdict."""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STUDY: dict[str, Any] = {
    "name": "web",
    "space": {
        "pool": {"type": "int", "low": 1, "high": 64, "log": True},
        "timeout": {"type": "float", "low": 0.1, "high": 10.0},
    },
    "metrics": {"p99_ms": {"direction": "min"}},
    "context": ["qps"],
    "default": {"pool": 8, "timeout": 1.0},
    "lease_s": 864_000.0,
}
SPACES: dict[str, dict[str, Any]] = {
    "mixed": STUDY["space"],
    "float": {**STUDY["space"], "pool": {"type": "float", "low": 1.0, "high": 64.0, "log": True}},
}
BATCH = 500
TEXT_CHARS = 1_000  # of each text in a long context
MOST_TEXTS = 28  # each is 9 of the 256 dimensions that a context may have


def context_kinds(context_bytes: int) -> list[str] | dict[str, str]:
    """What a study's context is: a number, and texts if its values are to be so long."""
    texts = dict.fromkeys(_texts(context_bytes), "name")
    return {"qps": "number", **texts} if texts else ["qps"]


def context_at(step: int, context_bytes: int = 0) -> dict[str, Any]:
    """Two situations that come and go, each with a wobble; of about so many bytes, most of them texts."""
    number = {"qps": (9.0 if step % 40 >= 20 else 1.0) + 0.01 * (step % 7)}
    return number | {name: f"{name}, {step % 5}. ".ljust(TEXT_CHARS, "x") for name in _texts(context_bytes)}


def _texts(context_bytes: int) -> list[str]:
    count = round(context_bytes / TEXT_CHARS)
    if count > MOST_TEXTS:
        raise SystemExit(f"a context has at most {MOST_TEXTS * TEXT_CHARS:,} bytes here")
    return [f"text{i}" for i in range(count)]


def metrics_of(step: int, params: dict[str, Any]) -> dict[str, float]:
    """What the run of a step measures: the best pool depends on the situation."""
    best = 40 if step % 40 >= 20 else 4
    return {"p99_ms": 20.0 + abs(params["pool"] - best) + (params["timeout"] - 2.0) ** 2 + 0.1 * (step % 11)}


class Gone(ConnectionError):
    """The server closed the connection or never took it."""


class Link:
    """One HTTP/1.1 connection with little overhead, because clients and server share the machine's cores."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.port, self.timeout = port, timeout
        self._socket: socket.socket | None = None
        self._rest = b""

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of the answer; Gone if none came, in which case the request may have been done or not."""
        self.send(method, path, body)
        status, raw = self.receive()
        return status, json.loads(raw) if raw else None

    def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        return self.call("POST", path, {} if body is None else body)

    def get(self, path: str) -> tuple[int, Any]:
        return self.call("GET", path)

    def send(self, method: str, path: str, body: Any = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if method == "POST" else ""
        self.send_raw(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n".encode() + data)

    def send_raw(self, data: bytes) -> None:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self.port), self.timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._rest = b""
            self._socket.sendall(data)
        except OSError as reason:
            self.close()
            raise Gone(str(reason)) from reason

    def receive(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        try:
            while b"\r\n\r\n" not in self._rest:
                self._more()
            head, _, self._rest = self._rest.partition(b"\r\n\r\n")
            status, lowered = int(head[9:12]), head.lower()
            if status == 204:
                body = b""
            elif b"transfer-encoding: chunked" in lowered:
                body = self._chunks()
            elif b"content-length:" not in lowered:
                body = self._until_closed()
            else:
                length = int(lowered.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                body = self._take(length)
            if b"connection: close" in lowered:
                self.close()
        except OSError as reason:
            self.close()
            raise Gone(str(reason)) from reason
        return status, body

    def fileno(self) -> int:
        """Of the open connection, to wait for its answer."""
        if self._socket is None:
            raise Gone("not connected")
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _chunks(self) -> bytes:
        parts = []
        while True:
            while b"\r\n" not in self._rest:
                self._more()
            size, _, self._rest = self._rest.partition(b"\r\n")
            part = self._take(int(size, 16))
            self._take(2)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _until_closed(self) -> bytes:
        try:
            while True:
                self._more()
        except Gone:
            return self._rest

    def _take(self, count: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < count:
            self._rest = b""
            self._more()
            parts.append(self._rest)
            have += len(self._rest)
        whole = b"".join(parts)
        self._rest = whole[count:]
        return whole[:count]

    def _more(self) -> None:
        if self._socket is None:
            raise Gone("not connected")
        part = self._socket.recv(1 << 18)
        if not part:
            raise Gone("the server closed the connection")
        self._rest += part


class ServerProcess:
    """`rasp serve` as a process of its own, or the same with a planted fault."""

    def __init__(
        self,
        data: Path,
        plant: str | None = None,
        limit_file_size: int | None = None,
        environment: Mapping[str, str] | None = None,
        words: Sequence[str] = (),
    ) -> None:
        """`words`: more options of `rasp serve`."""
        self.data, self.plant, self.limit, self.words = data, plant, limit_file_size, words
        self.environment = {**os.environ, **(environment or {})}
        self.port = free_port()
        self.said = data.parent / f"{data.name}.stderr"
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ChildProcessError("the server was never started")
        return self.process.pid

    @property
    def serve_words(self) -> list[str]:
        """Of the command line, after the program."""
        return ["serve", "--data", str(self.data), "--port", str(self.port), *self.words]

    def launch(self) -> None:
        runner = ["-m", "rasp_tuner"] if self.plant is None else ["-m", "rasp_lab.reliability.faults", self.plant]
        command = [sys.executable, *runner, *self.serve_words]

        def limited() -> None:
            if self.limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))

        with self.said.open("ab") as said:
            self.process = subprocess.Popen(command, stderr=said, stdout=said, preexec_fn=limited, env=self.environment)

    def start(self, seconds: float = 120.0) -> float:
        """Seconds from its start until it answers tells."""
        started = time.perf_counter()
        self.launch()
        self.wait_ready(seconds)
        return time.perf_counter() - started

    def wait_ready(self, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.process is None or self.process.poll() is not None:
                raise ChildProcessError(f"the server ended: {self.errors()[-2000:]}")
            if self.is_ready():
                return
            time.sleep(0.01)
        raise TimeoutError(f"the server was not ready after {seconds:g} s: {self.errors()[-2000:]}")

    def is_ready(self) -> bool:
        link = self.link(5.0)
        try:
            return link.get("/readyz")[0] == 200
        except Gone:
            return False
        finally:
            link.close()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        return self._end(signal.SIGTERM)

    def pause(self, stopped: bool) -> None:
        """Stop it where it is, or let it go on."""
        os.kill(self.pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        return self.process.wait(60)

    def link(self, timeout: float = 60.0) -> Link:
        return Link(self.port, timeout)

    def errors(self) -> str:
        """What it wrote to stderr, over all its lives, less the greeting."""
        if not self.said.exists():
            return ""
        lines = self.said.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("Serving "))

    def cpu_s(self) -> float:
        """Processor time it has used so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024.0


class ForkedServerProcess(ServerProcess):
    """The same, forked from a process that has imported everything: it starts in a tenth of the time."""

    def launch(self) -> None:
        self.process = fork_rasp(self.serve_words, self.said, self.plant)


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("rasp_tuner.cli", "rasp_tuner.service.server", "sqlalchemy.dialects.postgresql.psycopg", "psycopg"),
        *("uvloop", "uvicorn.lifespan.on", "pydantic.type_adapter", "rich.status"),  # what they load when they run
        "rasp_lab.reliability.harness",
    ]
)


class ForkedProcess:
    """What is used of subprocess.Popen."""

    def __init__(self, made: Any) -> None:
        self._made, self.pid = made, int(made.pid)

    def poll(self) -> int | None:
        code: int | None = self._made.exitcode
        return code

    def send_signal(self, how: int) -> None:
        os.kill(self.pid, how)

    def kill(self) -> None:
        self._made.kill()

    def terminate(self) -> None:
        self._made.terminate()

    def wait(self, timeout: float | None = None) -> int:
        self._made.join(timeout)
        return int(self._made.exitcode)


def fork_rasp(words: Sequence[str], said: Path, plant: str | None = None) -> ForkedProcess:
    """The command with these words; what it prints goes to the end of `said`. Its environment is that of the first."""
    made = FORKS.Process(target=_rasp_in_fork, args=(words, plant, said), daemon=True)
    made.start()
    return ForkedProcess(made)


def _rasp_in_fork(words: Sequence[str], plant: str | None, said: Path) -> None:
    """What the fork does: become `rasp`."""
    from rasp_tuner.__main__ import main as rasp

    with said.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if plant is not None:
        from rasp_lab.reliability import faults

        faults.PLANTS[plant]()
    sys.argv = ["rasp", *words]
    rasp()


@contextlib.contextmanager
def serving(
    plant: str | None = None, *, data: Path | None = None, limit_file_size: int | None = None
) -> Iterator[ServerProcess]:
    """A started server on an empty folder; server and folder are gone afterwards."""
    with folder() as home:
        server = ServerProcess(data or home / "data", plant, limit_file_size)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="rasp-reliability-"))
    try:
        yield home
    finally:
        shutil.rmtree(home)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def good(answer: tuple[int, Any], *statuses: int) -> Any:
    """The answer's JSON, if the status is one of these (200 or 201 if none is named)."""
    status, body = answer
    if status not in (statuses or (200, 201)):
        raise RuntimeError(f"the server answered {status}: {str(body)[:300]}")
    return body


def create(link: Link, name: str = "web", **changes: Any) -> None:
    good(link.post("/v1/studies", {**STUDY, "name": name, **changes}))


def grow(link: Link, name: str, steps: int, *, first: int = 0, said: "Progress | None" = None) -> None:
    """Take a study through steps, in batches."""
    for start in range(first, first + steps, BATCH):
        numbers = range(start, min(start + BATCH, first + steps))
        asked = good(link.post(f"/v1/studies/{name}/ask/batch", {"contexts": [context_at(i) for i in numbers]}))
        tells = [
            {"id": s["id"], "metrics": metrics_of(i, s["params"])}
            for i, s in zip(numbers, asked["suggestions"], strict=True)
        ]
        results = good(link.post(f"/v1/studies/{name}/tell/batch", {"tells": tells}))["results"]
        if any(result["status"] != "learned" for result in results):
            raise RuntimeError(f"a batch was not learned whole: {results[:3]}")
        if said is not None:
            said.to(start + len(numbers) - first)


@dataclass
class ExportedLog:
    """An export, read: the study's events, and the checksum of all of it but the times."""

    events: list[dict[str, Any]]
    sha256: str

    @classmethod
    def of(cls, link: Link, name: str) -> "ExportedLog":
        link.send("GET", f"/v1/studies/{name}/export")
        status, raw = link.receive()
        if status != 200:
            raise RuntimeError(f"export answered {status}: {raw[:300]!r}")
        lines = raw.splitlines(keepends=True)
        end = json.loads(lines[-1])
        digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
        if end["sha256"] != digest or end["count"] != len(lines) - 2:
            raise RuntimeError("the export's own checksum or count is wrong")
        return cls([json.loads(line) for line in lines[1:-1]], digest)

    def asks(self) -> dict[str, dict[str, Any]]:
        return {f"s{e['ask']}": e for e in self.events if e["kind"] == "ask"}

    def tells(self) -> dict[str, list[dict[str, Any]]]:
        """All answers, by the id they belong to; one that has two was applied twice."""
        found: dict[str, list[dict[str, Any]]] = {}
        for event in self.events:
            if event["kind"] in ("tell", "failed"):
                found.setdefault(f"s{event['ask']}", []).append(event)
        return found


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


class Progress:
    """A line on stderr at most once in two seconds."""

    def __init__(self, what: str, of: int) -> None:
        self.what, self.of, self._last = what, of, time.monotonic()

    def to(self, done: int, extra: str = "") -> None:
        now = time.monotonic()
        if now - self._last >= 2.0 or done >= self.of:
            self._last = now
            print(f"  {self.what}: {done:,} of {self.of:,} {extra}", file=sys.stderr, flush=True)


@dataclass
class Verdict:
    """Figures in order, and the promises among them."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    promises: list[tuple[str, bool]] = field(default_factory=list)

    def figure(self, name: str, value: Any) -> None:
        self.figures[name] = round(value, 3) if isinstance(value, float) else value

    def promise(self, words: str, kept: bool) -> None:
        self.promises.append((words, bool(kept)))

    def end(self, as_json: bool) -> int:
        """Print everything; 1 if a promise was broken."""
        self.figure("machine", f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end")
        broken = [words for words, kept in self.promises if not kept]
        if as_json:
            print(json.dumps({"script": self.name, **self.figures, "promises": dict(self.promises), "broken": broken}))
        else:
            for name, value in self.figures.items():
                print(f"{name:50} {value:,}" if isinstance(value, int | float) else f"{name:50} {value}")
            for words, kept in self.promises:
                print(f"{'kept  ' if kept else 'BROKEN'}  {words}")
        return 1 if broken else 0


def add_space(args: argparse.ArgumentParser) -> None:
    words = "two knobs: a float and an integer (mixed), which the engine takes longer over, or two floats"
    args.add_argument("--space", choices=list(SPACES), default="float", help=words)


def add_context_bytes(args: argparse.ArgumentParser) -> None:
    args.add_argument("--context-bytes", type=int, default=0, help="about so long is each context; 0: one number")


def add_forked(args: argparse.ArgumentParser) -> None:
    words = "fork servers from a process that has imported all: more kills an hour, less time till ready than in truth"
    args.add_argument("--forked", action="store_true", help=words)


def parser(doc: str | None, example: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=(doc or "").strip(),
        epilog=f"Example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print JSON and nothing else on stdout")
    return made


def main(run: Callable[[], int]) -> None:
    """Run a script; a signal to end still removes servers and folders."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(run())
