"""Bad requests: schemathesis over the OpenAPI document, then random ones of our own. No 5xx, and no state changes.

Every random request is wrong in at least one way, so a 2xx is a failure too. After every thousand the study's view and
the checksum of its export must be what they were. schemathesis works on a server of its own, since much of what it
sends is right; once with names of its own making, once on a study that exists. It needs the extra `reliability`;
--schema 0 does without.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bad_requests import ASKED, STUDY, BadRequests
from harness import HERE, ExportedLog, Gone, Progress, ServerProcess, Verdict, create, good, grow, main, parser, serving


def state(server: ServerProcess) -> tuple[Any, str]:
    """What must not change: the list of studies, which has every view, and the checksum of the log."""
    link = server.link()
    return good(link.get("/v1/studies")), ExportedLog.of(link, "web").sha256


def bad(verdict: Verdict, count: int, seed: int) -> None:
    """Send so many bad requests."""
    maker, statuses, kinds = BadRequests(seed), Counter[str](), Counter[str]()
    wrong: dict[str, str] = {}
    changed = 0
    with serving() as server:
        link, sender = server.link(), server.link(timeout=10.0)
        create(link)
        grow(link, "web", ASKED)
        good(link.post(f"{STUDY}/ask", {"context": {"qps": 1.0}}))  # one stays pending
        before = state(server)
        progress = Progress("bad requests", count)
        for i in range(1, count + 1):
            kind, data = maker.request()
            kinds[kind] += 1
            try:
                sender.send_raw(data)
                status, raw = sender.receive()
            except Gone as reason:
                status, raw = 0, str(reason).encode()  # bytes that are no HTTP may end in a closed connection
            if kind == "too_large" or status == 0:
                sender.close()  # the body that was promised never comes
            statuses[f"{status // 100}xx" if status else "closed"] += 1
            error = status and status < 500 and status >= 400 and is_error(raw)
            if not error:
                wrong.setdefault(f"{kind}: {status} {raw[:120]!r}", repr(data[:400]))
            if i % 1_000 == 0 or i == count:
                now = state(server)
                if now != before:
                    changed += 1
                    before = now
                    print(f"  state changed between {i - 1_000} and {i}", file=sys.stderr)
                progress.to(i, str(dict(statuses)))
        said = server.errors()
    verdict.figure("bad requests", count)
    verdict.figure("of kinds", len(kinds))
    for status, number in sorted(statuses.items()):
        verdict.figure(f"answered {status}", number)
    verdict.figure("looks at which the state had changed", changed)
    verdict.figure("not refused in good form", len(wrong))
    for words, data in list(wrong.items())[:20]:
        print(f"  {words}\n    {data}", file=sys.stderr)
    lines = Counter(line[:100] for line in said.splitlines())
    verdict.figure("server said", "; ".join(f"{n:,} x {line!r}" for line, n in lines.most_common(3)) or "nothing")
    verdict.promise("bad requests: no 5xx", not statuses["5xx"])
    verdict.promise("bad requests: every one is refused with 4xx and an error in the agreed form", not wrong)
    verdict.promise("bad requests: the state never changed", not changed)
    verdict.promise("bad requests: the server's log has no trace", "Traceback" not in said)


def is_error(raw: bytes) -> bool:
    """Whether the body is {"error": {"code", "message"}}, or the parser's own refusal of what is no HTTP."""
    if raw == b"Invalid HTTP request received.":
        return True
    try:
        error = json.loads(raw)["error"]
    except (ValueError, KeyError, TypeError):
        return False
    return {"code", "message"} <= set(error) <= {"code", "message", "field"} and "Traceback" not in error["message"]


def schema(verdict: Verdict, examples: int, seed: int) -> None:
    """Run schemathesis against a server of its own: first with any names, then on the study that is there."""
    python_path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
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
            hooked = {**os.environ, "SCHEMATHESIS_HOOKS": "ndjson_hook", "PYTHONPATH": python_path}
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
    args = parser(__doc__, "python benchmarks/reliability/fuzz.py --bad 200000 --schema 100")
    args.add_argument("--bad", type=int, default=5_000, help="random bad requests")
    args.add_argument("--schema", type=int, default=10, help="schemathesis examples of each operation; 0: without it")
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    if given.schema and importlib.util.find_spec("schemathesis") is None:
        raise SystemExit("fuzz.py: schemathesis is not installed: pip install -e '.[reliability]', or --schema 0")
    verdict = Verdict("fuzz")
    if given.bad:
        bad(verdict, given.bad, given.seed)
    if given.schema:
        schema(verdict, given.schema, given.seed)
    return verdict.end(given.json)


if __name__ == "__main__":
    main(run)
