"""A small process that runs one command, measures it, and ends all that it started; as `python -I -S launcher.py`.

It stands between the tuner and the command for three reasons:

- To the kernel, a process starts out with the memory of the one that started it. Started from a tuner with NumPy in it,
  every small command would seem to need some 40 MB; from here the floor is what a bare interpreter takes.
- On Linux it adopts processes whose parents have ended (a "subreaper"), so that also those that detach are found.
- If the tuner is killed, the kernel tells this process, which then ends the command.

The job comes through one pipe, what was measured goes back through another; docstrings below have their formats.
"""

import ctypes
import errno
import os
import resource
import signal
import sys
import time

GRACE_S = 1.0  # between asking processes to end and ending them
LONGEST_END_S = 5.0  # after which processes that cannot be ended are left
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Interrupted(Exception):
    """The time is over, or the tuner wants an end."""


def main() -> None:
    """Run the job of the file descriptor `argv[1]` and write a line to `argv[2]`.

    The job is NUL-separated: limit in seconds (empty: none), number of variables, NAME=VALUE of each, then words. The
    line is: wall time, CPU time, peak memory, wait status, 1 if the time was over, processes left behind; or an error.
    """
    job, report = int(sys.argv[1]), int(sys.argv[2])
    adopt_orphans()
    limit, count, *rest = _read_all(job).split(b"\0")
    env, words = dict(one.split(b"=", 1) for one in rest[: int(count)]), rest[int(count) :]
    os.set_inheritable(report, False)
    os.environb[b"PATH"] = env.get(b"PATH", os.defpath.encode())  # where the program is looked for
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupt)
    over = 0
    try:
        started = time.perf_counter()
        try:
            pid = os.posix_spawnp(words[0], words, env, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
        except OSError as reason:
            os.write(
                report, f"cannot start {os.fsdecode(words[0])!r}: {os.strerror(reason.errno or errno.EIO)}".encode()
            )
            return
        if limit:
            signal.setitimer(signal.ITIMER_REAL, float(limit))
        try:
            used, status = _waited(os.wait4(pid, 0))
            wall_s = time.perf_counter() - started
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except Interrupted:
            over = 1
            _ignore()
            tell_all(signal.SIGTERM)
            used, status = _wait_or_kill(pid)
            wall_s = time.perf_counter() - started
    finally:
        _ignore()
    left = end_all()
    if over:
        left = 0  # they were asked to end with the command, and took a moment longer
    os.write(report, f"{wall_s} {used} {status} {over} {left}".encode())


def adopt_orphans() -> None:
    """Linux: be the parent of descendants whose parents end, and get a signal when the tuner ends."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def end_all() -> int:
    """End what the command has left behind, politely first; how many processes that were."""
    left, deadline = -1, time.monotonic() + LONGEST_END_S
    polite_until = time.monotonic() + GRACE_S
    told = False
    while _reap() and time.monotonic() < deadline:
        found = descendants()
        if left < 0:
            left = len(found)
        if not found:
            break
        if time.monotonic() >= polite_until:
            tell_all(signal.SIGKILL)
        elif not told:
            tell_all(signal.SIGTERM)
            told = True
        time.sleep(0.01)
    return max(left, 0)


def descendants() -> list[int]:
    """Processes below this one that have not ended; none where there is no /proc."""
    parents: dict[int, int] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - as below
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib would take its time to import
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # ended meanwhile
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)] = int(fields[1])
    own, found = os.getpid(), []
    for pid in parents:
        at: int | None = parents[pid]
        seen = {pid}
        while at is not None and at != own and at not in seen:
            seen.add(at)
            at = parents.get(at)
        if at == own:
            found.append(pid)
    return found


def tell_all(number: int) -> None:
    """A signal to all descendants; without /proc, to the process group, which this process survives."""
    found = descendants()
    for pid in found:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or somebody else's
    if not found and number == signal.SIGTERM:
        os.killpg(0, number)


def _wait_or_kill(pid: int) -> tuple[str, int]:
    """The end of a command that was asked to end."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        ended = os.wait4(pid, os.WNOHANG)
        if ended[0]:
            return _waited(ended)
        time.sleep(0.01)
    tell_all(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return _waited(os.wait4(pid, 0))


def _waited(found: "tuple[int, int, resource.struct_rusage]") -> tuple[str, int]:
    """CPU time and peak memory, and the status, of what `wait4` gave."""
    _, status, used = found
    return f"{used.ru_utime + used.ru_stime} {used.ru_maxrss}", status


def _reap() -> bool:
    """Whether there are children, after those that have ended are gone."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return False
    return True


def _interrupt(*_: object) -> None:
    raise Interrupted


def _ignore() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


if __name__ == "__main__":
    main()
