"""One process: started in a session of its own, measured, and ended with its children if it takes too long."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rasp_tuner.errors import TuningStopped

LONGEST_OUTPUT = 1_000_000  # bytes kept, from the end
LAUNCHER = Path(__file__).with_name("launcher.py")
MARK = "RASP_TUNE_STUDY"  # environment variable of every run: the study's name
GRACE_S = 1.0  # between asking a process to end and ending it
_RSS_UNIT = 1e-6 if sys.platform == "darwin" else 1.024e-3  # MB; ru_maxrss is in bytes there, in KiB elsewhere


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended."""

    exit_code: int  # negative: the signal that ended it
    wall_s: float
    cpu_s: float  # user and system time, with that of the children it waited for
    memory_mb: float  # peak
    stdout: str
    stderr: str
    timed_out: bool

    def why_failed(self, limit_s: float | None) -> str:
        """Why this run does not count, in words."""
        if self.timed_out:
            return f"timed out after {limit_s:.3g} s"
        if self.exit_code < 0:
            return f"ended by signal {-self.exit_code} ({signal.Signals(-self.exit_code).name})"
        return f"exit code {self.exit_code}"


def run_process(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    limit_s: float | None = None,
    exact_memory: bool = False,
) -> Finished:
    """Run a command to its end, or to `limit_s`; then it is ended together with all that it has started.

    Without `exact_memory`, small commands seem to need as much memory as this process (launcher.py says why).
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as report:
        if exact_memory:
            words = [sys.executable, "-I", "-S", str(LAUNCHER), str(report.fileno()), *words]
        started = time.perf_counter()
        process = _start(words, env, (out, err, report))
        watchdog = _Watchdog(process.pid, limit_s)
        try:
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - started
        except BaseException:  # Ctrl-C, for instance: nothing may run on unseen
            _end_group(process.pid)
            process.wait()
            raise
        finally:
            watchdog.stop()
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait again
        if watchdog.fired:
            _signal_group(process.pid, signal.SIGKILL)  # children that ignored the polite signal
        exit_code, cpu_s, peak = process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss
        if reported := _tail(report).split():
            wall_s, cpu_s, peak = float(reported[0]), float(reported[1]), int(reported[2])
            exit_code = os.waitstatus_to_exitcode(int(reported[3]))
        return Finished(
            exit_code,
            wall_s,
            cpu_s,
            peak * _RSS_UNIT,
            _tail(out),
            _tail(err),
            watchdog.fired,
        )


def leftovers(study: str) -> list[int]:
    """Processes that still run for a study, as after kill -9; none where there is no /proc to look into."""
    mark = f"\0{MARK}={study}\0".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in b"\0" + place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return sorted(found)


def _start(
    words: Sequence[str], env: Mapping[str, str] | None, files: tuple[IO[bytes], IO[bytes], IO[bytes]]
) -> subprocess.Popen[bytes]:
    out, err, report = files
    try:
        return subprocess.Popen(  # noqa: S603 - to run the user's command is the point
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **(env or {})},
            start_new_session=True,
            pass_fds=[report.fileno()] if str(LAUNCHER) in words else [],
        )
    except (OSError, ValueError) as reason:
        raise TuningStopped(f"cannot start {words[0]!r}: {reason}") from reason


class _Watchdog:
    """Ends a process group after a time, from another thread, so that the wait itself is exact."""

    def __init__(self, pid: int, limit_s: float | None) -> None:
        self.fired = False
        self._pid = pid
        self._lock = threading.Lock()
        self._ended = False
        self._timer = None if limit_s is None else threading.Timer(limit_s, self._bite)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        with self._lock:
            self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _bite(self) -> None:
        with self._lock:
            if self._ended:
                return
            self.fired = True
            _signal_group(self._pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and not self._ended:
            time.sleep(0.02)
        with self._lock:
            if not self._ended:
                _signal_group(self._pid, signal.SIGKILL)


def _end_group(pid: int) -> None:
    """Ask the group to end, then end it."""
    _signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.02)
    _signal_group(pid, signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LONGEST_OUTPUT))
    return file.read().decode(errors="replace")
