"""The client's outbox: `tell_later` while the server is killed again and again, and clients are killed, too.

What `flush` has called sent is in the log once. So is all that a client told which ended in peace. What a killed
client had told and not flushed may be lost, since its queue is in memory, but is never there twice.
"""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rasp_lab.reliability.harness import (
    STUDY,
    ExportedLog,
    ForkedServerProcess,
    Progress,
    Verdict,
    context_at,
    create,
    folder,
    main,
    parser,
)
from rasp_tuner.client import Client

FLUSH_EVERY = 8  # tells
UNIT = 1e-6  # a told value is 20 and so many of these: each is told once


def tells(port: int, number: int, path: Path, stop: Any) -> None:
    """Tell in the background until stopped; writes down what was told, and what was flushed."""
    told = number * 100_000
    with path.open("a", buffering=1) as record, Client(f"http://127.0.0.1:{port}", timeout=5.0) as client:
        study = client.study("web", default=STUDY["default"])
        while not stop.is_set():
            suggestion = study.ask(context_at(told))
            told += 1
            record.write(json.dumps(["told", told]) + "\n")
            study.tell_later(suggestion.id, {"p99_ms": 20.0 + UNIT * told})
            if told % FLUSH_EVERY == 0 and client.flush(3.0):
                record.write(json.dumps(["flushed", told]) + "\n")
            time.sleep(0.02)
        if client.flush(60.0):
            record.write(json.dumps(["flushed", told]) + "\n")
        record.write(json.dumps(["dropped", client.dropped]) + "\n")


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.outbox_kills --kills 200")
    args.add_argument("--kills", type=int, default=10, help="of the server; every second time one of a client follows")
    args.add_argument("--clients", type=int, default=3)
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    rng, verdict, context = random.Random(given.seed), Verdict("outbox_kills"), multiprocessing.get_context("fork")
    with folder() as home, contextlib.ExitStack() as ending:
        server = ForkedServerProcess(home / "data")
        ending.callback(server.kill)
        stop, paths, alive, killed = context.Event(), list[Path](), list[Any](), 0

        def begin() -> None:
            paths.append(home / f"client{len(paths)}")
            paths[-1].touch()
            alive.append(context.Process(target=tells, args=(server.port, len(paths), paths[-1], stop)))
            alive[-1].start()

        try:
            server.start()
            create(server.link(), "web")
            for _ in range(given.clients):
                begin()
            progress = Progress("kills", given.kills)
            for kill in range(given.kills):
                time.sleep(rng.uniform(0.2, 1.5))
                server.kill()
                time.sleep(rng.uniform(0.0, 1.0))
                if kill % 2:
                    victim = alive.pop(rng.randrange(len(alive)))
                    os.kill(victim.pid, signal.SIGKILL)
                    victim.join()
                    killed += 1
                    begin()
                server.start()
                progress.to(kill + 1)
            time.sleep(2.0)
        finally:
            stop.set()
            for process in alive:
                process.join(120)
            ended = [process.exitcode for process in alive]
        events = ExportedLog.of(server.link(timeout=600.0), "web").events
        told, flushed, unsent, dropped = _records(paths)
    seen = Counter(
        round((event["body"]["metrics"]["p99_ms"] - 20.0) / UNIT)
        for event in events
        if event["kind"] in ("tell", "observe")
    )
    lost = sorted(told - set(seen))
    verdict.figure("kills of the server", given.kills)
    verdict.figure("kills of a client", killed)
    verdict.figure("told", len(told))
    verdict.figure("of which called sent by flush", len(flushed))
    verdict.figure("sent as observations, after a fallback", sum(event["kind"] == "observe" for event in events))
    verdict.figure("flushed and lost", len(flushed - set(seen)))
    verdict.figure("not flushed, lost with a killed client", len(set(lost) - flushed))
    verdict.figure("learned twice", sum(count > 1 for count in seen.values()))
    verdict.figure("dropped by clients", dropped)
    verdict.promise("what was flushed is there", not flushed - set(seen))
    verdict.promise("nothing is there twice", max(seen.values(), default=0) <= 1)
    verdict.promise("nothing is there that was not told", not set(seen) - told)
    peaceful = all(code == 0 for code in ended) and not dropped and not unsent
    verdict.promise("clients that ended in peace had sent all", peaceful)
    return verdict.end(given.json)


def _records(paths: list[Path]) -> tuple[set[int], set[int], int, int]:
    """What was told, what of it was flushed, how much clients had not sent at their end, and how much they dropped.

    The record of a killed client has no end, and may break off in a line.
    """
    told, flushed, unsent, dropped = set[int](), set[int](), 0, 0
    for path in paths:
        own = set[int]()
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            kind, value = json.loads(line)
            if kind == "told":
                own.add(value)
            elif kind == "flushed":
                flushed |= {each for each in own if each <= value}
            else:
                dropped += value
                unsent += len(own - flushed)
        told |= own
    return told, flushed, unsent, dropped


if __name__ == "__main__":
    main(run)
