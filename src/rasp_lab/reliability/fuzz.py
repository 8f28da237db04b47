"""Bad requests: schemathesis over the OpenAPI document, then random ones of our own. No 5xx, and no state changes.

Every random request is wrong in at least one way, so a 2xx is a failure too. After every thousand the study's view and
the checksum of its export must be what they were, and memory is looked at. With --slow some connections beside them
send a body that never ends, byte by byte: the server must close them.

schemathesis works on a server of its own, since much of what it sends is right; once with names of its own making, once
on a study that exists. It needs the extra `reliability`; --schema 0 does without.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rasp_lab.reliability.bad_requests import ASKED, MAY_BE_CUT, STUDY, BadRequests
from rasp_lab.reliability.harness import (
    ExportedLog,
    Gone,
    Link,
    Progress,
    ServerProcess,
    Verdict,
    create,
    good,
    grow,
    main,
    parser,
    serving,
)

MEMORY_SLACK_MB = 20.0


def state(server: ServerProcess) -> tuple[Any, str]:
    """What must not change: the list of studies, which has every view, and the checksum of the log."""
    link = server.link()
    return good(link.get("/v1/studies")), ExportedLog.of(link, "web").sha256


class SlowBodies:
    """Connections whose body comes byte by byte and never ends."""

    COUNT, PATIENCE_S = 20, 45.0

    def __init__(self, port: int) -> None:
        head = f"POST {STUDY}/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        ways = ["Content-Length: 900000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nfffff\r\n"]
        self._began, self._open = time.monotonic(), [Link(port) for _ in range(self.COUNT)]
        for i, link in enumerate(self._open):
            link.send_raw((head + ways[i % 2]).encode())

    def feed(self) -> int:
        """Send a byte on each; how many are still open."""
        still = []
        for link in self._open:
            with contextlib.suppress(Gone):
                link.send_raw(b" ")
                still.append(link)
        self._open = still
        return len(still)

    def wait(self) -> bool:
        """Whether all are closed in time."""
        while self.feed() and time.monotonic() - self._began < self.PATIENCE_S:
            time.sleep(0.5)
        return not self._open


@dataclass
class KindResult:
    """What became of the requests of one kind."""

    statuses: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{number:,} x {status}" for status, number in sorted(self.statuses.items()))
        return f"{counts}; slowest {self.slowest_ms:.0f} ms"


def bad(verdict: Verdict, count: int, seed: int, *, slow: bool) -> None:
    """Send so many bad requests."""
    kinds: dict[str, KindResult] = {}
    wrong: dict[str, str] = {}
    changed, memory = 0, []
    with serving() as server:
        link, sender = server.link(), server.link(timeout=10.0)
        create(link)
        grow(link, "web", ASKED)
        good(link.post(f"{STUDY}/ask", {"context": {"qps": 1.0}}))  # one stays pending
        maker = BadRequests(seed, good(link.get("/openapi.json")))
        bodies = SlowBodies(server.port) if slow else None
        before = state(server)
        progress = Progress("bad requests", count)
        following = maker.request()
        for i in range(1, count + 1):
            kind, data = following
            result = kinds.setdefault(kind, KindResult())
            started = time.perf_counter()
            with contextlib.suppress(Gone):  # `receive` finds out, too
                sender.send_raw(data)
            following = maker.request()  # while the server works
            try:
                status, raw = sender.receive()
            except Gone as reason:
                status, raw = 0, str(reason).encode()  # bytes that are no HTTP may end in a closed connection
            result.slowest_ms = max(result.slowest_ms, 1e3 * (time.perf_counter() - started))
            if kind in MAY_BE_CUT or status == 0:
                sender.close()  # the body that was promised never comes
            result.statuses[str(status) if status else "closed"] += 1
            fine = (400 <= status < 500 and is_error(raw)) or (status == 0 and kind in MAY_BE_CUT)
            if not fine:
                wrong.setdefault(f"{kind}: {status} {raw[:120]!r}", repr(data[:400]))
            if bodies is not None and i % 200 == 0:
                bodies.feed()
            if i % 1_000 == 0 or i == count:
                memory.append(server.rss_mb())
                now = state(server)
                if now != before:
                    changed += 1
                    before = now
                    print(f"  state changed between {i - 1_000} and {i}", file=sys.stderr)
                progress.to(i, f"{memory[-1]:.0f} MB")
        slow_ended = bodies.wait() if bodies is not None else True
        said = server.errors()
    total = sum((result.statuses for result in kinds.values()), Counter[str]())
    verdict.figure("bad requests", count)
    verdict.figure("of kinds", len(kinds))
    for group in ("4", "5", "closed"):
        number = sum(n for status, n in total.items() if status.startswith(group))
        verdict.figure(f"answered {group}xx" if group != "closed" else "closed", number)
    for kind, result in sorted(kinds.items()):
        verdict.figure(f"  {kind}", str(result))
    third = memory[len(memory) // 3]  # by then all kinds have come often
    verdict.figure("memory after a third, MB", third)
    verdict.figure("memory at the end, MB", memory[-1])
    verdict.figure("looks at which the state had changed", changed)
    verdict.figure("not refused in good form", len(wrong))
    for words, data in list(wrong.items())[:20]:
        print(f"  {words}\n    {data}", file=sys.stderr)
    lines = Counter(line[:100] for line in said.splitlines())
    verdict.figure("server said", "; ".join(f"{n:,} x {line!r}" for line, n in lines.most_common(3)) or "nothing")
    verdict.promise("bad requests: no 5xx", not any(status.startswith("5") for status in total))
    verdict.promise("bad requests: every one is refused with 4xx and an error in the agreed form", not wrong)
    verdict.promise("bad requests: the state never changed", not changed)
    verdict.promise("bad requests: memory does not grow", memory[-1] < third + MEMORY_SLACK_MB)
    verdict.promise("bad requests: bodies without end are closed", slow_ended)
    verdict.promise("bad requests: the server's log has no trace", "Traceback" not in said)


def is_error(raw: bytes) -> bool:
    """Whether the body is {"error": {"code", "message"}}, or OFREP's, or the parser's refusal of what is no HTTP."""
    if raw in (b"Invalid HTTP request received.", b"The request is too long."):
        return True
    try:
        body = json.loads(raw)
        if "errorCode" in body:
            return {"errorCode", "errorDetails", "code"} <= set(body) <= {"errorCode", "errorDetails", "code", "key"}
        error = body["error"]
    except (ValueError, KeyError, TypeError):
        return False
    return {"code", "message"} <= set(error) <= {"code", "message", "field"} and "Traceback" not in error["message"]


def schema(verdict: Verdict, examples: int, seed: int) -> None:
    """Run schemathesis against a server of its own: first with any names, then on the study that is there."""
    checks = "not_a_server_error,content_type_conformance,response_schema_conformance"
    with serving() as server, tempfile.TemporaryDirectory() as home:
        link = server.link()
        create(link)
        grow(link, "web", ASKED)
        for names in ("any", "web"):
            settings = Path(home) / f"{names}.toml"
            settings.write_text('[parameters]\n"path.name" = "web"\n' if names == "web" else "")
            command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run"]
            command += [f"http://127.0.0.1:{server.port}/openapi.json", "--checks", checks, "--seed", str(seed)]
            command += ["--max-examples", str(examples), "--request-timeout", "60", "--suppress-health-check", "all"]
            command += ["--exclude-path-regex", "/live$", "--generation-database", "none", "--warnings", "off"]
            if names == "web":
                command += ["--exclude-method", "DELETE"]
            hooked = {**os.environ, "SCHEMATHESIS_HOOKS": "rasp_lab.reliability.ndjson_hook"}
            done = subprocess.run(command, cwd=home, env=hooked, capture_output=True, text=True, check=False)
            counts = [line.strip() for line in done.stdout.splitlines() if " generated" in line]
            verdict.figure(f"schemathesis, {names} names: test cases", counts[-1] if counts else "none")
            verdict.promise(f"schemathesis, {names} names: no 5xx, answers as described", done.returncode == 0)
            if done.returncode:
                print(done.stdout[-3_000:] + done.stderr[-1_000:], file=sys.stderr)
        said, alive = server.errors(), server.link().get("/readyz")[0] == 200  # the old link has idled out
    verdict.promise("schemathesis: the server lives and its log has no trace", alive and "Traceback" not in said)
    if "Traceback" in said:
        print(said[-3_000:], file=sys.stderr)


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.fuzz --bad 200000 --schema 100")
    args.add_argument("--bad", type=int, default=5_000, help="random bad requests")
    args.add_argument("--schema", type=int, default=10, help="schemathesis examples of each operation; 0: without it")
    args.add_argument("--slow", action="store_true", help="slow bodies beside them; adds up to 45 s")
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    if given.schema and importlib.util.find_spec("schemathesis") is None:
        raise SystemExit("fuzz.py: schemathesis is not installed: pip install -e '.[reliability]', or --schema 0")
    verdict = Verdict("fuzz")
    if given.bad:
        bad(verdict, given.bad, given.seed, slow=given.slow)
    if given.schema:
        schema(verdict, given.schema, given.seed)
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
