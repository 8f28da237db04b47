"""Many studies on one server, few of which fit into its memory: how fast it makes, lists and asks them, and restarts.

Every study gets a few steps. Then pages of the list are read in every order. Suggestions are asked for of any study,
most of which were put away (cold), of a few again and again (hot), and of the hot ones while another client asks for
cold ones. Then the server is stopped, started again and asked while it still reads what it has; at last it is killed
and started once more, and every study is counted.
"""

import argparse
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from rasp_lab.reliability.harness import (
    Gone,
    Link,
    Progress,
    ServerProcess,
    Verdict,
    folder,
    good,
    main,
    parser,
    percentile,
)

SORTS = ("recent", "alerts", "gain", "learned", "name")
PAGE, LONG_PAGE = 50, 5_000
DEFINITION: dict[str, Any] = {
    "space": {f"knob{i}": {"type": "float", "low": 0.0, "high": 1.0} for i in range(5)},
    "metrics": {"p99_ms": {"direction": "min"}},
    "context": ["qps", "size", "hour"],
    "default": {f"knob{i}": 0.5 for i in range(5)},
    "lease_s": 864_000.0,
}


def name_of(study: int) -> str:
    return f"study-{study:06d}"


def context_of(rng: random.Random) -> dict[str, float]:
    return {name: round(rng.random(), 3) for name in DEFINITION["context"]}


def metrics_of(context: dict[str, float], params: dict[str, float]) -> dict[str, float]:
    return {"p99_ms": 20.0 + sum((value - context["qps"]) ** 2 for value in params.values())}


def make(link: Link, study: int, steps: int) -> None:
    """A study with a few steps, all of them answered."""
    name, rng = name_of(study), random.Random(study)
    good(link.post("/v1/studies", {**DEFINITION, "name": name, "seed": study}))
    contexts = [context_of(rng) for _ in range(steps)]
    if not steps:
        return
    asked = good(link.post(f"/v1/studies/{name}/ask/batch", {"contexts": contexts}))["suggestions"]
    tells = [
        {"id": s["id"], "metrics": metrics_of(context, s["params"])} for s, context in zip(asked, contexts, strict=True)
    ]
    good(link.post(f"/v1/studies/{name}/tell/batch", {"tells": tells}))


def make_all(server: ServerProcess, count: int, steps: int, clients: int) -> float:
    """Studies made in a second."""
    said, started = Progress("made", count), time.perf_counter()
    left = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        link = server.link()
        while True:
            with lock:
                study = next(left, None)
            if study is None:
                link.close()
                return
            make(link, study, steps)
            said.to(study + 1, f"{server.rss_mb():.0f} MB")

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(work) for _ in range(clients)]:
            done.result()
    return count / (time.perf_counter() - started)


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds that it takes."""
    started = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - started)


def ask(link: Link, study: int, rng: random.Random) -> None:
    good(link.post(f"/v1/studies/{name_of(study)}/ask", {"context": context_of(rng)}))


@contextmanager
def asking_cold(server: ServerProcess, count: int) -> Iterator[list[int]]:
    """Another client asks for studies at random meanwhile; how many asks it made."""
    done, stop, rng = [0], threading.Event(), random.Random(99)

    def work() -> None:
        link = server.link()
        while not stop.is_set():
            ask(link, rng.randrange(count), rng)
            done[0] += 1
        link.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def show(verdict: Verdict, what: str, times: list[float]) -> float:
    """Print p50 and p99; returns the median."""
    verdict.figure(f"{what}, ms, p50", percentile(times, 0.5))
    verdict.figure(f"{what}, ms, p99", percentile(times, 0.99))
    return percentile(times, 0.5)


def time_lists(link: Link, verdict: Verdict, count: int, pages: int, when: str) -> list[float]:
    """The medians of all orders."""
    rng, medians = random.Random(7), []
    for sort in SORTS:
        offsets = [rng.randrange(max(count - PAGE, 1)) for _ in range(pages)]
        times = [
            timed(lambda: good(link.get(f"/v1/studies?limit={PAGE}&offset={offset}&sort={sort}")))  # noqa: B023
            for offset in offsets
        ]
        medians.append(show(verdict, f"page by {sort}{when}", times))
    return medians


def loading(link: Link) -> int:
    """Studies that the server has not read yet since its start."""
    link.send("GET", "/metrics")
    text = link.receive()[1].decode()
    return int(float(text.partition("\nrasp_loading_studies ")[2].split()[0]))


def wait_until_read(link: Link, count: int) -> None:
    said = Progress("read", count)
    while left := loading(link):
        said.to(count - left)
        time.sleep(0.5)


def counted(link: Link) -> tuple[int, int, int]:
    """Studies, asks and tells in the list of all, by long pages."""
    count = asks = tells = 0
    while studies := good(link.get(f"/v1/studies?limit={LONG_PAGE}&offset={count}&sort=name"))["studies"]:
        count += len(studies)
        asks += sum(study["asks"] for study in studies)
        tells += sum(study["tells"] for study in studies)
    return count, asks, tells


def restart(
    server: ServerProcess, verdict: Verdict, rng: random.Random, given: argparse.Namespace, first: float, asks: int
) -> tuple[int, tuple[int, int, int]]:
    """Stop, start, kill and start the server; asks so far, and what is counted in the end. `first`: an empty start."""
    count = given.studies
    verdict.figure("clean stop, s", timed(server.stop) / 1e3)
    ready = server.start()
    verdict.figure("ready again, s", ready)
    started = time.perf_counter()
    link = server.link()
    early = [timed(lambda: ask(link, rng.randrange(count), rng)) for _ in range(given.asks // 10)]
    asks += len(early)
    show(verdict, "ask of any study while all are read", early)
    time_lists(link, verdict, count, max(given.pages // 10, 1), ", while all are read")
    wait_until_read(link, count)
    verdict.figure("all read after, s", time.perf_counter() - started)
    verdict.figure("memory then, MB", server.rss_mb())
    server.kill()
    link.close()
    verdict.figure("ready after a kill, s", server.start())
    link = server.link()
    wait_until_read(link, count)
    verdict.promise("ready again at most 10 s later than an empty server", ready < first + 10.0)
    return asks, counted(link)


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.many_studies --studies 10000")
    args.add_argument("--studies", type=int, default=10_000)
    args.add_argument("--steps", type=int, default=5, help="of each study")
    args.add_argument("--in-memory", type=int, default=512, help="studies that stay in the server's memory")
    args.add_argument("--hot", type=int, default=100, help="studies that are asked again and again")
    args.add_argument("--asks", type=int, default=1_000, help="of each kind")
    args.add_argument("--pages", type=int, default=100, help="of each order")
    args.add_argument("--clients", type=int, default=4, help="that make the studies")
    args.add_argument("--no-restart", action="store_true", help="reading 100,000 studies again takes hours")
    given = args.parse_args()
    verdict, rng, count = Verdict("many_studies"), random.Random(1), given.studies
    hot = range(min(given.hot, count))
    with folder() as home:
        words = ["--studies", str(count), "--studies-in-memory", str(given.in_memory)]
        server = ServerProcess(home / "data", words=words)
        try:
            verdict.figure("ready, empty, s", first := server.start())
            verdict.figure("memory of the empty server, MB", empty := server.rss_mb())
            verdict.figure(
                f"studies made a second, with {given.steps} steps", make_all(server, count, given.steps, given.clients)
            )
            verdict.figure(f"memory with {count} studies, MB", server.rss_mb())
            verdict.figure("memory a study in memory, MB", (server.rss_mb() - empty) / min(count, given.in_memory))
            link, asks = server.link(), 0
            pages = time_lists(link, verdict, count, given.pages, "")
            cold = [timed(lambda: ask(link, rng.randrange(count), rng)) for _ in range(given.asks)]
            cold_ms = show(verdict, "ask of any study", cold)
            for study in hot:
                ask(link, study, rng)
            warm = [timed(lambda: ask(link, rng.choice(hot), rng)) for _ in range(given.asks)]
            hot_ms = show(verdict, "ask of a hot study", warm)
            with asking_cold(server, count) as others:
                beside = [timed(lambda: ask(link, rng.choice(hot), rng)) for _ in range(given.asks)]
            show(verdict, "ask of a hot study beside cold ones", beside)
            asks = 2 * given.asks + len(hot) + given.asks + others[0]
            verdict.figure("cold asks meanwhile", others[0])
            verdict.figure("metrics, ms", timed(lambda: loading(link)))
            started = time.perf_counter()
            found = counted(link)
            verdict.figure("list of all, ms", 1e3 * (time.perf_counter() - started))
            verdict.figure("memory after all that, MB", memory := server.rss_mb())
            if not given.no_restart:
                asks, found = restart(server, verdict, rng, given, first, asks)
        except Gone:
            print(server.errors()[-2_000:])
            raise
        finally:
            server.kill()
    told = count * given.steps
    verdict.promise("every study, ask and tell is there in the end", found == (count, told + asks, told))
    verdict.promise("a page of the list takes under 100 ms (median)", max(pages) < 100.0)
    verdict.promise("an ask takes under 100 ms cold and under 50 ms hot (medians)", cold_ms < 100.0 and hot_ms < 50.0)
    verdict.promise("memory is bounded: under 2 GB", memory < 2_048.0)
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
