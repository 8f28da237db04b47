"""Load from separate client processes: paced, at full speed, in batches, and at ten times the capacity.

paced      arrivals at random at the stated rate; a latency counts from the moment the request was due, so a server that
           stalls cannot hide it; every ask and every tell is one durable commit, shared with those that wait beside it
full       every client sends its next request when the last is answered
batch      one client, ask/batch and tell/batch
overload   requests are sent whether others are answered or not (flood.py): for two seconds at three times the full rate
           to see how many a second the server can serve, then at eleven times that. At least ten times as many must be
           sent (a request counts once the system has taken it) as it can serve, and as are served (answered with 200
           in the same time); the rest must be shed with 429 or 503, or be given up by a client that got tired of
           waiting; everything acknowledged must be in the log
"""

import multiprocessing
import os
import random
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rasp_lab.reliability.flood import SERVED, flood
from rasp_lab.reliability.harness import (
    BATCH,
    SPACES,
    ExportedLog,
    Link,
    ServerProcess,
    Verdict,
    add_space,
    context_at,
    create,
    good,
    main,
    metrics_of,
    parser,
    percentile,
    serving,
)

STUDY = "/v1/studies/web"


def pairs(port: int, rate: float | None, seconds: float, seed: int, out: Connection) -> None:
    """Ask and tell for so long, at `rate` pairs a second or without a pause."""
    rng, link = random.Random(seed), Link(port)
    asks, tells, acked = [], [], {}
    begin = due = time.perf_counter()
    step = seed * 1_000_003
    while True:
        if rate is not None:
            due += rng.expovariate(rate)
            if due - begin > seconds:
                break
            time.sleep(max(due - time.perf_counter(), 0.0))
        else:
            due = time.perf_counter()
            if due - begin > seconds:
                break
        step += 1
        asked = good(link.post(f"{STUDY}/ask", {"context": context_at(step)}))
        between = time.perf_counter()
        metrics = metrics_of(step, asked["params"])
        good(link.post(f"{STUDY}/tell", {"id": asked["id"], "metrics": metrics}))
        asks.append(between - due)
        tells.append(time.perf_counter() - between)
        acked[asked["id"]] = metrics
    out.send((time.perf_counter() - begin, asks, tells, acked))


def together(target: Any, count: int, *args: Any) -> list[Any]:
    """What each of `count` processes sends back."""
    context = multiprocessing.get_context("fork")
    ends = []
    for i in range(count):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(*args, i + 1, theirs))
        process.start()
        theirs.close()
        ends.append((process, mine))
    results = []
    for process, mine in ends:
        results.append(mine.recv())
        process.join()
    return results


def measure(verdict: Verdict, name: str, results: list[Any]) -> tuple[float, float]:
    """Write down rates and latencies of pairs; tells a second and the worse p99 in ms come back."""
    seconds = max(result[0] for result in results)
    asks = [x for result in results for x in result[1]]
    tells = [x for result in results for x in result[2]]
    verdict.figure(f"{name}: asks/s, and tells/s", len(tells) / seconds)
    for kind, values in (("ask", asks), ("tell", tells)):
        for words, share in (("p50", 0.5), ("p99", 0.99)):
            verdict.figure(f"{name}: {kind} {words}, ms", 1e3 * percentile(values, share))
    return len(tells) / seconds, 1e3 * max(percentile(asks, 0.99), percentile(tells, 0.99))


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.load --seconds 30")
    args.add_argument("--seconds", type=float, default=5.0, help="of each part")
    args.add_argument("--rate", type=float, default=305.0, help="asks and tells a second of the paced part")
    args.add_argument("--clients", type=int, default=16, help="processes")
    args.add_argument("--batches", type=int, default=10, help=f"of {BATCH}")
    args.add_argument("--connections", type=int, default=8_000, help="of the overload, at most")
    args.add_argument("--apart", action="store_true", help="the server on the first core, the clients on the others")
    add_space(args)
    given = args.parse_args()
    verdict, acked = Verdict("load"), {}
    with serving() as server:
        if given.apart:
            keep_apart(server)
        link = server.link()
        create(link, space=SPACES[given.space], max_pending=10_000)
        verdict.figure("space", given.space)
        together(pairs, given.clients, server.port, None, 3.0)  # warm
        paced = together(pairs, given.clients, server.port, given.rate / given.clients, given.seconds)
        rate, p99 = measure(verdict, f"paced at {given.rate:g}/s", paced)
        used = server.cpu_s()
        full = together(pairs, given.clients, server.port, None, given.seconds)
        used = server.cpu_s() - used
        most, _ = measure(verdict, f"full, {given.clients} clients", full)
        each = 1e3 * used / sum(len(result[2]) for result in full)
        verdict.figure("full: server's processor time for one of each, ms", each)
        for result in (*paced, *full):
            acked.update(result[3])
        telling, asking, used = batches(server, given.batches)
        verdict.figure("batch: tells/s", given.batches * BATCH / telling)
        verdict.figure("batch: asks/s", given.batches * BATCH / asking)
        verdict.figure("batch: server's processor time for a tell, ms", 1e3 * used / (given.batches * BATCH))
        probe, _ = overloaded(server, 6.0 * most, 2.0, given.connections)
        capacity = max(2.0 * most, sum(flooded[1].get(SERVED, 0) for flooded in probe) / 2.0)
        used = server.cpu_s()
        floods, seconds = overloaded(server, 11.0 * capacity, given.seconds, given.connections)
        counts: Counter[str] = Counter()
        for flooded in floods:
            counts.update(flooded[1])
        floods = [*probe, *floods]
        for flooded in floods:
            acked.update(flooded[2])
        sent, served = counts.pop("sent", 0) / seconds, counts[SERVED] / seconds
        verdict.figure("overload: it can serve, requests/s", capacity)
        verdict.figure("overload: sent, requests/s", sent)
        verdict.figure("overload: served meanwhile, requests/s", served)
        verdict.figure("overload: sent, times what it can serve", sent / capacity)
        verdict.figure("overload: sent, times what was served", sent / max(served, 1.0))
        verdict.figure("overload: server's processor time, s", server.cpu_s() - used)
        for status, count in sorted(counts.items()):
            verdict.figure(f"overload: {status}", count)
        link = server.link()
        started = time.perf_counter()
        good(link.post(f"{STUDY}/recommend", {"context": context_at(0)}))
        verdict.figure("after it: recommend, ms", 1e3 * (time.perf_counter() - started))
        log = ExportedLog.of(link, "web")
        said = server.errors()
    tells, asks = log.tells(), log.asks()
    lost = sum(not any(e["body"]["metrics"] == metrics for e in tells.get(id, ())) for id, metrics in acked.items())
    changed = sum(
        id not in asks or asks[id]["body"]["params"] != params
        for flooded in floods
        for id, params in flooded[3].items()
    )
    verdict.figure("tells acknowledged in all", len(acked) + given.batches * BATCH)
    verdict.figure("lost", lost)
    verdict.figure("applied twice", sum(len(events) > 1 for events in tells.values()))
    verdict.figure("server said", said[-300:] or "nothing")
    shed = sum(count for status, count in counts.items() if status[:3] in ("429", "503"))
    other = [s for s in counts if s[:3] not in ("200", "429", "503", "not", "giv") and counts[s]]
    verdict.promise("300 durable tells/s and 300 asks/s with p99 <= 50 ms", rate >= 300.0 and p99 <= 50.0)
    verdict.promise("batches: 2,000 tells/s", given.batches * BATCH / telling >= 2_000.0)
    verdict.promise("ten times too much was really sent", sent >= 10.0 * max(capacity, served))
    verdict.promise("overload is shed with 429 or 503", shed > 0)
    verdict.promise("and answered with nothing else but 200", not other)
    verdict.promise(
        "nothing acknowledged is lost, or applied twice", not lost and all(len(e) == 1 for e in tells.values())
    )
    verdict.promise("an id handed out keeps its parameters", not changed)
    return verdict.end(given.json)


def keep_apart(server: ServerProcess) -> None:
    """As if clients were elsewhere: none of them takes time from the server, nor it from them."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        raise SystemExit("load.py: --apart needs two cores or more")
    for thread in Path(f"/proc/{server.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {first})
    os.sched_setaffinity(0, others)


def overloaded(server: ServerProcess, rate: float, seconds: float, connections: int) -> tuple[list[Any], float]:
    """What four floods counted, and for how long they sent."""
    floods = together(flood, 4, server.port, rate / 4, seconds, connections // 4)
    return floods, max(flooded[0] for flooded in floods)


def batches(server: ServerProcess, count: int) -> tuple[float, float, float]:
    """Seconds spent telling, and asking, and the server's processor time for the tells."""
    link = server.link()
    telling = asking = used = 0.0
    for start in range(0, count * BATCH, BATCH):
        begin = time.perf_counter()
        contexts = [context_at(i) for i in range(start, start + BATCH)]
        asked = good(link.post(f"{STUDY}/ask/batch", {"contexts": contexts}))["suggestions"]
        tells = [{"id": s["id"], "metrics": metrics_of(start + i, s["params"])} for i, s in enumerate(asked)]
        between, before = time.perf_counter(), server.cpu_s()
        results = good(link.post(f"{STUDY}/tell/batch", {"tells": tells}))["results"]
        telling += time.perf_counter() - between
        asking += between - begin
        used += server.cpu_s() - before
        if any(result["status"] != "learned" for result in results):
            raise RuntimeError("a batch was not learned whole")
    return telling, asking, used


if __name__ == "__main__":
    main(run)
