"""Redis: encodings, lazy freeing and the client's pipeline, for hashes, rankings, lists and deletions."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from rasp_lab.real.system import Knobs, RunFailed, System, Tried, Work, coarse_grid, new_seed
from rasp_tuner import Bool, Int, PowerOfTwo
from rasp_tuner.contexts import Number
from rasp_tuner.space import Params

START_S = 20.0
TIMEOUT_S = 5.0
MS_A_MB = 5.0  # the price of memory
HASHES, RANKINGS, LISTS, LARGE = 24, 12, 6, 3  # keys of a piece of work
READS = 2_000  # of single fields, ranks or stretches of a list
STRETCH = 10  # items that one read of a list takes
AGE = 5  # of the newest item that a read of a list takes, in items: the mean
BATCH = 20  # fields or members of one writing command

KNOBS: Knobs = {
    "pipeline": (Int(1, 1000, log=True), 50),
    "transaction": (Bool(), True),
    "hash_max_listpack_entries": (Int(16, 2048, log=True), 128),
    "hash_max_listpack_value": (Int(16, 1024, log=True), 64),
    "zset_max_listpack_entries": (Int(16, 2048, log=True), 128),
    "list_max_listpack_kb": (PowerOfTwo(4, 64), 8),
    "list_compress_depth": (Int(0, 4), 0),
    "lazyfree_lazy_user_del": (Bool(), False),
    "hz": (Int(1, 500, log=True), 10),
}
COUNTS = ("fields", "members", "items", "large", "value_bytes")
GRID: Tried = {
    "pipeline": (50, 200),
    "hash_max_listpack_entries": (128, 512),
    "zset_max_listpack_entries": (128, 32),
    "lazyfree_lazy_user_del": (False, True),
}
Command = tuple[object, ...]  # its words
ERROR = re.compile(rb"\r\n-([A-Z]+ [^\r]*)")
T = TypeVar("T")
LAST = b"$4\r\nlast\r\n"  # the answer to the ECHO at the end of everything that is sent


class RedisServer(System):
    """Largest compact hashes and sorted sets, node size and compression of lists, `lazyfree-lazy-user-del`, `hz`; of
    the client, commands sent at once (50, as Logstash) and whether as a transaction (as redis-py). Nothing is written
    to disk in any setting. Work: hashes, rankings and lists that are written and read, large sets that are deleted. The
    context has their sizes. Cost: wall time, plus 5 ms for each MB of memory (a price that we set).
    """

    title = "Redis"
    knobs = KNOBS
    grid = coarse_grid(KNOBS, GRID)
    context = dict.fromkeys(COUNTS, Number(log=True))
    kinds = ("hashes", "rankings", "lists", "deletions")

    _server: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None

    @classmethod
    def missing(cls) -> str | None:
        return None if _program() else "redis-server (Debian's package redis-server)"

    @classmethod
    def version(cls) -> str:
        said = subprocess.run([_program(), "--version"], check=True, capture_output=True, text=True).stdout
        return f"Redis {said.partition(' v=')[2].split()[0]}"

    def __enter__(self) -> Self:
        command = [_program(), "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"]
        try:
            with (self.folder / "log").open("wb") as log:
                self._server = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
            self._socket = _connected(self.folder / "redis.sock", self._server)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._server is not None:
            self._server.terminate()
            self._server.wait(20)

    def work(self, kind: str, rng: np.random.Generator) -> Work:
        own = {
            "hashes": {"fields": _size(rng, 40, 600), "value_bytes": _size(rng, 10, 120)},
            "rankings": {"members": _size(rng, 40, 600)},
            "lists": {"items": _size(rng, 300, 2_000), "value_bytes": _size(rng, 20, 300)},
            "deletions": {"large": _size(rng, 3_000, 12_000)},
        }[kind]
        return Work(kind, {**dict.fromkeys(COUNTS, 0.0), **own}, new_seed(rng))

    def run(self, params: Params, work: Work) -> float:
        written, read = (_batches(commands, params) for commands in COMMANDS[work.kind](work))
        for name, value in _settings(params).items():
            self._send([_packed(("CONFIG", "SET", name, value))])
        before = self._info("used_memory_dataset")
        took = self._send(written)
        taken = self._info("used_memory_dataset") - before
        took += self._send(read)
        self._send([_packed(("FLUSHALL", "SYNC"))])
        while self._info("lazyfree_pending_objects"):  # what is freed in the background would slow the next run
            time.sleep(0.0005)
        return 1000.0 * took + MS_A_MB * max(0.0, taken / 2**20)

    def _send(self, batches: Sequence[bytes]) -> float:
        """Seconds until the last answer: each batch is sent when all answers to the one before are there."""
        began = time.perf_counter()
        for batch in batches:
            self._answers(batch)
        return time.perf_counter() - began

    def _answers(self, batch: bytes) -> bytes:
        """The answers as they come over the wire, not parsed."""
        if self._socket is None:
            raise RunFailed("the server was not started")
        self._socket.sendall(batch + ECHO)
        parts: list[bytes] = []
        while not (parts and _tail(parts).endswith(LAST)):
            part = self._socket.recv(1 << 16)
            if not part:
                raise RunFailed("the server closed the connection")
            parts.append(part)
        answers = b"\r\n" + b"".join(parts)
        if b"\r\n-" in answers and (error := ERROR.search(answers)):  # the pattern alone would take long
            raise RunFailed(error[1].decode())
        return answers

    def _info(self, field: str) -> int:
        said = self._answers(_packed(("INFO", "memory"))).decode()
        return int(said.partition(f"\n{field}:")[2].split()[0])


def _hashes(work: Work) -> tuple[list[Command], list[Command]]:
    """Objects of many fields: written a few fields at a time, then single fields are read."""
    rng, count = np.random.default_rng(work.seed), int(work.context["fields"])
    values = _values(rng, count, int(work.context["value_bytes"]))
    written: list[Command] = [
        ("HSET", f"hash:{key}", *(word for i in some for word in (f"field:{i}", values[i])))
        for key in range(HASHES)
        for some in _split(range(count))
    ]
    keys, fields = rng.integers(HASHES, size=READS).tolist(), rng.integers(count, size=READS).tolist()
    return written, [("HGET", f"hash:{key}", f"field:{i}") for key, i in zip(keys, fields, strict=True)]


def _rankings(work: Work) -> tuple[list[Command], list[Command]]:
    """Scores of players: written a few at a time, then single scores grow and ranks are read."""
    rng, count = np.random.default_rng(work.seed), int(work.context["members"])
    scores = rng.integers(100_000, size=(RANKINGS, count)).tolist()
    written: list[Command] = [
        ("ZADD", f"ranking:{key}", *(word for i in some for word in (scores[key][i], f"player:{i}")))
        for key in range(RANKINGS)
        for some in _split(range(count))
    ]
    keys, players = rng.integers(RANKINGS, size=READS).tolist(), rng.integers(count, size=READS).tolist()
    read: list[Command] = []
    for turn, (key, i) in enumerate(zip(keys, players, strict=True)):
        change = ("ZINCRBY", f"ranking:{key}", 10, f"player:{i}")
        read.append(change if turn % 2 else ("ZREVRANK", f"ranking:{key}", f"player:{i}"))
    return written, read


def _lists(work: Work) -> tuple[list[Command], list[Command]]:
    """Timelines: written a few items at a time, then short stretches are read: of the newest items mostly."""
    rng, count = np.random.default_rng(work.seed), int(work.context["items"])
    values = _values(rng, count, int(work.context["value_bytes"]))
    written: list[Command] = [
        ("RPUSH", f"list:{key}", *(values[i] for i in some)) for key in range(LISTS) for some in _split(range(count))
    ]
    keys, ages = rng.integers(LISTS, size=READS // 2).tolist(), rng.geometric(1.0 / AGE, READS // 2).tolist()
    return written, [("LRANGE", f"list:{key}", -age - STRETCH, -age - 1) for key, age in zip(keys, ages, strict=True)]


def _deletions(work: Work) -> tuple[list[Command], list[Command]]:
    """Large sets: written many members at a time, then deleted, each between reads of small keys."""
    rng, count = np.random.default_rng(work.seed), int(work.context["large"])
    small = rng.integers(100, size=READS // 4).tolist()
    written: list[Command] = [("SET", f"small:{key}", f"value {key}") for key in range(100)]
    written += [
        ("SADD", f"large:{key}", *(f"member:{i}" for i in some))
        for key in range(LARGE)
        for some in _split(range(count), 10 * BATCH)
    ]
    read: list[Command] = []
    for key in range(LARGE):
        read += [*(("GET", f"small:{i}") for i in small), ("DEL", f"large:{key}")]
    return written, read


COMMANDS = {"hashes": _hashes, "rankings": _rankings, "lists": _lists, "deletions": _deletions}


def _program() -> str:
    """The server's path; empty if there is none."""
    return shutil.which("redis-server") or ""


def _size(rng: np.random.Generator, low: float, high: float) -> float:
    """A whole number between the two, small ones as likely as large ones."""
    return float(round(float(np.exp(rng.uniform(np.log(low), np.log(high))))))


def _settings(params: Params) -> dict[str, object]:
    """The server's own names and values of its settings."""
    nodes = {4: -1, 8: -2, 16: -3, 32: -4, 64: -5}  # as list-max-listpack-size says it
    return {
        "hash-max-listpack-entries": params["hash_max_listpack_entries"],
        "hash-max-listpack-value": params["hash_max_listpack_value"],
        "zset-max-listpack-entries": params["zset_max_listpack_entries"],
        "list-max-listpack-size": nodes[int(str(params["list_max_listpack_kb"]))],
        "list-compress-depth": params["list_compress_depth"],
        "lazyfree-lazy-user-del": "yes" if params["lazyfree_lazy_user_del"] else "no",
        "hz": params["hz"],
    }


def _batches(commands: Sequence[Command], params: Params) -> list[bytes]:
    """What the client sends at once."""
    begin, end = (_packed(("MULTI",)), _packed(("EXEC",))) if params["transaction"] else (b"", b"")
    packed = [_packed(command) for command in commands]
    return [begin + b"".join(some) + end for some in _split(packed, int(str(params["pipeline"])))]


def _packed(command: Command) -> bytes:
    """A command as the protocol RESP has it.

    >>> _packed(("GET", "a"))
    b'*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\na\\r\\n'
    """
    words = [str(word) for word in command]  # all of one byte a letter
    return "\r\n".join([f"*{len(words)}", *(line for word in words for line in (f"${len(word)}", word)), ""]).encode()


ECHO = _packed(("ECHO", "last"))


def _tail(parts: Sequence[bytes]) -> bytes:
    """The last bytes: the last answer may come in two parts."""
    return parts[-1] if len(parts[-1]) >= len(LAST) else b"".join(parts[-len(LAST) :])


def _split(items: Sequence[T], size: int = BATCH) -> list[Sequence[T]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _values(rng: np.random.Generator, count: int, size: int) -> list[str]:
    """Texts that compress about as well as words do."""
    words = [f"{word:03x} " for word in rng.zipf(1.4, size * count // 4 + count + 8) % 4_000]
    text = "".join(words)
    starts = rng.integers(len(text) - size, size=count).tolist()
    return [text[i : i + size] for i in starts]


def _connected(file: Path, server: "subprocess.Popen[bytes]") -> socket.socket:
    """A connection to the server, once it listens."""
    until = time.monotonic() + START_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(str(file))
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.02)
