"""What the tests of `rasp tune` share: the command itself, and a program whose best setting is known."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from rasp_tuner.cli import app
from rasp_tuner.tune import tune
from rasp_tuner.tune.loop import Session

# prints (x - 7)^2 + 1, without noise: nothing about it is timed
AWK = ["awk", "-v", "x={x}", "BEGIN { print 1 + (x - 7) * (x - 7) }"]
OPTIONS = ["--knob", "x=int:0..20", "--default", "x=15", "--metric", r"loss:min=regex:^[0-9.]+", "--name", "parabola"]


def rasp(*words, cwd, code=0):
    """`rasp tune` in this process, to its end; `code` None: any verdict will do."""
    path, handler = list(sys.path), signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.chdir(cwd):
            done = CliRunner().invoke(app, ["tune", *map(str, words)])
    finally:
        sys.path[:] = path
        signal.signal(signal.SIGTERM, handler)
    assert done.exit_code in ((0, 3, 4) if code is None else (code,)), (done.exit_code, done.stdout, done.stderr)
    return done


def session_of(tmp_path, monkeypatch, work, steps, **more):
    """The session of a study that was run, as it stood at its end."""
    kept = []
    begin = Session.__init__
    monkeypatch.setattr(Session, "__init__", lambda self, *given: (kept.append(self), begin(self, *given))[1])
    tune(work, quiet=True, steps=steps, final=0, out=tmp_path / "s", **more)
    return kept[0]


def start(*words, cwd):
    """Start `rasp tune`, as from a terminal: tests that run in the background inherit that Ctrl-C is ignored."""
    command = ["env", "--default-signal=INT", sys.executable, "-m", "rasp_tuner", "tune", *map(str, words)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def entries(folder, kind=None):
    lines = Path(folder, "journal.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [entry for entry in found if kind in (None, entry["kind"])]


def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
