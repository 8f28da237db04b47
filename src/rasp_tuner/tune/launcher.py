"""A small process that starts a command and reports its peak memory; runs by itself, as `python -I -S launcher.py`.

To the kernel, a process starts out with the memory of the one that started it. Started from a tuner with NumPy in it,
every small command would seem to need some 40 MB; from here the floor is what a bare interpreter takes.
"""

import os
import sys
import time


def main() -> None:
    """Run `argv[2:]`, then write wall time, CPU time, peak memory and wait status to the file descriptor `argv[1]`."""
    report, words = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(report, False)
    started = time.perf_counter()
    try:
        pid = os.posix_spawnp(words[0], words, os.environ)
    except OSError as reason:
        sys.stderr.write(f"cannot start {words[0]!r}: {reason}\n")
        raise SystemExit(127) from reason
    _, status, used = os.wait4(pid, 0)
    wall_s = time.perf_counter() - started
    os.write(report, f"{wall_s} {used.ru_utime + used.ru_stime} {used.ru_maxrss} {status}".encode())


if __name__ == "__main__":
    main()
