"""Kill -9 in a loop under load: is any acknowledged tell lost, or applied twice, and how soon is the server back?

Client processes ask and tell and write down what was acknowledged. The server is killed at random moments, every tenth
time a second time while it recovers. After each restart, and for everything at the end, their record is compared with
the log. One tell in five is sent again, as a client would whose answer got lost; it must be called a duplicate. At the
end the state must be that of a replay of the whole log.

--power-cut makes each kill a power cut: what the server had not synced is gone with it (power_cut.py; needs root).

--plant makes the server or the disk lie, and the script must then exit with 1:
  commit-after-ack   answers are sent before the commit
  drop-wal           what was written since the last checkpoint is dropped at each kill, as if nothing was ever synced
  double-apply       an answer given before is taken as a new one
  replay-twice       after a restart the last tell is learned a second time
  no-sync            nothing is synced; kill -9 alone does not show it, --power-cut does
"""

import json
import multiprocessing
import random
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from multiprocessing.synchronize import Event as Flag
from pathlib import Path
from typing import Any

from rasp_lab.reliability.harness import (
    ExportedLog,
    ForkedServerProcess,
    Gone,
    Link,
    Progress,
    ServerProcess,
    Verdict,
    add_context_bytes,
    add_forked,
    context_at,
    context_kinds,
    create,
    folder,
    good,
    grow,
    main,
    metrics_of,
    parser,
    percentile,
)
from rasp_lab.reliability.power_cut import PowerCutDisk, power_cut_disk

PLANTS = ["commit-after-ack", "drop-wal", "double-apply", "replay-twice", "no-sync"]
AGAIN = 0.2  # of acknowledged tells are sent again
LOAD = 20  # tells acknowledged before the first kill, and after the last: a slow machine has load, too
WAITING = 4  # suggestions a client has out
UNAVAILABLE = (502, 503)  # 502: the server that was to do it went away, and may have done it


def client(ports: Sequence[int], study: str, seed: int, path: Path, stop: Flag, context_bytes: int = 0) -> None:
    """Ask and tell, at any of the servers, until told to stop; writes down everything that was acknowledged."""
    rng, links, step = random.Random(seed), [Link(port, timeout=20.0) for port in ports], 0
    out: list[tuple[str, dict[str, float]]] = []
    with path.open("w", buffering=1) as record:

        def note(kind: str, id: str, value: Any) -> None:
            record.write(json.dumps([kind, study, id, value]) + "\n")

        while not stop.is_set():
            link = rng.choice(links)
            try:
                if not out or (len(out) < WAITING and rng.random() < 0.5):
                    step += 1
                    status, body = link.post(f"/v1/studies/{study}/ask", {"context": context_at(step, context_bytes)})
                    if status == 200:
                        note("ask", body["id"], body["params"])
                        out.append((body["id"], metrics_of(step, body["params"])))
                    elif status not in UNAVAILABLE:
                        note("error", "", [status, body])
                        time.sleep(0.05)
                    continue
                id, metrics = out[rng.randrange(len(out))]
                status, body = link.post(f"/v1/studies/{study}/tell", {"id": id, "metrics": metrics})
                if status in UNAVAILABLE:
                    time.sleep(0.05)
                    continue
                out.remove((id, metrics))
                note(*(("tell", id, metrics) if status == 200 else ("error", id, [status, body])))
                if status == 200 and rng.random() < AGAIN:
                    status, body = link.post(f"/v1/studies/{study}/tell", {"id": id, "metrics": metrics})
                    if status == 200 and body["status"] != "duplicate":
                        note("twice", id, body)
            except Gone:
                time.sleep(0.02)  # an answer that did not come: the tell is still in `out`, and is sent again


class Acknowledged:
    """What clients were told, read from their files as they grow."""

    def __init__(self, paths: list[Path]) -> None:
        self._files = [path.open() for path in paths]
        self.tells: dict[tuple[str, str], dict[str, float]] = {}
        self.asks: dict[tuple[str, str], dict[str, Any]] = {}
        self.errors: list[Any] = []
        self.twice = self.reissued = 0

    def read(self) -> list[tuple[str, str]]:
        """The tells acknowledged since the last look."""
        fresh = []
        for file in self._files:
            while line := file.readline():
                if not line.endswith("\n"):
                    file.seek(file.tell() - len(line))
                    break
                kind, study, id, value = json.loads(line)
                if kind == "tell":
                    self.tells[study, id] = value
                    fresh.append((study, id))
                elif kind == "ask":
                    self.reissued += (study, id) in self.asks
                    self.asks[study, id] = value
                elif kind == "twice":
                    self.twice += 1
                else:
                    self.errors.append(value)
        return fresh

    def wait_for_tells(self, count: int, patience_s: float = 5.0) -> None:
        """Wait until so many more tells are acknowledged; they are judged at the end, with all."""
        wanted, until = len(self.tells) + count, time.monotonic() + patience_s
        while len(self.tells) < wanted and time.monotonic() < until:
            time.sleep(0.05)
            self.read()

    def close(self) -> None:
        for file in self._files:
            file.close()


def missing(data: Path, wanted: list[tuple[str, str]], metrics: dict[tuple[str, str], Any]) -> tuple[int, int]:
    """How many of these tells the database has not, or has more than once; read beside the running server."""
    lost = twice = 0
    connection = sqlite3.connect(f"file:{data / 'rasp.db'}?mode=ro", uri=True)
    ids = dict(connection.execute("SELECT name, id FROM studies"))
    query = "SELECT body FROM events INDEXED BY events_ask WHERE study = ? AND ask = ? AND kind = 'tell'"
    for study, id in wanted:
        rows = connection.execute(query, (ids.get(study), int(id[1:]))).fetchall()
        lost += not any(json.loads(body)["metrics"] == metrics[study, id] for (body,) in rows)
        twice += len(rows) > 1
    connection.close()
    return lost, twice


def judge(link: Link, study: str, record: Acknowledged) -> dict[str, int]:
    """The whole record of one study against its whole log."""
    try:
        log = ExportedLog.of(link, study)
    except RuntimeError:
        log = ExportedLog([], "")  # the study itself is gone: everything is lost
    asks, tells = log.asks(), log.tells()
    status, view = link.get(f"/v1/studies/{study}")
    counted = status == 200 and (view["asks"], view["tells"]) == (len(asks), sum(map(len, tells.values())))
    return {
        "lost": sum(
            not any(event["body"].get("metrics") == metrics for event in tells.get(id, ()))
            for (name, id), metrics in record.tells.items()
            if name == study
        ),
        "twice": sum(len(events) > 1 for events in tells.values()),
        "asks_changed": sum(
            id not in asks or asks[id]["body"]["params"] != params
            for (name, id), params in record.asks.items()
            if name == study
        ),
        "counts_differ": int(not counted),
    }


def replays(link: Link, study: str, context_bytes: int = 0) -> bool:
    """Whether a study built from the log alone expects the same, to the last digit, and goes on as this one does."""
    link.send("GET", f"/v1/studies/{study}/export")
    status, raw = link.receive()
    if status != 200:
        return False
    head = "POST /v1/studies/import?name=replayed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
    link.send_raw(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
    status, raw = link.receive()
    if status != 201:
        print(f"  import answered {status}: {raw[:300]!r}", file=sys.stderr)
        return False
    same = True
    for step in range(0, 40, 3):  # in both situations
        asked = {"context": context_at(step, context_bytes)}
        # suggestions are rounded, and may agree where what was learned does not
        expected = [good(link.post(f"/v1/studies/{name}/what-if", asked)) for name in (study, "replayed")]
        same &= expected[0] == expected[1]
        pair = [good(link.post(f"/v1/studies/{name}/ask", asked)) for name in (study, "replayed")]
        same &= pair[0]["params"] == pair[1]["params"]
        for name, answer in zip((study, "replayed"), pair, strict=True):
            tell = {"id": answer["id"], "metrics": metrics_of(step, answer["params"])}
            good(link.post(f"/v1/studies/{name}/tell", tell))
    link.call("DELETE", "/v1/studies/replayed")
    return same


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.kill --kills 500 --grown 100000")
    args.add_argument("--kills", type=int, default=10)
    args.add_argument("--grown", type=int, default=0, help="tells a second study has before the first kill")
    args.add_argument("--clients", type=int, default=4)
    args.add_argument("--load", type=float, default=0.8, help="at most so many seconds of load between kills")
    args.add_argument("--minutes", type=float, default=float("inf"), help="make no more kills after so long")
    args.add_argument("--plant", choices=PLANTS)
    args.add_argument("--power-cut", action="store_true", help="needs root and loop devices")
    args.add_argument("--seed", type=int, default=0)
    add_context_bytes(args)
    add_forked(args)
    given = args.parse_args()
    plant = None if given.plant == "drop-wal" else given.plant
    with folder() as home, power_cut_disk(home) if given.power_cut else nullcontext() as cut:
        kind = ForkedServerProcess if given.forked else ServerProcess
        server = kind(home / "data" if cut is None else cut.place / "data", plant)
        server.said = home / "stderr"
        try:
            return kills(server, home, given, cut)
        finally:
            server.kill()


def kills(server: ServerProcess, home: Path, given: Any, cut: PowerCutDisk | None) -> int:
    rng, verdict = random.Random(given.seed), Verdict("kill")
    server.start()
    link = server.link()
    studies = ["web"] + ["grown"] * (given.grown > 0)
    create(link, "web", context=context_kinds(given.context_bytes))
    if given.grown:
        create(link, "grown")
        grow(link, "grown", given.grown, said=Progress("growing", given.grown))
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    paths = [home / f"client{i}" for i in range(given.clients)]
    clients = []
    for i, path in enumerate(paths):
        path.touch()
        study, size = ("grown", 0) if given.grown and i == 0 else ("web", given.context_bytes)
        clients.append(context.Process(target=client, args=([server.port], study, given.seed + i, path, stop, size)))
        clients[-1].start()
    record, progress = Acknowledged(paths), Progress("kills", given.kills)
    ready, cpu, lost, twice, early = [], [], 0, 0, 0
    try:
        record.wait_for_tells(LOAD)
        until = time.monotonic() + 60.0 * given.minutes
        for k in range(given.kills):
            if time.monotonic() > until:
                break
            time.sleep(rng.uniform(0.05, given.load))
            die(server, given.plant, cut)
            if k % 10 == 9:
                server.launch()
                time.sleep(rng.uniform(0.0, 1.5 * ready[-1]))
                die(server, given.plant, cut)
                early += 1
            ready.append(server.start())
            cpu.append(server.cpu_s())
            found = missing(server.data, record.read(), record.tells)
            lost, twice = lost + found[0], twice + found[1]
            progress.to(k + 1, f"lost {lost}, twice {twice}, ready {percentile(ready, 0.5):.2f} s")
        if given.plant != "drop-wal":  # that drops the study, too
            record.wait_for_tells(LOAD)
    finally:
        stop.set()
        for process in clients:
            process.join(60)
    record.read()
    record.close()
    link = server.link(timeout=600.0)
    found = [judge(link, study, record) for study in studies]
    total = {name: sum(each[name] for each in found) for name in found[0]}
    same = replays(link, "web", given.context_bytes)
    verdict.figure("planted", given.plant or "nothing")
    verdict.figure("kills" if cut is None else "power cuts", len(ready) + early)
    verdict.figure("of which during recovery", early)
    verdict.figure("bytes of a context", len(json.dumps(context_at(0, given.context_bytes))))
    verdict.figure("tells acknowledged", len(record.tells))
    verdict.figure("asks acknowledged", len(record.asks))
    verdict.figure("lost, seen at a restart", lost)
    verdict.figure("lost, seen at the end", total["lost"])
    verdict.figure("applied twice", max(twice, total["twice"], record.twice))
    verdict.figure("ids lost, changed or handed out twice", total["asks_changed"] + record.reissued)
    verdict.figure("refused by the server", len(record.errors))
    if record.errors:
        verdict.figure("first refusal", str(record.errors[0])[:200])
    verdict.figure("tells grown before", given.grown)
    for words, share in (("median", 0.5), ("p99", 0.99), ("max", 1.0)):
        verdict.figure(f"ready again, {words}, s", percentile(ready, share))
    verdict.figure("its processor time till ready, median, s", percentile(cpu, 0.5))
    verdict.promise(f"all {given.kills:,} kills were made", len(ready) == given.kills)
    verdict.promise("no acknowledged tell is lost", not lost and not total["lost"])
    verdict.promise("none is applied twice", not twice and not total["twice"] and not record.twice)
    verdict.promise("an id handed out keeps its parameters", not total["asks_changed"] and not record.reissued)
    verdict.promise("what clients sent was never refused", not record.errors)
    verdict.promise("counts are those of the log", not total["counts_differ"])
    verdict.promise("the state is that of a replay of the log", same)
    verdict.promise("ready again in under 2 s", max(ready) < 2.0)
    return verdict.end(given.json)


def die(server: ServerProcess, plant: str | None, cut: PowerCutDisk | None) -> None:
    server.kill()
    if cut is not None:
        cut.cut()
    if plant == "drop-wal":
        for end in ("-wal", "-shm"):
            (server.data / f"rasp.db{end}").unlink(missing_ok=True)


if __name__ == "__main__":
    main(run)
