"""Disk full and read-only disk: is anything acknowledged that is not kept, is the error clear, does recommend go on?

full       a small file system in memory, filled up (needs root)
read-only  a small ext4 in a file, which its kernel turns read-only as after an error (needs root and loop devices)
limit      no root needed: the server may not make its files larger (RLIMIT_FSIZE)

Each: steps that work; the disk fails; every ask and tell must then be refused with 503 "storage" while recommend, view,
history and export go on; a restart on the failed disk must serve or end with one line; the disk is mended; the refused
tells, sent again, are learned; kill -9; the log has everything that was acknowledged, once.
"""

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rasp_lab.reliability.harness import (
    ExportedLog,
    Link,
    ServerProcess,
    Verdict,
    context_at,
    create,
    folder,
    good,
    main,
    metrics_of,
    parser,
)

STUDY = "/v1/studies/web"
BEFORE, DURING = 100, 25
READS = {"view": ("GET", ""), "history": ("GET", "/history?points=600"), "suggestions": ("GET", "/suggestions?limit=5")}


@dataclass
class FailingDisk:
    """A folder whose disk can be made to fail."""

    folder: Path
    fail: Callable[[ServerProcess], None]
    mend: Callable[[ServerProcess], None]
    limit: int | None = None
    survives: bool = True  # whether a restarted server finds the disk failed as well


def sh(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def full(home: Path) -> Iterator[FailingDisk]:
    place = home / "small"
    place.mkdir()
    sh("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place))
    filler = place / "filler"

    def fail(_: ServerProcess) -> None:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"\0" * 4096):
                pass

    try:
        yield FailingDisk(place / "data", fail, lambda _: filler.unlink())
    finally:
        sh("umount", "-l", str(place))


@contextlib.contextmanager
def read_only(home: Path) -> Iterator[FailingDisk]:
    place, image = home / "ext4", home / "image"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    sh("mkfs.ext4", "-q", "-O", "^has_journal", str(image))
    sh("mount", "-o", "loop,errors=remount-ro", str(image), str(place))
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
        device = next(line.split()[0] for line in lines if line.split()[1] == str(place))
        switch = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"

        def fail(_: ServerProcess) -> None:
            switch.write_text("1")

        def mend(server: ServerProcess) -> None:
            """As an operator would: stop, check the file system, mount it again."""
            server.kill()
            sh("umount", str(place))
            subprocess.run(["e2fsck", "-fy", str(image)], check=False, capture_output=True)  # noqa: S607
            sh("mount", "-o", "loop,errors=remount-ro", str(image), str(place))

        yield FailingDisk(place / "data", fail, mend)
    finally:
        sh("umount", "-l", str(place))


@contextlib.contextmanager
def limit(home: Path) -> Iterator[FailingDisk]:
    def allow(server: ServerProcess, most: int) -> None:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    yield FailingDisk(
        home / "data",
        lambda server: allow(server, 4096),
        lambda server: allow(server, resource.RLIM_INFINITY),
        survives=False,
    )


WAYS = {"full": full, "read-only": read_only, "limit": limit}


class Client:
    """Steps, and a record of what was acknowledged."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.acked: dict[str, dict[str, float]] = {}
        self.refused: list[tuple[str, dict[str, float]]] = []
        self.answers: dict[str, int] = {}
        self.step = 0

    @property
    def link(self) -> Link:
        return self.server.link()

    def ask(self, link: Link) -> tuple[str, dict[str, float]] | None:
        self.step += 1
        status, body = link.post(f"{STUDY}/ask", {"context": context_at(self.step)})
        self._count("ask", status, body)
        return (body["id"], metrics_of(self.step, body["params"])) if status == 200 else None

    def tell(self, link: Link, id: str, metrics: dict[str, float]) -> bool:
        status, body = link.post(f"{STUDY}/tell", {"id": id, "metrics": metrics})
        self._count("tell", status, body)
        if status == 200:
            self.acked[id] = metrics
        return status == 200

    def _count(self, kind: str, status: int, body: Any) -> None:
        words = f"{kind} {status} {body.get('error', {}).get('code', '')}".strip()
        self.answers[words] = self.answers.get(words, 0) + 1


def examine(way: str, disk: FailingDisk, verdict: Verdict) -> None:
    server = ServerProcess(disk.folder, limit_file_size=disk.limit)
    server.said = disk.folder.parent.parent / f"{way}.stderr"  # not on the disk that fails
    try:
        server.start()
        client = Client(server)
        link = server.link()
        create(link)
        out = []
        for _ in range(BEFORE + DURING):
            asked = client.ask(link)
            if asked is None:
                raise RuntimeError("an ask was refused before the disk failed")
            out.append(asked)
        for id, metrics in out[:BEFORE]:
            client.tell(link, id, metrics)
        recommended = good(link.post(f"{STUDY}/recommend", {"context": context_at(0)}))
        disk.fail(server)
        tried, client.answers = 0, {}
        waiting = list(out[BEFORE:])
        while tried < 2_000 and "tell 503 storage" not in client.answers:  # pages already there may take a few more
            tried += 1
            asked = client.ask(link)
            if asked is not None:
                waiting.append(asked)
            id, metrics = waiting[-1]
            if client.tell(link, id, metrics):
                waiting.pop()
        verdict.figure(f"{way}: answers until the first refusal", str(client.answers))
        client.answers = {}
        for id, metrics in waiting[-DURING:]:
            client.ask(link)
            client.tell(link, id, metrics)
        verdict.figure(f"{way}: answers on the failed disk", str(client.answers))
        refused = set(client.answers) == {"ask 503 storage", "tell 503 storage"}
        reads = {name: link.call(method, f"{STUDY}{path}")[0] for name, (method, path) in READS.items()}
        status, again = link.post(f"{STUDY}/recommend", {"context": context_at(0)})
        reads["recommend"] = status
        same = status == 200 and set(again["params"]) == set(recommended["params"])
        health, ready = link.get("/healthz")[0], link.get("/readyz")[0]
        metrics_status = server_metrics(server)
        verdict.figure(f"{way}: reads on the failed disk", str(reads))
        verdict.figure(f"{way}: /healthz, /readyz, /metrics", f"{health}, {ready}, {metrics_status}")
        verdict.promise(f"{way}: nothing is acknowledged, the error is 503 storage", refused)
        verdict.promise(f"{way}: recommend goes on", same)
        verdict.promise(f"{way}: view, history, suggestions go on", all(s == 200 for s in reads.values()))
        verdict.promise(
            f"{way}: /healthz 200, /readyz 503, /metrics 200", (health, ready, metrics_status) == (200, 503, 200)
        )
        if disk.survives:
            restart(way, server, disk, verdict)
        disk.mend(server)
        began = time.perf_counter()
        if server.process is None or server.process.poll() is not None:
            server.start()
        else:
            server.wait_ready(30.0)
        verdict.figure(f"{way}: ready after it was mended, s", time.perf_counter() - began)
        link = server.link()
        told = [client.tell(link, id, metrics) for id, metrics in waiting]
        verdict.promise(f"{way}: refused tells, sent again, are learned", all(told) and bool(told))
        server.kill()
        server.start()
        compare(way, server, client, verdict)
        verdict.promise(f"{way}: the server's log has no trace", "Traceback" not in server.errors())
        if "Traceback" in server.errors():
            verdict.figure(f"{way}: server said", server.errors()[-1_500:])
    finally:
        server.kill()


def server_metrics(server: ServerProcess) -> int:
    link = server.link()
    link.send("GET", "/metrics")
    return link.receive()[0]


def restart(way: str, server: ServerProcess, disk: FailingDisk, verdict: Verdict) -> None:
    """kill -9 and a start on the disk that still fails: it serves what it has, or says in a line why not."""
    del disk
    server.kill()
    before = len(server.errors())
    server.launch()
    link, status, until = server.link(), 0, time.monotonic() + 20.0
    while time.monotonic() < until and server.process is not None and server.process.poll() is None and status != 200:
        with contextlib.suppress(ConnectionError):
            status = link.post(f"{STUDY}/recommend", {"context": context_at(0)})[0]
        time.sleep(0.05)
    said = server.errors()[before:].strip()
    alive = server.process is not None and server.process.poll() is None
    words = "serves" if status == 200 else f"ends: {said[-200:]}" if not alive else f"answers {status}"
    verdict.figure(f"{way}: started on the failed disk, it", words)
    one_line = not alive and 0 < len(said.splitlines()) <= 2 and "Traceback" not in said
    verdict.promise(f"{way}: started on the failed disk it serves, or ends with a line", status == 200 or one_line)


def compare(way: str, server: ServerProcess, client: Client, verdict: Verdict) -> None:
    log = ExportedLog.of(server.link(), "web")
    tells = log.tells()
    lost = sum([e["body"]["metrics"] for e in tells.get(id, ())] != [m] for id, m in client.acked.items())
    view = good(server.link().get(STUDY))
    verdict.figure(f"{way}: acknowledged, in the log, lost", f"{len(client.acked)}, {len(tells)}, {lost}")
    verdict.promise(f"{way}: nothing acknowledged was lost or applied twice", not lost)
    exact = (view["asks"], view["tells"]) == (len(log.asks()), len(tells)) and len(tells) == len(client.acked)
    verdict.promise(f"{way}: counts are those of the log and of the client", exact)


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.disk --way full --way read-only --way limit")
    args.add_argument(
        "--way", choices=list(WAYS), action="append", help="may be given again; all that can be if absent"
    )
    given = args.parse_args()
    verdict = Verdict("disk")
    ways = given.way or (list(WAYS) if os.getuid() == 0 else ["limit"])
    for way in ways:
        with folder() as home, WAYS[way](home) as disk:
            examine(way, disk, verdict)
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
