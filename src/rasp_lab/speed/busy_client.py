"""How much the Python client tunes on a busy host: the share of asks that it answers without the server.

python -m rasp_lab.speed.busy_client
python -m rasp_lab.speed.busy_client --client before=../old/src --client now=src     # two checkouts, taking turns

One server, and two client processes at a time, each with a study of its own: ask, work for a while, tell. Beside them
run loops that do nothing but keep the cores busy. Every checkout brings its own server. A run without loops comes
first.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rasp_lab.checkouts import python_path
from rasp_lab.reliability.harness import ServerProcess, context_at, folder, metrics_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--client", action="append", metavar="NAME=SRC", help="A checkout; repeat to compare.")
    parser.add_argument("--loops", type=int, default=16, help="Processes that keep the cores busy.")
    parser.add_argument("--nice", type=int, default=0, help="How much less the loops get than the others.")
    parser.add_argument("--steps", type=int, default=72, help="Of each client.")
    parser.add_argument("--work", type=float, default=0.05, help="Seconds between an ask and its tell.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--options", default="{}", help="JSON: arguments of Client.")
    parser.add_argument("--steps-of", help=argparse.SUPPRESS)  # this process is a client of that server and study
    args = parser.parse_args()
    if args.steps_of:
        print(json.dumps(run_client(*args.steps_of.split(), args.steps, args.work, json.loads(args.options))))
        return
    sources = dict(one.split("=") for one in args.client or ["now=src"])
    print(
        f"{args.loops} loops, {os.cpu_count()} cores, {args.steps} steps of 2 clients, {1e3 * args.work:g} ms of work"
    )
    print(f"{'client':10} {'host':6} {'without the server':>20} {'ask p50':>9} {'p99':>8}  settings tried")
    for _ in range(args.rounds):
        for name, source in sources.items():
            for loops in (0, args.loops):
                report(name, "busy" if loops else "idle", measure(str(Path(source).resolve()), loops, args))


def measure(source: str, loops: int, args: argparse.Namespace) -> list[dict]:
    """What two clients saw."""
    environment = {**os.environ, "PYTHONPATH": python_path(source), "OMP_NUM_THREADS": "1"}
    with folder() as home:
        server = ServerProcess(home / "data", environment=environment)
        try:
            server.start()
            with busy(loops, args.nice):
                words = [
                    sys.executable,
                    "-m",
                    "rasp_lab.speed.busy_client",
                    "--steps",
                    str(args.steps),
                    "--work",
                    str(args.work),
                ]
                words += ["--options", args.options, "--steps-of"]
                clients = [
                    subprocess.Popen(
                        [*words, f"http://127.0.0.1:{server.port} study-{i}"], env=environment, stdout=subprocess.PIPE
                    )
                    for i in range(2)
                ]
                return [json.loads(client.communicate()[0]) for client in clients]
        finally:
            server.stop()


def run_client(url: str, study: str, steps: int, work: float, options: dict) -> dict:
    """One client's steps: how many were fallbacks, how long asks took, and which settings ran."""
    from rasp_tuner import Float, Int
    from rasp_tuner.client import Client, is_fallback

    fallbacks, took, seen = 0, [], set()
    space, default = {"pool": Int(1, 64, log=True), "timeout": Float(0.1, 10.0)}, {"pool": 8, "timeout": 1.0}
    with Client(url, timeout=60.0) as patient:  # creating is not what is measured
        patient.create(study, space, {"p99_ms": "min"}, ["qps"], default, budget=None)
    with Client(url, **options) as client:
        own = client.study(study, default=default)
        for step in range(steps):
            started = time.perf_counter()
            asked = own.ask(context_at(step))
            took.append(time.perf_counter() - started)
            fallbacks += is_fallback(asked.id)
            seen.add(json.dumps(asked.params))
            time.sleep(work)
            own.tell_later(asked.id, metrics_of(step, asked.params))
    return {"fallbacks": fallbacks, "took": took, "settings": len(seen)}


def report(name: str, host: str, clients: list[dict]) -> None:
    took = sorted(seconds for client in clients for seconds in client["took"])
    fallbacks, settings = sum(client["fallbacks"] for client in clients), [client["settings"] for client in clients]
    share = f"{fallbacks} of {len(took)}, {100 * fallbacks / len(took):.0f}%"
    middle, late = took[len(took) // 2], took[int(0.99 * len(took))]
    print(f"{name:10} {host:6} {share:>20} {1e3 * middle:6.0f} ms {1e3 * late:5.0f} ms  {settings}", flush=True)


@contextlib.contextmanager
def busy(loops: int, nice: int) -> Iterator[None]:
    """So many processes that use all the time they get."""
    code = f"import os\nos.nice({nice})\nwhile True: pass"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
