"""Many concurrent clients ask and tell while the dashboard is open: are the counts exact?

Each client is a process with one connection. A watcher reads the live stream of the study all the time and, every two
seconds, what the page reads.
"""

import json
import multiprocessing
import socket
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event as Flag
from typing import Any

from rasp_lab.reliability.harness import (
    SPACES,
    ExportedLog,
    Link,
    Progress,
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
PAGE = ("", "/history?points=600", "/situations", "/users", "/suggestions?limit=50", "/waiting")


def client(port: int, rounds: int, number: int, done: Any, out: Connection) -> None:
    """What was acknowledged, and everything else that was answered."""
    link = Link(port, timeout=120.0)
    acked, other, slow = {}, [], []
    for i in range(rounds):
        step = number * rounds + i
        begin = time.perf_counter()
        status, asked = link.post(f"{STUDY}/ask", {"context": context_at(step)})
        if status != 200:
            other.append((status, asked))
            continue
        metrics = metrics_of(step, asked["params"])
        status, told = link.post(f"{STUDY}/tell", {"id": asked["id"], "metrics": metrics})
        slow.append(time.perf_counter() - begin)
        if status == 200 and told["status"] == "learned":
            acked[asked["id"]] = metrics
        else:
            other.append((status, told))
        with done.get_lock():
            done.value += 1
    out.send((acked, other, slow))


def stream(port: int, stop: Flag, out: Connection) -> None:
    """Counts in the rows of the live stream, in the order they came."""
    rows, rest = [], b""
    with socket.create_connection(("127.0.0.1", port), 60.0) as wire:
        wire.sendall(f"GET {STUDY}/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        wire.settimeout(0.5)
        while not stop.is_set():
            try:
                part = wire.recv(1 << 16)
            except TimeoutError:
                continue
            if not part:
                break
            rest += part
            *lines, rest = rest.split(b"\n")
            rows += [json.loads(line[6:])["tells"] for line in lines if line.startswith(b"data: ")]
    out.send(rows)


def page(port: int, stop: Flag, out: Connection) -> None:
    """(status, seconds) of what an open page reads."""
    link, seen = Link(port, timeout=120.0), []
    is_over = False
    while not is_over:
        for part in PAGE:
            begin = time.perf_counter()
            status, _ = link.get(f"{STUDY}{part}")
            seen.append((status, time.perf_counter() - begin))
        is_over = stop.wait(2.0)
    out.send(seen)


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.concurrent_clients --clients 64 --rounds 1000")
    args.add_argument("--clients", type=int, default=16)
    args.add_argument("--rounds", type=int, default=20)
    add_space(args)
    given = args.parse_args()
    total, verdict = given.clients * given.rounds, Verdict("concurrent_clients")
    context = multiprocessing.get_context("fork")
    with serving() as server:
        link = server.link(timeout=120.0)
        create(link, space=SPACES[given.space])
        stop, done = context.Event(), context.Value("q", 0)
        progress = Progress("rounds", total)

        def spawn(target: Any, *words: Any) -> tuple[Any, Connection]:
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=target, args=(server.port, *words, theirs))
            process.start()
            theirs.close()
            return process, mine

        watchers = [spawn(stream, stop), spawn(page, stop)]
        began = time.perf_counter()
        clients = [spawn(client, given.rounds, number, done) for number in range(given.clients)]
        results = []
        for process, end in clients:
            while not end.poll(0.5):
                progress.to(done.value)
                if process.exitcode not in (None, 0):
                    raise ChildProcessError("a client ended")
            results.append(end.recv())
            process.join()
        seconds = time.perf_counter() - began
        time.sleep(1.0)  # the last row comes within a fifth of a second
        stop.set()
        rows, pages = (end.recv() for _, end in watchers)
        for process, _ in watchers:
            process.join()
        view = good(server.link().get(STUDY))
        log, said = ExportedLog.of(server.link(timeout=120.0), "web"), server.errors()
    acked = {id: metrics for result in results for id, metrics in result[0].items()}
    other = [answer for result in results for answer in result[1]]
    rounds = [x for result in results for x in result[2]]
    tells = log.tells()
    exact = view["asks"] == view["tells"] == view["learned"] == len(log.asks()) == len(tells) == len(acked) == total
    same = all([e["body"]["metrics"] for e in tells.get(id, ())] == [metrics] for id, metrics in acked.items())
    verdict.figure("clients", given.clients)
    verdict.figure("rounds of each", given.rounds)
    verdict.figure("rounds/s", total / seconds)
    verdict.figure("round p50, ms", 1e3 * percentile(rounds, 0.5))
    verdict.figure("round p99, ms", 1e3 * percentile(rounds, 0.99))
    verdict.figure("acknowledged", len(acked))
    verdict.figure("asks, tells, pending in the view", f"{view['asks']}, {view['tells']}, {view['pending']}")
    verdict.figure("asks, tells in the log", f"{len(log.asks())}, {sum(map(len, tells.values()))}")
    verdict.figure("other answers", len(other))
    verdict.figure("rows of the live stream", len(rows))
    verdict.figure("reads of the page", len(pages))
    verdict.figure("slowest read of the page, s", max((s for _, s in pages), default=0.0))
    verdict.figure("server said", said[-300:] or "nothing")
    verdict.promise("counts are exact", exact and view["pending"] == 0)
    verdict.promise("each tell is in the log once, as it was told", same)
    verdict.promise("no request failed", not other and all(status == 200 for status, _ in pages))
    verdict.promise("no lock errors in the server's log", not said)
    verdict.promise("the live stream went on to the last step, forwards", rows == sorted(rows) and rows[-1:] == [total])
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
