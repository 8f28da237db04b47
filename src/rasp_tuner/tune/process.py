"""One process: measured, and ended with all that it started, after success, after a time limit and after Ctrl-C."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rasp_tuner.errors import TuningStopped

LONGEST_OUTPUT = 1_000_000  # bytes kept, from the end
LAUNCHER = Path(__file__).with_name("launcher.py")
ANY_LAUNCHER = b"/rasp_tuner/tune/launcher.py"  # also that of another installation
MARK = "RASP_TUNE_STUDY"  # environment variable of every run: the study's name
END_S = 10.0  # the launcher's time to end all processes, before it is ended itself
PIPE_BYTES = 1 << 20  # of a pipe's buffer, so that a command rarely waits for its reader
_RSS_UNIT = 1e-6 if sys.platform == "darwin" else 1.024e-3  # MB; ru_maxrss is in bytes there, in KiB elsewhere


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended."""

    exit_code: int  # negative: the signal that ended it
    wall_s: float
    cpu_s: float  # user and system time, with that of the children it waited for
    memory_mb: float  # peak
    stdout: str  # the end of it
    stderr: str
    timed_out: bool
    left_behind: int = 0  # processes that still ran when it had ended; they were ended, too

    def why_failed(self, limit_s: float | None) -> str:
        """Why this run does not count, in words."""
        if self.timed_out:
            return f"timed out after {limit_s:.3g} s"
        if self.exit_code < 0:
            return f"ended by signal {-self.exit_code} ({signal.Signals(-self.exit_code).name})"
        return f"exit code {self.exit_code}"


def run_process(
    words: Sequence[str], *, env: Mapping[str, str] | None = None, limit_s: float | None = None
) -> Finished:
    """Run a command to its end, or to `limit_s`; then all that it has started is ended (launcher.py)."""
    settings = {**os.environ, **(env or {})}
    parts = ["" if limit_s is None else repr(limit_s), str(len(settings)), *(f"{k}={v}" for k, v in settings.items())]
    try:
        job = b"\0".join(_without_nul(text) for text in [*parts, *words])
    except ValueError as reason:
        raise TuningStopped(f"cannot start {words[0]!r}: {reason}") from reason
    job_read, job_write = os.pipe()
    report_read, report_write = os.pipe()
    with open(job_write, "wb") as job_file, open(report_read, "rb") as report_file:  # noqa: PTH123 - descriptors
        try:
            process = subprocess.Popen(  # noqa: S603 - to run the user's command is the point
                [sys.executable, "-I", "-S", str(LAUNCHER), str(job_read), str(report_write)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=[job_read, report_write],
            )
        finally:
            os.close(job_read)
            os.close(report_write)
        with process:
            out, err = (_Tail(pipe.fileno()) for pipe in (process.stdout, process.stderr) if pipe is not None)
            try:
                job_file.write(job)
                job_file.close()
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            except BaseException:  # Ctrl-C, for instance: nothing may run on unseen
                _end(process)
                for tail in (out, err):
                    tail.text()  # read to its end before the pipe is closed under its reader
                raise
            _signal_group(process.pid)  # not reaped yet, so the number is still its own
            process.wait()
            report = report_file.read().decode()
            return _finished(report, process.returncode, out.text(), err.text())


def leftovers(study: str) -> list[int]:
    """Processes that still run for a study, as after kill -9; none where there is no /proc to look into."""
    return sorted(process for process, known in _marked().items() if known == study)


def orphans() -> dict[int, str]:
    """Processes of runs that have ended, with the names of their studies: none of their parents is a launcher."""
    return {process: study for process, study in sorted(_marked().items()) if not _has_launcher(process)}


def _marked() -> dict[int, str]:
    """Processes that were started by runs, with the names of their studies."""
    mark = f"\0{MARK}=".encode()
    found = {}
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            _, marked, rest = (b"\0" + place.read_bytes()).partition(mark)
        except OSError:
            continue  # ended meanwhile, or somebody else's
        if marked:
            found[int(place.parent.name)] = os.fsdecode(rest.partition(b"\0")[0])
    return found


def _has_launcher(process: int) -> bool:
    """Whether a process, or one that it descends from, is a launcher, which ends them all."""
    while process > 1:
        place = Path(f"/proc/{process}")
        try:
            if any(word.endswith(ANY_LAUNCHER) for word in (place / "cmdline").read_bytes().split(b"\0")):
                return True
            process = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return True  # ended meanwhile, or is about to
    return False


def _finished(report: str, launcher_code: int, stdout: str, stderr: str) -> Finished:
    """From the launcher's line; it has none if it was itself ended."""
    if report.startswith("cannot start"):
        raise TuningStopped(report)
    if not report:
        return Finished(launcher_code or -signal.SIGKILL, 0.0, 0.0, 0.0, stdout, stderr, False)
    wall, cpu, peak, status, over, left = report.split()
    return Finished(
        os.waitstatus_to_exitcode(int(status)),
        float(wall),
        float(cpu),
        int(peak) * _RSS_UNIT,
        stdout,
        stderr,
        over == "1",
        int(left),
    )


class _Tail:
    """The end of what comes out of a pipe, read by a thread of its own; the rest is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._parts: deque[bytes] = deque()
        self._kept = 0
        self._descriptor = descriptor
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            _widen(descriptor)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while part := self._next():
            self._parts.append(part)
            self._kept += len(part)
            while self._kept - len(self._parts[0]) >= LONGEST_OUTPUT:
                self._kept -= len(self._parts.popleft())

    def _next(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except OSError:
            return b""  # the pipe was closed here: the study ends, and nobody reads what a run still says

    def text(self) -> str:
        """What was kept, once all is read."""
        self._thread.join(END_S)  # longer only where somebody else's process holds the pipe
        return b"".join(self._parts)[-LONGEST_OUTPUT:].decode(errors="replace")


def _widen(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        return  # beyond what this user may have: the usual size will do


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the launcher to end everything; end its group if it does not."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        _signal_group(process.pid)
        process.wait()


def _signal_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left


def _without_nul(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("an argument or a variable has a character of code 0 in it")
    return data
