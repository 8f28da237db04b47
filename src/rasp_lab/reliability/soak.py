"""A million steps through one study: does memory stay flat, does an ask stay as fast, does the page still open?

Steps are taken in batches of 500 asks and 500 tells. At 10,000 steps and at the end single asks, each with its tell,
are timed one by one. Memory is the server's resident set, which moves by some MB while a snapshot is packed: the median
of the first five looks from 200,000 steps on (or a fifth of a shorter run) is held against that of the last five. With
--minutes the run ends there, and says how far it came.
"""

import time
from typing import Any

from rasp_lab.reliability.harness import (
    SPACES,
    Link,
    Progress,
    ServerProcess,
    Verdict,
    add_space,
    context_at,
    create,
    folder,
    good,
    grow,
    main,
    metrics_of,
    parser,
    percentile,
)

STUDY = "/v1/studies/web"
LOOKS = 100  # parts of the run after which memory is read


def singles(link: Link, first: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds of single asks, and of single tells."""
    asks, tells = [], []
    for step in range(first, first + count):
        begin = time.perf_counter()
        asked = good(link.post(f"{STUDY}/ask", {"context": context_at(step)}))
        between = time.perf_counter()
        good(link.post(f"{STUDY}/tell", {"id": asked["id"], "metrics": metrics_of(step, asked["params"])}))
        asks.append(between - begin)
        tells.append(time.perf_counter() - between)
    return asks, tells


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.soak --steps 1000000")
    args.add_argument("--steps", type=int, default=20_000)
    args.add_argument("--singles", type=int, default=1_000, help="asks timed at 10,000 steps and at the end")
    args.add_argument("--minutes", type=float, default=float("inf"), help="stop growing after so long")
    add_space(args)
    given = args.parse_args()
    with folder() as home:
        server = ServerProcess(home / "data")
        try:
            server.start()
            return soak(server, given)
        finally:
            server.kill()


def soak(server: ServerProcess, given: Any) -> int:
    verdict, link = Verdict("soak"), server.link(timeout=600.0)
    create(link, space=SPACES[given.space])
    began = time.monotonic()
    early = min(10_000, given.steps // 2)
    grow(link, "web", early, said=Progress("the first", early))
    first_asks, first_tells = singles(link, early, given.singles)
    begin = early + given.singles
    base_at = min(200_000, given.steps // 5)
    memory: dict[int, float] = {}
    done, progress = begin, Progress("steps", given.steps)
    piece = max((given.steps - begin) // LOOKS // 500 * 500, 500)
    while done < given.steps and time.monotonic() - began < 60.0 * given.minutes:
        count = min(piece, given.steps - done)
        grow(link, "web", count, first=done)
        done += count
        memory[done] = server.rss_mb()
        progress.to(done, f"{memory[done]:.1f} MB")
    last_asks, last_tells = singles(link, done, given.singles)
    opened = []
    for _ in range(5):
        started = time.perf_counter()
        history = good(link.get(f"{STUDY}/history?points=600"))
        opened.append(time.perf_counter() - started)
    size = sum(path.stat().st_size for path in server.data.glob("rasp.db*")) / 1e6
    view = good(link.get(STUDY))
    link.close()
    server.kill()
    ready = server.start()
    after = {step: mb for step, mb in memory.items() if step >= base_at} or memory
    looks = list(after.values())
    base, end, most = percentile(looks[:5], 0.5), percentile(looks[-5:], 0.5), max(looks)
    slower = percentile(last_asks, 0.99) / percentile(first_asks, 0.99)
    verdict.figure("space", given.space)
    verdict.figure("steps", done + given.singles)
    verdict.figure("steps wanted", given.steps)
    verdict.figure("minutes", (time.monotonic() - began) / 60.0)
    verdict.figure(f"memory from {min(after):,} steps on, MB", base)
    verdict.figure("memory at the end, MB", end)
    verdict.figure("most in between, MB", most)
    verdict.figure("growth since then, %", 100.0 * (end / base - 1.0))
    for words, asks, tells in ((f"at {early:,}", first_asks, first_tells), ("at the end", last_asks, last_tells)):
        for kind, values in (("ask", asks), ("tell", tells)):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                verdict.figure(f"{kind} {name} {words}, ms", 1e3 * percentile(values, share))
    verdict.figure("ask p99 at the end over that at the start", slower)
    verdict.figure("/history at the end, max of 5, s", max(opened))
    verdict.figure("its points", len(history["series"]["error"]["step"]))
    verdict.figure("ready again after kill -9 at the end, s", ready)
    verdict.figure("database, MB", size)
    verdict.promise(f"all {given.steps:,} steps were taken", done >= given.steps)
    verdict.promise("memory is flat within 2%", end <= 1.02 * base)
    verdict.promise("ask p99 at the end <= 1.5 times that at the start", slower <= 1.5)
    verdict.promise("/history opens in under 2 s", max(opened) < 2.0)
    verdict.promise("counts are exact", view["asks"] == view["tells"] == done + given.singles and not view["pending"])
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
