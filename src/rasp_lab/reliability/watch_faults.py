"""`rasp watch` live, with a Prometheus that fails in nine ways, a sink that fails, and kills of the program itself.

The settings in place are whole and legal at every moment, no step that was written down is lost, and when the faults
end, it measures again and leaves good settings behind.
"""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rasp_lab.reliability.harness import Progress, Verdict, folder, main, parser

HIGH, DEFAULT, BEST = 20, 15, 7  # of the knob x; its loss is lowest at the best
FAULTS = ("status 500", "reset", "hangs", "no JSON", "half a body", "no series", "not a number", "absurd", "old sample")
STUDY = """
name = "parabola"
mode = "live"
window = 0.05
on_exit = "keep"
budget = false
[prometheus]
url = "http://127.0.0.1:{port}"
timeout = 1
[knobs]
x = "int:0..20"
[default]
x = 15
[metrics]
loss = {{query = "loss"}}
[contexts]
load = "load"
[sinks.settings]
file = "settings.json"
[sinks.program]
command = ["{python}", "-c", "import os, sys; sys.exit(os.path.exists('sink-fails'))"]
"""


class FaultyPrometheus:
    """Answers queries about the settings in place, well or in one of the ways of FAULTS."""

    def __init__(self, home: Path) -> None:
        self.home, self.fault, self.answered = home, "", 0
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                own.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One answer; what a client makes of a broken one is its own affair."""
        query = parse_qs(urlsplit(request.path).query).get("query", [""])[0]
        fault, at = self.fault, time.time()
        value = str(1.0 + (self.x() - BEST) ** 2) if query == "loss" else "1.0"
        if "timestamp(" in query:
            value = str(at)
        elif "count_over_time(" in query:
            value = "10"
        value = {"not a number": "NaN", "absurd": "1e300"}.get(fault, value)
        at -= 86_400.0 * (fault == "old sample")
        series = [] if fault == "no series" else [{"metric": {}, "value": [at, value]}]
        whole = {"status": "success", "data": {"resultType": "vector", "result": series}}
        body = b"<html>" if fault == "no JSON" else json.dumps(whole).encode()
        with contextlib.suppress(OSError):
            if fault == "hangs":
                time.sleep(3.0)
            if fault == "reset":
                request.connection.close()
                return
            request.send_response(500 if fault == "status 500" else 200)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body[: len(body) // 2] if fault == "half a body" else body)
        self.answered += 1

    def x(self) -> float:
        """The setting in place."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return float(json.loads((self.home / "settings.json").read_text())["x"])
        return float(DEFAULT)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def steps_in(out: Path) -> list[Any]:
    """The numbers of the steps in the journal, of whole lines."""
    found = []
    for name in ("journal.old.jsonl", "journal.jsonl"):
        path = out / name
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found += [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [entry for entry in found if entry["kind"] == "step"]


class SettingsWatch(threading.Thread):
    """Reads the settings in place as often as it can; counts those that are not whole or not legal."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.looks, self.bad, self._over = path, 0, list[str](), threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.005):
            with contextlib.suppress(FileNotFoundError):
                text = self.path.read_text()
                self.looks += 1
                try:
                    x = json.loads(text)["x"]
                    legal = isinstance(x, int) and 0 <= x <= HIGH
                except (ValueError, KeyError, TypeError):
                    legal = False
                if not legal:
                    self.bad.append(text[:100])

    def end(self) -> None:
        self._over.set()
        self.join()


@contextlib.contextmanager
def watching(home: Path, said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`rasp watch` in a process of its own, which is gone afterwards."""
    command = [sys.executable, "-m", "rasp_tuner", "watch", "study.toml", "--out", "out"]
    with said.open("ab") as log:
        process = subprocess.Popen(command, cwd=home, stderr=log, stdout=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.watch_faults --rounds 60")
    args.add_argument("--rounds", type=int, default=6, help="a fault each; every third ends with a kill -9 or SIGTERM")
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    rng, verdict, lost, kills, ends = random.Random(given.seed), Verdict("watch_faults"), 0, 0, list[int]()
    with folder() as home:
        prometheus, said, out = FaultyPrometheus(home), home / "said", home / "out"
        (home / "study.toml").write_text(STUDY.format(port=prometheus.port, python=sys.executable))
        looks, known, progress = SettingsWatch(home / "settings.json"), list[Any](), Progress("rounds", given.rounds)
        looks.start()
        done = 0
        while done < given.rounds:
            with watching(home, said) as process:
                _wait(lambda known=known: len(steps_in(out)) > len(known), process)
                for _ in range(3):
                    prometheus.fault = rng.choice(FAULTS)
                    if rng.random() < 0.2:
                        (home / "sink-fails").touch()
                    time.sleep(rng.uniform(0.3, 2.0))
                    prometheus.fault = ""
                    (home / "sink-fails").unlink(missing_ok=True)
                    time.sleep(rng.uniform(0.1, 0.6))
                    done += 1
                known = steps_in(out)
                how = rng.choice((signal.SIGKILL, signal.SIGTERM))
                process.send_signal(how)
                ends.append(process.wait(60) if how == signal.SIGTERM else 0)
                kills += how == signal.SIGKILL
            lost += steps_in(out)[: len(known)] != known
            progress.to(done, f"steps {len(known)}")
        before = len(steps_in(out))
        with watching(home, said) as process:
            going = _wait(lambda: len(steps_in(out)) >= before + 5, process)
            process.send_signal(signal.SIGTERM)
            ends.append(process.wait(60))
        looks.end()
        prometheus.close()
        last_good = json.loads((out / "status.json").read_text())["last_good"]
        in_place = json.loads((home / "settings.json").read_text())
        text = said.read_text(errors="replace")
        steps = len(steps_in(out))
    for name, value in (
        ("faults", done),
        ("kills", kills),
        ("other ends", len(ends) - kills - 1),
        ("steps measured", steps),
        ("looks at the settings in place", looks.looks),
        ("settings that were not whole or not legal", len(looks.bad)),
        ("answers of the fake Prometheus", prometheus.answered),
        ("tracebacks", text.count("Traceback")),
        ("settings at the end", str(in_place)),
    ):
        verdict.figure(name, value)
    verdict.promise("settings in place are whole and legal at every look", looks.looks > 0 and not looks.bad)
    verdict.promise("no step that was written down is lost", not lost)
    verdict.promise("it measures again when the faults are over", going)
    verdict.figure("exit statuses", str(ends))
    verdict.promise("it ends with 0 on SIGTERM", not any(ends))
    verdict.promise("the last good settings are in place at the end", in_place == last_good)
    verdict.promise("no traceback", "Traceback" not in text)
    if any(ends) or "Traceback" in text:
        print(text[-3000:], file=sys.stderr)
    return verdict.end(given.json)


def _wait(true: Any, process: "subprocess.Popen[bytes]", seconds: float = 90.0) -> bool:
    """Whether it became true in time, while the process runs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        if true():
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    main(run)
