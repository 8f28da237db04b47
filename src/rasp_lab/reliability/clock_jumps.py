"""Clock jumps: the server's clock is put forward and back under load, and some jumps come with a kill -9.

Nothing acknowledged may be lost or learned twice, an id keeps its parameters, the state is that of a replay, and times
in the log go back only where the clock went back by more than a minute. Needs libfaketime (Debian's package faketime).
"""

import contextlib
import itertools
import multiprocessing
import random
import sys
import time
from pathlib import Path

from rasp_lab.reliability.harness import (
    ExportedLog,
    Progress,
    ServerProcess,
    Verdict,
    create,
    folder,
    main,
    parser,
    percentile,
)
from rasp_lab.reliability.kill import LOAD, Acknowledged, client, judge, replays
from rasp_tuner.service.study.event_time import MAX_WAIT_S

LIBRARIES = "*/faketime/libfaketimeMT.so.1"
JUMPS_S = (0.5, 5.0, 30.0, 59.0, 61.0, 3_600.0, 86_400.0, 31_536_000.0)
KILL_EVERY = 10  # jumps


def faked_clock(offsets: Path) -> dict[str, str]:
    """The environment of a process whose clock is off by what a file says; its monotonic clock is not."""
    found = sorted(Path("/usr/lib").glob(LIBRARIES))
    if not found:
        sys.exit(f"no /usr/lib/{LIBRARIES}: install libfaketime (apt-get install faketime)")
    words = {"FAKETIME_TIMESTAMP_FILE": str(offsets), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    # without the last, waits on the monotonic clock end at once: threads of Python that wait for each other spin
    waits = {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}
    return {"LD_PRELOAD": str(found[0]), **words, **waits}


def set_clock(offsets: Path, seconds: float) -> None:
    """Put the clock forward or back; in one step, as the process reads the file at any moment."""
    new = offsets.with_suffix(".new")
    new.write_text(f"{seconds:+.3f}\n")
    new.replace(offsets)


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.clock_jumps --jumps 300")
    args.add_argument("--jumps", type=int, default=20)
    args.add_argument("--clients", type=int, default=3)
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    rng, verdict = random.Random(given.seed), Verdict("clock_jumps")
    context = multiprocessing.get_context("fork")
    with folder() as home, contextlib.ExitStack() as ending:
        offsets = home / "offset"
        set_clock(offsets, 0.0)
        server = ServerProcess(home / "data", environment=faked_clock(offsets))
        ending.callback(server.kill)
        stop, clients = context.Event(), []
        try:
            server.start()
            create(server.link(), "web")
            paths = [home / f"client{i}" for i in range(given.clients)]
            for i, path in enumerate(paths):
                path.touch()
                clients.append(context.Process(target=client, args=([server.port], "web", given.seed + i, path, stop)))
                clients[-1].start()
            record, progress = Acknowledged(paths), Progress("jumps", given.jumps)
            record.wait_for_tells(LOAD)
            offset, back, kills, ready = 0.0, 0, 0, list[float]()
            for jump in range(given.jumps):
                time.sleep(rng.uniform(0.1, 0.8))
                step = rng.choice(JUMPS_S) * rng.choice((-1.0, 1.0))
                offset = step if abs(offset + step) > 2.0 * JUMPS_S[-1] else offset + step
                set_clock(offsets, offset)
                back += step < 0.0
                if jump % KILL_EVERY == KILL_EVERY - 1:
                    server.kill()
                    server.start()
                    kills += 1
                began = time.monotonic()
                record.wait_for_tells(1, 30.0)
                ready.append(time.monotonic() - began)
                progress.to(jump + 1)
            set_clock(offsets, 0.0)
            record.wait_for_tells(LOAD, 30.0)
        finally:
            stop.set()
            for process in clients:
                process.join(60)
        record.read()
        record.close()
        link = server.link(timeout=600.0)
        found = judge(link, "web", record)
        times = [event["at"] for event in ExportedLog.of(link, "web").events]
        small = sum(0.0 < one - two <= MAX_WAIT_S for one, two in itertools.pairwise(times))
        same = replays(link, "web")
        alive = server.is_ready()
        said = [line for line in server.errors().splitlines() if "the clock went back" not in line]
        for name, value in (
            ("jumps", given.jumps),
            ("of which back", back),
            ("kills", kills),
            ("tells acknowledged", len(record.tells)),
            ("asks acknowledged", len(record.asks)),
            ("lost", found["lost"]),
            ("learned twice", found["twice"] + record.twice),
            ("ids lost, changed or handed out twice", found["asks_changed"] + record.reissued),
            ("refused by the server", len(record.errors)),
            ("longest wait for a tell after a jump, s", percentile(ready, 1.0)),
            ("lines in the server's log, less those on the clock", len(said)),
        ):
            verdict.figure(name, value)
        verdict.promise("no acknowledged tell is lost", not found["lost"])
        verdict.promise("none is learned twice", not found["twice"] and not record.twice)
        verdict.promise("an id keeps its parameters", not found["asks_changed"] and not record.reissued)
        verdict.promise("what clients sent was never refused", not record.errors)
        verdict.promise("times go back only where the clock went back by over a minute", not small)
        verdict.promise("the state is that of a replay of the log", same)
        verdict.promise("the server runs and is ready", alive)
        verdict.promise("its log is empty but for the clock", not said)
        if said:
            print("\n".join(said[:20]), file=sys.stderr)
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
